# SPDX-License-Identifier: Apache-2.0
"""The servers: which there are, how one is started, asked, and ended by its process id."""

import ctypes
import fcntl
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import harness  # of ../loop

OURS = "millrace"
BARE = "bare"
OUR_EPOLL, OUR_URING = f"{OURS}-epoll", f"{OURS}-uring"
# In the order of the tables, with the reason why one may be missing. Ours runs once per engine.
PEERS = {
    "millrace": "the library does not offer its bootstraps yet",
    "bare": "not built",
    "bare512": "not built",
    "uring": "liburing-dev is not installed",
    "asio": "libasio-dev is not installed",
    "libuv": "libuv1-dev is not installed",
    "libevent": "libevent-dev is not installed",
    "netty": "libnetty-java or a JDK is not installed",
}
ENGINES = ["epoll", "uring", "poll"]
START_SECONDS = 30  # under valgrind on a busy machine
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = CORES[0], CORES[-1] if len(CORES) < 2 else CORES[1]

_libc = ctypes.CDLL(None)
_running = set()


class Failure(Exception):
    """A server or the load did not do what it should; the text says which and how."""


def is_ours(peer):
    return peer.startswith(OURS + "-")


def is_cplusplus(peer):
    return peer != "netty"


def needs_ring(peer):
    """Lives on io_uring, which not every kernel offers and valgrind cannot follow."""
    return peer in ("uring", OUR_URING)


# --- programs


def build(root, target="bench_echo"):
    """The release build with the benchmarks; quiet unless it fails. `./dev bench` has done it already."""
    folder = root / "build" / "release"
    cache = folder / "CMakeCache.txt"
    commands = [["cmake", "--build", folder, "--target", target]]
    if not cache.exists():
        commands.insert(0, ["cmake", "--preset", "release", "-DMILLRACE_BUILD_BENCH=ON"])
    elif "MILLRACE_BUILD_BENCH:BOOL=ON" not in cache.read_text():
        commands.insert(0, ["cmake", "-S", root, "-B", folder, "-DMILLRACE_BUILD_BENCH=ON"])
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:  # ./dev takes the same one
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in commands:
            done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                sys.exit(f"{done.stdout}\n{' '.join(map(str, command))} failed")
    return folder / "bench"


def find(names, engines, programs, out):
    """Commands of the peers that are there, and why the others are not."""
    found, missing = {}, {}
    for name in (n for n in PEERS if n in names):
        program = programs / f"bench_echo_{name}"
        if name == "netty":
            command = compile_netty(out)
        else:
            command = [str(program)] if program.exists() else None
        if command is None:
            missing[name] = PEERS[name]
        elif name == OURS:
            for engine in engines:
                found[f"{OURS}-{engine}"] = command + ["0", "--io", engine]
        else:
            found[name] = command
    return found, missing


def without_unusable(peers):
    """Drops our engines, and io_uring, that do not start here: (those that do, {name: why not})."""
    good, bad = {}, {}
    for name, command in peers.items():
        if not is_ours(name) and not needs_ring(name):
            good[name] = command
            continue
        try:
            with Server(name, command):
                good[name] = command
        except Failure as failure:
            bad[name] = str(failure).strip().splitlines()[-1]
    return good, bad


def compile_netty(out):
    jars = [pathlib.Path("/usr/share/java") / f"{jar}.jar" for jar in harness.NETTY_JARS]
    if not shutil.which("javac") or not all(jar.exists() for jar in jars):
        return None
    classes = out / "netty_echo"
    classes.mkdir(exist_ok=True)
    path = ":".join(map(str, jars))
    source = pathlib.Path(__file__).resolve().parent / "netty" / "EchoServer.java"
    subprocess.run(["javac", "-cp", path, "-d", classes, source], check=True)
    return ["java", "-XX:+UseSerialGC", "-Xms512m", "-Xmx512m", "-Dio.netty.leakDetection.level=disabled",
            "-cp", f"{path}:{classes}", "EchoServer"]


# --- processes


def prepare(core):
    """What a child does before it becomes a program: its core, and to end if we are killed."""
    def in_child():
        os.sched_setaffinity(0, {core})
        _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    return in_child


class Server:
    """A server on the first core. With `under`, it runs under that tool (valgrind or strace)."""

    load = "bench_echo_load"  # what speaks to it
    core = SERVER_CORE

    def __init__(self, name, command, under=()):
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [*under, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors,
            preexec_fn=prepare(self.core))
        _running.add(self)
        self.pid = self.process.pid
        try:
            self.port = self._await_port()
            if under and pathlib.Path(under[0]).name == "strace":
                self.pid = self._child()
        except Failure:
            self.stop()
            raise

    def _await_port(self):
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline().decode() if ready else ""
        found = re.match(r"listening on 127\.0\.0\.1:(\d+)", line)
        if not found:
            raise Failure(f"{self.name} does not start: {self._stderr()[-300:] or 'no answer'}")
        return int(found[1])

    def _child(self):
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        if not children:
            raise Failure(f"{self.name}: strace has no child")
        return int(children[0])

    def _stderr(self):
        self.errors.seek(0)
        return self.errors.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def watched(self):
        """For the load: whose CPU counts. Of a JVM, the loop's thread and not collector and compiler."""
        return f"{self.pid}:echo" if self.name == "netty" else str(self.pid)

    def stop(self):
        """Ends it and gives what it had to say."""
        if self not in _running:
            return ""
        for attempt in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                break
            try:
                os.kill(self.pid, attempt)  # not yet waited for, or our child's child: still this one
            except ProcessLookupError:
                pass
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                pass
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        _running.discard(self)
        self.process.stdout.close()
        text = self._stderr()
        self.errors.close()
        return text


def stop_all():
    for server in list(_running):
        server.stop()


# --- load


def load_command(programs, server, *arguments):
    return [str(programs / server.load), "--port", str(server.port), *map(str, arguments)]


def run_load(programs, server, *arguments, timeout=60):
    """The rows that the load printed."""
    command = load_command(programs, server, *arguments)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                              preexec_fn=prepare(LOAD_CORE))
    except subprocess.TimeoutExpired:
        raise Failure(f"{server.name}: {' '.join(command[1:])}: no end after {timeout} s") from None
    if done.returncode != 0:
        raise Failure(f"{server.name}: {' '.join(command[1:])}: {done.stderr.strip()[-300:]}")
    return {row: float(value) for row, tab, value in
            (line.partition("\t") for line in done.stdout.splitlines()) if tab}


class Held:
    """Idle connections for as long as the `with` lasts."""

    def __init__(self, programs, server, connections, timeout=60):
        command = load_command(programs, server, "--connections", connections, "--hold")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, preexec_fn=prepare(LOAD_CORE))
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        if not ready or self.process.stdout.readline() != b"holding\n":
            self.process.kill()
            _, errors = self.process.communicate()
            raise Failure(f"{server.name}: {connections} connections: {errors.decode()[-300:]}")
        time.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
