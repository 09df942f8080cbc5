# SPDX-License-Identifier: Apache-2.0
"""The tables on the terminal and the file of figures."""

import math
import os
import statistics

import counts
import matrix
import report  # of ../loop
from servers import BARE, OUR_EPOLL, OUR_URING, PEERS, is_ours

ALL, SMALL, BULK = "all", "64 B and 1 KiB", "16 KiB, P=16"
GROUPS = {
    ALL: lambda cell: True,
    SMALL: lambda cell: cell.size <= 1024,
    BULK: lambda cell: cell.size == 16384 and cell.pipeline == 16,
    "C=1": lambda cell: cell.connections == 1,
}


def ratios(results, scenario, peer, other=BARE, row="cpu_ns"):
    """The peer's over the other's, round by round."""
    pairs = zip(results.rounds(scenario, peer, row), results.rounds(scenario, other, row))
    return [one / two for one, two in pairs if two > 0]


def mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def group_ratio(results, cells, peer, other=BARE):
    """(geometric mean over the cells of the median ratio, the same of each round), or None if one of the
    cells is missing: a mean over other cells says something else."""
    table = [ratios(results, matrix.scenario(cell), peer, other) for cell in cells]
    if not table or not all(table):
        return None
    return mean([statistics.median(values) for values in table]), [mean(column) for column in zip(*table)]


def measured_cells(results, pace_cells):
    """The cells that bare has figures for."""
    return [cell for cell in pace_cells if results.rounds(matrix.scenario(cell), BARE, "cpu_ns")]


def preamble(peers, missing, left_out, modes, quick):
    yield "missing: " + ("; ".join(f"{name} ({why})" for name, why in missing.items()) or "none")
    if left_out:
        yield "left out by --only: " + " ".join(left_out)
    if "netty" in peers:
        yield ("netty is the NIO transport, without Debian's absent native library; of its CPU only the loop's "
               "thread is counted")
    busy = report.busy_share()
    note = "; figures taken now say little" if busy > 0.1 else ""
    yield f"{len(os.sched_getaffinity(0))} cores, {busy:.0%} busy before the run{note}"
    if quick:
        yield "quick: few cells, short windows, for the eye only"
    yield "measuring: " + " ".join(modes)


def spread(values, digits=2):
    text = f"{statistics.median(values):.{digits}f}"
    if len(values) > 1:
        text += f" ({min(values):.{digits}f}..{max(values):.{digits}f})"
    return text


def label(cell):
    return [str(cell.connections), str(cell.size), str(cell.pipeline)]


def print_cells(results, peers, cells, refused):
    print("\n1. Server CPU per message: bare in ns, the others as ratio to it within a round, median (lowest..highest)")
    if refused:
        print(f"  no ratios: {refused}; all in ns")
    others = [peer for peer in peers if peer != BARE]
    rows = []
    for cell in cells:
        name = matrix.scenario(cell)
        line = label(cell) + [spread(results.rounds(name, BARE, "cpu_ns"), 0)]
        for peer in others:
            values = results.rounds(name, peer, "cpu_ns") if refused else ratios(results, name, peer)
            line.append(spread(values, 0 if refused else 2) if values else "-")
        rows.append(line)
    report.print_table(["C", "bytes", "P", BARE, *others], rows, left=())
    if not refused:
        print_means(results, others, cells)
        print_engines(results, cells)

    print("\n2. Messages per second, thousands (for the eye: the load takes about as much CPU as bare)")
    print_plain(results, peers, cells, lambda cell: f"{cell('rate') / 1000:.1f}")
    print("\n3. Delay p50 / p99, µs (for the eye)")
    print_plain(results, peers, cells, lambda cell: f"{cell('p50_us'):.0f} / {cell('p99_us'):.0f}")


def print_means(results, peers, cells):
    groups = {title: [cell for cell in cells if chosen(cell)] for title, chosen in GROUPS.items()}
    groups = {title: inside for title, inside in groups.items() if inside}
    print("\n  Geometric means over cells")
    rows = []
    for peer in peers:
        found = [group_ratio(results, inside, peer) for inside in groups.values()]
        rows.append([peer, *(f"{f[0]:.3f} ({min(f[1]):.2f}..{max(f[1]):.2f})" if f else "-" for f in found)])
    report.print_table(["", *(f"{title} ({len(inside)})" for title, inside in groups.items())], rows)


