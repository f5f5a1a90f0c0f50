"""One run: the workers, the nemesis, the watcher; then the check, and a clean store."""

from __future__ import annotations

import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import NamedTuple

from joblock import JobLocks, StoreError
from joblock.store.ops import Acquire, Holders, Waiters
from joblock.stores.registry import open_store
from joblock.values.names import full_key
from joblock.verify import data
from joblock.verify.checker import check
from joblock.verify.crew import Crew, Member, Task, pause
from joblock.verify.history import Checking, History, Recorder, now, read_history
from joblock.verify.lives import Bounds
from joblock.verify.nemesis import FAULTS, NETWORK, Blow, ServerFault, WorkerFault, schedule
from joblock.verify.operations import KEYS
from joblock.verify.proxy import Door, Proxy, address_of, through
from joblock.verify.recording import RecordingStore
from joblock.verify.report import Report, Updates
from joblock.verify.rules import Violation
from joblock.verify.sweep import sweep

TICK = 0.02
LOOK_EVERY = 0.01
"""Seconds between two looks of the watcher, each at one key."""


class Plan(NamedTuple):
    """What is to be done.

    ``faults`` are names of `joblock.verify.nemesis.FAULTS`, ``server_faults`` those of a server
    that whoever plans this has in hand, ``worker_faults`` those of a network that is. ``urls``: a
    way to the store for each worker. ``history``: keep it there.
    """

    url: str
    seconds: float = 30.0
    workers: int = 4
    seed: int = 0
    faults: tuple[str, ...] = tuple(FAULTS)
    server_faults: Mapping[str, ServerFault] = {}
    worker_faults: Mapping[str, WorkerFault] = {}
    urls: tuple[str, ...] = ()
    lanes: int = 4
    history: str | None = None
    bounds: Bounds = Bounds()


class Progress(NamedTuple):
    """How far a run is."""

    done: float
    seconds: float
    faults: int
    phase: str


Tell = Callable[[Progress], None]


def _tell_nobody(progress: Progress) -> None:
    del progress


def run(plan: Plan, tell: Tell = _tell_nobody) -> Report:
    """Do it. Raises StoreError if the store cannot be reached, ValueError for one that is no use.

    However it ends, its workers are ended, and its keys are gone as far as the store answers.
    """
    prefix = f"joblock-verify:{secrets.token_hex(6)}:"
    store = open_store(plan.url)
    if store.url.startswith("memory:"):
        raise ValueError("memory:// is a store of one process alone: there is nothing to verify")
    with JobLocks(plan.url, prefix=prefix) as locks:
        locks.model.peek("reachable")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="joblock-verify-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        path = plan.history or str(folder / "history.jsonl")
        counters = str(folder / "data.db")
        data.create(counters)
        stack.callback(_sweep, plan.url, prefix, path)
        recorder = Recorder(path, "nemesis")
        stack.callback(recorder.close)
        seconds, left_out = _torment(plan, prefix, path, counters, recorder, stack, tell)
        tell(Progress(plan.seconds, plan.seconds, 0, "checking the history"))
        history = read_history(path)
        violations = check(history, plan.bounds)
        updates = _updates(history, counters)
        violations += _lost(updates)
        return Report(store.url, plan.seed, seconds, history, violations, updates, left_out)


def _torment(
    plan: Plan,
    prefix: str,
    path: str,
    counters: str,
    recorder: Recorder,
    stack: ExitStack,
    tell: Tell,
) -> tuple[float, dict[str, str]]:
    """The run itself; how long it took, and which faults were not possible."""
    doors: list[Door] = []
    proxy, left_out = _proxy_for(plan)
    if proxy is not None:
        stack.callback(proxy.close)
        doors = proxy.doors
    urls = [through(plan.url, door.port) for door in doors]
    urls = urls or list(plan.urls) or [plan.url] * plan.workers
    task = Task(urls, prefix, plan.seed, plan.lanes, path, counters)
    crew = Crew(task, plan.workers, recorder)
    stack.callback(crew.close)
    kinds = [kind for kind in (*plan.faults, *plan.worker_faults) if kind not in left_out]
    blows = schedule(plan.seed, plan.seconds, plan.workers, kinds, list(plan.server_faults))
    nemesis = _Nemesis(plan, crew, proxy, recorder)
    begun = now()
    crew.start()
    with _watching(plan.url, prefix, path):
        nemesis.act(blows, begun, tell)
        tell(Progress(now() - begun, plan.seconds, len(blows), "letting the workers finish"))
        crew.stop()
    return now() - begun, left_out


def _proxy_for(plan: Plan) -> tuple[Proxy | None, dict[str, str]]:
    wanted = [kind for kind in plan.faults if kind in NETWORK]
    address = address_of(plan.url)
    if not wanted:
        return None, {}
    if address is None or plan.urls:
        why = "needs a plain TCP connection to one server, which a proxy can stand in for"
        return None, dict.fromkeys(wanted, why)
    return Proxy(*address, plan.workers), {}


