"""The blocking driver: a few connections for all threads, each with one request at a time."""

from __future__ import annotations

# socket imports it at the first connection, which a fork does not wait for.
import encodings.idna  # noqa: F401 # pyright: ignore[reportUnusedImport]
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from joblock.store.ops import Acquire, Force, Release
from joblock.stores.redis import commands
from joblock.stores.redis.flows import perform
from joblock.stores.redis.login import check_greeting, greeting, tls_context
from joblock.stores.redis.route import Flow, Route, Send, SingleRoute, Sleep, route_to
from joblock.stores.redis.target import Login, Place, Target
from joblock.stores.redis.wire import ConnectFailed, Disconnected, Parser, TimedOut, only_short
from joblock.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from joblock.stores.redis.handing import Hand
    from joblock.stores.redis.shards import Ears

CONNECT_TIMEOUT = 1.5
REPLY_TIMEOUT = 3.5
"""Seconds; together they bound what an operation may take, but for one quick second try."""

POOL_SIZE = 8
READ_SIZE = 65_536


class Connection:
    """One socket, logged in."""

    __slots__ = ("__weakref__", "_parser", "_sock", "place")

    def __init__(self, shown: str, place: Place, login: Login) -> None:
        self.place = place
        self._parser = Parser()
        self._sock = _connect(place, login)
        try:
            data, count = greeting(login)
            check_greeting(shown, login, self.ask(data, count))
            _set_timeout(self._sock, REPLY_TIMEOUT)
        except TimedOut as error:
            self.close()
            raise ConnectFailed(f"no answer within {CONNECT_TIMEOUT:g} s of connecting") from error
        except BaseException:
            self.close()
            raise

    def ask_one(self, data: bytes) -> Any:
        """Send one command and have its reply, most likely a short text in one piece."""
        try:
            self._sock.sendall(data)
            received = self._sock.recv(READ_SIZE)
        except OSError as error:
            raise _broken(error) from error
        reply = only_short(received)
        return reply if reply is not None else self._rest(received, 1)[0]

    def ask(self, data: bytes, count: int) -> list[Any]:
        """Send commands and have their replies."""
        try:
            self._sock.sendall(data)
            received = self._sock.recv(READ_SIZE)
        except OSError as error:
            raise _broken(error) from error
        return self._rest(received, count)

    def listen(self, seconds: float) -> list[Any] | None:
        """What comes unasked within that time; None if nothing does."""
        self._sock.settimeout(seconds)
        try:
            received = self._sock.recv(READ_SIZE)
        except TimeoutError:
            return None
        except OSError as error:
            raise _broken(error) from error
        if not received:
            raise Disconnected("the server closed the connection")
        return self._parser.feed(received)

    def send(self, data: bytes) -> None:
        """Send, and do not wait for a reply."""
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise _broken(error) from error

    def fileno(self) -> int:
        """For waiting on several at once."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close it, whatever is on its way."""
        self._sock.close()

    def interrupt(self) -> None:
        """End a `listen` in another thread, and the connection."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def _rest(self, received: bytes, count: int) -> list[Any]:
        replies: list[Any] = []
        while True:
            if not received:
                raise Disconnected("the server closed the connection")
            replies += self._parser.feed(received)
            if len(replies) >= count:
                return replies
            try:
                received = self._sock.recv(READ_SIZE)
            except OSError as error:
                raise _broken(error) from error


def _broken(error: OSError) -> Exception:
    # A socket with a timeout of the kernel's reports it as "would block".
    if isinstance(error, TimeoutError | BlockingIOError):
        return TimedOut(f"no answer within {REPLY_TIMEOUT:g} s")
    return Disconnected(str(error))


def _connect(place: Place, login: Login) -> socket.socket:
    sock: socket.socket | None = None
    try:
        if place.port:
            sock = socket.create_connection(place, CONNECT_TIMEOUT)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        else:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(CONNECT_TIMEOUT)
            sock.connect(place.host)
        if login.tls is not None:
            sock = tls_context(login).wrap_socket(sock, server_hostname=place.host)
        _set_timeout(sock, CONNECT_TIMEOUT)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise ConnectFailed(f"cannot connect: {error}") from error
    except BaseException:
        if sock is not None:
            sock.close()
        raise
    return sock


def _set_timeout(sock: socket.socket, seconds: float) -> None:
    if type(sock) is not socket.socket:
        sock.settimeout(seconds)
        return
    # Python's own timeout costs a poll for each read; that of the kernel costs nothing.
    sock.settimeout(None)
    timeout = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)


class Pool:
    """The connections to one server; the one used last is used next, so few are open."""

    __slots__ = ("_closed", "_connect", "_every", "_freed", "_idle", "_waiting")

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        # Weakly: one that an interrupt lost between two steps must not count for ever.
        self._every: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._freed = threading.Condition()
        self._waiting = 0
        self._closed = False

    def take(self) -> Connection:
        """One that nobody uses; a new one if there are not too many."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._wait_or_connect()

    def give(self, connection: Connection) -> None:
        """Put it back; all its replies were read."""
        # In this order: whoever closes the pool just now finds it there, or is found out here.
        self._idle.append(connection)
        if self._closed:
            self.clear()
        if self._waiting:
            with self._freed:
                self._freed.notify()

    def discard(self, connection: Connection) -> None:
        """Close it: nobody knows what is on its way."""
        connection.close()
        self._every.discard(connection)
        if self._waiting:
            with self._freed:
                self._freed.notify()

    def clear(self) -> None:
        """Close those that nobody uses."""
        while self._idle:
            try:
                self.discard(self._idle.pop())
            except IndexError:
                return

    def close(self) -> None:
        """Close those that nobody uses, and all others when they are given back, now and later."""
        self._closed = True
        self.clear()

    def _wait_or_connect(self) -> Connection:
        end = time.monotonic() + REPLY_TIMEOUT
        with self._freed:
            self._waiting += 1
            try:
                while len(self._every) >= POOL_SIZE and not self._idle:
                    if not self._freed.wait(end - time.monotonic()) and time.monotonic() >= end:
                        raise ConnectFailed(
                            f"all {POOL_SIZE} connections have been busy for {REPLY_TIMEOUT:g} s"
                        )
                if self._idle:
                    return self._idle.pop()
            finally:
                self._waiting -= 1
        connection = self._connect()
        self._every.add(connection)
        return connection


