# SPDX-License-Identifier: Apache-2.0
"""The bars that this benchmark must show, each with its figures: holds, or does not hold.

Only the modes that ran are judged. Ratios are taken round by round, beside what ran in the same round.
"""

import statistics

import counts
import matrix
import tables
from servers import BARE, OUR_EPOLL, OUR_URING, is_ours

NOT_MEASURED = "not measured"
INSTRUCTIONS = "user instructions per message (C=16 P=1)"
CALLS_NOISE = 0.05  # strace counts to about 0.02
PEERS_TO_BEAT = ("asio", "libuv", "libevent", "netty")  # bare512 and uring are limits, not peers
RING_MIB = 1.0  # the ring, its queues and the receive buffers that wait


def extent(cells, group):
    """How much of the group was measured; a quick run has fewer cells."""
    whole = sum(map(tables.GROUPS[group], matrix.CELLS))
    return f"{len(cells)} cells" if len(cells) == whole else f"{len(cells)} of {whole} cells"


def group_bar(results, text, ours, measured, group, limit, other=BARE):
    cells = list(filter(tables.GROUPS[group], measured))
    found = tables.group_ratio(results, cells, ours, other)
    text = f"{text}, mean of {extent(cells, group)}"
    if found is None:
        return text, None, NOT_MEASURED
    mean, rounds = found
    return text, mean <= limit, (
        f"{mean:.3f} ({min(rounds):.2f}..{max(rounds):.2f}) of {other}'s <= {limit:g}")


def peers_bar(results, ours, cells, peers):
    """Judged against the peer that comes out worst for us; open as long as one that took part has no figure."""
    text = f"CPU per message not above any peer's, mean of {extent(cells, tables.ALL)}"
    shown, worst, complete = [], 0, True
    for peer in (p for p in PEERS_TO_BEAT if p in peers):
        found = tables.group_ratio(results, cells, ours, peer)
        shown.append(f"{found[0]:.3f} of {peer}'s" if found else f"{peer} {NOT_MEASURED}")
        worst = max(worst, found[0]) if found else worst
        complete = complete and found is not None
    if not shown:
        return text, None, NOT_MEASURED
    return text, False if worst > 1 else True if complete else None, f"{', '.join(shown)}; <= 1"


def ratio_bar(results, text, ours, scenario, other, limit):
    values = tables.ratios(results, scenario, ours, other)
    if not values:
        return text, None, NOT_MEASURED
    return text, statistics.median(values) <= limit, f"{tables.spread(values)} of {other}'s <= {limit:g}"


def value_bar(results, text, ours, scenario, row, limit, digits=0):
    value = results.median(scenario, ours, row)
    if value is None:
        return text, None, NOT_MEASURED
    return text, value <= limit, f"{value:.{digits}f} <= {limit:g}"


def calls_bar(results, ours):
    shown, good = [], True
    for shape in counts.SHAPES:
        mine = results.median(f"calls_{shape}", ours, "total")
        bare = results.median(f"calls_{shape}", BARE, "total")
        if mine is None or bare is None:
            continue
        good = good and mine <= bare + CALLS_NOISE
        shown.append(f"{shape} {mine:.2f} beside {bare:.2f}")
    return "system calls per message no more than bare's", good if shown else None, "; ".join(shown) or NOT_MEASURED


def bars(results, ours, peers, cells, modes):
    if "cells" in modes:
        yield group_bar(results, "CPU per message", ours, cells, tables.ALL, 0.97)
        yield peers_bar(results, ours, cells, peers)
        yield group_bar(results, "CPU per message, 64 B and 1 KiB", ours, cells, tables.SMALL, 1.02)
        yield group_bar(results, "CPU per message, 16 KiB pipelined", ours, cells, tables.BULK, 1, "libuv")
    if "instructions" in modes:
        yield value_bar(results, INSTRUCTIONS, ours, "instructions", "c16_p1", 328)
        yield calls_bar(results, ours)
    if "allocations" in modes:
        for shape, name in (("c16_p1", "C=16 P=1"), ("c16_p16", "C=16 P=16")):
            yield value_bar(results, f"no allocation per message ({name})", ours, "allocations", shape, 0.0005, 4)
    if "memory" in modes:
        yield value_bar(results, "bytes per idle connection", ours, "memory", "bytes", 512)
    if "connect" in modes:
        yield ratio_bar(results, "CPU of connect, echo, close", ours, matrix.CONNECT, "libuv", 1)


