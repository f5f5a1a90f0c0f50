"""A child that is forked while other threads use a client for the first time locks right away.

The first use imports drivers and connects, in whatever thread comes first. What that thread has
locked at the moment of the fork, nobody gives back in the child.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MOMENTS = [0.0, 0.005, 0.01, 0.02, 0.04, 0.07, 0.11]
"""Seconds after the threads began: all are right, and together they meet most of a first use."""

PROGRAM = """
import os, signal, sys, threading, time
from joblock import JobLocks

url, moment, whose = sys.argv[1], float(sys.argv[2]), sys.argv[3]
shared = JobLocks(url) if whose == "shared" else None

def locks():
    return shared or JobLocks(url)

def use(number):
    locks().lock(f"parent-{number}").acquire()

for number in range(4):
    threading.Thread(target=use, args=(number,), daemon=True).start()
time.sleep(moment)
pid = os.fork()
if not pid:
    signal.alarm(60)  # one that hangs does not heed its wait of 4 seconds either
    with locks().lock("child", wait="4s") as lease:
        print(lease.held, flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("whose", ["shared", "own"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_child_forked_during_the_first_use_of_a_client_locks_right_away(
    url: str, prefix: str, moment: float, whose: str
) -> None:
    # The warning is of forking with threads, which is the subject.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM]
    ended = subprocess.run(
        [*command, url, str(moment), whose],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "JOBLOCK_PREFIX": prefix},
    )
    assert ended.stdout == "True\n0\n", ended.stderr
    # Nothing more: on a busy machine the library may warn that its keeper was kept waiting.
    assert "Traceback" not in ended.stderr


LOGGING = """
import os, signal, sys, threading
import joblock
from joblock.values.imports import importing

middle, forking = threading.Event(), threading.Event()
os.register_at_fork(before=forking.set)  # after the hook of logging, before joblock's

class Middle:
    def find_spec(self, name, path, target=None):
        if name == "atexit":  # near the end of logging, which has its hook and its lock by now
            middle.set()
            forking.wait()
            sys.modules["logging"].getLogger("joblock")

def use():
    with importing():
        import logging

sys.modules.pop("atexit", None)
sys.meta_path.insert(0, Middle())
thread = threading.Thread(target=use)
thread.start()
middle.wait()
pid = os.fork()
if not pid:
    signal.alarm(20)
    with importing():
        import logging
    logging.getLogger("joblock")
    print("done", flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
thread.join()
print(os.waitstatus_to_exitcode(status), flush=True)
"""


def test_a_fork_does_not_fall_into_the_import_of_logging_whose_lock_it_has_taken() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", LOGGING]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert (ended.stdout, ended.stderr) == ("done\n0\n", "")
