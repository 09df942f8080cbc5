# SPDX-License-Identifier: Apache-2.0
"""The tables on the terminal and the file of figures."""

import collections
import os
import statistics
import time

from harness import OURS, PEERS

Column = collections.namedtuple("Column", "row title better digits")
Section = collections.namedtuple("Section", "scenario title columns note")

POSTS = [
    Column("rate_mps", "M tasks/s", "high", 1),
    Column("cpu_ns", "CPU ns/task", "low", 1),
    Column("cpu_loop_ns", "of it loop", None, 1),
    Column("cpu_producers_ns", "posting", None, 1),
    Column("cpu_waiting_ns", "(waiting)", None, 1),
    Column("delay_p50_us", "delay p50 µs", "low", 1),
    Column("delay_p99_us", "p99 µs", None, 1),
]
RATIO_NAMES = {"rate_mps": "rate", "trip_p50_us": "p50", "spin_p50_us": "p50", "late_p50_us": "p50", "post": "post", "post_ns": "ns",
               "timer": "timer", "task_ns": "ns", "unstarted_bytes": "unused", "started_bytes": "started"}
SECTIONS = [
    Section("posts1", "1. Posts, 1 producer, at most 8192 outstanding", POSTS,
            "CPU is loop plus posting; what producers burn waiting for room stands apart. Delay: from post to run."),
    Section("posts2", "1. Posts, 2 producers on one core", POSTS, None),
    Section("awake", "2. Post to a loop that is awake", [Column("post_ns", "ns/post", "low", 1)],
            "Wall time of the caller while the loop is inside a task."),
    Section("asleep", "3. Post to a sleeping loop", [
        Column("trip_p50_us", "to run p50 µs", "low", 1), Column("trip_p99_us", "p99 µs", None, 1),
        Column("call_p50_us", "call p50 µs", "low", 1), Column("call_p99_us", "p99 µs", None, 1)], None),
    Section("calls", "3. System calls per post to a sleeping loop (strace, both sides)", [], None),
    Section("burst", "3. 64 posts to a sleeping loop (strace)", [Column("wakeups", "wake-ups", None, 2)], None),
    Section("idle", "3. An idle loop without a timer, 1 s", [Column("calls", "system calls", None, 0)], None),
    Section("self", "4. A task that posts itself", [
        Column("task_ns", "ns/task", "low", 1), Column("task_cpu_ns", "CPU ns/task", "low", 1)], None),
    Section("timers", "5. Timers, 1,000,000 armed (1 to 60 s), 90 % cancelled at random", [
        Column("schedule_ns", "schedule CPU ns", "low", 0), Column("cancel_ns", "cancel CPU ns", "low", 0),
        Column("sum_ns", "sum", "low", 0)], "Allocating and freeing included; asio's aborted handlers too."),
    Section("lateness", "5. Lateness of 10,000 timers within 1 s", [
        Column("late_p50_us", "late p50 µs", "low", 1), Column("late_p99_us", "p99 µs", None, 1)],
        "libuv and libevent count from a cached clock and fire early (negative); Netty NIO in whole milliseconds."),
    Section("pingpong", "6. Round trip between two loops", [
        Column("trip_p50_us", "p50 µs", "low", 1), Column("trip_p99_us", "p99 µs", None, 1)], None),
    Section("pingpong_spin", "6. The same, spinning before sleep", [
        Column("spin_p50_us", "p50 µs", "low", 1), Column("spin_p99_us", "p99 µs", None, 1)], None),
    Section("instructions", "7. User instructions, driven by hand (callgrind)", [
        Column("post", "per post and run", "low", 0), Column("timer", "per schedule and cancel", "low", 0)], None),
    Section("memory", "8. Resident bytes per idle loop", [
        Column("unstarted_bytes", "one of 1000 unused", "low", 0), Column("group_bytes", "of a group of 64", None, 0),
        Column("started_bytes", "started, with thread", "low", 0)], None),
    Section("allocations", "9. Allocations in steady state", [Column("per_post", "per post", None, 4)], None),
]


