"""Who a process is: one worker id for each run of it, another one in a forked child."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import joblock
from joblock.values import identity
from joblock.values.records import Worker

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def told_by_a_forked_child(tell) -> str:
    """What ``tell`` returns in a forked child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, tell().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return text


def test_a_worker_id_is_a_random_uuid_that_stays():
    assert UUID4.fullmatch(identity.worker_id())
    assert identity.worker_id() == identity.worker_id() == joblock.worker_id()


def test_another_process_is_another_worker():
    code = "import joblock; print(joblock.worker_id())"
    others = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    }
    assert len({identity.worker_id(), *others}) == 3


def test_a_forked_child_is_another_worker_and_the_parent_stays_itself():
    before = identity.worker_id()
    child = told_by_a_forked_child(identity.worker_id)
    assert UUID4.fullmatch(child)
    assert child != before
    assert identity.worker_id() == before


def test_two_forked_children_are_two_workers():
    children = [told_by_a_forked_child(identity.worker_id) for _ in range(2)]
    assert children[0] != children[1]


def test_a_grandchild_is_another_worker_than_its_parents():
    def both() -> str:
        return f"{identity.worker_id()} {told_by_a_forked_child(identity.worker_id)}"

    child, grandchild = told_by_a_forked_child(both).split()
    assert len({identity.worker_id(), child, grandchild}) == 3


def test_the_attribute_of_the_package_is_read_anew_in_a_forked_child():
    assert identity.worker_id() == joblock.WORKER_ID
    assert told_by_a_forked_child(lambda: joblock.WORKER_ID) != joblock.WORKER_ID


def test_holders_begin_with_the_worker_id_and_are_all_different():
    holders = [identity.new_holder() for _ in range(100)]
    assert len(set(holders)) == 100
    assert all(holder.startswith(identity.worker_id() + ":") for holder in holders)


def test_holders_of_a_forked_child_are_none_of_its_parents():
    child = told_by_a_forked_child(identity.new_holder)
    assert not child.startswith(identity.worker_id())
    assert UUID4.match(child)


def test_clients_of_one_process_have_different_names():
    assert identity.new_client() != identity.new_client()
    assert identity.new_client().startswith(identity.worker_id())


def test_what_is_to_happen_in_a_forked_child_happens_there_after_the_new_id_was_drawn(monkeypatch):
    seen: list[str] = []
    monkeypatch.setattr(identity, "_fork_hooks", [lambda: seen.append(identity.worker_id())])
    child = told_by_a_forked_child(lambda: " ".join([identity.worker_id(), *seen]))
    current, at_hook = child.split()
    assert current == at_hook
    assert seen == []


def test_a_worker_is_described_by_host_process_and_label():
    worker = Worker.parse(identity.describe_worker("nightly"))
    assert worker == (os.uname().nodename, os.getpid(), "nightly")


def test_a_label_may_hold_what_separates_the_parts():
    assert Worker.parse(identity.describe_worker("a\x1fb")).label == "a\x1fb"
