# SPDX-License-Identifier: Apache-2.0
"""What is timed, in interleaved rounds: the cells, and connecting."""

import collections

import servers
from servers import Failure

Cell = collections.namedtuple("Cell", "connections size pipeline")

CONNECTIONS = (1, 64, 1000)
SIZES = (64, 1024, 16384)
PIPELINES = (1, 16)
CELLS = [Cell(c, s, p) for c in CONNECTIONS for s in SIZES for p in PIPELINES]
QUICK_CELLS = [Cell(1, 64, 1), Cell(64, 64, 1), Cell(64, 64, 16), Cell(64, 1024, 1),
               Cell(64, 16384, 16), Cell(1000, 1024, 1)]
CONNECT = "connect"
CONNECT_SLOTS = 64

Pace = collections.namedtuple("Pace", "rounds seconds warm netty_warm cells")
FULL = Pace(3, 0.4, 0.1, 8, CELLS)
QUICK = Pace(2, 0.15, 0.05, 3, QUICK_CELLS)


def scenario(cell):
    return f"c{cell.connections}_m{cell.size}_p{cell.pipeline}"


class Fleet:
    """All servers at once, each asleep while another one is measured. One that failed is made anew."""

    def __init__(self, peers, start=servers.Server):
        self._peers = peers
        self._start = start
        self._servers = {}

    def server(self, name):
        if name not in self._servers:
            self._servers[name] = self._start(name, self._peers[name])
        return self._servers[name]

    def discard(self, name):
        server = self._servers.pop(name, None)
        if server:
            server.stop()

    def stop(self):
        for name in list(self._servers):
            self.discard(name)


def measure(peers, modes, pace, programs, results, say):
    """Runs the rounds; `modes` holds cells, connect or both."""
    wanted = [(scenario(cell), cell) for cell in pace.cells] if "cells" in modes else []
    if "connect" in modes:
        wanted.append((CONNECT, None))
    fleet = Fleet(peers)
    names = list(peers)
    try:
        if "netty" in names:
            say("netty: warm-up")
            warm_up(fleet, pace, programs, results, modes)
        interleave(fleet, names, wanted, pace.rounds, results, say,
                   lambda server, cell: run(server, cell, pace, programs))
    finally:
        fleet.stop()


def interleave(fleet, names, wanted, rounds, results, say, run_one):
    """Every round runs each of `wanted`, (scenario, what run_one() needs), with every peer in turn."""
    for number in range(rounds):
        for place, (name, what) in enumerate(wanted):
            shift = (number + place) % len(names)  # nobody is always first
            for peer in names[shift:] + names[:shift]:
                if (name, peer) in results.dropped:
                    continue
                say(f"round {number + 1} of {rounds}: {name} {peer}")
                try:
                    results.add(name, peer, run_one(fleet.server(peer), what))
                except Failure as failure:
                    results.failures.append(str(failure))
                    results.drop(name, peer)
                    fleet.discard(peer)


def run(server, cell, pace, programs):
    common = ["--warm", pace.warm, "--server", server.watched()]
    if cell is None:
        return servers.run_load(programs, server, "--connections", CONNECT_SLOTS, "--connect",
                                pace.seconds, *common)
    return servers.run_load(programs, server, "--connections", cell.connections, "--size", cell.size,
                            "--pipeline", cell.pipeline, "--seconds", pace.seconds, *common)


def warm_up(fleet, pace, programs, results, modes):
    """The compiler needs it: small, pipelined and large messages, and connecting."""
    try:
        server = fleet.server("netty")
        for size, pipeline in ((64, 1), (64, 16), (16384, 16), (1024, 1)):
            servers.run_load(programs, server, "--connections", 64, "--size", size, "--pipeline",
                             pipeline, "--seconds", pace.netty_warm / 4)
        if "connect" in modes:
            servers.run_load(programs, server, "--connections", 64, "--connect", pace.netty_warm / 4)
    except Failure as failure:
        results.failures.append(str(failure))
        fleet.discard("netty")
