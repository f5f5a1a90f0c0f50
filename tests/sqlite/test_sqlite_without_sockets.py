"""Where no socket can be beside the lease file, waiters ask the file, soon and again."""

from __future__ import annotations

import threading
import time

from joblock import JobLocks


def test_a_waiter_that_cannot_be_woken_has_the_key_soon_after_its_release(tmp_path):
    (tmp_path / "locks.db.sockets").write_text("in the way of the directory")
    url = f"sqlite:///{tmp_path}/locks.db"
    won = threading.Event()

    def wait():
        with JobLocks(url) as locks, locks.lock("reindex"):
            won.set()

    with JobLocks(url) as locks:
        waiter = threading.Thread(target=wait)
        with locks.lock("reindex"):
            waiter.start()
            deadline = time.monotonic() + 10
            while not locks.model.waiters("reindex"):
                assert time.monotonic() < deadline
                time.sleep(0.001)
        # A waiter that is woken checks every 4 seconds; one that is not, every quarter at most.
        assert won.wait(2)
        waiter.join(10)
