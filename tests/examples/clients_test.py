#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The echo server and clients that we did not write, one by one and many at once.

usage: clients_test.py <folder of the programs>
"""
import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
from programs import ENGINES, LIMIT, READY, program, receive, server

MANY = {"epoll": 10000, "uring": 10000, "poll": 500, "blocking": 500}
ROOM = 200  # descriptors that are not connections


def raise_limit():
    """As many descriptors as we may have; the servers inherit it. Returns how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Clients(unittest.TestCase):
    def echoed(self, command, text):
        result = subprocess.run(command, input=text, capture_output=True, timeout=LIMIT, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_socat(self):
        text = b"a line of socat\n" * 20000
        for engine in ENGINES:
            with self.subTest(engine), server("echo_server", "--io", engine) as echo:
                # It ends its output and waits for the echo of all of it.
                command = ["socat", "-t", str(LIMIT), "-", f"TCP:127.0.0.1:{echo.port}"]
                self.assertEqual(self.echoed(command, text), text)

    def test_ncat(self):
        text = b"a line of ncat\n" * 20000
        for engine in ENGINES:
            with self.subTest(engine), server("echo_server", "--io", engine) as echo:
                self.assertEqual(self.echoed(["ncat", "127.0.0.1", str(echo.port)], text), text)

    def test_many_connections_at_once(self):
        limit = raise_limit()
        for engine, wanted in MANY.items():
            count = min(wanted, limit - ROOM)
            with self.subTest(engine, count=count), server("echo_server", "--io", engine) as echo, \
                    contextlib.ExitStack() as stack:
                clients = [stack.enter_context(echo.connect()) for _ in range(count)]
                for number, client in enumerate(clients):
                    client.sendall(b"%5d" % number)
                for number, client in enumerate(clients):
                    self.assertEqual(receive(client, 5), b"%5d" % number)

    def test_a_blocking_server_waits_for_one_socket_and_blocks_in_its_write(self):
        """A stalled write is one call that takes its time, and SIGTERM cuts it short."""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace")
            command = ["strace", "-f", "-T", "-e", "trace=ppoll,recvfrom,sendto", "-o", trace,
                       program("echo_server"), "--io", "blocking"]
            # A sanitizer's search for leaks needs ptrace, which strace has.
            environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                  env=environment) as process:
                port = int(READY.match(process.stdout.readline())[1].rsplit(":", 1)[1])
                with Stalled(port) as stalled:
                    stalled.fill()
                    with open(f"/proc/{process.pid}/task/{process.pid}/children",
                              encoding="utf-8") as children:
                        traced = int(children.read().split()[0])
                    began = time.monotonic()
                    os.kill(traced, signal.SIGTERM)
                    self.assertEqual(process.wait(LIMIT), 0)
                    self.assertLess(time.monotonic() - began, 60)
            with open(trace, encoding="utf-8", errors="replace") as lines:
                text = lines.read()
        # It waits for its own wakeups and for one connection.
        self.assertRegex(text, r"ppoll\(\[\{fd=\d+, events=POLLIN\}, \{fd=\d+, events=[A-Z|]+\}\], 2,")
        waits = [float(each) for each in re.findall(r"sendto\(.*<(\d+\.\d+)>$", text, re.MULTILINE)]
        self.assertGreater(max(waits), 0.05, "no write has blocked")


class Stalled:
    """A client that sends and never reads."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def fill(self):
        """Until the server has stopped reading, because nobody takes its answers."""
        with contextlib.suppress(TimeoutError):
            while True:
                self.socket.send(b"x" * 65536)


if __name__ == "__main__":
    unittest.main()