def goals(results, ours, cells, modes):
    crowd = matrix.Cell(1000, 16384, 16)
    if "cells" in modes:
        limit = 0.92 if ours.endswith("-uring") else 1
        yield group_bar(results, "CPU per message, 64 B and 1 KiB", ours, cells, tables.SMALL, limit)
    if crowd in cells:
        yield ratio_bar(results, "CPU per message, 16 KiB pipelined, 1000 connections", ours,
                        matrix.scenario(crowd), BARE, 0.43)
    if "instructions" in modes:
        yield value_bar(results, INSTRUCTIONS, ours, "instructions", "c16_p1", 200)
    if "memory" in modes:
        yield value_bar(results, "bytes per idle connection", ours, "memory", "bytes", 250)
    if "connect" in modes:
        yield ratio_bar(results, "CPU of connect, echo, close", ours, matrix.CONNECT, BARE, 1)


def each_bar(results, text, ours, cells, other, limit):
    """Judged by the cell that comes out worst; open as long as one has no figure, as in a quick run."""
    shown, worst, complete = [], 0, True
    for cell in cells:
        values = tables.ratios(results, matrix.scenario(cell), ours, other)
        shown.append(f"C={cell.connections} {tables.spread(values) if values else NOT_MEASURED}")
        worst = max(worst, statistics.median(values)) if values else worst
        complete = complete and bool(values)
    return text, False if worst > limit else True if complete else None, (
        f"{', '.join(shown)}; each <= {limit:g} of {other}'s")


def idle_bar(results):
    text = f"memory with idle connections no more than {OUR_EPOLL}'s and {RING_MIB} MiB"
    mine = results.median("memory", OUR_URING, "after_mib")
    other = results.median("memory", OUR_EPOLL, "after_mib")
    if mine is None or other is None:
        return text, None, NOT_MEASURED
    return text, mine <= other + RING_MIB, f"{mine:.1f} MiB beside {other:.1f}"


def ring_bars(results, modes):
    """What io_uring is for: it must pay where messages are small, and cost little elsewhere."""
    if "cells" in modes:
        small = [cell for cell in matrix.CELLS if cell.size == 64 and cell.pipeline == 1 and cell.connections > 1]
        yield each_bar(results, "CPU per message, 64 B, P=1", OUR_URING, small, BARE, 0.92)
    if "instructions" in modes:
        yield value_bar(results, "system calls per message (C=64 P=1)", OUR_URING, "calls_c64_p1", "total", 0.15, 3)
    if "cells" in modes:
        bulk = list(filter(tables.GROUPS[tables.BULK], matrix.CELLS))
        yield each_bar(results, "CPU per message, 16 KiB pipelined", OUR_URING, bulk, OUR_EPOLL, 1.15)
    if "memory" in modes:
        yield idle_bar(results)


def print_lines(title, lines):
    for number, (text, holds, figures) in enumerate(lines):
        if number == 0:
            print(f"\n{title}")
        verdict = {True: "holds", False: "does not hold", None: "?"}[holds]
        print(f"  {verdict:<14}{text}: {figures}")


def print_bars(results, peers, cells, modes, refused):
    """Bars on ratios to bare, and on all that was timed beside it, fall away when bare is not bare."""
    mine = [peer for peer in peers if is_ours(peer)]
    if not mine:
        print("\nBars: not judged without millrace")
        return
    if refused:
        print(f"\nBars: no ratios are judged: {refused}")
        modes = [mode for mode in modes if mode not in ("cells", "connect")]
        cells = []
    for ours in mine:
        print_lines(f"Bars, {ours}", bars(results, ours, peers, cells, modes))
        print_lines(f"Goals, {ours}", goals(results, ours, cells, modes))
    if OUR_EPOLL in mine and OUR_URING in mine:
        print_lines(f"Bars, {OUR_URING} beside {OUR_EPOLL}", ring_bars(results, modes))