class SyncDriver:
    """See `joblock.store.contract.Driver`."""

    def __init__(self, target: Target, ears: Ears, hand: Hand) -> None:
        self._target = target
        self._hand = hand
        self.route: Route = route_to(target, ears)
        self._pools: dict[Place, Pool] = {}
        self._closed = False
        # One server and nothing to count: most operations are a single exchange with it.
        self._only: Pool | None = None
        if isinstance(self.route, SingleRoute) and not target.min_replicas:
            self._only = self._pool(self.route.place, target.login)

    def call(self, op: Any) -> Any:
        """Do ``op``; see `joblock.store.contract.Driver`."""
        only, resent = self._only, False
        if only is not None:
            kind: Any = op.__class__
            if kind is Acquire:
                data, read = commands.packed_acquire(op), commands.read_acquire
            elif kind is Release:
                data, read = commands.packed_release(op), commands.read_released
            elif kind in commands.SIMPLE and kind is not Force:
                ask, read = commands.SIMPLE[kind]
                data = ask(op).packed()
            else:
                return self.run(perform(op, self.route, self._target))
            try:
                reply = _ask_one(only, data)
                if type(reply) is list:
                    reply = self._hand.opened(reply)
                # An error comes up again in the flow, which knows what to do about it.
                if not isinstance(reply, Exception):
                    return read(op, reply)
            except Disconnected:
                only.clear()
                resent = True
            except TimedOut as error:
                raise StoreUnavailable(f"{self._target.shown}: {error}") from error
            except ConnectFailed as error:
                raise StoreUnavailable(f"{self._target.shown}: {error}") from error
        return self.run(perform(op, self.route, self._target, resent=resent))

    def run(self, flow: Flow[Any]) -> Any:
        """Take the steps that the flow asks for."""
        reply: Any = None
        error: Exception | None = None
        while True:
            try:
                step = flow.send(reply) if error is None else flow.throw(error)
            except StopIteration as stop:
                return stop.value
            reply, error = None, None
            try:
                if isinstance(step, Send):
                    reply = self._send(step)
                elif isinstance(step, Sleep):
                    time.sleep(step.seconds)
                elif step.place in self._pools:
                    self._pools[step.place].clear()
            except Exception as caught:  # noqa: BLE001 - the flow decides
                error = caught

    def connect(self) -> Connection:
        """A connection beside the pool, for listening.

        Raises ConnectFailed, StoreError.
        """
        return self.connect_to(self.run(self.route.find("")))

    def connect_to(self, place: Place) -> Connection:
        """The same to that server."""
        try:
            return Connection(self._target.shown, place, self.route.login)
        except (ConnectFailed, StoreUnavailable):
            self.route.lost(place)
            raise

    def broken(self, connection: Connection) -> None:
        """That connection broke: its server may be in charge no longer."""
        self.route.lost(connection.place)

    def close(self) -> None:
        """Close all connections for good: what is still under way, or comes later, keeps none."""
        self._closed = True
        for pool in list(self._pools.values()):
            pool.close()

    def _send(self, step: Send) -> list[Any]:
        pool = self._pool(step.place, step.login)
        connection = pool.take()
        try:
            replies = self._hand.all_opened(connection.ask(step.data, step.replies))
            more = step.then(replies) if step.then is not None else None
            if more is not None:
                replies += connection.ask(more, 1)
        except BaseException:
            pool.discard(connection)
            raise
        pool.give(connection)
        return replies

    def _pool(self, place: Place, login: Login) -> Pool:
        pool = self._pools.get(place)
        if pool is None:
            shown = self._target.shown
            pool = self._pools.setdefault(place, Pool(lambda: Connection(shown, place, login)))
            if self._closed:
                pool.close()
        return pool


def _ask_one(pool: Pool, data: bytes) -> Any:
    connection = pool.take()
    try:
        reply = connection.ask_one(data)
    except BaseException:
        pool.discard(connection)
        raise
    pool.give(connection)
    return reply
