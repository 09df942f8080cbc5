# SPDX-License-Identifier: Apache-2.0
"""Our programs and Python's ssl module, which sees more of its own end than openssl's commands show."""
import contextlib
import select
import socket
import ssl
import subprocess
import threading
import time
import unittest

from peers import authority, identity, local, needs
from programs import LIMIT, program, receive, run, server

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def context_of(version, end):
    context = ssl.SSLContext(end)
    context.minimum_version = context.maximum_version = version
    context.load_verify_locations(authority().cert)
    return context


def exchange(client, text):
    """Sends `text` and receives as much, by turns: before 3.13, Python's ssl module does not keep
    two threads out of one connection, and a thread that reads takes the other's trouble for the end."""
    client.setblocking(False)
    unsent, received, deadline = memoryview(text), bytearray(), time.monotonic() + LIMIT
    while len(received) < len(text):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(received)} of {len(text)} bytes came back")
        moved = 0
        with contextlib.suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError):
            moved = client.send(unsent[:65536]) if unsent else 0
            unsent = unsent[moved:]
        with contextlib.suppress(ssl.SSLWantReadError):
            part = client.recv(65536)
            if not part:
                raise EOFError(f"the server ended after {len(received)} bytes")
            received += part
            moved += len(part)
        if not moved:
            select.select([client], [client] if unsent else [], [], LIMIT)
    return bytes(received)


@needs("openssl")
class PythonClient(unittest.TestCase):
    def connect(self, echo, context, **options):
        plain = socket.create_connection(("127.0.0.1", echo.port), timeout=LIMIT)
        return context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False,
                                   **options)

    def echo_server(self, *flags):
        return server("echo_server", "--tls", *local().flags, *flags)

    def test_much_goes_there_and_back(self):
        text = bytes(range(256)) * 20000
        for version in VERSIONS:
            context = context_of(version, ssl.PROTOCOL_TLS_CLIENT)
            with self.subTest(version), self.echo_server() as echo, \
                    self.connect(echo, context) as client:
                self.assertEqual(client.version(), version.name.replace("_", "."))
                self.assertEqual(exchange(client, text), text)

    def test_close_notify_is_answered(self):
        for version in VERSIONS:
            context = context_of(version, ssl.PROTOCOL_TLS_CLIENT)
            with self.subTest(version), self.echo_server() as echo, \
                    self.connect(echo, context) as client:
                client.sendall(b"last words")
                self.assertEqual(receive(client, 10), b"last words")
                with client.unwrap() as plain:  # says it, and waits for the server's
                    self.assertEqual(plain.recv(1), b"")

    def test_sessions_go_on(self):
        for version in VERSIONS:
            context = context_of(version, ssl.PROTOCOL_TLS_CLIENT)
            with self.subTest(version), self.echo_server() as echo:
                session = None
                for turn in range(3):
                    with self.connect(echo, context, session=session) as client:
                        client.sendall(b"hello")
                        self.assertEqual(receive(client, 5), b"hello")
                        self.assertEqual(client.session_reused, turn > 0)
                        session = client.session

    def test_many_clients_at_once(self):
        context = context_of(ssl.TLSVersion.TLSv1_3, ssl.PROTOCOL_TLS_CLIENT)
        with self.echo_server() as echo, contextlib.ExitStack() as stack:
            clients = [stack.enter_context(self.connect(echo, context)) for _ in range(100)]
            for number, client in enumerate(clients):
                client.sendall(b"%5d" % number)
            for number, client in enumerate(clients):
                self.assertEqual(receive(client, 5), b"%5d" % number)


@needs("openssl")
class PythonServer(unittest.TestCase):
    """One connection at a time; `behave` has the server's end."""

    @contextlib.contextmanager
    def serving(self, version, behave, *flags, connections=1, **settings):
        context = context_of(version, ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(local().cert, local().key)
        for name, value in settings.items():
            (getattr(context, name)(value) if callable(getattr(context, name))
             else setattr(context, name, value))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(LIMIT)
            command = [program("echo_client"), "--port", str(listener.getsockname()[1]), "--tls",
                       "--ca", authority().cert, "--messages", "1", "--connections",
                       str(connections), *flags]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) as client:
                for _ in range(connections):
                    plain, _ = listener.accept()
                    plain.settimeout(LIMIT)
                    behave(context.wrap_socket(plain, server_side=True, suppress_ragged_eofs=False))
                said, problem = client.communicate(timeout=LIMIT)
                yield client.returncode, said, problem

    def test_sees_our_close_notify_and_our_name(self):
        for version in VERSIONS:
            names = []

            def behave(peer):
                with peer:
                    peer.sendall(receive(peer, 64))
                    self.assertEqual(peer.recv(1), b"")  # SSLEOFError without close_notify
                    self.assertEqual(peer.selected_alpn_protocol(), "echo")
                    peer.unwrap().close()

            with self.subTest(version), self.serving(
                    version, behave, "--alpn", "other,echo", "--server-name", "localhost",
                    sni_callback=lambda _, name, __: names.append(name),
                    set_alpn_protocols=["echo"]) as (code, _, problem):
                self.assertEqual((code, names), (0, ["localhost"]), problem)

    def test_sessions_go_on(self):
        for version in VERSIONS:
            reused = []

            def behave(peer):
                with peer:
                    peer.sendall(receive(peer, 64))
                    self.assertEqual(peer.recv(1), b"")
                    reused.append(peer.session_reused)

            with self.subTest(version), \
                    self.serving(version, behave, connections=3) as (code, said, problem):
                self.assertEqual((code, reused), (0, [False, True, True]), problem)
                self.assertEqual(said.count("resumed"), 2)

    def test_a_stream_without_close_notify_is_told(self):
        for version in VERSIONS:
            def behave(peer):
                receive(peer, 64)
                peer.sendall(b"x" * 10)
                # As an attacker would: the end of the stream, and nothing of TLS.
                with socket.socket(fileno=peer.detach()) as plain:
                    plain.settimeout(LIMIT)
                    plain.shutdown(socket.SHUT_WR)
                    while plain.recv(4096):
                        pass

            with self.subTest(version), \
                    self.serving(version, behave) as (code, _, problem):
                self.assertEqual(code, 1)
                self.assertIn("close_notify", problem)

    def test_asks_for_our_certificate(self):
        guest = identity("guest")
        for version in VERSIONS:
            shown = []

            def behave(peer):
                with peer:
                    peer.sendall(receive(peer, 64))
                    shown.append(peer.getpeercert()["subject"])
                    self.assertEqual(peer.recv(1), b"")

            with self.subTest(version), self.serving(
                    version, behave, *guest.flags, verify_mode=ssl.CERT_REQUIRED) as (code, _, why):
                self.assertEqual(code, 0, why)
                self.assertEqual(shown, [((("commonName", "guest"),),)])

    def test_plain_text_is_no_tls(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def answer():
                plain, _ = listener.accept()
                with plain:
                    plain.sendall(b"220 mail.example at your service\r\n")
                    while plain.recv(4096):
                        pass
            thread = threading.Thread(target=answer)
            thread.start()
            result = run("echo_client", "--port", listener.getsockname()[1], "--tls", "--insecure")
            thread.join()
            self.assertEqual(result.returncode, 1)
            self.assertIn("not TLS", result.stderr)
