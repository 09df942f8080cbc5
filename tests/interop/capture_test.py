# SPDX-License-Identifier: Apache-2.0
"""A capture of the loopback device that tshark reads with our key log, and cannot read without."""
import contextlib
import subprocess
import threading
import time
import unittest

from peers import VERSIONS, authority, file, local, needs, s_server, talk
from programs import LIMIT, run, server


@contextlib.contextmanager
def captured(port, target):
    """Captures what goes to and from this port until the end of the block."""
    command = ["tshark", "-i", "lo", "-f", f"tcp port {port}", "-w", target]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as capture:
        limit = threading.Timer(LIMIT, capture.kill)
        limit.start()
        try:
            said = ""
            while "Capture started" not in said:
                line = capture.stderr.readline()
                if not line:
                    raise unittest.SkipTest("tshark may not capture here: " + said)
                said += line
            yield
        finally:
            limit.cancel()
            capture.terminate()


def read_by_tshark(target, port, *keys):
    """The plaintext of the first connection, as far as it can be read."""
    command = ["tshark", "-n", "-r", target, *keys, "-d", f"tcp.port=={port},tls", "-Q", "-z",
               "follow,tls,ascii,0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT,
                          check=False).stdout


@needs("tshark", "openssl")
class CaptureTest(unittest.TestCase):
    def can_be_read(self, text, target, port, key_log):
        """tshark writes its file when it likes to, so this looks again until the text is there."""
        end = time.monotonic() + LIMIT
        read = ""
        while text not in read and time.monotonic() < end:
            read = read_by_tshark(target, port, "-o", f"tls.keylog_file:{key_log}")
        self.assertIn(text, read)
        self.assertNotIn(text, read_by_tshark(target, port))  # without the key log

    def test_the_key_log_of_a_server_opens_its_connections(self):
        for version, flag in VERSIONS.items():
            keys, target = file(f"server{flag}.keys"), file(f"server{flag}.pcap")
            with self.subTest(version), \
                    server("echo_server", "--tls", *local().flags, "--keylog", keys) as echo, \
                    captured(echo.port, target):
                came, seen = talk(echo.port, flag)
                self.assertTrue(came, seen)
                self.can_be_read("hello\n", target, echo.port, keys)

    def test_the_key_log_of_a_client_opens_its_connections(self):
        for version, flag in VERSIONS.items():
            keys, target = file(f"client{flag}.keys"), file(f"client{flag}.pcap")
            with self.subTest(version), s_server(flag) as (port, _), captured(port, target):
                result = run("echo_client", "--port", port, "--tls", "--ca", authority().cert,
                             "--messages", 1, "--size", 10, "--keylog", keys)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.can_be_read("x" * 10, target, port, keys)
