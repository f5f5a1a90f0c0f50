"""The two drivers: what a busy file means to threads and to tasks, and how large work is split."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from joblock.store.ops import (
    Acquire,
    Busy,
    Check,
    Granted,
    Holders,
    Leave,
    Queueing,
    Refresh,
    Release,
    Renewal,
)
from joblock.stores.sqlite import SqliteStore, driver
from joblock.values.errors import StoreUnavailable

LONG = 600_000
PATIENCE = 20.0


@pytest.fixture
def other_writer(path, call):
    """Somebody else at the file, in the middle of a transaction."""
    call(Acquire("other", "A", LONG))
    con = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    con.execute("BEGIN IMMEDIATE")
    yield con
    con.close()


@pytest.fixture
def tasks(store):
    """The driver for tasks."""
    return store.async_driver()


def helpers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("joblock-sqlite")]


async def until(true):
    give_up = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < give_up
        await asyncio.sleep(0)


async def test_a_task_is_served_in_the_loop_itself_while_the_file_is_free(call, tasks):
    call(Acquire("other", "A", LONG))
    granted = await tasks.call(Acquire("key", "A", LONG))
    assert isinstance(await tasks.call(Acquire("key", "B", LONG, queue=Queueing("B"))), Busy)
    await tasks.call(Release("key", "A", granted.token))
    assert helpers() == []


@pytest.mark.parametrize(
    "op",
    [
        Acquire("key", "B", LONG),
        Acquire("key", "B", LONG, 1, 2),
        Release("other", "A"),
        Refresh((Renewal("other", "A", 0, LONG),)),
        Leave("other", "A"),
        Check("client", ("other",)),
    ],
    ids=lambda op: type(op).__name__,
)
async def test_a_busy_file_holds_up_the_task_and_not_the_loop(other_writer, tasks, op):
    task = asyncio.ensure_future(tasks.call(op))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not task.done()
    other_writer.execute("ROLLBACK")
    async with asyncio.timeout(PATIENCE):
        assert await task


async def test_the_first_use_of_the_file_does_not_hold_up_the_loop(store, tasks):
    """Opening it can mean to make it, and to wait for the disk."""
    in_loop = threading.get_ident()
    opened_in = []
    ready = store.file.ready

    def note():
        opened_in.append(threading.get_ident())
        return ready()

    store.file.ready = note
    assert isinstance(await tasks.call(Acquire("key", "A", LONG)), Granted)
    assert in_loop not in opened_in


async def test_a_task_cancelled_while_the_file_is_busy_ends_at_once_and_settles_later(
    other_writer, tasks, store, call
):
    settled = threading.Event()
    task = asyncio.ensure_future(tasks.call(Acquire("key", "B", LONG)))
    await until(lambda: store.file.wanted)  # a thread is at it, and finds the file busy
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    tasks.settled("B", settled.set)
    assert not settled.is_set()
    other_writer.execute("ROLLBACK")
    await until(settled.is_set)
    # What was under way is over, whichever way it went: so what undoes it comes after it.
    call(Leave("key", "B"))
    assert call(Holders("key")) == ()
    assert isinstance(call(Acquire("key", "C", LONG)), Granted)


def test_a_thread_that_finds_the_file_busy_while_it_is_closed_closes_it_again(
    other_writer, store, call
):
    with ThreadPoolExecutor(1) as other:
        acquiring = other.submit(call, Acquire("key", "B", LONG))
        give_up = time.monotonic() + PATIENCE
        while not store.file.wanted:
            assert time.monotonic() < give_up
            time.sleep(0.001)
        store.close()
        other_writer.execute("ROLLBACK")
        assert isinstance(acquiring.result(PATIENCE), Granted)
    assert not store.file.is_open
    assert isinstance(call(Acquire("key", "C", LONG)), Busy)
    assert store.file.is_open


async def test_a_cancelled_request_whose_turn_never_came_is_settled_at_once(other_writer, tasks):
    """The threads are all taken, and the request is still in their queue."""
    many = [asyncio.ensure_future(tasks.call(Acquire(f"{n}", f"{n}", LONG))) for n in range(50)]
    await until(helpers)
    await asyncio.sleep(0)
    many[-1].cancel()
    await asyncio.sleep(0)
    settled = threading.Event()
    tasks.settled("49", settled.set)
    assert settled.is_set()
    other_writer.execute("ROLLBACK")
    replies = await asyncio.gather(*many, return_exceptions=True)
    assert [type(reply) for reply in replies] == [Granted] * 49 + [asyncio.CancelledError]


async def test_two_cancelled_requests_of_one_holder_settle_together(other_writer, tasks):
    settled = threading.Event()
    pair = [asyncio.ensure_future(tasks.call(Acquire(key, "B", LONG))) for key in ("one", "two")]
    await until(lambda: len(helpers()) == 2)
    await asyncio.sleep(0.01)
    for task in pair:
        task.cancel()
    await asyncio.gather(*pair, return_exceptions=True)
    tasks.settled("B", settled.set)
    tasks.settled("another", lambda: None)
    assert not settled.is_set()
    other_writer.execute("ROLLBACK")
    await until(settled.is_set)


async def test_a_file_that_stays_busy_is_unavailable_to_a_task_too(
    other_writer, tasks, monkeypatch
):
    monkeypatch.setattr(driver, "PATIENCE", 0.2)
    with pytest.raises(StoreUnavailable, match="locked"):
        await tasks.call(Acquire("key", "B", LONG))


async def test_closing_the_store_ends_its_threads(other_writer, store, tasks):
    task = asyncio.ensure_future(tasks.call(Acquire("key", "B", LONG)))
    await until(helpers)
    other_writer.execute("ROLLBACK")
    await task
    store.close()
    await until(lambda: not helpers())
    assert isinstance(await tasks.call(Acquire("key", "C", LONG)), Busy)


def test_a_busy_file_is_tried_until_it_is_free(other_writer, call):
    replies = []
    thread = threading.Thread(target=lambda: replies.append(call(Acquire("key", "B", LONG))))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    other_writer.execute("COMMIT")
    thread.join(PATIENCE)
    assert isinstance(replies[0], Granted)


def test_no_thread_is_kept_waiting_by_others_that_never_pause(store, call):
    """They take and give back the connection all the time; a newcomer gets it soon."""
    over = threading.Event()

    def hurry(name):
        while not over.is_set():
            call(Acquire(name, name, LONG))
            call(Release(name, name))

    threads = [threading.Thread(target=hurry, args=(f"{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(50):
            begin = time.monotonic()
            call(Acquire("permit", f"{number}", LONG, 1, 100))
            assert time.monotonic() - begin < driver.PATIENCE / 2
    finally:
        over.set()
        for thread in threads:
            thread.join()


# Large batches.


def test_ten_thousand_leases_are_renewed_and_told_apart(call):
    count = 10_000
    renewals = []
    for number in range(count):
        granted = call(Acquire(f"{number}", "A", LONG))
        mine = number % 1_000 != 7
        renewals.append(Renewal(f"{number}", "A", granted.token if mine else 1, LONG))
    call(Acquire("5", "W", LONG, queue=Queueing("client")))
    reply = call(Refresh(tuple(renewals)))
    assert reply.renewed == tuple(number % 1_000 != 7 for number in range(count))
    assert reply.waiting == tuple(number == 5 for number in range(count))


async def test_a_large_batch_leaves_the_loop_free(call, tasks):
    tokens = [call(Acquire(f"{number}", "A", LONG)).token for number in range(500)]
    renewals = tuple(Renewal(f"{number}", "A", token, LONG) for number, token in enumerate(tokens))
    assert (await tasks.call(Refresh(renewals))).renewed == (True,) * 500
    assert helpers()


def test_a_check_of_many_keys_answers_for_each_in_order(call):
    keys = [f"{number}" for number in range(3 * driver.CHECKS + 1)]
    for key in keys:
        call(Acquire(key, "A", LONG))
        call(Acquire(key, "W", LONG, queue=Queueing("client")))
    for key in keys[::2]:
        call(Release(key, "A"))
    states = call(Check("client", tuple(keys))).states
    assert [state.claimed for state in states[::2]] == [("W",)] * len(keys[::2])
    assert [state.claimed for state in states[1::2]] == [()] * len(keys[1::2])
    assert len({state.epoch for state in states}) == 1


# Ten thousand waiters.


def fill_queue(path, key, count, client):
    """Behind the waiters that are there; inserted by SQL to save the test's time."""
    con = sqlite3.connect(path)
    with con:
        con.executemany(
            "INSERT INTO waiters VALUES (?, ?, ?, ?, 600000, 1, 1, 0, NULL, 0, '', 0, 0)",
            ((key, f"w{number}", client, number) for number in range(10, count)),
        )
        con.execute("UPDATE job_locks SET waiters = ?1, arrivals = ?1 WHERE key = ?2", (count, key))
    con.close()