def busy_share(seconds=0.5):
    """How much of the machine others are using right now."""
    def sample():
        with open("/proc/stat") as stat:
            fields = [int(f) for f in stat.readline().split()[1:]]
        return sum(fields), fields[3] + fields[4]

    total, idle = sample()
    time.sleep(seconds)
    total2, idle2 = sample()
    return 1 - (idle2 - idle) / max(1, total2 - total)


def preamble(peers, missing, options):
    if missing:
        yield "missing: " + "; ".join(f"{name} ({why})" for name, why in missing.items())
    left_out = [name for name in PEERS if name not in peers and name not in missing]
    if left_out:
        yield "left out by --only: " + " ".join(left_out)
    if "netty" in peers:
        yield "netty is the NIO loop: Debian's package has no native epoll library; its collector's and compiler's CPU is not counted"
    busy = busy_share()
    note = "; figures taken now say little" if busy > 0.1 else ""
    yield f"{len(os.sched_getaffinity(0))} cores, {busy:.0%} busy before the run{note}"
    if options.quick:
        yield "quick: one short round, for the eye only"


def number(value, digits):
    return f"{value:.{digits}f}"


def cell(values, digits):
    if not values:
        return "-"
    text = number(statistics.median(values), digits)
    if len(values) > 1:
        text += f" ({number(min(values), digits)}..{number(max(values), digits)})"
    return text


def best_peer(results, scenario, column):
    """The best figure among the peers, ours and the floor not being any."""
    if column.better is None:
        return None
    medians = [results.median(scenario, peer, column.row) for peer in results.values.get(scenario, {})
               if peer not in (OURS, "bare")]
    medians = [m for m in medians if m is not None and m > 0]  # a timer that fires early is not the best one
    return (max if column.better == "high" else min)(medians) if medians else None


def print_table(header, rows, left=(0,)):
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    for line in [header, *rows]:
        print("  " + "  ".join(text.ljust(width) if i in left else text.rjust(width)
                               for i, (text, width) in enumerate(zip(line, widths))))


def print_tables(results, peers):
    for section in SECTIONS:
        table = results.values.get(section.scenario)
        if not table:
            continue
        print(f"\n{section.title}")
        if section.note:
            print(f"  {section.note}")
        if section.scenario == "calls":
            print_calls(table)
            continue
        header, rows = ["", ], []
        ratios = [c for c in section.columns if c.better and best_peer(results, section.scenario, c)]
        header += [c.title for c in section.columns] + [f"{RATIO_NAMES.get(c.row, c.title.split()[0])}/best" for c in ratios]
        for peer in (p for p in PEERS if p in table):
            line = [peer] + [cell(table[peer].get(c.row), c.digits) for c in section.columns]
            for column in ratios:
                value = results.median(section.scenario, peer, column.row)
                best = best_peer(results, section.scenario, column)
                line.append("-" if value is None or value <= 0 else f"{value / best:.2f}")
            rows.append(line)
        print_table(header, rows)


def print_calls(table):
    rows = []
    for peer in (p for p in PEERS if p in table):
        calls = {name: values[0] for name, values in table[peer].items() if name != "total"}
        detail = "  ".join(f"{name} {count:.2f}" for name, count in sorted(calls.items(), key=lambda c: -c[1]))
        rows.append([peer, f"{table[peer]['total'][0]:.2f}", detail])
    print_table(["", "total", "by name"], rows, left=(0, 2))


def write_tsv(results, peers, path):
    columns = {(s.scenario, c.row): c for s in SECTIONS for c in s.columns}
    with open(path, "w") as out:
        print("scenario", "row", "peer", "median", "min", "max", "ratio_to_best_peer", "rounds", sep="\t", file=out)
        for scenario, table in results.values.items():
            for peer, rows in table.items():
                for row, values in rows.items():
                    median = statistics.median(values)
                    column = columns.get((scenario, row))
                    best = best_peer(results, scenario, column) if column else None
                    ratio = f"{median / best:.4g}" if best else ""
                    print(scenario, row, peer, f"{median:.6g}", f"{min(values):.6g}", f"{max(values):.6g}", ratio,
                          ",".join(f"{v:.6g}" for v in values), sep="\t", file=out)
