# SPDX-License-Identifier: Apache-2.0
"""Our echo client and `openssl s_server`."""
import subprocess
import unittest

from peers import VERSIONS, authority, expired, file, identity, needs, s_server
from programs import program, run

WEAK = ["-cipher", "ALL:@SECLEVEL=0"]


def echo(port, *flags, trusted=None):
    """Believes our authority, or `trusted`."""
    return run("echo_client", "--port", port, "--tls", "--messages", 3, "--ca",
               trusted or authority().cert, *flags)


@needs("openssl")
class SServerTest(unittest.TestCase):
    def good(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("messages of", result.stdout)
        return result.stdout

    def refused(self, words, result):
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stderr, words)

    def test_messages_come_back(self):
        for version, flag in VERSIONS.items():
            with self.subTest(version), s_server(flag) as (port, _):
                said = self.good(echo(port, "--server-name", "localhost"))
                self.assertRegex(said, f"(?m)^{version} ")
                self.good(echo(port, "--size", 20000))  # by address, and several records

    def test_a_wrong_host_is_refused(self):
        for version, flag in VERSIONS.items():
            with self.subTest(version), s_server(flag) as (port, _):
                self.refused("hostname mismatch.*for localhost",
                             echo(port, "--server-name", "other.example"))
                self.refused("IP address mismatch", echo(port, "--server-name", "127.0.0.2"))

    def test_a_name_in_the_subject_alone_does_not_count(self):
        with s_server(who=identity("nameless")) as (port, _):
            self.refused("hostname mismatch", echo(port, "--server-name", "nameless"))

    def test_an_expired_certificate_is_refused(self):
        for version, flag in VERSIONS.items():
            with self.subTest(version), s_server(flag, who=expired()) as (port, _):
                self.refused("certificate has expired", echo(port))

    def test_an_unknown_authority_is_refused(self):
        with s_server() as (port, _):
            self.refused("certificate", echo(port, trusted=authority("strangers").cert))

    def test_without_trust_the_system_decides(self):
        with s_server() as (port, _):
            self.refused("certificate", run("echo_client", "--port", port, "--tls"))

    def test_insecure_believes_anybody(self):
        with s_server(who=expired()) as (port, _):
            self.good(run("echo_client", "--port", port, "--tls", "--insecure", "--server-name",
                          "other.example"))

    def test_sessions_go_on(self):
        for version, flag in VERSIONS.items():
            with self.subTest(version), s_server(flag) as (port, _):
                said = self.good(echo(port, "--connections", 4))
                self.assertEqual(said.count(version), 4, said)
                self.assertEqual(said.count("resumed"), 3, said)

    def test_sessions_without_tickets_go_on(self):
        with s_server("-tls1_2", "-no_ticket") as (port, _):
            said = self.good(echo(port, "--connections", 3))
            self.assertEqual(said.count("resumed"), 2, said)

    def test_the_protocol_that_the_server_chose_is_known(self):
        for version, flag in VERSIONS.items():
            with self.subTest(version), s_server(flag, "-alpn", "one,echo") as (port, _):
                self.assertIn("protocol echo", self.good(echo(port, "--alpn", "other,echo")))
                self.assertNotIn("protocol", self.good(echo(port)))

    def test_client_certificates(self):
        good, bad = identity("guest"), identity("stranger", signed_by="strangers")
        asks = ["-Verify", "1", "-verify_return_error", "-CAfile", authority().cert]
        for version, flag in VERSIONS.items():
            with self.subTest(version), s_server(flag, *asks) as (port, _):
                self.good(echo(port, *good.flags))
                self.refused("the peer says", echo(port))
                self.refused("the peer says: unknown ca", echo(port, *bad.flags))

    def test_old_versions_are_refused(self):
        for flag in "-tls1", "-tls1_1":
            with self.subTest(flag), s_server(flag, *WEAK) as (port, _):
                self.refused("protocol version", echo(port))

    def test_ciphers_without_forward_secrecy_or_authentication_are_refused(self):
        for cipher in "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384":
            with self.subTest(cipher), \
                    s_server("-tls1_2", "-cipher", cipher + ":@SECLEVEL=0") as (port, _):
                self.refused("handshake failure", echo(port))

    def test_the_end_is_said_by_close_notify(self):
        for version, flag in VERSIONS.items():
            log = file("messages" + flag)
            with self.subTest(version), s_server(flag, "-msg", "-msgfile", log, "-naccept", "1") \
                    as (port, process):
                self.good(echo(port))
                process.wait()
                with open(log, encoding="utf-8") as lines:
                    self.assertRegex(lines.read(), "(?s)<<< [^\n]*close_notify")

    def test_renegotiation_is_refused(self):
        with s_server("-tls1_2", "-msg", echoes=False) as (port, process):
            command = [program("echo_client"), "--port", str(port), "--tls", "--ca",
                       authority().cert]
            with subprocess.Popen(command) as client:
                seen = read_until("CIPHER is", process)
                process.stdin.write(b"r\n")
                process.stdin.flush()
                seen += read_until("no_renegotiation", process)
                client.kill()
            self.assertRegex(seen, "<<< .*no_renegotiation")


def read_until(words, process):
    """The lines up to one that has these words, or all."""
    seen = ""
    for line in process.stdout:
        seen += line.decode(errors="replace")
        if words in seen:
            break
    return seen
