# SPDX-License-Identifier: Apache-2.0
"""The tables and the bars."""

import statistics

import report  # of ../loop
import tables  # of ../echo
import verdicts
from servers import is_ours
from tls_scenes import (BULK, FULL_HANDSHAKE, HALF_OPEN, IDLE, PER_MIB, RESUMED, SMALL, STORM)
from tls_servers import ASIO, HANDSHAKE_TIMEOUT, NGINX, NGINX_ALONE, PEERS

# Scenario, title, what one is, how many messages make one, unit.
TIMED = [
    (FULL_HANDSHAKE, "Full handshake: ECDSA P-256, X25519, with tickets sent and none used", "handshake", 1),
    (RESUMED, "Resumed handshake: TLS 1.3 ticket, X25519", "handshake", 1),
    (BULK, "Bulk: 16 KiB writes, 4 connections, 4 on their way each", "MiB echoed", PER_MIB),
    (SMALL, "64-byte echo, 64 connections, one on its way each", "message", 1),
]
IDLE_LIMIT = 40 * 1024
STORM_LIMIT = 2
CUT_SLACK = (0.05, 1.0)  # seconds before and after the timeout


def order(peers):
    places = [NGINX, NGINX_ALONE, ASIO]
    return sorted(peers, key=lambda peer: -1 if is_ours(peer) else places.index(peer))


def left_out(names):
    return [name for name in PEERS if name not in names]


def ratio_text(results, scenario, peer, other, refused):
    values = tables.ratios(results, scenario, peer, other)
    return tables.spread(values) if values and not refused and peer != other else "-"


def print_timed(results, peers, refused):
    for number, (scenario, title, one, many) in enumerate(TIMED, 1):
        if scenario not in results.values:
            continue
        rows = []
        for peer in peers:
            cpu = [ns * many / 1000 for ns in results.rounds(scenario, peer, "cpu_ns")]
            if not cpu:
                continue
            rows.append([peer, tables.spread(cpu, 1), ratio_text(results, scenario, peer, NGINX, refused),
                         ratio_text(results, scenario, peer, ASIO, refused),
                         f"{results.median(scenario, peer, 'rate') / many:.0f}",
                         f"{results.median(scenario, peer, 'p50_us'):.0f} / {results.median(scenario, peer, 'p99_us'):.0f}"])
        print(f"\n{number}. {title}")
        report.print_table(["", f"CPU µs/{one}", "of nginx's", "of asio's", "per second", "p50 / p99 µs"], rows)


def print_storm(results, peers):
    if STORM not in results.values:
        return
    print(f"\n5. {HALF_OPEN} half-open handshakes, and what they do to 64 connections; cut after {HANDSHAKE_TIMEOUT} s")
    rows = []
    for peer in peers:
        def show(row, digits, peer=peer):
            value = results.median(STORM, peer, row)
            return "-" if value is None else f"{value:.{digits}f}"
        if results.rounds(STORM, peer, "cut"):
            rows.append([peer, show("calm_p99_us", 0), show("coming_p99_us", 0), show("standing_p99_us", 0), show("cut", 0),
                         f"{show('cut_first_s', 2)}..{show('cut_last_s', 2)}"])
    report.print_table(["", "p99 µs calm", "while they come", "while they stand", "cut", "after s"], rows)


def print_counted(results, peers):
    if "memory" in results.values:
        print(f"\n6. Memory of the server with {IDLE} idle connections, one message each")
        tables.print_counted(results, peers, "memory", ["before_mib", "after_mib", "bytes"],
                             ["before MiB", "after MiB", "bytes/connection"], 1)
    if "instructions" in results.values:
        print("\n7. User instructions (callgrind)")
        tables.print_counted(results, peers, "instructions", [FULL_HANDSHAKE, RESUMED, BULK, SMALL],
                             ["full handshake", "resumed", "MiB echoed", "64-byte echo"], 0)


def print_tables(results, peers, refused):
    if refused:
        print(f"\nno ratios: {refused}")
    print_timed(results, peers, refused)
    print_storm(results, peers)
    print_counted(results, peers)


# --- bars


def storm_bar(results, ours):
    text = f"p99 of 64 connections with {HALF_OPEN} half-open handshakes"
    rounds = zip(*(results.rounds(STORM, ours, f"{when}_p99_us") for when in ("calm", "coming", "standing")))
    found = [(coming / calm, standing / calm) for calm, coming, standing in rounds if calm > 0]
    if not found:
        return text, None, verdicts.NOT_MEASURED
    coming, standing = zip(*found)
    worst = max(statistics.median(coming), statistics.median(standing))
    return text, worst <= STORM_LIMIT, (f"{tables.spread(coming)} of its calm value while they come, "
                                        f"{tables.spread(standing)} while they stand, <= {STORM_LIMIT}")


def cut_bar(results, ours):
    text = f"all half-open handshakes are cut at the timeout of {HANDSHAKE_TIMEOUT} s"
    cut = results.rounds(STORM, ours, "cut")
    if not cut:
        return text, None, verdicts.NOT_MEASURED
    first, last = min(results.rounds(STORM, ours, "cut_first_s")), max(results.rounds(STORM, ours, "cut_last_s"))
    good = (min(cut) == HALF_OPEN and first >= HANDSHAKE_TIMEOUT - CUT_SLACK[0] and
            last <= HANDSHAKE_TIMEOUT + CUT_SLACK[1])
    return text, good, f"{min(cut):.0f} of {HALF_OPEN}, after {first:.2f} to {last:.2f} s"


def bars(results, ours, refused):
    if not refused:
        for scenario, text, other, limit in [
                (FULL_HANDSHAKE, "CPU per full handshake", NGINX, 0.95), (RESUMED, "CPU per resumed handshake", NGINX, 0.95),
                (BULK, "CPU per MiB", NGINX, 1), (SMALL, "CPU per 64-byte echo", ASIO, 0.8)]:
            if scenario in results.values:
                yield verdicts.ratio_bar(results, text, ours, scenario, other, limit)
    if "memory" in results.values:
        yield verdicts.value_bar(results, "bytes per idle connection", ours, "memory", "bytes", IDLE_LIMIT)
    if STORM in results.values:
        yield storm_bar(results, ours)
        yield cut_bar(results, ours)


def goals(results, ours, refused):
    if BULK in results.values and not refused:
        yield verdicts.ratio_bar(results, "CPU per MiB", ours, BULK, NGINX, 0.7)


def print_bars(results, peers, refused):
    mine = [peer for peer in peers if is_ours(peer)]
    if not mine:
        print("\nBars: not judged without millrace")
    if refused:
        print(f"\nBars: no ratios are judged: {refused}")
    for ours in mine:
        verdicts.print_lines(f"Bars, {ours}", bars(results, ours, refused))
        verdicts.print_lines(f"Goals, {ours}", goals(results, ours, refused))
