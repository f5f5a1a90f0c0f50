"""Notices as datagrams: each waiting client has a Unix socket in a directory beside the lease file.

Only processes of the file's owner can reach it. A datagram is refused when nobody has the socket
open any more, which tells at once, and for nothing, that a client is dead. What cannot be sent for
another reason is lost, as any notice may be; but a client whose buffer is full (ten datagrams on
Linux) is alive, and is tried again for as long as a claim lasts.
"""

# pathlib: see place.
# ruff: noqa: PTH102, PTH108, PTH112, PTH116, PTH120

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
import weakref

# The public modules, socket and hashlib, take 10 ms and more to load, and that is while the next in
# line waits for the first notice this process sends.
from _blake2 import blake2b
from _socket import AF_UNIX, MSG_DONTWAIT, SHUT_RDWR, SOCK_DGRAM, socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from joblock.store.contract import Deliver
from joblock.store.ops import CLAIM_MS, Notice
from joblock.values.log import logger

LONGEST_PREFIX = 78
"""Bytes of a directory with which a socket's address still fits: 108 with its NUL on Linux, 104 on
macOS. Beyond that the directory goes by its open descriptor, where the system has a path for it."""

TOGETHER = 16
"""Notices in one datagram: with the longest keys and holders they fit into a socket's buffer."""

LOOK_EVERY = 5.0
"""Seconds without a notice after which a listener looks whether its socket can still be found."""

STALE = 60.0
"""Seconds after which the socket of a dead process is removed by whoever comes along."""

RETRY_EVERY = 0.002


class Sockets:
    """The directory of sockets beside one lease file, and this process's way to send there."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._directory = ""
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self.trouble = ""
        self._prefix = ""
        self._descriptor = -1
        self._sender: socket | None = None
        self._late = _Late(self._send)
        self._ears: weakref.WeakSet[Ear] = weakref.WeakSet()

    def post(self, notices: Iterable[Notice]) -> set[str]:
        """Send notices without waiting; the clients that are dead."""
        dead: set[str] = set()
        by_client: dict[str, list[Notice]] = {}
        for notice in notices:
            by_client.setdefault(notice.client, []).append(notice)
        for client, theirs in by_client.items():
            for first in range(0, len(theirs), TOGETHER):
                if not self._post(client, _pack(theirs[first : first + TOGETHER])):
                    dead.add(client)
        return dead

    def listen(self, client: str, deliver: Deliver, connected: Callable[[], None]) -> Ear:
        """Hear a client's notices, if there can be a socket for it."""
        ear = Ear(self, client, deliver, connected)
        self._ears.add(ear)
        return ear

    def address(self, client: str) -> str:
        """Where a client listens, or nothing if no socket can be there."""
        prefix = self._prefix or self.find()
        return prefix and prefix + blake2b(client.encode(), digest_size=12).hexdigest()

    def find(self, *, make: bool = False) -> str:
        """What an address begins with: the directory, if it is private to the file's owner.

        To ``make`` it, or to listen in it, is for the owner alone.
        """
        with self._lock:
            self._forget()
            path = self._directory or os.path.realpath(self._file) + ".sockets"
            self._directory = path
            try:
                if make:
                    _make(path, self._file)
                self._descriptor = _open_private(path, self._file)
            except OSError as error:
                self.trouble = str(error)
                return ""
            if len(os.fsencode(path)) <= LONGEST_PREFIX:
                self._forget()
                self._prefix = f"{path}/"
            elif os.path.isdir(f"/proc/self/fd/{self._descriptor}"):
                self._prefix = f"/proc/self/fd/{self._descriptor}/"
            else:
                self.trouble = f"the path of {path} is too long for a socket"
                self._forget()
            return self._prefix

    def _forget(self) -> None:
        self._prefix = ""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def close(self) -> None:
        """Stop all listening, and give back what sending took."""
        for ear in tuple(self._ears):
            ear.close()
        self._close()

    def forked(self) -> None:
        """In a child: drop the parent's sockets. They stay the parent's, which can close them."""
        for ear in tuple(self._ears):
            ear.forked()
        self._close()
        self._begin()

    def _close(self) -> None:
        with self._lock:
            self._forget()
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

    def _post(self, client: str, payload: bytes, *, again: bool = True) -> bool:
        """Send to one client; False if it is dead."""
        address = self.address(client)
        if not address or self._late.add_behind(address, payload):
            return True
        try:
            self._send(address, payload)
        except BlockingIOError:
            self._late.add(address, payload)
        except ConnectionRefusedError:
            return False
        except FileNotFoundError:
            if not again:
                return False
            self.find()  # the directory may have been deleted and made anew
            return self._post(client, payload, again=False)
        except OSError:
            pass  # lost, as any notice may be
        return True

    def _send(self, address: str, payload: bytes) -> None:
        sender = self._sender
        if sender is None:
            sender = self._sender = _datagram_socket()
            sender.settimeout(0)
        sender.sendto(payload, address)