def print_engines(results, cells):
    """Where our io_uring takes less CPU than our epoll, where not; nothing unless both were measured."""
    found = {cell: ratios(results, matrix.scenario(cell), OUR_URING, OUR_EPOLL) for cell in cells}
    medians = {cell: statistics.median(values) for cell, values in found.items() if values}
    if not medians:
        return
    print(f"\n  {OUR_URING} as ratio to {OUR_EPOLL} within a round, C/bytes/P, lowest first")
    for title, chosen in (("cheaper", lambda ratio: ratio < 1), ("not cheaper", lambda ratio: ratio >= 1)):
        inside = sorted((ratio, cell) for cell, ratio in medians.items() if chosen(ratio))
        shown = ", ".join(f"{'/'.join(label(cell))} {ratio:.2f}" for ratio, cell in inside)
        print(f"  {title} in {len(inside)} of {len(medians)} cells: {shown or 'none'}")


def print_plain(results, peers, cells, show):
    rows = []
    for cell in cells:
        name = matrix.scenario(cell)
        rows.append(label(cell) + [
            show(lambda row, peer=peer: results.median(name, peer, row))
            if results.rounds(name, peer, "rate") else "-" for peer in peers])
    report.print_table(["C", "bytes", "P", *peers], rows, left=())


def print_connect(results, peers, refused):
    print(f"\n4. Connect, one 64-byte echo, close by the client, {matrix.CONNECT_SLOTS} at a time")
    rows = []
    for peer in peers:
        cpu = results.rounds(matrix.CONNECT, peer, "cpu_ns")
        if not cpu:
            continue
        values = ratios(results, matrix.CONNECT, peer)
        rate = results.median(matrix.CONNECT, peer, "rate")
        rows.append([peer, spread([ns / 1000 for ns in cpu], 1),
                     "-" if refused or not values else spread(values), f"{rate / 1000:.1f}"])
    report.print_table(["", "CPU µs/connection", "ratio to bare", "k/s"], rows)


def print_counts(results, peers):
    shapes, calls_of = list(counts.SHAPES), list(counts.CALL_SHAPES)
    titles = ["C=1 P=1", "C=16 P=1", "C=16 P=16"]
    if "instructions" in results.values:
        print("\n5. User instructions per 64-byte message (callgrind)")
        print_counted(results, peers, "instructions", shapes, titles, 1)
    if any(scenario.startswith("calls_") for scenario in results.values):
        print("\n5. System calls per 64-byte message (strace)")
        rows = []
        for peer in peers:
            totals = [results.median(f"calls_{shape}", peer, "total") for shape in calls_of]
            if all(total is None for total in totals):
                continue
            calls = results.values.get("calls_c1_p1", {}).get(peer, {})
            named = sorted(((name, values[0]) for name, values in calls.items() if name != "total"),
                           key=lambda call: -call[1])
            rows.append([peer, *("-" if t is None else f"{t:.2f}" for t in totals),
                         "  ".join(f"{name} {count:.2f}" for name, count in named)])
        report.print_table(["", *titles, "C=64 P=1", "of C=1 P=1"], rows, left=(0, 5))
    if "allocations" in results.values:
        print("\n6. Allocations per 64-byte message in steady state")
        print_counted(results, peers, "allocations", ["c16_p1", "c16_p16"], titles[1:], 4)
    if "memory" in results.values:
        print(f"\n7. Memory of the server with {counts.IDLE_CONNECTIONS:,} idle connections, one message each")
        print_counted(results, peers, "memory", ["before_mib", "after_mib", "bytes"],
                      ["before MiB", "after MiB", "bytes/connection"], 1)


def print_counted(results, peers, scenario, columns, titles, digits):
    rows = []
    for peer in peers:
        values = [results.median(scenario, peer, column) for column in columns]
        if any(value is not None for value in values):
            rows.append([peer, *("-" if v is None else f"{v:.{digits}f}" for v in values)])
    report.print_table(["", *titles], rows)


def print_tables(results, peers, cells, refused):
    if cells:
        print_cells(results, peers, cells, refused)
    if matrix.CONNECT in results.values:
        print_connect(results, peers, refused)
    print_counts(results, peers)


def write_tsv(results, path, refused, measure=BARE):
    with open(path, "w") as out:
        print("scenario", "row", "peer", "median", "min", "max", f"ratio_to_{measure}", "rounds", sep="\t", file=out)
        for scenario, table in results.values.items():
            for peer, rows in table.items():
                for row, values in rows.items():
                    found = [] if refused or row != "cpu_ns" else ratios(results, scenario, peer, measure)
                    ratio = f"{statistics.median(found):.4g}" if found else ""
                    print(scenario, row, peer, f"{statistics.median(values):.6g}", f"{min(values):.6g}",
                          f"{max(values):.6g}", ratio, ",".join(f"{v:.6g}" for v in values), sep="\t", file=out)


def order(peers):
    """Ours first, then as in PEERS."""
    return sorted(peers, key=lambda peer: -1 if is_ours(peer) else list(PEERS).index(peer))
