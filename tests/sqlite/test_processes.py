"""Several processes on one lease file: contention, kills, stops, interrupts and forks."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from child_process import PRELUDE, SOURCE, run

from joblock.store.ops import Acquire, Busy, Count, Granted, Holders, Release
from joblock.stores.sqlite import SqliteStore, driver
from joblock.values.errors import StoreUnavailable

LONG = 600_000


def journal_of(path):
    con = sqlite3.connect(path)
    [(mode,)] = con.execute("PRAGMA journal_mode")
    [(verdict,)] = con.execute("PRAGMA integrity_check")
    con.close()
    return mode, verdict


def test_processes_that_contend_for_one_key_never_hold_it_together(path, start):
    """Each counts in a file of its own under the lease: read, write, and no other in between."""
    counter = path.parent / "counter"
    counter.write_text("0")
    program = """
mine = 0
while mine < 50:
    granted = call(Acquire("key", sys.argv[2], 60_000))
    if type(granted) is not Granted: continue
    with open(sys.argv[3], "r+") as counter:
        count = int(counter.read())
        time.sleep(0)
        counter.seek(0)
        counter.write(str(count + 1))
    say(granted.token)
    assert call(Release("key", sys.argv[2], granted.token)).freed
    mine += 1
"""
    children = [start(program, number, counter) for number in range(4)]
    tokens = [[int(child.next()) for _ in range(50)] for child in children]
    assert [child.end() for child in children] == [0] * 4
    assert counter.read_text() == "200"
    assert all(mine == sorted(mine) for mine in tokens)
    assert len({token for mine in tokens for token in mine}) == 200


def test_the_lease_of_a_killed_process_lapses_and_is_taken_over(path, call, start):
    child = start('call(Acquire("key", "A", 300)); say("held"); hear()')
    assert child.next() == "held"
    child.kill()
    busy = call(Acquire("key", "B", LONG))
    assert isinstance(busy, Busy)
    time.sleep(busy.remaining / 1000)
    granted = call(Acquire("key", "B", LONG))
    assert isinstance(granted, Granted)
    assert granted.replaced == "A"


HALFWAY = """
from joblock.stores.sqlite import rows
call(Acquire("other", "A", 60_000))
save = rows.KeyRows.save
def save_and_stop(self):
    save(self)
    say("halfway")
    hear()
rows.KeyRows.save = save_and_stop
call(Acquire("key", "A", 60_000, 1, 2))
say("done")
"""


def test_a_process_killed_in_a_transaction_leaves_nothing_and_blocks_nobody(path, call, start):
    child = start(HALFWAY)
    assert child.next() == "halfway"
    child.kill()
    assert call(Holders("key")) == ()
    assert isinstance(call(Acquire("key", "B", LONG)), Granted)
    assert journal_of(path) == ("wal", "ok")


def test_a_file_that_stays_locked_is_unavailable_and_served_again_afterwards(
    path, call, monkeypatch, start
):
    monkeypatch.setattr(driver, "PATIENCE", 0.3)
    child = start(HALFWAY)
    assert child.next() == "halfway"
    for op in (Acquire("key", "B", LONG), Release("other", "A"), Acquire("new", "B", LONG, 1, 2)):
        with pytest.raises(StoreUnavailable, match=r"locked for 0.3 s; see which: fuser") as caught:
            call(op)
        assert str(path) in str(caught.value)
    assert [lease.holder for lease in call(Holders("other"))] == ["A"]
    child.tell()
    assert child.next() == "done"
    assert child.end() == 0
    assert isinstance(call(Acquire("key", "B", LONG)), Busy)


def test_threads_of_one_process_wait_for_a_locked_file_and_then_all_are_served(path, store, start):
    child = start(HALFWAY)
    assert child.next() == "halfway"
    call = store.driver().call
    replies = []
    threads = [
        threading.Thread(target=lambda key=key: replies.append(call(Acquire(key, "B", LONG))))
        for key in "abcdefgh"
    ]
    for thread in threads:
        thread.start()
    child.tell()
    for thread in threads:
        thread.join()
    assert [type(reply) for reply in replies] == [Granted] * 8
    assert child.next() == "done"
    assert child.end() == 0


def test_an_interrupt_leaves_a_call_done_or_not_done_and_the_store_in_order(path, call, start):
    """SIGINT a hundred times, wherever it falls; the child goes on each time."""
    program = """
call(Count())
number = 0
for interrupt in range(100):
    try:
        say("at it")
        while True:
            number += 1
            call(Acquire(str(number % 7), f"{number}", 60_000, 1 + number % 2, 2))
            call(Release(str(number % 7), f"{number}"))
    except KeyboardInterrupt:
        call(Leave(str(number % 7), f"{number}"))
