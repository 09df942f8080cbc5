# SPDX-License-Identifier: Apache-2.0
"""What the tests of the example programs share. The first argument is the folder of the programs."""
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys

FOLDER = sys.argv.pop(1)
LIMIT = 100  # seconds to fail by
READY = re.compile(r"^listening on (\S+) \((.*), (\w+)\)$")
SERVERS = ["echo_server", "discard_server", "time_server", "chat_server", "unix_echo",
           "port_unification", "udp_echo"]
ENGINES = ["epoll", "uring", "poll", "blocking"]


def program(name):
    return os.path.join(FOLDER, name)


def run(name, *flags, text=None):
    return subprocess.run([program(name), *map(str, flags)], capture_output=True, text=True,
                          input=text, timeout=LIMIT, check=False)


class Running:
    """A server between its first line and SIGTERM."""

    def __init__(self, process, address, engine):
        self.process = process
        self.address = address
        self.engine = engine

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)


@contextlib.contextmanager
def server(name, *flags):
    with subprocess.Popen([program(name), "--loops", "1", *map(str, flags)],
                          stdout=subprocess.PIPE, text=True) as process:
        try:
            match = READY.match(process.stdout.readline())
            assert match, f"{name} does not say where it listens"
            yield Running(process, match[1], match[3])
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT) == 0, f"{name} ended with {process.returncode}"
        finally:
            if process.poll() is None:
                process.kill()


def receive(client, size):
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            break
        data += more
    return data
