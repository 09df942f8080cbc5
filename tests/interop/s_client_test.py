# SPDX-License-Identifier: Apache-2.0
"""Our echo server and `openssl s_client`."""
import os
import re
import signal
import unittest

from peers import VERSIONS, SClient, authority, file, identity, local, needs, talk
from programs import LIMIT, server

AT_ANY_LEVEL = ":@SECLEVEL=0"  # the client offers what it is told to, however weak


def content(path):
    with open(path, "rb") as opened:
        return opened.read()


def echo_server(*flags):
    return server("echo_server", "--tls", *local().flags, *flags)


@needs("openssl")
class SClientTest(unittest.TestCase):
    def came(self, port, *flags):
        came, seen = talk(port, *flags)
        self.assertTrue(came, seen)
        return seen

    def refused(self, words, port, *flags):
        came, seen = talk(port, *flags)
        self.assertFalse(came, seen)
        self.assertRegex(seen, words)

    def test_a_line_comes_back_and_the_certificate_is_good(self):
        with echo_server() as echo:
            for version, flag in VERSIONS.items():
                with self.subTest(version):
                    seen = self.came(echo.port, flag, "-CAfile", authority().cert,
                                     "-verify_return_error", "-verify_hostname", "localhost")
                    self.assertRegex(seen, f"(?m)^New, {version}, Cipher is ")
                    self.assertIn("Verify return code: 0 (ok)", seen)

    def test_the_certificate_is_chosen_by_name(self):
        one = identity("one", "DNS:one.example")
        wild = identity("wild", "DNS:*.wild.example")
        also = [f"one.example,{one.cert},{one.key}", f"*.wild.example,{wild.cert},{wild.key}"]
        with echo_server("--also", also[0], "--also", also[1]) as echo:
            for name, subject in ("one.example", "one"), ("ONE.example", "one"), \
                    ("any.wild.example", "wild"), ("a.b.wild.example", "local"), \
                    ("other.example", "local"), (None, "local"):
                for version, flag in VERSIONS.items():
                    with self.subTest(name, version=version):
                        asked = ["-servername", name] if name else ["-noservername"]
                        seen = self.came(echo.port, flag, *asked)
                        self.assertRegex(seen, f"(?m)^subject=CN ?= ?{subject}$")

    def test_the_servers_first_common_protocol_is_chosen(self):
        with echo_server("--alpn", "first,second") as echo:
            for version, flag in VERSIONS.items():
                for offered, chosen in ("second,first", "ALPN protocol: first"), \
                        ("other,second", "ALPN protocol: second"), (None, "No ALPN negotiated"):
                    with self.subTest(offered, version=version):
                        asked = ["-alpn", offered] if offered else []
                        self.assertIn(chosen, self.came(echo.port, flag, *asked))

    def test_a_client_without_a_common_protocol_is_refused(self):
        with echo_server("--alpn", "first,second") as echo:
            for version, flag in VERSIONS.items():
                with self.subTest(version):
                    self.refused("alert no application protocol", echo.port, flag, "-alpn", "other")

    def test_sessions_go_on(self):
        ticket = file("session")
        with echo_server() as echo:
            for version, flag in VERSIONS.items():
                old = self.came(echo.port, flag, "-sess_out", ticket)
                self.assertIn(f"New, {version}", old)
                for turn in range(3):
                    with self.subTest(version, turn=turn):
                        before = content(ticket)
                        seen = self.came(echo.port, flag, "-sess_in", ticket, "-sess_out", ticket)
                        self.assertIn(f"Reused, {version}", seen)
                        # A ticket of TLS 1.3 is for once: there has to be another one.
                        self.assertEqual(content(ticket) == before, version == "TLSv1.2")

    def test_a_session_of_another_server_does_not_go_on(self):
        with echo_server() as echo:
            for flag in VERSIONS.values():
                self.came(echo.port, flag, "-sess_out", file("foreign" + flag))
        with echo_server() as echo:  # with ticket keys of its own
            for version, flag in VERSIONS.items():
                with self.subTest(version):
                    seen = self.came(echo.port, flag, "-sess_in", file("foreign" + flag))
                    self.assertIn(f"New, {version}", seen)

    def test_reconnect_resumes_each_time(self):
        with echo_server() as echo:
            seen = self.came(echo.port, "-tls1_2", "-reconnect")
            self.assertEqual(seen.count("Reused, TLSv1.2"), 5, seen)
            self.assertEqual(seen.count("New, TLSv1.2"), 1, seen)

    def test_client_certificates(self):
        good, bad = identity("guest"), identity("stranger", signed_by="strangers")
        with echo_server("--client-ca", authority().cert) as echo:
            for version, flag in VERSIONS.items():
                missing = "certificate required" if version == "TLSv1.3" else "handshake failure"
                with self.subTest(version):
                    seen = self.came(echo.port, flag, *good.openssl_flags)
                    self.assertRegex(seen, "(?m)^CN ?= ?ca$")  # whom we believe is told
                    self.refused(f"alert {missing}", echo.port, flag)
                    self.refused("alert unknown ca", echo.port, flag, *bad.openssl_flags)

    def test_sessions_with_client_certificates_go_on(self):
        with echo_server("--client-ca", authority().cert) as echo:
            for version, flag in VERSIONS.items():
                with self.subTest(version):
                    self.came(echo.port, flag, *identity("guest").openssl_flags,
                              "-sess_out", file("guest.session"))
                    seen = self.came(echo.port, flag, "-sess_in", file("guest.session"))
                    self.assertIn(f"Reused, {version}", seen)

    def test_old_versions_are_refused(self):
        with echo_server() as echo:
            for flag in "-tls1", "-tls1_1":
                with self.subTest(flag):
                    self.refused("alert protocol version", echo.port, flag, "-cipher",
                                 "ALL" + AT_ANY_LEVEL)

    def test_ciphers_without_forward_secrecy_or_authentication_are_refused(self):
        with echo_server() as echo:
            for cipher in "AES128-SHA", "AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-SHA", \
                    "ECDHE-ECDSA-AES256-SHA384", "AECDH-AES128-SHA", "eNULL":
                with self.subTest(cipher):
                    self.refused("alert handshake failure", echo.port, "-tls1_2", "-cipher",
                                 cipher + AT_ANY_LEVEL)

    def test_every_good_cipher_is_spoken(self):
        with echo_server() as echo:
            for cipher in "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", \
                    "ECDHE-ECDSA-CHACHA20-POLY1305":
                with self.subTest(cipher):
                    self.assertIn(f"New, TLSv1.2, Cipher is {cipher}",
                                  self.came(echo.port, "-tls1_2", "-cipher", cipher))
            for cipher in "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", \
                    "TLS_CHACHA20_POLY1305_SHA256":
                with self.subTest(cipher):
                    self.assertIn(f"New, TLSv1.3, Cipher is {cipher}",
                                  self.came(echo.port, "-tls1_3", "-ciphersuites", cipher))

    def test_a_first_guess_of_the_group_may_be_wrong(self):
        """The server asks for another key share: HelloRetryRequest."""
        with echo_server() as echo:
            seen = self.came(echo.port, "-tls1_3", "-groups", "P-521:P-256", "-msg")
            self.assertEqual(len(re.findall(">>> .*ClientHello", seen)), 2, seen)

    def test_renegotiation_is_refused(self):
        with echo_server() as echo, SClient(echo.port, "-tls1_2") as client:
            client.say("hello\n")
            self.assertTrue(client.until("^hello$"), client.seen)
            client.say("R\n")
            self.assertIn("no renegotiation", client.end())

    def test_new_keys_may_come_at_any_time(self):
        with echo_server() as echo, SClient(echo.port, "-tls1_3") as client:
            for command in "k\n", "K\n", "K\n":  # ours, and both
                client.say(command)
                self.assertTrue(client.until("KEYUPDATE"), client.seen)
                client.say("hello\n")
                self.assertTrue(client.until("^hello$"), client.seen)

    def test_short_records_are_read(self):
        with echo_server() as echo:
            self.came(echo.port, "-tls1_2", "-maxfraglen", "512")
            self.came(echo.port, "-max_send_frag", "512")

    def test_a_server_that_stops_says_close_notify(self):
        for version, flag in VERSIONS.items():
            with self.subTest(version), echo_server() as echo, \
                    SClient(echo.port, flag, "-msg") as client:
                client.say("hello\n")
                self.assertTrue(client.until("^hello$"), client.seen)
                os.kill(echo.process.pid, signal.SIGTERM)
                self.assertTrue(client.until("<<< .*close_notify"), client.seen)
                self.assertEqual(echo.process.wait(LIMIT), 0)
