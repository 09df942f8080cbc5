# SPDX-License-Identifier: Apache-2.0
"""The TLS servers: which there are, their certificate, and nginx with the bare echo server behind it."""

import pathlib
import resource
import shutil
import socket
import subprocess
import time

import servers  # of ../echo
from servers import Failure

NGINX, NGINX_ALONE, ASIO = "nginx", "nginx-alone", "asio"
# In the order of the tables, with the reason why one may be missing. Ours runs once per engine.
PEERS = {
    servers.OURS: "built without OpenSSL 3",
    NGINX: "nginx or libnginx-mod-stream is not installed",
    ASIO: "libasio-dev is not installed",
}
HANDSHAKE_TIMEOUT = 3  # of ours and nginx's
MODULE = pathlib.Path("/usr/lib/nginx/modules/ngx_stream_module.so")

NGINX_CONFIG = """\
load_module {module};
daemon off;
master_process off;
pid {folder}/nginx.{port}.pid;
events {{ worker_connections 8192; }}
stream {{
  server {{
    listen 127.0.0.1:{port} ssl backlog=4096;
    ssl_certificate {chain};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_session_tickets on;
    ssl_handshake_timeout {timeout}s;
    {then};
  }}
}}
"""


class TlsServer(servers.Server):
    load = "bench_tls_load"


class Behind(servers.Server):
    """The echo server that nginx passes everything to. On the load's core, so that nginx has one for itself."""

    core = servers.LOAD_CORE


class Nginx(TlsServer):
    """One process, configured for this run: behind it the bare echo server, or nobody (it ends what it accepted)."""

    def __init__(self, name, setup, under=()):
        self._behind = Behind("bare", setup["bare"]) if name == NGINX else None
        then = f"proxy_pass 127.0.0.1:{self._behind.port}" if self._behind else 'return ""'
        self._configured = free_port()
        path = setup["folder"] / f"nginx.{self._configured}.conf"
        path.write_text(NGINX_CONFIG.format(module=MODULE, port=self._configured, then=then,
                                            timeout=HANDSHAKE_TIMEOUT, **setup))
        try:
            super().__init__(name, ["nginx", "-e", "stderr", "-p", str(setup["folder"]), "-c", str(path)], under)
        except Failure:
            self._stop_behind()
            raise
        finally:
            path.unlink()

    def _await_port(self):
        deadline = time.monotonic() + servers.START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._configured)) == 0:
                    return self._configured
            time.sleep(0.05)
        raise Failure(f"{self.name} does not start: {self._stderr()[-300:] or 'no answer'}")

    def _stop_behind(self):
        if self._behind:
            self._behind.stop()

    def stop(self):
        text = super().stop()
        self._stop_behind()
        return text


def start(name, command, under=()):
    return (TlsServer if isinstance(command, list) else Nginx)(name, command, under)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_certificate(folder):
    """(chain, key): ECDSA on P-256, the same for all."""
    chain, key = folder / "chain.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", key, "-out", chain, "-days", "30", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    return chain, key


def find(names, engines, programs, folder):
    """{peer: how to start it} of those that are there, and why the others are not."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # nginx does not raise its own
    chain, key = make_certificate(folder)
    found, missing = {}, {}
    for name in (n for n in PEERS if n in names):
        program = programs / f"bench_tls_{name}"
        if name == NGINX and shutil.which("nginx") and MODULE.exists():
            setup = {"bare": [str(programs / "bench_echo_bare")], "folder": folder, "chain": chain, "key": key}
            found[NGINX] = found[NGINX_ALONE] = setup
        elif name == servers.OURS and program.exists():
            for engine in engines:
                found[f"{name}-{engine}"] = [str(program), "0", str(chain), str(key), str(HANDSHAKE_TIMEOUT),
                                             "--io", engine]
        elif program.exists():
            found[name] = [str(program), "0", str(chain), str(key)]
        else:
            missing[name] = PEERS[name]
    found, unusable = servers.without_unusable(found)
    return found, {**missing, **unusable}