class _Nemesis:
    """Does what the schedule says, and undoes it in time."""

    def __init__(self, plan: Plan, crew: Crew, proxy: Proxy | None, recorder: Recorder) -> None:
        self._plan = plan
        self._crew = crew
        self._proxy = proxy
        self._recorder = recorder
        self._order = count()
        self._undoing: list[tuple[float, int, Callable[[], None]]] = []

    def act(self, blows: list[Blow], begun: float, tell: Tell) -> None:
        """Until the time is over and all is undone."""
        coming = list(reversed(blows))
        end = begun + self._plan.seconds
        while now() < end or self._undoing:
            while coming and begun + coming[-1].at <= now() < end:
                self._strike(coming.pop())
            while self._undoing and self._undoing[0][0] <= now():
                heappop(self._undoing)[2]()
            self._crew.look_after()
            done = min(now() - begun, self._plan.seconds)
            tell(Progress(done, self._plan.seconds, len(blows) - len(coming), "running"))
            pause(TICK)

    def _strike(self, blow: Blow) -> None:
        fault = self._plan.server_faults.get(blow.kind)
        begin = now()
        if fault is not None:
            fault.strike()
            self._note(blow.kind, "", begin, fault)
            return
        member = self._crew.members[blow.worker]
        name = member.name
        undo = self._begin(blow, member)

        def over() -> None:
            undo()
            if blow.kind != "kill":
                self._note(blow.kind, name, begin)

        if blow.kind == "kill":
            self._note("kill", name, begin)
        heappush(self._undoing, (now() + blow.seconds, next(self._order), over))

    def _begin(self, blow: Blow, member: Member) -> Callable[[], None]:
        """Do it; what undoes it."""
        fault = self._plan.worker_faults.get(blow.kind)
        if fault is not None:
            return fault(blow.worker)
        if blow.kind == "pause":
            member.signal(signal.SIGSTOP)
            return partial(member.signal, signal.SIGCONT)
        if blow.kind == "kill":
            member.kill()
            return member.start
        if blow.kind == "clock":
            member.tell(f"clock {blow.strength}")
            return partial(member.tell, "clock 0")
        return self._begin_at_door(blow)

    def _begin_at_door(self, blow: Blow) -> Callable[[], None]:
        proxy = self._proxy
        if proxy is None:
            raise AssertionError("a fault of the network without a proxy")
        door = proxy.doors[blow.worker]
        if blow.kind == "cut":
            proxy.cut(door)
        elif blow.kind == "reply":
            door.loses_reply = True
        elif blow.kind == "delay":
            door.delay = blow.strength
        else:
            door.swallows = True
        return partial(_open, door)

    def _note(self, kind: str, on: str, begin: float, did: ServerFault | None = None) -> None:
        facts = {} if did is None else did._asdict()
        facts.pop("strike", None)
        self._recorder.put("fault", begin, kind=kind, on=on, end=now(), **facts)


def _open(door: Door) -> None:
    door.delay, door.swallows, door.loses_reply = 0.0, False, False


@contextmanager
def _watching(url: str, prefix: str, path: str) -> Generator[None]:
    """Look at one key after the other meanwhile: who has it, and who is in line."""
    over = threading.Event()
    recorder = Recorder(path, "watcher")
    store = RecordingStore(open_store(url), recorder)

    def watch() -> None:
        driver = store.driver()
        while not over.is_set():
            for key in KEYS:
                name = full_key(prefix, key)
                try:
                    driver.call(Waiters(name))
                    driver.call(Holders(name))
                except StoreError:
                    over.wait(LOOK_EVERY)
                if over.wait(LOOK_EVERY):
                    break

    thread = threading.Thread(target=watch, name="verify-watcher", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
        store.close()
        recorder.close()


def _updates(history: History, counters: str) -> dict[str, Updates]:
    confirmed = {
        name: sum(wrote.name == name for wrote in history.wrote) for name in ("fenced", "unfenced")
    }
    values = data.values(counters)
    return {name: Updates(confirmed[name], values[name]) for name in confirmed}


def _lost(updates: dict[str, Updates]) -> list[Violation]:
    fenced = updates["fenced"]
    if not fenced.lost:
        return []
    what = f"{fenced.lost} of {fenced.confirmed} fenced updates were lost"
    return [Violation("fence", "fenced", what)]


def _sweep(url: str, prefix: str, path: str) -> None:
    """As far as the store answers; what is left lapses by itself."""
    clients: set[str] = set()
    if Path(path).exists():
        for act in read_history(path).acts:
            if isinstance(act.op, Checking):
                clients.add(act.op.client)
            elif isinstance(act.op, Acquire) and act.op.queue is not None:
                clients.add(act.op.queue.client)
    try:
        sweep(url, prefix, clients)
    except StoreError:
        return
