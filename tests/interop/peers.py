# SPDX-License-Identifier: Apache-2.0
"""What the tests beside other programs share: certificates, and the two ends of the command openssl."""
import contextlib
import functools
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

from programs import LIMIT

VERSIONS = {"TLSv1.2": "-tls1_2", "TLSv1.3": "-tls1_3"}
FOLDER = tempfile.TemporaryDirectory(prefix="millrace-interop-")


def needs(*programs):
    """Skips a test, or a class of them, where one of these is not installed."""
    missing = [each for each in programs if shutil.which(each) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def file(name):
    return os.path.join(FOLDER.name, name)


# ---- certificates --------------------------------------------------------------------------------

def openssl(*words, **options):
    return subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=LIMIT,
                          **options)


AUTHORITY = """
[ca]
default_ca = here
[here]
database = {folder}/index.txt
rand_serial = yes
new_certs_dir = {folder}
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
"""


class Identity:
    """The files of a certificate and its key."""

    def __init__(self, name):
        self.cert, self.key = file(name + ".pem"), file(name + ".key")

    @property
    def flags(self):
        return ["--cert", self.cert, "--key", self.key]

    @property
    def openssl_flags(self):
        return ["-cert", self.cert, "-key", self.key]


NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
NEW_RSA_KEY = ["-newkey", "rsa:2048", "-nodes"]


def authority(name="ca"):
    return new_authority(name)


@functools.cache
def new_authority(name):
    made = Identity(name)
    openssl("req", "-x509", *NEW_KEY, "-keyout", made.key, "-out", made.cert, "-days", "2",
            "-subj", f"/CN={name}")
    return made


@functools.cache
def identity(name, names="", signed_by="ca", dates=("-days", "2"), is_rsa=False):
    """`names` as in an extension: "DNS:localhost,IP:127.0.0.1"."""
    issuer, made, request = authority(signed_by), Identity(name), file(name + ".csr")
    with open(file("ca.conf"), "w", encoding="ascii") as settings:
        settings.write(AUTHORITY.format(folder=FOLDER.name))
    with open(file("index.txt"), "a", encoding="ascii"):
        pass
    new_key = NEW_RSA_KEY if is_rsa else NEW_KEY
    openssl("req", "-new", *new_key, "-keyout", made.key, "-out", request, "-subj", f"/CN={name}",
            *(["-addext", f"subjectAltName={names}"] if names else []))
    openssl("ca", "-batch", "-notext", "-config", file("ca.conf"), "-cert", issuer.cert,
            "-keyfile", issuer.key, "-in", request, "-out", made.cert, *dates)
    return made


def local():
    return identity("local", "DNS:localhost,IP:127.0.0.1")


def local_with_rsa():
    return identity("rsa", "DNS:localhost,IP:127.0.0.1", is_rsa=True)


def expired():
    return identity("expired", "DNS:localhost,IP:127.0.0.1",
                    dates=("-startdate", "20200101000000Z", "-enddate", "20200201000000Z"))


# ---- openssl s_client ----------------------------------------------------------------------------

def stop(process):
    process.kill()
    process.wait()
    for pipe in process.stdin, process.stdout:
        with contextlib.suppress(BrokenPipeError):
            if pipe is not None:
                pipe.close()


class SClient:
    """A client between connect and its end. `seen` has all that it printed so far."""

    def __init__(self, port, *flags):
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *flags]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.limit = threading.Timer(LIMIT, self.process.kill)
        self.limit.start()
        self.seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.limit.cancel()
        stop(self.process)

    def say(self, text):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()

    def until(self, line):
        """True if a line like this came; False if the client has ended before."""
        for each in self.process.stdout:
            text = each.decode(errors="replace")
            self.seen += text
            if re.search(line, text):
                return True
        return False

    def end(self):
        """Closes its input, waits; everything it has said."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.seen += self.process.stdout.read().decode(errors="replace")
        self.process.wait()
        return self.seen


def talk(port, *flags):
    """One line there and back by s_client: whether it came, and what was printed."""
    with SClient(port, *flags) as client:
        client.say("hello\n")
        came = client.until("^hello$")
        return came, client.end()


# ---- openssl s_server ----------------------------------------------------------------------------

def port_of(pid):
    """Where a process listens, as soon as it does."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        sockets = set()
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
        for table in "tcp", "tcp6":
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
                for words in map(str.split, lines):
                    if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                        return int(words[1].rsplit(":", 1)[1], 16)
        time.sleep(0.01)
    raise TimeoutError(f"process {pid} does not listen")


@contextlib.contextmanager
def s_server(*flags, who=None, echoes=True):
    """Gives the port and the process. What comes is printed, and what is typed is sent: with its output
    as its input it is an echo server."""
    who = who or local()
    command = ["openssl", "s_server", "-accept", "127.0.0.1:0", *who.openssl_flags, *flags]
    if echoes:
        back, there = os.pipe()
        process = subprocess.Popen([*command, "-quiet"], stdin=back, stdout=there,
                                   stderr=subprocess.DEVNULL)
        os.close(back)
        os.close(there)
    else:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
    limit = threading.Timer(LIMIT, process.kill)
    limit.start()
    try:
        yield port_of(process.pid), process
    finally:
        limit.cancel()
        stop(process)
