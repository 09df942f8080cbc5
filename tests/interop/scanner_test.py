# SPDX-License-Identifier: Apache-2.0
"""What programs that look for weaknesses find in our echo server: nothing."""
import json
import subprocess
import unittest
import xml.etree.ElementTree as xml

from peers import file, local, local_with_rsa, needs
from programs import server

SCAN_LIMIT = 580  # seconds to fail by: testssl.sh makes some hundred connections

# All that we mean to offer, by OpenSSL's names: forward secrecy and authenticated encryption.
GOOD_13 = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
GOOD_12 = {"ECDHE-{}-AES128-GCM-SHA256", "ECDHE-{}-AES256-GCM-SHA384", "ECDHE-{}-CHACHA20-POLY1305"}
GOOD_GROUPS = {"x25519", "secp256r1 (NIST P-256)", "secp384r1 (NIST P-384)"}


def scan(command):
    return subprocess.run(command, capture_output=True, text=True, timeout=SCAN_LIMIT, check=False)


class ScannerTest(unittest.TestCase):
    @needs("sslscan", "openssl")
    def test_sslscan_finds_what_we_mean_to_offer_and_no_more(self):
        for kind, who in ("ECDSA", local()), ("RSA", local_with_rsa()):
            with self.subTest(kind), server("echo_server", "--tls", *who.flags) as echo:
                result = scan(["sslscan", "--no-colour", "--xml=-", f"127.0.0.1:{echo.port}"])
                found = xml.fromstring(result.stdout).find("ssltest")
                offered = {each.get("type") + each.get("version")
                           for each in found.iter("protocol") if each.get("enabled") == "1"}
                self.assertEqual(offered, {"tls1.2", "tls1.3"})
                ciphers = {each.get("cipher") for each in found.iter("cipher")}
                self.assertEqual(ciphers, GOOD_13 | {each.format(kind) for each in GOOD_12})
                groups = {each.get("name") for each in found.iter("group")}
                self.assertEqual(groups, GOOD_GROUPS)
                for each in found.iter("heartbleed"):
                    self.assertEqual(each.get("vulnerable"), "0")
                for each in found.iter("compression"):
                    self.assertEqual(each.get("supported"), "0")

    @needs("testssl", "openssl")
    def test_testssl_finds_nothing_to_complain_about(self):
        report = file("testssl.json")
        with server("echo_server", "--tls", *local().flags) as echo:
            # It asks no name server, calls nobody, and needs no binary of its own.
            result = scan(["testssl", "--quiet", "--color", "0", "--warnings", "off", "--nodns",
                           "none", "--ip", "127.0.0.1", "--openssl", "/usr/bin/openssl",
                           "--jsonfile", report, "--protocols", "--standard", "--fs",
                           "--server-preference", "--vulnerable", f"127.0.0.1:{echo.port}"])
        with open(report, encoding="utf-8") as lines:
            findings = {each["id"]: each for each in json.load(lines)}
        findings.pop("engine_problem", None)  # of its openssl, which has no GOST
        # INFO is what has no verdict, such as a check for HTTP only; DEBUG that we do not speak HTTP.
        complaints = [each for each in findings.values()
                      if each["severity"] not in ("OK", "INFO", "DEBUG")]
        self.assertEqual(complaints, [], result.stdout)
        for version, offered in ("SSLv2", False), ("SSLv3", False), ("TLS1", False), \
                ("TLS1_1", False), ("TLS1_2", True), ("TLS1_3", True):
            self.assertEqual(findings[version]["finding"].startswith("offered"), offered, version)
        for check in "heartbleed", "CCS", "secure_renego", "secure_client_renego", "LUCKY13", "RC4", \
                "SWEET32", "FREAK", "LOGJAM", "BEAST", "cipherlist_NULL", "cipherlist_aNULL":
            self.assertEqual(findings[check]["severity"], "OK", check)
