# SPDX-License-Identifier: Apache-2.0
"""Builds the programs, knows the peers and the scenarios, runs them in interleaved rounds."""

import collections
import fcntl
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

OURS = "millrace"
# In the order of the tables. "bare" is no peer but the floor under a wake-up.
PEERS = {
    "millrace": "the library does not offer its loops yet",
    "asio": "libasio-dev is not installed",
    "libuv": "libuv1-dev is not installed",
    "libevent": "libevent-dev is not installed",
    "mutex": "not built",
    "moodycamel": "libconcurrentqueue-dev is not installed",
    "netty": "libnetty-java or a JDK is not installed",
    "bare": "not built",
}
POSTING = ["millrace", "asio", "libuv", "mutex", "moodycamel", "netty"]
TIMED = ["millrace", "asio", "libuv", "libevent", "netty"]
DRIVEN = ["millrace", "asio", "libuv"]

NOT_OFFERED = 3
NETTY_JARS = ["netty-common", "netty-transport", "netty-buffer", "netty-resolver"]

Scenario = collections.namedtuple("Scenario", "peers full quick")
# Timed scenarios: arguments of a full and of a quick run. The others are counted once, see below.
SCENARIOS = {
    "posts1": Scenario(POSTING, ["posts", 1, 1000], ["posts", 1, 300]),
    "posts2": Scenario(POSTING, ["posts", 2, 1000], ["posts", 2, 300]),
    "awake": Scenario(POSTING, ["awake", 500], ["awake", 200]),
    "asleep": Scenario(["bare"] + POSTING, ["asleep", 3000, 200], ["asleep", 1000, 200]),
    "self": Scenario(POSTING, ["self", 1000000], ["self", 200000]),
    "pingpong": Scenario(POSTING, ["pingpong", 10000], ["pingpong", 3000]),
    "pingpong_spin": Scenario([OURS], ["pingpong_spin", 10000], ["pingpong_spin", 3000]),
    "timers": Scenario(TIMED, ["timers", 1000000], ["timers", 1000000]),
    "lateness": Scenario(TIMED, ["lateness", 10000], ["lateness", 10000]),
    "calls": Scenario(["bare"] + POSTING, None, None),
    "burst": Scenario(POSTING, None, None),
    "idle": Scenario(["bare"] + POSTING, None, None),
    "instructions": Scenario(DRIVEN, None, None),
    "memory": Scenario(DRIVEN, None, None),
    "allocations": Scenario([p for p in POSTING if p != "netty"], None, None),
}


class Results:
    """values[scenario][peer][row] is a list with one figure per round; a program that failed drops its peer's scenario
    for good, so that rounds stay paired and no table shows half a peer."""

    def __init__(self):
        self.values = {}
        self.failures = []
        self.dropped = set()

    def drop(self, scenario, peer):
        self.dropped.add((scenario, peer))
        self.values.get(scenario, {}).pop(peer, None)

    def add(self, scenario, peer, rows):
        cell = self.values.setdefault(scenario, {}).setdefault(peer, {})
        for row, value in rows.items():
            cell.setdefault(row, []).append(value)

    def rounds(self, scenario, peer, row):
        return self.values.get(scenario, {}).get(peer, {}).get(row, [])

    def median(self, scenario, peer, row):
        values = self.rounds(scenario, peer, row)
        return statistics.median(values) if values else None


def build(root):
    """The release build with the benchmarks; quiet unless it fails. Other settings of the build stay as they are."""
    folder = root / "build" / "release"
    cache = folder / "CMakeCache.txt"
    commands = [["cmake", "--build", folder, "--target", "bench_loop"]]
    if not cache.exists():
        commands.insert(0, ["cmake", "--preset", "release", "-DMILLRACE_BUILD_BENCH=ON"])
    elif "MILLRACE_BUILD_BENCH:BOOL=ON" not in cache.read_text():
        commands.insert(0, ["cmake", "-S", root, "-B", folder, "-DMILLRACE_BUILD_BENCH=ON"])
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:  # ./dev takes the same one: one build per folder at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in commands:
            done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                sys.exit(f"{done.stdout}\n{' '.join(map(str, command))} failed")
    return folder / "bench"


def find_peers(names, programs, out):
    """Commands of the peers that are there, and why the others are not."""
    found, missing = {}, {}
    for name in names:
        program = programs / f"bench_loop_{name}"
        if name == "netty":
            command = compile_netty(out)
        else:
            command = [str(program)] if program.exists() else None
        if command:
            found[name] = command
        else:
            missing[name] = PEERS[name]
    return found, missing


def compile_netty(out):
    jars = [pathlib.Path("/usr/share/java") / f"{jar}.jar" for jar in NETTY_JARS]
    if not shutil.which("javac") or not all(jar.exists() for jar in jars):
        return None
    classes = out / "netty"
    classes.mkdir(exist_ok=True)
    path = ":".join(map(str, jars))
    source = pathlib.Path(__file__).resolve().parent / "netty" / "NettyBench.java"
    subprocess.run(["javac", "-cp", path, "-d", classes, source], check=True)
    return ["java", "-XX:+UseSerialGC", "-Xms1g", "-Xmx1g", "-cp", f"{path}:{classes}", "NettyBench"]


