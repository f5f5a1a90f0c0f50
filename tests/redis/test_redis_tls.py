"""TLS, with an authority and certificates that the test makes: who is let in, and who is not."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from urllib.parse import quote

import pytest
import redis
import redis.asyncio
import valkey
from redis_servers import Cluster, Server, binary, reserved_port, wait_until

from joblock import AsyncJobLocks, JobLocks
from joblock.values.errors import StoreUnavailable


class Certificates:
    """An authority, and what it has signed: a server's certificate and a client's."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self._openssl(
            *("req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=an authority"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", "ca.key", "-out", "ca.crt"),
        )
        self._sign("server", "subjectAltName=IP:127.0.0.1")
        self._sign("elsewhere", "subjectAltName=DNS:db.example.org")
        self._sign("client", "extendedKeyUsage=clientAuth")

    def path(self, name):
        return str(self.folder / name)

    def options(self, name="server", clients="no"):
        """What a server is started with."""
        return [
            *("--tls-cert-file", self.path(f"{name}.crt"), "--tls-key-file"),
            *(self.path(f"{name}.key"), "--tls-ca-cert-file", self.path("ca.crt")),
            *("--tls-auth-clients", clients),
        ]

    def _sign(self, name, extension):
        self._openssl(
            *("req", "-new", "-nodes", "-newkey", "ec", "-subj", f"/CN={name}"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
        )
        (self.folder / f"{name}.ext").write_text(extension)
        self._openssl(
            *("x509", "-req", "-days", "2", "-in", f"{name}.csr", "-extfile", f"{name}.ext"),
            *("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.crt"),
        )

    def _openssl(self, *arguments):
        subprocess.run(
            [binary("openssl"), *arguments], check=True, cwd=self.folder, capture_output=True
        )


class TlsServer(Server):
    """A server with a port for TLS, and a plain one for looking behind the store's back."""

    def __init__(self, program, folder, options):
        self.tls_port = reserved_port()
        super().__init__(program, folder, "--tls-port", str(self.tls_port), *options)

    def tls_url(self, query):
        return f"rediss://127.0.0.1:{self.tls_port}/0?{query}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("tls") / "certificates")


@pytest.fixture(scope="module")
def server(certificates, tmp_path_factory):
    server = TlsServer(
        binary("redis-server"), tmp_path_factory.mktemp("server"), certificates.options()
    )
    yield server
    server.stop()


@pytest.fixture(scope="module")
def trusting(certificates):
    """The part of a URL that names the authority."""
    return f"ssl_ca_certs={quote(certificates.path('ca.crt'))}"


def test_locks_work_over_tls(server, trusting):
    with JobLocks(server.tls_url(trusting)) as locks, locks.lock("k") as lease:
        assert lease.held
        assert server.ask("EXISTS", "joblock:{.k}") == 1
    assert server.ask("GET", "joblock:{.k}").startswith(b"F")


def test_a_waiter_is_told_over_tls(server, trusting):
    with JobLocks(server.tls_url(trusting)) as locks:
        lease, token = locks.acquire("told", ttl=60), []

        def wait():
            with locks.lock("told", wait=100) as mine:
                token.append(mine.token)

        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(lambda: locks.model.waiters("told"), "it is queued")
        wait_until(lambda: server.ask("PUBSUB", "CHANNELS", "joblock:to:*"), "it listens")
        server.ask("CONFIG", "RESETSTAT")
        lease.release()
        waiter.join(60)
        assert token[0] > lease.token
        assert server.calls("publish") >= 1


async def test_locks_work_over_tls_in_a_loop(server, trusting):
    async with AsyncJobLocks(server.tls_url(trusting)) as locks:
        lease = await locks.acquire("loop", ttl=60)
        waiting = asyncio.create_task(locks.acquire("loop", ttl=60, wait=30))
        while not await locks.model.waiters("loop"):  # noqa: ASYNC110 - the store tells
            await asyncio.sleep(0.01)
        await lease.release()
        later = await waiting
        assert later.token > lease.token
        await later.release()


CLIENTS = {
    "redis": redis.Redis,
    "redis asyncio": redis.asyncio.Redis,
    "valkey": valkey.Valkey,
    "valkey asyncio": valkey.asyncio.Valkey,
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_client_object_that_trusts_an_authority_is_enough(kind, server, certificates):
    trust = {"ssl": True, "ssl_ca_certs": certificates.path("ca.crt")}
    client = CLIENTS[kind](host="127.0.0.1", port=server.tls_port, **trust)
    with JobLocks(client) as locks, locks.lock(kind) as lease:
        assert lease.held


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_server_that_cannot_be_trusted_is_refused(kind, server):
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        _acquire(kind, server.tls_url(""))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_is_not_to_be_verified_is_not(kind, server):
    assert _acquire(kind, server.tls_url("ssl_cert_reqs=none"))


@pytest.fixture
def misnamed(certificates, tmp_path):
    server = TlsServer(binary("redis-server"), tmp_path, certificates.options("elsewhere"))
    yield server
    server.stop()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_certificate_must_be_for_the_host_unless_said_otherwise(kind, misnamed, trusting):
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        _acquire(kind, misnamed.tls_url(trusting))
    assert _acquire(kind, misnamed.tls_url(f"{trusting}&ssl_check_hostname=false"))


@pytest.fixture
def strict(certificates, tmp_path):
    server = TlsServer(binary("redis-server"), tmp_path, certificates.options(clients="yes"))
    yield server
    server.stop()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_server_may_want_a_clients_certificate(kind, strict, trusting, certificates):
    ours = "&".join(
        f"ssl_{what}={quote(certificates.path(name))}"
        for what, name in (("certfile", "client.crt"), ("keyfile", "client.key"))
    )
    assert _acquire(kind, strict.tls_url(f"{trusting}&{ours}"))
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{strict.tls_port}|closed|reset|SSL"):
        _acquire(kind, strict.tls_url(trusting))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_tls_at_a_plain_port_and_the_reverse_are_errors_in_bounded_time(kind, server):
    with pytest.raises(StoreUnavailable):
        _acquire(kind, f"rediss://127.0.0.1:{server.port}/0")
    with pytest.raises(StoreUnavailable):
        _acquire(kind, f"redis://127.0.0.1:{server.tls_port}/0")


def _acquire(kind, url):
    if kind == "sync":
        with JobLocks(url) as locks:
            return locks.acquire("a").release()

    async def acquire():
        async with AsyncJobLocks(url) as locks:
            return await (await locks.acquire("a")).release()

    return asyncio.run(acquire())


def test_a_cluster_whose_nodes_speak_tls(certificates, trusting, tmp_path):
    cluster = Cluster(binary("redis-server"), tmp_path, tls=certificates.options())
    try:
        url = f"rediss+cluster://127.0.0.1:{cluster.tls_ports[0]}?{trusting}"
        with JobLocks(url) as locks:
            leases = [locks.acquire(f"k{number}", ttl=60) for number in range(20)]
            assert all(leases)
            with JobLocks(url) as others:
                assert others.acquire("k7") is None
            ours = [
                line
                for node in cluster.nodes
                for line in node.ask("CLIENT", "LIST").decode().splitlines()
                if " name=joblock " in line
            ]
            plain = [f"laddr=127.0.0.1:{node.port} " for node in cluster.nodes]
            assert len(ours) >= 3
            assert not [line for line in ours if any(address in line for address in plain)]
    finally:
        cluster.stop()
