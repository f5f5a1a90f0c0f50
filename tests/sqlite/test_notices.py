"""Notices by datagram sockets beside the lease file: delivery, death, privacy, clearing up."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from joblock.store.ops import (
    CLAIM_MS,
    Acquire,
    Check,
    Granted,
    Holders,
    Leave,
    Notice,
    Queueing,
    Release,
    Waiters,
)
from joblock.stores.sqlite import SqliteStore, sockets

LONG = 600_000
PATIENCE = 20.0


class Ear:
    """A client that listens."""

    def __init__(self, store, client, deliver=None):
        self.client = client
        self.notices = SimpleQueue()
        self.connected = threading.Semaphore(0)
        self.subscription = store.subscribe(
            client, deliver or self.notices.put, self.connected.release
        )

    def wait_connected(self):
        assert self.connected.acquire(timeout=PATIENCE)
        return self

    def next(self):
        return self.notices.get(timeout=PATIENCE)

    def close(self):
        self.subscription.close()


@pytest.fixture
def listen(store):
    ears = []

    def listen_as(client, **options):
        ears.append(Ear(store, client, **options))
        return ears[-1].wait_connected()

    yield listen_as
    for ear in ears:
        ear.close()


def folder_of(path):
    return path.with_name(path.name + ".sockets")


def names_in(path):
    return list(folder_of(path).iterdir())


def wait_until(true):
    give_up = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def queue_behind(call, *clients, listening=True):
    """A holds the key, and the clients wait for it, in that order."""
    call(Acquire("key", "A", LONG))
    for client in clients:
        call(Acquire("key", client, LONG, queue=Queueing(client, listening=listening)))


# Delivery.


@pytest.mark.parametrize(
    "key", ["key", "a\nb\t\x01'\"%_*?[", "ключ 🔑 مفتاح", "k" * 500, "🔑" * 500]
)
def test_any_key_and_holder_arrive_as_they_are(call, listen, key):
    ear = listen("W")
    call(Acquire(key, "A", LONG))
    call(Acquire(key, key[::-1], LONG, queue=Queueing("W", listening=True)))
    call(Release(key, "A"))
    assert ear.next() == Notice("W", key, key[::-1])


def test_a_notice_that_is_for_later_says_when(call, listen):
    ear = listen("V")
    queue_behind(call, "W", listening=False)
    call(Acquire("key", "V", LONG, queue=Queueing("V", listening=True)))
    call(Release("key", "A"))
    assert ear.next() == Notice("V", "key", "V", CLAIM_MS)


def test_many_notices_of_one_operation_all_arrive_in_order(call, listen):
    """A receiver's buffer takes ten datagrams on Linux, so they travel together."""
    ear = listen("client")
    call(Acquire("key", "A", LONG, 200, 200))
    names = [f"W{number}" for number in range(200)]
    for name in names:
        call(Acquire("key", name, LONG, 1, 200, queue=Queueing("client", listening=True)))
    call(Release("key", "A"))
    assert [ear.next().holder for _ in names] == names


def test_notices_to_a_client_whose_buffer_is_full_arrive_when_it_reads_again(call, listen):
    """It is alive, so nothing is struck; the sender is not kept waiting."""
    gate = threading.Event()
    got = SimpleQueue()

    def deliver(notice):
        assert gate.wait(PATIENCE)
        got.put(notice.holder)

    listen("client", deliver=deliver)
    names = [f"W{number}" for number in range(40)]
    for name in names:
        call(Acquire(name, "A", LONG))
        call(Acquire(name, name, LONG, queue=Queueing("client", listening=True)))
    for name in names:
        call(Release(name, "A"))
    gate.set()
    assert [got.get(timeout=PATIENCE) for _ in names] == names


def test_a_listener_that_raises_hears_the_next_notice(call, listen, caplog):
    heard = SimpleQueue()

    def deliver(notice):
        heard.put(notice)
        raise RuntimeError("the listener's own fault")

    listen("W", deliver=deliver)
    for _ in range(2):
        queue_behind(call, "W")
        call(Release("key", "A"))
        heard.get(timeout=PATIENCE)
        call(Leave("key", "W"))
    wait_until(lambda: len(caplog.records) == 2)
    assert "the listener's own fault" in caplog.text


def test_a_long_path_is_no_hindrance(tmp_path):
    """A socket's address ends at 108 bytes."""
    deep = tmp_path.joinpath(*["a folder with a long name"] * 8)
    deep.mkdir(parents=True)
    store = SqliteStore(deep / "leases.db")
    ear = Ear(store, "W").wait_connected()
    assert ear.subscription.listening
    call = store.driver().call
    queue_behind(call, "W")
    call(Release("key", "A"))
    assert ear.next() == Notice("W", "key", "W")
    ear.close()
    assert names_in(deep / "leases.db") == []
    store.close()


