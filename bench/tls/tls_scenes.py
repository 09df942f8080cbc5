# SPDX-License-Identifier: Apache-2.0
"""What is measured: handshakes and messages in interleaved rounds, the storm, memory, instructions."""

import collections
import re
import shutil

import counts  # of ../echo
import matrix
import servers
import tls_servers
from servers import Failure
from tls_servers import ASIO, NGINX_ALONE

FULL_HANDSHAKE, RESUMED, BULK, SMALL, STORM = "handshake", "resumed", "bulk", "small", "storm"
MODES = {"handshakes": (FULL_HANDSHAKE, RESUMED), "bulk": (BULK,), "small": (SMALL,), "storm": (STORM,)}
COUNTED = ("memory", "instructions")
HANDSHAKES_AT_ONCE, CONNECTIONS, BULK_CONNECTIONS, RECORD, BULK_PIPELINE = 16, 64, 4, 16384, 4
PER_MIB = 2**20 // RECORD
HALF_OPEN, IDLE = 1000, 1000
# TLS 1.3, TLS_AES_128_GCM_SHA256, X25519, an EC key of 256 bits: what everybody has to agree on.
WANTED = {"version": 0x304, "cipher": 0x1301, "group": 1034, "key_kind": 408, "key_bits": 256}

Pace = collections.namedtuple("Pace", "rounds storms seconds warm")
FULL = Pace(9, 3, 0.5, 0.1)
QUICK = Pace(3, 1, 0.25, 0.05)

SHAPES = {
    FULL_HANDSHAKE: ["--connections", HANDSHAKES_AT_ONCE],
    RESUMED: ["--connections", HANDSHAKES_AT_ONCE, "--resume"],
    BULK: ["--connections", BULK_CONNECTIONS, "--size", RECORD, "--pipeline", BULK_PIPELINE],
    SMALL: ["--connections", CONNECTIONS, "--size", 64],
    STORM: ["--connections", CONNECTIONS, "--size", 64, "--storm", HALF_OPEN],
}
# For counting: the same with a number in place of a time, short and long, and how many there are in it.
COUNTS = {
    FULL_HANDSHAKE: (["--connections", 4, "--handshakes"], 20, 100, 1),
    RESUMED: (["--connections", 4, "--resume", "--handshakes"], 20, 100, 1),
    BULK: (["--connections", 4, "--size", RECORD, "--pipeline", BULK_PIPELINE, "--messages"], 64, 256, 4 / PER_MIB),
    SMALL: (["--connections", 16, "--size", 64, "--messages"], 100, 500, 16),
}


def run(server, scenario, pace, programs):
    flag = "--handshake" if scenario in MODES["handshakes"] else "--seconds"
    more = []
    if scenario == STORM:  # asio has no timeout to wait for
        more = ["--patience", 0 if server.name == ASIO else tls_servers.HANDSHAKE_TIMEOUT + 3]
    return servers.run_load(programs, server, *SHAPES[scenario], flag, pace.seconds, "--warm", pace.warm,
                            "--server", server.watched(), *more)


def measure(peers, modes, pace, programs, results, say):
    fleet = matrix.Fleet(peers, tls_servers.start)
    echoing = [peer for peer in peers if peer != NGINX_ALONE]
    plans = [("handshakes", list(peers), pace.rounds), ("bulk", echoing, pace.rounds), ("small", echoing, pace.rounds),
             ("storm", echoing, pace.storms)]
    try:
        for mode, names, rounds in plans:
            if mode in modes:
                wanted = [(scenario, scenario) for scenario in MODES[mode]]
                matrix.interleave(fleet, names, wanted, rounds, results, say,
                                  lambda server, scenario: run(server, scenario, pace, programs))
    finally:
        fleet.stop()
    for mode in (m for m in COUNTED if m in modes):
        for name in (echoing if mode == "memory" else list(peers)):
            say(f"{mode} {name}")
            try:
                rows = (memory if mode == "memory" else instructions)(name, peers[name], programs)
                if rows:
                    results.add(mode, name, rows)
            except Failure as failure:
                results.failures.append(f"{mode}: {failure}")


def disagreement(results):
    """Why there are no ratios, or None: what was negotiated differs from what everybody has to agree on."""
    for scenario, table in results.values.items():
        for peer, rows in table.items():
            for row, wanted in WANTED.items():
                if any(value != wanted for value in rows.get(row, [])):
                    return f"{peer} negotiated {row} {rows[row][0]:.0f} in {scenario}, not {wanted}"
    return None


def memory(name, command, programs):
    """Bytes of the server per idle connection, each of which had one message echoed."""
    with tls_servers.start(name, command) as server:
        servers.run_load(programs, server, "--connections", 16, "--messages", 100)
        before = counts.private_bytes(server.pid)
        with servers.Held(programs, server, IDLE):
            after = counts.private_bytes(server.pid)
    return {"before_mib": before / 2**20, "after_mib": after / 2**20, "bytes": (after - before) / IDLE}


def instructions(name, command, programs):
    """User instructions (callgrind) per handshake, per MiB and per message: differences of two lengths."""
    if not shutil.which("valgrind") or servers.needs_ring(name):
        return None
    under = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    rows = {}
    for scenario, (arguments, short, long, share) in COUNTS.items():
        if name == NGINX_ALONE and scenario not in MODES["handshakes"]:
            continue
        totals = []
        for length in (short, long):
            with tls_servers.start(name, command, under) as server:
                servers.run_load(programs, server, *arguments, length, timeout=180)
                found = re.search(r"Collected : (\d+)", server.stop())
                if not found:
                    raise Failure(f"{name}: callgrind counted nothing")
                totals.append(int(found[1]))
        rows[scenario] = (totals[1] - totals[0]) / ((long - short) * share)
    return rows
