#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the network examples as a user would: over real sockets, to their end, by their flags.

usage: examples_test.py <folder of the programs>
"""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from programs import ENGINES, LIMIT, READY, SERVERS, program, receive, run, server


class Examples(unittest.TestCase):
    def test_echo_over_every_engine(self):
        for engine in ENGINES:
            with self.subTest(engine), server("echo_server", "--io", engine) as echo:
                self.assertEqual(echo.engine, engine)
                result = run("echo_client", "--port", echo.port, "--messages", 100, "--size", 5000)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("100 messages of 5000 bytes came back", result.stdout)

    def test_echo_of_many_connections(self):
        for engine in ENGINES:
            with self.subTest(engine), server("echo_server", "--io", engine) as echo, \
                    contextlib.ExitStack() as stack:
                clients = [stack.enter_context(echo.connect()) for _ in range(100)]
                for number, client in enumerate(clients):
                    client.sendall(b"%5d" % number)
                for number, client in enumerate(clients):
                    self.assertEqual(receive(client, 5), b"%5d" % number)

    def test_discard_counts(self):
        with subprocess.Popen([program("discard_server"), "--loops", "1"],
                              stdout=subprocess.PIPE, text=True) as process:
            address = READY.match(process.stdout.readline())[1]
            with socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1]))) as client:
                client.sendall(b"x" * 12345)
                client.shutdown(socket.SHUT_WR)
                self.assertEqual(client.recv(1), b"")
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=LIMIT)
            self.assertEqual((process.returncode, rest), (0, "discarded 12345 bytes\n"))

    def test_time(self):
        with server("time_server") as clock:
            result = run("time_client", "--port", clock.port)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, r"\d\d:\d\d:\d\d \d{4}")

    def test_chat(self):
        with server("chat_server") as chat, chat.connect() as listener:
            result = run("chat_client", "--port", chat.port, text="hello\n")
            self.assertEqual(result.returncode, 0, result.stderr)
            with listener.makefile() as lines:
                self.assertRegex(lines.readline(), r"^127\.0\.0\.1:\d+ is here$")
                self.assertRegex(lines.readline(), r"^\[127\.0\.0\.1:\d+\] hello$")
                self.assertRegex(lines.readline(), r"^127\.0\.0\.1:\d+ has left$")

    def test_proxy_passes_everything_both_ways(self):
        with server("echo_server") as echo, server("tcp_proxy", "--to-port", echo.port) as proxy:
            result = run("echo_client", "--port", proxy.port, "--messages", 5, "--size", 2000000)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_port_unification(self):
        with server("port_unification") as both:
            for sent, answer in (b"hello\n", b"HELLO\n"), (b"123", b"3 bytes\n"):
                with both.connect() as client:
                    client.sendall(sent)
                    self.assertEqual(receive(client, len(answer)), answer)

    def test_unix_echo(self):
        name = f"millrace-test-{os.getpid()}"
        with server("unix_echo", "--path", "@" + name) as echo:
            self.assertEqual(echo.address, "unix:@" + name)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect("\0" + name)
                client.sendall(b"hello")
                self.assertEqual(receive(client, 5), b"hello")

    def test_udp_echo(self):
        with server("udp_echo") as echo, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(LIMIT)
            client.connect(("127.0.0.1", echo.port))
            for size in 0, 1, 1400:
                client.send(b"u" * size)
                self.assertEqual(client.recv(2000), b"u" * size)

    def test_schedule(self):
        result = run("schedule")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("cancelled in time\n", result.stdout)
        self.assertIn("once, after 20 ms\n", result.stdout)

    def test_demo_prints_figures_and_drains(self):
        result = run("echo_demo", "--seconds", 2, "--loops", 1)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^listening on 127\.0\.0\.1:\d+ \(1 loop, epoll\)$")
        self.assertRegex(result.stdout, r"(?m)^  1 s: \d+ channels open, [1-9]\d* bytes/s in")
        self.assertRegex(result.stdout, r"(?m)^drained: \d+ connections, 0 cut$")

    def test_a_port_that_is_taken_ends_with_1(self):
        with server("echo_server") as echo:
            result = run("echo_server", "--port", echo.port)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"bind 127.0.0.1:{echo.port}", result.stderr)

    def test_wrong_flags_end_with_2(self):
        for name in SERVERS:
            with self.subTest(name):
                result = run(name, "--nonsense", "1")
                self.assertEqual(result.returncode, 2)
                self.assertIn("usage: " + name, result.stderr)
                self.assertEqual(run(name, "--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