def costs_of(call, ops):
    for op in ops:
        begin = time.perf_counter()
        call(op)
        yield time.perf_counter() - begin


def test_no_operation_minds_ten_thousand_waiters(path, call):
    """Each operation once, on a key that A holds and others wait for."""
    slowest = {10: 1e9, 10_000: 1e9}
    for count in [*slowest] * 5:
        key = f"{count}:{time.monotonic_ns()}"
        call(Acquire(key, "A", LONG))
        first, second = (
            Queueing("client", call(Acquire(key, name, LONG, queue=Queueing("client"))).arrival)
            for name in ("W0", "W1")
        )
        fill_queue(path, key, count, "client")
        ops = [
            Acquire(key, "stranger", LONG),
            Acquire(key, "newcomer", LONG, queue=Queueing("client")),
            Check("client", (key,)),
            Refresh((Renewal(key, "A", 0, LONG),)),
            Leave(key, "newcomer"),
            Release(key, "A"),
            Acquire(key, "W0", LONG, queue=first),
            Release(key, "W0", ok=True),
            Acquire(key, "W1", LONG, queue=second),
            Release(key, "W1", grace=1),
        ]
        slowest[count] = min(slowest[count], max(costs_of(call, ops)))
    assert slowest[10_000] < 5 * slowest[10]


def test_ten_thousand_dead_waiters_cost_those_behind_them_one_operation(path, call):
    """However many of one process: they are passed over, and not looked at again."""
    call(Acquire("key", "A", LONG))
    fill_queue(path, "key", 10_000, "dead")
    call(Acquire("key", "W", LONG, queue=Queueing("client")))
    call(Release("key", "A"))
    assert [lease.holder for lease in call(Holders("key"))] == ["W"]
    fewer = min(costs_of(call, [Check("client", ("key",))] * 5))
    call(Acquire("plain", "A", LONG))
    assert fewer < 5 * min(costs_of(call, [Check("client", ("plain",))] * 5))


def test_two_store_objects_of_one_process_share_the_file(path, store, call):
    other = SqliteStore(path)
    call(Acquire("key", "A", LONG))
    assert isinstance(other.driver().call(Acquire("key", "B", LONG)), Busy)
    other.close()
    assert call(Release("key", "A")).freed