def run_program(command, arguments, results, timeout=120):
    """The rows a program printed, or None if it does not offer the scenario or failed."""
    command = command + [str(a) for a in arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        results.failures.append(f"{' '.join(command[-4:])}: no end after {timeout} s")
        return None
    if done.returncode == NOT_OFFERED:
        return None
    if done.returncode != 0:
        results.failures.append(f"{' '.join(command[-4:])}: exit code {done.returncode} {done.stderr.strip()[-300:]}")
        return None
    rows = {}
    for line in done.stdout.splitlines():
        row, tab, value = line.partition("\t")
        if tab:
            rows[row] = float(value)
    return rows


def measure(peers, options, out, progress):
    results = Results()

    def say(text):
        if progress:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    rounds = options.rounds or (1 if options.quick else 3)
    for number in range(rounds):
        for name in options.rows:
            scenario = SCENARIOS[name]
            if scenario.full is None:
                continue
            turn = [p for p in scenario.peers if p in peers]
            turn = turn[number % len(turn):] + turn[:number % len(turn)] if turn else []  # nobody is always first
            for peer in turn:
                if (name, peer) in results.dropped:
                    continue
                say(f"round {number + 1} of {rounds}: {name} {peer}")
                command = peers[peer]
                if peer == "netty":
                    command = [command[0], f"-Dwarm={700 if options.quick else 2000}"] + command[1:]
                rows = run_program(command, scenario.quick if options.quick else scenario.full, results)
                if rows:
                    results.add(name, peer, rows)
                else:
                    results.drop(name, peer)
    for name, count in COUNTED.items():
        if name not in options.rows:
            continue
        for peer in SCENARIOS[name].peers:
            if peer not in peers or (options.quick and peer == "netty"):
                continue
            say(f"{name} {peer}")
            rows = count(peers[peer], results, out)
            if rows:
                results.add(name, peer, rows)
    say("")
    return results


# --- what is counted, once


def strace(arguments, command, results, out):
    """The trace as text, or None when strace is not there or the program does not offer the scenario."""
    if not shutil.which("strace"):
        return None
    trace = out / "loop.strace"
    command = [str(part) for part in command]
    done = subprocess.run(["strace", "-f", *arguments, "-o", trace, *command], capture_output=True, text=True)
    if done.returncode not in (0, NOT_OFFERED):
        results.failures.append(f"strace {' '.join(command[-4:])}: exit code {done.returncode} {done.stderr[-300:]}")
    text = trace.read_text() if trace.exists() else ""
    trace.unlink(missing_ok=True)
    return text if done.returncode == 0 else None


def count_calls(command, results, out):
    """System calls per post to a sleeping loop: the difference of two run lengths, by name."""
    counts = []
    short, long = 50, 250
    for length in (short, long):
        text = strace(["-c", "-U", "calls,name"], [*command, "asleep", length, 2000], results, out)
        if text is None:
            return None
        counts.append({name: int(calls) for calls, name in re.findall(r"^\s*(\d+)\s+(\w+)$", text, re.M)})
    counts[1].pop("total", None)
    rows = {}
    for name, calls in counts[1].items():
        per_post = (calls - counts[0].get(name, 0)) / (long - short)
        if abs(per_post) >= 0.05:
            rows[name] = per_post
    rows["total"] = sum(rows.values())
    return rows


def count_burst(command, results, out):
    """Wake-ups (writes to an eventfd; asio: epoll_ctl) per burst of 64 posts to a sleeping loop."""
    counts = []
    for bursts in (10, 30):
        text = strace(["-e", "trace=write,epoll_ctl"], [*command, "burst", bursts, 64], results, out)
        if text is None:
            return None
        counts.append(len(re.findall(r"write\(\d+, .*, 8(?:\)| <unf)|epoll_ctl\(\d+, EPOLL_CTL_MOD", text)))
    return {"wakeups": (counts[1] - counts[0]) / 20}


def count_idle(command, results, out):
    """System calls of the loop's thread in one second with nothing to do."""
    text = strace([], [*command, "idle", 1000], results, out)
    if text is None:
        return None
    lines = text.splitlines()
    marks = [i for i, line in enumerate(lines) if "bench-idle-" in line]
    if len(marks) != 2:
        results.failures.append(f"idle {command[-1]}: no marks in the trace")
        return None
    main = lines[marks[0]].split()[0]
    between = [line for line in lines[marks[0] + 1:marks[1]] if line.split()[0] != main]
    return {"calls": len(between)}


def count_instructions(command, results, out):
    """User instructions per post and per timer (schedule and cancel), hand-driven, difference of two lengths."""
    if not shutil.which("valgrind"):
        return None
    rows = {}
    for what in ("post", "timer"):
        totals = []
        for length in (12800, 38400):
            done = subprocess.run(
                ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command, f"instructions_{what}",
                 str(length)], capture_output=True, text=True)
            found = re.search(r"Collected : (\d+)", done.stderr)
            if done.returncode != 0 or not found:
                if done.returncode != NOT_OFFERED:
                    results.failures.append(f"callgrind {command[-1]} {what}: {done.stderr[-300:]}")
                break
            totals.append(int(found[1]))
        if len(totals) == 2:
            rows[what] = (totals[1] - totals[0]) / 25600
    return rows


def count_memory(command, results, out):
    rows = {}
    for arguments in (["memory_unstarted", 1000], ["memory_group", 64], ["memory_started", 64]):
        rows.update(run_program(command, arguments, results) or {})
    return rows


def count_allocations(command, results, out):
    counting = command[:-1] + [command[-1] + "_alloc"]
    return run_program(counting, ["allocations", 1000000], results) if os.path.exists(counting[-1]) else None


COUNTED = {
    "calls": count_calls,
    "burst": count_burst,
    "idle": count_idle,
    "instructions": count_instructions,
    "memory": count_memory,
    "allocations": count_allocations,
}
