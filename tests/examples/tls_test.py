#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the examples that speak TLS as a user would, with Python's ssl module as the other end.

usage: tls_test.py <folder of the programs>
"""
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from programs import ENGINES, LIMIT, READY, program, receive, run, server


def trusting_anybody():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=LIMIT)


def certificate_of(running, folder):
    """The file with the certificate that a server shows."""
    path = os.path.join(folder, "server.pem")
    with open(path, "w", encoding="ascii") as file:
        file.write(ssl.get_server_certificate(("127.0.0.1", running.port), timeout=LIMIT))
    return path


class TlsExamples(unittest.TestCase):
    def test_echo_over_every_engine(self):
        for engine in ENGINES:
            with self.subTest(engine), server("echo_server", "--tls", "--io", engine) as echo:
                self.assertEqual(echo.engine, engine)
                result = run("echo_client", "--port", echo.port, "--tls", "--insecure", "--messages",
                             20, "--size", 50000, "--connections", 2, "--io", engine)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, r"(?m)^TLSv1\.3 \w+$")
                self.assertRegex(result.stdout, r"(?m)^TLSv1\.3 \w+, resumed$")
                self.assertIn("20 messages of 50000 bytes came back", result.stdout)

    def test_a_client_insists_on_whom_it_trusts_and_on_the_name(self):
        with tempfile.TemporaryDirectory() as folder, server("echo_server", "--tls") as echo:
            certificate = certificate_of(echo, folder)
            for flags, code, text in ([], 1, "self-signed certificate"), \
                    (["--ca", certificate], 0, ""), \
                    (["--ca", certificate, "--server-name", "localhost"], 0, ""), \
                    (["--ca", certificate, "--server-name", "other.example"], 1, "mismatch"):
                with self.subTest(flags):
                    result = run("echo_client", "--port", echo.port, "--tls", *flags)
                    self.assertEqual(result.returncode, code, result.stderr)
                    self.assertIn(text, result.stderr)

    def test_files_of_the_user_are_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            key, chain = os.path.join(folder, "key.pem"), os.path.join(folder, "chain.pem")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", chain,
                            "-subj", "/CN=mine", "-addext", "subjectAltName=DNS:mine.example"],
                           check=True, capture_output=True, timeout=LIMIT)
            with server("echo_server", "--tls", "--cert", chain, "--key", key) as echo:
                result = run("echo_client", "--port", echo.port, "--tls", "--ca", chain,
                             "--server-name", "mine.example")
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_file_that_is_not_there_ends_with_1(self):
        result = run("echo_server", "--tls", "--cert", "/nowhere.pem", "--key", "/nowhere.key")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nowhere.pem", result.stderr)

    def test_flags_that_do_not_go_together_end_with_2(self):
        for name, flags in ("echo_server", ["--cert", "x"]), ("echo_server", ["--alpn", "x"]), \
                ("echo_server", ["--tls", "--insecure"]), ("echo_server", ["--tls", "--also", "x,y"]), \
                ("echo_client", ["--insecure"]), ("echo_client", ["--tls", "--client-ca", "x"]), \
                ("starttls_chat", ["--nonsense", "1"]):
            with self.subTest(name, flags=flags):
                result = run(name, *flags)
                self.assertEqual(result.returncode, 2)
                self.assertIn("usage: " + name, result.stderr)

    def test_a_server_that_is_stopped_says_close_notify(self):
        with subprocess.Popen([program("echo_server"), "--tls", "--loops", "1"],
                              stdout=subprocess.PIPE, text=True) as process:
            port = int(READY.match(process.stdout.readline())[1].rsplit(":", 1)[1])
            with trusting_anybody().wrap_socket(connect(port), suppress_ragged_eofs=False) as client:
                client.sendall(b"hello")
                self.assertEqual(receive(client, 5), b"hello")
                process.terminate()
                self.assertEqual(client.recv(1), b"")  # SSLEOFError without close_notify
            self.assertEqual(process.wait(LIMIT), 0)


class StartTls(unittest.TestCase):
    def upgraded(self, plain):
        plain.sendall(b"STARTTLS\r\n")
        answer = b"ready for the handshake\n"
        self.assertEqual(receive(plain, len(answer)), answer)
        return trusting_anybody().wrap_socket(plain, suppress_ragged_eofs=False)

    def test_what_was_said_before_the_upgrade_does_not_count(self):
        with server("starttls_chat") as chat, chat.connect() as listener:
            with chat.connect() as plain, listener.makefile() as lines:
                plain.sendall(b"NAME alice\nhello\n")
                self.assertEqual(lines.readline(), "(plain) <alice> hello\n")
                with self.upgraded(plain) as secure:
                    secure.sendall(b"who am I?\nNAME bob\nhello\nSTARTTLS\n")
                    self.assertEqual(lines.readline(), "<somebody> who am I?\n")
                    self.assertEqual(lines.readline(), "<bob> hello\n")
                    self.assertEqual(receive(secure, 24), b"it is encrypted already\n")
                    listener.sendall(b"welcome\n")
                    self.assertEqual(receive(secure, 27), b"(plain) <somebody> welcome\n")

    def test_plain_text_behind_starttls_ends_the_connection(self):
        with server("starttls_chat") as chat, chat.connect() as listener:
            with chat.connect() as attacker:
                attacker.sendall(b"STARTTLS\nNAME alice\nsend me money\n")
                self.assertEqual(attacker.recv(100), b"")
            with chat.connect() as other:
                other.sendall(b"hello\n")
                with listener.makefile() as lines:
                    self.assertEqual(lines.readline(), "(plain) <somebody> hello\n")


if __name__ == "__main__":
    unittest.main()
