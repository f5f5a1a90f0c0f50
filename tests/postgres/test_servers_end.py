"""The tests' own servers end when they are told to, whoever is connected and says nothing."""

from __future__ import annotations

import os
import signal
import socket
import time

import psycopg
import pytest
from postgres_servers import READY, Server

SILENT = 1
"""Seconds that the server waits for whoever says nothing; 60 unless that is set."""


@pytest.fixture
def server():
    server = Server(authentication_timeout=f"{SILENT}s")
    yield server
    server.remove()


@pytest.mark.parametrize("way", ["stop", "crash"])
def test_a_server_ends_although_somebody_who_says_nothing_connects_while_it_does(server, way):
    """As a paused process does, or one whose traffic is held back."""
    with psycopg.connect(server.url) as connection:
        held_up = connection.info.backend_pid
        process = server.process
        os.kill(held_up, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)  # it waits for that one as long as it takes
        wait_until_logged(server, "shutdown request")
        with socket.create_connection((server.host, server.port)) as silent:
            os.kill(held_up, signal.SIGCONT)
            begin = time.monotonic()
            getattr(server, way)()
            assert silent.recv(1) == b""
        assert process.returncode == 0
        assert time.monotonic() - begin < READY
    server.start()
    assert server.run("select 1") == [(1,)]


def wait_until_logged(server, what):
    log = server.folder / "log"
    end = time.monotonic() + READY
    while what not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.01)