say(store.file.ready().in_transaction, len(store.file.turns), call(Count()))
"""
    child = start(program)
    for _ in range(100):
        assert child.next() == "at it"
        child.signal(signal.SIGINT)
    assert child.next() == "False 1 0"
    assert child.end() == 0
    assert isinstance(call(Acquire("0", "B", LONG)), Granted)
    assert journal_of(path) == ("wal", "ok")


def test_a_turn_that_was_lost_with_its_thread_is_made_anew(store, call):
    """An interrupt can fall between taking the turn and knowing of it."""
    call(Count())
    store.file.turns.pop()
    assert isinstance(call(Acquire("key", "A", LONG)), Granted)
    assert len(store.file.turns) == 1


# Fork.


def in_child(work):
    """Run ``work`` in a forked child; whether it returned something true."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


def test_a_forked_child_has_a_connection_of_its_own_and_the_parents_leases_stay(store, call):
    call(Acquire("parent", "A", LONG))

    def work():
        assert not store.file.is_open
        assert isinstance(call(Acquire("parent", "B", LONG)), Busy)
        return isinstance(call(Acquire("child", "B", LONG)), Granted)

    assert in_child(work)
    assert [lease.holder for lease in call(Holders("parent"))] == ["A"]
    assert [lease.holder for lease in call(Holders("child"))] == ["B"]


def test_no_connection_is_open_in_sqlite_itself_while_a_process_forks(store, call):
    """One that a child inherits makes SQLite there believe in locks that only the parent has."""
    call(Acquire("key", "A", LONG))

    def work():
        opened = {str(name.resolve()) for name in Path("/proc/self/fd").iterdir()}
        return not any(name.startswith(store.file.path) for name in opened)

    assert in_child(work)


def test_a_child_that_outlives_its_parent_shares_the_file_with_others(path, call, start):
    """Were the log deleted under it by the last one that had a lock, others would not see it."""
    program = """
call(Acquire("parent", "A", 60_000))
parent = os.getpid()
if os.fork():
    sys.exit(0)
call(Count())
while os.getppid() == parent: time.sleep(0.01)
say("alone")
hear()
say(type(call(Acquire("child", "B", 60_000))).__name__)
"""
    child = start(program)
    assert child.next() == "alone"
    call(Count())
    child.tell()
    assert child.next() == "Granted"
    assert [lease.holder for lease in call(Holders("child"))] == ["B"]
    assert journal_of(path) == ("wal", "ok")


def test_a_child_that_exits_as_usual_closes_nothing_of_its_parents(path):
    program = """
call(Acquire("key", "A", 60_000))
pid = os.fork()
if not pid:
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
say(call(Release("key", "A")).freed)
"""
    assert run(path, program) == "True"


def test_forks_amid_operations_of_other_threads_harm_neither_side(path):
    program = """
over = threading.Event()
def work(number):
    while not over.is_set():
        call(Acquire(f"{number}", f"{number}", 60_000, 1, 2))
        call(Release(f"{number}", f"{number}"))
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads: thread.start()
codes = []
for number in range(30):
    pid = os.fork()
    if not pid:
        granted = type(call(Acquire(f"child {number}", "C", 60_000))) is Granted
        os._exit(0 if granted else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
over.set()
for thread in threads: thread.join()
say(sum(codes), call(Count()))
"""
    assert run(path, program) == "0 30"
    assert journal_of(path) == ("wal", "ok")


# Loading.


def loaded_by(path, program):
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    return set(done.stdout.split())


def test_importing_joblock_loads_no_sqlite_and_the_first_lease_nothing_heavy(path):
    say = "\nprint(*sys.modules)"
    plain = loaded_by(path, "import sys, joblock, joblock.stores.memory" + say)
    assert "sqlite3" not in plain
    cycle = 'call(Acquire("key", "A", 1_000)); call(Release("key", "A"))'
    used = loaded_by(path, PRELUDE + cycle + say) - plain
    heavy = {"asyncio", "concurrent.futures", "hashlib", "json", "logging", "pathlib", "random"}
    assert not used & (heavy | {"platformdirs", "socket", "subprocess", "tempfile", "urllib"})


def test_the_first_notice_loads_nothing_heavy_while_the_next_in_line_waits(path):
    handing_over = """
call(Acquire("key", "A", 60_000))
call(Acquire("key", "W", 60_000, queue=Queueing("client")))
before = set(sys.modules)
call(Release("key", "A"))
print(*set(sys.modules) - before)
"""
    loaded = loaded_by(path, PRELUDE + handing_over)
    assert loaded <= {"joblock.stores.sqlite.sockets", "_blake2", "_socket"}


def test_a_store_that_was_closed_leaves_one_file(path, tmp_path):
    store = SqliteStore(path)
    store.driver().call(Acquire("key", "A", LONG))
    store.close()
    assert [name.name for name in tmp_path.iterdir()] == ["leases.db"]