def test_one_file_by_two_paths_has_one_place_for_sockets(tmp_path, path, call, listen):
    (tmp_path / "link").symlink_to(path)
    call(Acquire("key", "A", LONG))
    ear = listen("W")
    store = SqliteStore(tmp_path / "link")
    other = store.driver().call
    other(Acquire("key", "W", LONG, queue=Queueing("W", listening=True)))
    other(Release("key", "A"))
    assert ear.next() == Notice("W", "key", "W")
    store.close()


# Death.


def test_a_dead_client_is_passed_over_at_once(call, listen, start):
    """It was killed; the datagram to it is refused, and the next in line has the key."""
    child = start("""
connected = threading.Event()
store.subscribe("dead", print, connected.set)
connected.wait()
call(Acquire("key", "A", 600_000))
for holder in "WVU":
    call(Acquire("key", holder, 600_000, queue=Queueing("dead", listening=True)))
say("queued")
hear()
""")
    assert child.next() == "queued"
    ear = listen("X")
    call(Acquire("key", "X", LONG, queue=Queueing("X", listening=True)))
    child.kill()
    call(Release("key", "A"))
    assert [(lease.holder, lease.state) for lease in call(Holders("key"))] == [("X", "held")]
    assert ear.next() == Notice("X", "key", "X")
    assert [waiter.holder for waiter in call(Waiters("key")) if waiter.live] == ["X"]


def test_many_dead_clients_are_passed_over_one_after_the_other(call, listen):
    listen("live")
    call(Acquire("key", "A", LONG))
    dead = [f"dead {number}" for number in range(300)]
    for client in dead:
        call(Acquire("key", client, LONG, queue=Queueing(client, listening=True)))
    call(Acquire("key", "W", LONG, queue=Queueing("live", listening=True)))
    call(Release("key", "A"))
    assert [lease.holder for lease in call(Holders("key"))] == ["W"]


async def test_a_dead_client_is_passed_over_for_a_task_too(store, call, listen):
    ear = listen("X")
    queue_behind(call, "dead", "X")
    await store.async_driver().call(Release("key", "A"))
    assert ear.next() == Notice("X", "key", "X", CLAIM_MS)
    assert ear.next() == Notice("X", "key", "X")


def test_a_client_that_never_listened_is_not_taken_for_dead(call, listen):
    listen("somebody")
    queue_behind(call, "W", listening=False)
    call(Release("key", "A"))
    assert [lease.holder for lease in call(Holders("key"))] == ["W"]


def test_a_stopped_process_is_alive(call, path, start):
    child = start("""
connected = threading.Event()
store.subscribe("stopped", print, connected.set)
connected.wait()
say("listening")
hear()
""")
    assert child.next() == "listening"
    queue_behind(call, "stopped")
    child.signal(signal.SIGSTOP)
    call(Release("key", "A"))
    assert [lease.holder for lease in call(Holders("key"))] == ["stopped"]
    child.signal(signal.SIGCONT)


def test_a_dead_client_is_dead_although_a_forked_child_of_it_lives(call, start):
    """The child must not keep its parent's socket open: the parent would never count as dead."""
    child = start("""
connected = threading.Event()
store.subscribe("parent", print, connected.set)
connected.wait()
pid = os.fork()
if not pid:
    signal.pause()
say(pid)
hear()
""")
    grandchild = int(child.next())
    try:
        queue_behind(call, "parent")
        child.kill()
        call(Release("key", "A"))
        assert call(Holders("key")) == ()
    finally:
        os.kill(grandchild, signal.SIGKILL)


# Privacy.


def test_the_directory_is_private_whatever_the_umask(path, listen):
    before = os.umask(0)
    try:
        listen("W")
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder_of(path).stat().st_mode) == 0o700


def polls(store):
    """Whether a client cannot listen, and knows it."""
    ear = Ear(store, "W")
    answer = not ear.subscription.listening
    ear.close()
    return answer


def test_a_directory_that_others_can_enter_is_not_used(path, store, call):
    folder_of(path).mkdir()
    folder_of(path).chmod(0o755)
    assert polls(store)
    queue_behind(call, "W")
    call(Release("key", "A"))
    assert [lease.holder for lease in call(Holders("key"))] == ["W"]


def test_a_symlink_in_place_of_the_directory_is_not_followed(path, store, tmp_path):
    (tmp_path / "elsewhere").mkdir(0o700)
    folder_of(path).symlink_to(tmp_path / "elsewhere")
    assert polls(store)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_not_used(path, store):
    folder_of(path).mkdir(0o700)
    os.chown(folder_of(path), 65534, 65534)
    assert polls(store)


def test_clients_of_a_file_that_several_users_may_write_ask_instead(path, store):
    path.touch()
    path.chmod(0o660)
    assert polls(store)
    assert not folder_of(path).exists()


# Clearing up.


def test_a_socket_is_gone_when_its_client_stops_listening(path, listen):
    ear = listen("W")
    assert len(names_in(path)) == 1
    ear.close()
    assert names_in(path) == []
    assert not ear.subscription.listening


