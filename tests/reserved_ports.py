"""Ports for the servers of the tests, each for one process for as long as that runs.

A port that was merely free when it was looked for may be another's by the time a server listens on
it, or comes back to it: other tests start servers meanwhile, and every connection to any server of
the machine takes a port for its own end. So they are taken from below those that the system gives
away by itself, and a UDP socket on the same number, which nothing else here uses, marks each as
taken.
"""

from __future__ import annotations

import random
import socket

LOWEST, COUNT = 10_000, 10_000
"""A node of a Redis Cluster needs the port 10,000 above its own as well."""


def reserved_port() -> int:
    """A port of 127.0.0.1 that no other process of the tests is given while this one runs."""
    while True:
        port = LOWEST + random.randrange(COUNT)
        mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            mark.bind(("127.0.0.1", port))
            for needed in (port, port + COUNT):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", needed))
        except OSError:
            mark.close()
            continue
        mark.detach()  # it stays open until the process ends
        return port
