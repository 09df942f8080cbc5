# SPDX-License-Identifier: Apache-2.0
"""What is counted, not timed: instructions, system calls, allocations (each the difference of two run
lengths), and the memory of idle connections."""

import os
import re
import shutil

import servers
from servers import Failure, Server

BARE_INSTRUCTIONS, BARE_TOLERANCE, CHECKED = 49, 10, "c16_p1"
IDLE_CONNECTIONS = 10_000

# Row of the table: connections, pipeline, messages per connection of the short and the long run.
SHAPES = {
    "c1_p1": (1, 1, 1000, 5000),
    "c16_p1": (16, 1, 200, 1000),
    "c16_p16": (16, 16, 800, 4000),
}
# System calls have one more: as many connections as a cell of the matrix has.
CALL_SHAPES = {**SHAPES, "c64_p1": (64, 1, 100, 500)}


def difference(programs, server_of, total_of, shape):
    """What one more 64-byte message costs, in whatever `total_of` reads from a server's last words."""
    connections, pipeline, *lengths = CALL_SHAPES[shape]
    totals = []
    for length in lengths:
        with server_of() as server:
            servers.run_load(programs, server, "--connections", connections, "--pipeline", pipeline,
                             "--messages", length)
            totals.append(total_of(server.stop()))
    messages = connections * (lengths[1] - lengths[0])
    return {name: (count - totals[0].get(name, 0)) / messages for name, count in totals[1].items()}


def instructions(name, command, programs, shape):
    """User instructions per message, or None where valgrind cannot count them."""
    if not shutil.which("valgrind"):
        return None
    if servers.needs_ring(name):
        return None  # valgrind hangs on io_uring

    def total(words):
        found = re.search(r"Collected : (\d+)", words)
        if not found:
            raise Failure(f"{name}: callgrind counted nothing: {words[-300:]}")
        return {"instructions": int(found[1])}

    under = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    return difference(programs, lambda: Server(name, command, under), total, shape)["instructions"]


def system_calls(name, command, programs, out, shape):
    """System calls per message by name, waits under one name, or None without strace."""
    if not shutil.which("strace"):
        return None
    trace = out / f"echo.{os.getpid()}.strace"

    def total(_):
        text = trace.read_text() if trace.exists() else ""
        counts = {call: int(count) for count, call in re.findall(r"^\s*(\d+)\s+(\w+)$", text, re.M)}
        counts.pop("total", None)
        if not counts:
            raise Failure(f"{name}: strace counted nothing")
        waits = sum(counts.pop(call, 0) for call in ("epoll_wait", "epoll_pwait", "epoll_pwait2"))
        return {"epoll_wait": waits, **counts}

    under = ["strace", "-c", "-f", "-U", "calls,name", "-o", str(trace)]
    try:
        calls = difference(programs, lambda: Server(name, command, under), total, shape)
    finally:
        trace.unlink(missing_ok=True)
    return {call: count for call, count in calls.items() if abs(count) >= 0.005}


def allocations(name, command, programs, shape):
    """Allocations per message, or None where there is no counting program."""
    counting = [command[0] + "_alloc", *command[1:]]
    if not os.path.exists(counting[0]):
        return None

    def total(words):
        found = re.search(r"^allocations (\d+)$", words, re.M)
        if not found:
            raise Failure(f"{name}: no count of allocations: {words[-300:]}")
        return {"allocations": int(found[1])}

    return difference(programs, lambda: Server(name, counting), total, shape)["allocations"]


def private_bytes(pid):
    """Memory that is the process's alone and not a file's: heap, stacks, anonymous maps."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Private_Dirty"))


def memory(name, command, programs):
    """Bytes of the server per idle connection, each of which had one message echoed."""
    with Server(name, command) as server:
        servers.run_load(programs, server, "--connections", 4, "--messages", 100)
        before = private_bytes(server.pid)
        with servers.Held(programs, server, IDLE_CONNECTIONS):
            after = private_bytes(server.pid)
    return {"before_mib": before / 2**20, "after_mib": after / 2**20,
            "bytes": (after - before) / IDLE_CONNECTIONS}


# --- for the driver


def check_bare(peers, programs):
    """(bare's instructions per message, what is wrong or None): whether it may be the measure.

    With 16 connections, as the 49 was counted; one alone pays a whole epoll_wait for each message, which
    makes it 75. On a busy machine fewer events come at once and the count rises: the best of three.
    """
    count = None
    for _ in range(3):
        try:
            again = instructions(servers.BARE, peers[servers.BARE], programs, CHECKED)
        except Failure as failure:
            return None, str(failure)
        if again is None:
            return None, "valgrind is not installed"
        count = again if count is None else min(count, again)
        if abs(count - BARE_INSTRUCTIONS) <= BARE_TOLERANCE:
            break
    if abs(count - BARE_INSTRUCTIONS) > BARE_TOLERANCE:
        return count, (f"bare takes {count:.1f} instructions per message, "
                       f"not {BARE_INSTRUCTIONS} ± {BARE_TOLERANCE}")
    return count, None


def count_rows(mode, name, command, programs, out):
    """{scenario: rows} of one peer in one mode."""
    if mode == "memory":
        return {"memory": memory(name, command, programs)}
    found = {}
    if mode == "instructions" and servers.is_cplusplus(name):
        rows = {shape: instructions(name, command, programs, shape) for shape in SHAPES}
        found["instructions"] = {row: value for row, value in rows.items() if value is not None}
    if mode == "instructions":
        for shape in CALL_SHAPES:
            calls = system_calls(name, command, programs, out, shape)
            if calls is not None:
                found[f"calls_{shape}"] = {**calls, "total": sum(calls.values())}
    if mode == "allocations" and servers.is_cplusplus(name):
        rows = {shape: allocations(name, command, programs, shape) for shape in ("c16_p1", "c16_p16")}
        found["allocations"] = {row: value for row, value in rows.items() if value is not None}
    return found


def count(peers, modes, programs, out, results, say):
    for mode in (m for m in ("instructions", "allocations", "memory") if m in modes):
        for name, command in peers.items():
            say(f"{mode} {name}")
            try:
                for scenario, rows in count_rows(mode, name, command, programs, out).items():
                    if rows:
                        results.add(scenario, name, rows)
            except Failure as failure:
                results.failures.append(f"{mode}: {failure}")
