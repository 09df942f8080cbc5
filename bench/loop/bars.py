# SPDX-License-Identifier: Apache-2.0
"""The bars that this benchmark must show, each with its figures: holds, or does not hold.

Ratios are taken round by round, beside what ran in the same round; the median of them is judged.
"""

import statistics

from harness import OURS

WAITS = {"epoll_wait", "epoll_pwait", "epoll_pwait2"}


def ratios(results, scenario, row, peer):
    """Ours over the peer's, round by round."""
    pairs = zip(results.rounds(scenario, OURS, row), results.rounds(scenario, peer, row))
    return [ours / theirs for ours, theirs in pairs if theirs > 0]


def against_peers(results, scenario, row, peers, worst):
    """(median ratio, all ratios, peer) against the peer that comes out worst for us, or None."""
    found = []
    for peer in peers:
        values = ratios(results, scenario, row, peer)
        if values and peer != OURS:
            found.append((statistics.median(values), values, peer))
    return worst(found) if found else None


def spread(values):
    return f"{statistics.median(values):.2f}" + (f" ({min(values):.2f}..{max(values):.2f})" if len(values) > 1 else "")


def ratio_bar(results, text, scenario, row, limit, peers, high=False):
    worst = against_peers(results, scenario, row, peers, min if high else max)
    if worst is None:
        return text, None, "not measured"
    median, values, peer = worst
    ours = results.median(scenario, OURS, row)
    theirs = results.median(scenario, peer, row)
    holds = median >= limit if high else median <= limit
    sign = ">=" if high else "<="
    return text, holds, f"{ours:.4g} beside {peer}'s {theirs:.4g}: {spread(values)} {sign} {limit:g}"


def value_bar(results, text, scenario, row, limit, high=False):
    value = results.median(scenario, OURS, row)
    if value is None:
        return text, None, "not measured"
    holds = value >= limit if high else value <= limit
    return text, holds, f"{value:.4g} {'>=' if high else '<='} {limit:g}"


def calls_bar(results):
    text = "a post to a sleeping loop makes the system calls of bare eventfd and epoll"

    def calls(peer):
        rows = results.values.get("calls", {}).get(peer)
        if not rows:
            return None
        merged = {}
        for name, values in rows.items():
            if name != "total":
                key = "epoll_wait" if name in WAITS else name
                merged[key] = merged.get(key, 0) + values[0]
        return merged

    ours, bare = calls(OURS), calls("bare")
    if ours is None or bare is None:
        return text, None, "not measured"
    same = all(abs(ours.get(name, 0) - bare.get(name, 0)) < 0.05 for name in set(ours) | set(bare))

    def show(table):
        return " ".join(f"{name} {count:.2f}" for name, count in sorted(table.items()))

    return text, same, f"{show(ours)} beside {show(bare)}"


def spin_bar(results):
    text = "spinning cuts the round trip between two loops at least in half"
    asleep = results.rounds("pingpong", OURS, "trip_p50_us")
    spinning = results.rounds("pingpong_spin", OURS, "spin_p50_us")
    values = [s / a for s, a in zip(spinning, asleep)]
    if not values:
        return text, None, "not measured"
    return text, statistics.median(values) <= 0.5, (
        f"{statistics.median(spinning):.4g} µs beside {statistics.median(asleep):.4g} µs: {spread(values)} <= 0.5")


def bars(results):
    posting = [p for p in results.values.get("posts1", {}) if p != OURS]
    timed = [p for p in results.values.get("timers", {}) if p != OURS]
    for producers in (1, 2):
        scenario, who = f"posts{producers}", f"{producers} producer{'s' if producers > 1 else ''}"
        yield ratio_bar(results, f"posts per second ahead of every peer, {who}", scenario, "rate_mps", 1, posting, high=True)
        yield ratio_bar(results, f"CPU per task ahead of every peer, {who}", scenario, "cpu_ns", 1, posting)
        yield ratio_bar(results, f"delay from post to run (p50) no worse than any peer's, {who}", scenario, "delay_p50_us", 1, posting)
    yield value_bar(results, "no allocation per post in steady state", "allocations", "per_post", 0)
    yield ratio_bar(results, "schedule plus cancel in at most 0.4 of the best peer's time", "timers", "sum_ns", 0.4, timed)
    yield ratio_bar(results, "timers at most 1.3 times as late (p50) as the better of asio and Netty", "lateness",
                    "late_p50_us", 1.3, [p for p in ("asio", "netty") if p in timed])
    yield calls_bar(results)
    yield ratio_bar(results, "its p50 within 1.15 of bare eventfd and epoll", "asleep", "trip_p50_us", 1.15, ["bare"])
    yield value_bar(results, "64 posts to a sleeping loop make one wake-up", "burst", "wakeups", 1)
    yield value_bar(results, "an idle loop with no timer makes no system call", "idle", "calls", 0)
    yield spin_bar(results)
    yield value_bar(results, "an unused loop of a group of 64 takes under 64 KiB", "memory", "group_bytes", 65536)


def goals(results):
    posting = [p for p in results.values.get("posts1", {}) if p != OURS]
    for producers in (1, 2):
        yield ratio_bar(results, f"1.5 times the best peer's posts per second, {producers} producer{'s' if producers > 1 else ''}",
                        f"posts{producers}", "rate_mps", 1.5, posting, high=True)
    yield value_bar(results, "30 M posts/s", "posts1", "rate_mps", 30, high=True)
    yield value_bar(results, "15 ns per post to a loop that is awake", "awake", "post_ns", 15)
    yield value_bar(results, "60 ns per schedule", "timers", "schedule_ns", 60)
    yield value_bar(results, "100 ns per cancel", "timers", "cancel_ns", 100)
    yield value_bar(results, "25 µs late (p50)", "lateness", "late_p50_us", 25)


def print_bars(results, peers):
    if OURS not in peers:
        print("\nBars: not judged without millrace")
        return
    for title, lines in (("Bars", bars(results)), ("Goals", goals(results))):
        print(f"\n{title}")
        for text, holds, figures in lines:
            verdict = {True: "holds", False: "does not hold", None: "?"}[holds]
            print(f"  {verdict:<14}{text}: {figures}")