def test_closing_the_store_stops_all_listening(path, store):
    ears = [Ear(store, client).wait_connected() for client in "VW"]
    store.close()
    assert names_in(path) == []
    assert not any(ear.subscription.listening for ear in ears)
    assert not any(thread.name == "joblock-notices" for thread in threading.enumerate())


def test_an_exiting_process_takes_its_socket_with_it(path, start):
    child = start("""
connected = threading.Event()
store.subscribe("W", print, connected.set)
connected.wait()
""")
    assert child.end() == 0
    assert names_in(path) == []


@contextlib.contextmanager
def socket_of_process(path, name, age):
    """What it has while it lives, and leaves behind when it is killed."""
    folder = folder_of(path)
    folder.mkdir(0o700, exist_ok=True)
    before = Path.cwd()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        os.chdir(folder)  # the whole path may be too long for a socket
        try:
            bound.bind(name)
        finally:
            os.chdir(before)
        then = time.time() - age
        os.utime(folder / name, (then, then))
        yield folder / name


def leave_socket(path, name, age):
    with socket_of_process(path, name, age) as left:
        return left


def test_sockets_of_the_dead_are_removed_and_those_of_the_living_stay(path, listen):
    old = leave_socket(path, "old", 120)
    young = leave_socket(path, "young", 10)
    with socket_of_process(path, "living", 120) as mine:
        listen("W")
        assert not old.exists()
        assert young.exists()
        assert mine.exists()


def test_what_is_no_socket_is_left_alone(path, listen):
    folder_of(path).mkdir(0o700)
    notes = folder_of(path) / "notes"
    notes.write_text("somebody's")
    os.utime(notes, (1, 1))
    listen("W")
    assert notes.exists()


def test_a_socket_left_by_a_client_of_that_name_is_no_hindrance(path, store, listen, call):
    address = store.sockets().address
    folder_of(path).mkdir(0o700)
    leave_socket(path, address("W").rpartition("/")[2], 1)
    ear = listen("W")
    queue_behind(call, "W")
    call(Release("key", "A"))
    assert ear.next() == Notice("W", "key", "W")


def test_the_last_to_listen_as_a_client_hears_its_notices(monkeypatch, call, listen):
    monkeypatch.setattr(sockets, "LOOK_EVERY", 0.05)
    first, second = listen("W"), listen("W")
    wait_until(lambda: not first.subscription.listening)
    queue_behind(call, "W")
    call(Release("key", "A"))
    assert second.next() == Notice("W", "key", "W")
    with pytest.raises(Empty):
        first.notices.get_nowait()


def test_a_client_whose_socket_was_deleted_listens_again(monkeypatch, path, call, listen):
    """Somebody clears up the directory, as is done in /tmp."""
    monkeypatch.setattr(sockets, "LOOK_EVERY", 0.05)
    ear = listen("W")
    for name in names_in(path):
        name.unlink()
    folder_of(path).rmdir()
    ear.wait_connected()
    queue_behind(call, "W")
    call(Release("key", "A"))
    assert ear.next() == Notice("W", "key", "W")


def test_a_sender_finds_a_directory_that_was_made_anew(path, store, tmp_path):
    """It knows a long one by an open descriptor, which is of the old one."""
    deep = tmp_path.joinpath(*["a folder with a long name"] * 8)
    deep.mkdir(parents=True)
    stores = [SqliteStore(deep / "leases.db") for _ in range(2)]
    call = stores[0].driver().call
    for _ in range(2):
        ear = Ear(stores[1], "W").wait_connected()
        queue_behind(call, "W")
        call(Release("key", "A"))
        assert ear.next() == Notice("W", "key", "W")
        call(Leave("key", "W"))
        ear.close()
        folder_of(deep / "leases.db").rmdir()
    for one in stores:
        one.close()


# Fork.


def test_a_forked_child_listens_for_itself_and_leaves_its_parents_socket(path, store, call, listen):
    ear = listen("parent")
    pid = os.fork()
    if not pid:
        code = 1
        try:
            mine = Ear(store, "child").wait_connected()
            queue_behind(call, "child")
            call(Release("key", "A"))
            code = 0 if mine.next().holder == "child" and not ear.subscription.listening else 1
            call(Leave("key", "child"))
            store.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(names_in(path)) == 1
    queue_behind(call, "parent")
    call(Release("key", "A"))
    assert ear.next() == Notice("parent", "key", "parent")


def test_a_check_of_a_client_that_was_struck_brings_it_back(call, listen):
    ear = listen("W")
    queue_behind(call, "dead", "W")
    call(Release("key", "A"))
    ear.next()
    epoch = call(Check("dead", ("key",))).states[0].epoch
    assert epoch
    call(Release("key", "W"))
    reply = call(Acquire("key", "dead", LONG, queue=Queueing("dead", 1)))
    assert isinstance(reply, Granted)
