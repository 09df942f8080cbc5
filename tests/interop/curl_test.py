# SPDX-License-Identifier: Apache-2.0
"""Our echo server and curl. An echo server answers HTTP if the request reads like an answer:

    HTTP/1.1 200 OK HTTP/1.1          method "HTTP/1.1 200", target "OK"
    Content-Length: 5
"""
import subprocess
import unittest

from peers import authority, identity, local, needs
from programs import LIMIT, server


def curl(port, *flags, host="localhost"):
    return subprocess.run(
        ["curl", "--silent", "--show-error", "--verbose", "--max-time", str(LIMIT), "--noproxy", "*",
         "--resolve", f"{host}:{port}:127.0.0.1", "--cacert", authority().cert, "--request",
         "HTTP/1.1 200", "--request-target", "OK", "--data", "hello", *flags,
         f"https://{host}:{port}/"], capture_output=True, text=True, timeout=LIMIT, check=False)


@needs("curl", "openssl")
class CurlTest(unittest.TestCase):
    def good(self, result):
        self.assertEqual((result.returncode, result.stdout), (0, "hello"), result.stderr)
        return result.stderr

    def refused(self, words, result):
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stderr, words)

    def test_gets_an_answer_by_each_version(self):
        with server("echo_server", "--tls", *local().flags) as echo:
            for flags, version in (["--tls-max", "1.2"], "TLSv1.2"), (["--tlsv1.3"], "TLSv1.3"):
                with self.subTest(version):
                    self.assertIn(f"SSL connection using {version}",
                                  self.good(curl(echo.port, *flags)))

    def test_agrees_on_http(self):
        with server("echo_server", "--tls", *local().flags, "--alpn", "http/1.1") as echo:
            self.assertRegex(self.good(curl(echo.port)), "ALPN.*http/1.1")

    def test_is_refused_without_a_common_protocol(self):
        with server("echo_server", "--tls", *local().flags, "--alpn", "other") as echo:
            self.refused("alert no application protocol", curl(echo.port))

    def test_refuses_a_wrong_host(self):
        with server("echo_server", "--tls", *local().flags) as echo:
            self.refused("(?i)no alternative certificate subject name",
                         curl(echo.port, host="other.example"))

    def test_shows_a_certificate(self):
        guest = identity("guest")
        with server("echo_server", "--tls", *local().flags, "--client-ca",
                    authority().cert) as echo:
            self.good(curl(echo.port, "--cert", guest.cert, "--key", guest.key))
            self.refused("certificate required", curl(echo.port))