class Ear:
    """A client's socket and the thread that reads it; see `joblock.store.contract.Subscription`."""

    def __init__(
        self, sockets: Sockets, client: str, deliver: Deliver, connected: Callable[[], None]
    ) -> None:
        self._sockets = sockets
        self._client = client
        self._deliver = deliver
        self._connected = connected
        self._socket: socket | None = None
        self._address = ""
        self._inode = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if self._bind():
            self._thread = threading.Thread(target=self._run, name="joblock-notices", daemon=True)
            self._thread.start()

    @property
    def listening(self) -> bool:
        """Whether it has its socket; where it never can, the client asks the store instead."""
        return self._socket is not None and not self._over.is_set()

    def close(self) -> None:
        """Remove the socket and end the thread."""
        if self._over.is_set():
            return
        self._over.set()
        bound = self._socket
        if bound is not None:
            # Wakes the thread; the datagram is for systems where the shutdown does not.
            with contextlib.suppress(OSError):
                bound.sendto(b"", MSG_DONTWAIT, self._address)
            with contextlib.suppress(OSError):
                bound.shutdown(SHUT_RDWR)
            if _inode_of(self._address) == self._inode:
                _unlink(self._address)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(LOOK_EVERY)

    def forked(self) -> None:
        """In a child: the socket is the parent's, and so is its name."""
        self._over.set()
        if self._socket is not None:
            self._socket.close()

    def _bind(self) -> bool:
        """Take the client's address; who listened there before under the same name is out."""
        if not self._sockets.find(make=True):
            self._tell_deaf(self._sockets.trouble)
            return False
        address = self._sockets.address(self._client)
        bound = _datagram_socket()
        bound.settimeout(LOOK_EVERY)
        try:
            _unlink(address)
            bound.bind(address)
        except OSError as error:
            self._tell_deaf(str(error))
            bound.close()
            return False
        self._address, self._inode = address, _inode_of(address)
        self._socket = bound
        return True

    def _tell_deaf(self, why: str) -> None:
        logger("store").info(
            "%s cannot listen for notices and asks the store now and then instead: %s",
            self._client,
            why,
        )

    def _run(self) -> None:
        _remove_stale(os.path.dirname(self._address))
        self._tell(self._connected)
        while not self._over.is_set():
            bound = self._socket
            if bound is None:
                self._over.wait(LOOK_EVERY)
                if not self._over.is_set() and self._bind():
                    self._tell(self._connected)
            else:
                self._hear(bound)
        bound, self._socket = self._socket, None
        if bound is not None:
            bound.close()

    def _hear(self, bound: socket) -> None:
        try:
            payload = bound.recv(LONGEST_DATAGRAM)
        except TimeoutError:
            self._look(bound)
            return
        for notice in _unpack(self._client, payload):
            if not self._over.is_set():
                self._tell(lambda notice=notice: self._deliver(notice))

    def _look(self, bound: socket) -> None:
        """See that the socket still has its name: without it, senders take the client for dead."""
        inode = _inode_of(self._address)
        if inode != self._inode:
            self._socket = None
            bound.close()
            if inode:
                self._over.set()  # another listener of this client has the name now

    def _tell(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # noqa: BLE001 - nothing that fails may end the thread
            logger("store").exception("%s failed at a notice; it goes on", self._client)


class _Late:
    """What could not be sent at once because the receiver's buffer was full."""

    def __init__(self, send: Callable[[str, bytes], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._queues: dict[str, deque[tuple[float, bytes]]] = {}

    def add_behind(self, address: str, payload: bytes) -> bool:
        """Queue it if others for that address are queued: notices arrive in order."""
        if address not in self._queues:
            return False
        self.add(address, payload)
        return True

    def add(self, address: str, payload: bytes) -> None:
        """Try again until a claim would be over."""
        with self._lock:
            start = not self._queues
            queue = self._queues.setdefault(address, deque())
            queue.append((time.monotonic() + CLAIM_MS / 1000, payload))
        if start:
            try:
                threading.Thread(target=self._run, name="joblock-late-notices", daemon=True).start()
            except RuntimeError:  # no more threads, or the interpreter is ending
                self._queues.clear()

    def _run(self) -> None:
        while True:
            time.sleep(RETRY_EVERY)
            with self._lock:
                for address, queue in list(self._queues.items()):
                    self._drain(address, queue)
                    if not queue:
                        del self._queues[address]
                if not self._queues:
                    return

    def _drain(self, address: str, queue: deque[tuple[float, bytes]]) -> None:
        while queue:
            until, payload = queue[0]
            try:
                self._send(address, payload)
            except BlockingIOError:
                if time.monotonic() < until:
                    return
            except OSError:
                queue.clear()
                return
            queue.popleft()


LONGEST_DATAGRAM = 1 << 17
_SHARED = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def _pack(notices: list[Notice]) -> bytes:
    fields = (field for _, key, holder, after in notices for field in (key, holder, str(after)))
    return "\0".join(fields).encode()


def _unpack(client: str, payload: bytes) -> Iterator[Notice]:
    fields = iter(payload.decode().split("\0") if payload else ())
    for key, holder, after in zip(fields, fields, fields, strict=False):
        yield Notice(client, key, holder, int(after))


def _datagram_socket() -> socket:
    return socket(AF_UNIX, SOCK_DGRAM)


def _owner(file: str) -> int:
    """Whose processes use a lease file. Raises PermissionError if it may be those of several."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return os.geteuid()  # not made yet
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise PermissionError("the lease file is shared by several users")
    return found.st_uid


def _make(path: str, file: str) -> None:
    if _owner(file) != os.geteuid():
        raise PermissionError("the lease file belongs to another user")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _open_private(path: str, file: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != _owner(file) or found.st_mode & _SHARED:
            raise PermissionError("the directory is not private to the lease file's owner")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _inode_of(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _unlink(path: str) -> None:
    # Not a directory: an address by way of a descriptor that was closed and is another's by now.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def _remove_stale(directory: str) -> None:
    """Remove the sockets that processes left behind which had no time to."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            old = time.time() - found.st_mtime > STALE
            if old and stat.S_ISSOCK(found.st_mode) and _is_dead(entry.path):
                _unlink(entry.path)


def _is_dead(address: str) -> bool:
    probe = _datagram_socket()
    try:
        probe.connect(address)
    except ConnectionRefusedError:
        return True
    finally:
        probe.close()
    return False
