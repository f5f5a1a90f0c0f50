"""What every store has to do: grant, renew and free a lease, tell the time, wake who waits."""

from __future__ import annotations

import os
import threading
import time
from statistics import median
from typing import TYPE_CHECKING

from joblock.doctor.report import Finding, broken, good, note, risk
from joblock.store.ops import (
    Acquire,
    Granted,
    Holders,
    Leave,
    Notice,
    Queueing,
    Refresh,
    Release,
    Renewal,
)
from joblock.values.errors import StoreError, StoreMisconfigured, StoreUnavailable
from joblock.values.identity import describe_worker, new_client, new_holder

if TYPE_CHECKING:
    from joblock.store.contract import Driver, Store

ROUNDS = 9
TTL = 30_000
"""Milliseconds: what is left behind by a doctor that is killed is over after that."""

SLOW = 0.25
"""Seconds for one answer, beyond which short leases are at risk."""

APART = 2.0
"""Seconds between two clocks that are worth a word."""

PATIENCE = 5.0
"""Seconds within which a listening connection must be there, and then a notice."""


def try_out(store: Store, prefix: str, *, reached: bool) -> list[Finding]:
    """Do what a client does, under a key that nobody else has.

    Raises StoreUnavailable unless the store was ``reached`` before, so that it is one that answers
    and yet does not do what it should.
    """
    key = f"{prefix}joblock-doctor:{os.urandom(8).hex()}"
    try:
        return [*_leases(store, key), *_waiting(store, key)]
    except StoreMisconfigured as error:
        return [_failed(error)]
    except StoreUnavailable as error:
        if not reached:
            raise
        return [_failed(error)]


def _failed(error: StoreError) -> Finding:
    return broken(
        "leases",
        f"a lease cannot be taken and given back: {error}",
        "nothing that needs a lease runs",
        "what the message says",
    )


def _leases(store: Store, key: str) -> list[Finding]:
    driver, holder, worker = store.driver(), new_holder(), describe_worker("joblock doctor")
    driver.call(Holders(key))  # connects, so that nothing but the exchange is measured below
    try:
        before = time.time()
        granted = driver.call(Acquire(key, holder, TTL, worker=worker))
        after = time.time()
        if not isinstance(granted, Granted):
            return [_odd(f"a key that nobody has was refused: {granted}")]
        renewed = driver.call(Refresh((Renewal(key, holder, granted.token, TTL),)))
        freed = driver.call(Release(key, holder, granted.token)).freed
        if not (renewed.renewed[0] and freed):
            return [_odd("a lease was lost as soon as it was granted")]
    finally:
        driver.call(Leave(key, holder))
    return [
        good("leases", "a lease was granted, renewed and given back"),
        _speed(driver, key),
        _clock(granted.acquired_at / 1000, before, after, shared=store.abilities.shared),
    ]


def _odd(found: str) -> Finding:
    return broken(
        "leases",
        found,
        "the store does not do what it is asked: who holds what is not known",
        "see that all who use it have the same version of joblock, and whether somebody breaks "
        "leases at this moment (joblock peek)",
    )


def _speed(driver: Driver, key: str) -> Finding:
    took: list[float] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        driver.call(Holders(key))
        took.append(time.perf_counter() - begun)
    answer = median(took)
    found = f"an answer takes {answer * 1000:.3g} ms (median of {ROUNDS})"
    if answer <= SLOW:
        return good("round trip", found)
    return risk(
        "round trip",
        found,
        "each lease costs several of these, and one with a short ttl may be lost for being renewed "
        "too late",
        f"use a store that is nearer, and no ttl below {answer * 30:.0f}s",
    )


def _clock(store: float, before: float, after: float, *, shared: bool) -> Finding:
    apart = store - (before + after) / 2
    blurred = (after - before) / 2
    if abs(apart) <= APART + blurred:
        return good("clock", f"the store's and this machine's agree to {abs(apart):.1f} s")
    ahead = "ahead of" if apart > 0 else "behind"
    found = f"the store's is {abs(apart):.1f} s {ahead} this machine's"
    if not shared:
        # It counts from the boot: the wall clock was set since, which does no harm.
        return note("clock", found, "the times shown are off by that much; leases are not")
    return risk(
        "clock",
        found,
        "leases go by the store's clock alone, but the times that are shown are off, and after a "
        "failover to a server that is behind tokens may not grow",
        "let both keep time with NTP",
    )


# Waiting: one waiter, handed the key by a release.


def _waiting(store: Store, key: str) -> list[Finding]:
    if not store.abilities.push:
        return [note("notices", "this store cannot wake who waits", "waiters ask it now and then")]
    client, heard, connected = new_client(), threading.Event(), threading.Event()

    def deliver(notice: Notice) -> None:
        del notice  # whichever: nobody else knows this client
        heard.set()

    ear = store.subscribe(client, deliver, connected.set)
    try:
        if not connected.wait(PATIENCE) or not ear.listening:
            return [_deaf("no listening connection could be made")]
        took = _hand_over(store.driver(), key, client, heard)
    finally:
        ear.close()
    if took is None:
        return [_deaf(f"a waiter was handed the key, and no notice came within {PATIENCE:g} s")]
    return [good("notices", f"a waiter was woken {took * 1000:.3g} ms after a release was sent")]


def _hand_over(driver: Driver, key: str, client: str, heard: threading.Event) -> float | None:
    """Seconds from the release to the notice, or None if none came."""
    first, second = new_holder(), new_holder()
    worker = describe_worker("joblock doctor")
    queue = Queueing(client, listening=True)
    try:
        driver.call(Acquire(key, first, TTL, worker=worker))
        driver.call(Acquire(key, second, TTL, worker=worker, queue=queue))
        heard.clear()
        begun = time.perf_counter()
        driver.call(Release(key, first, contended=True))
        return time.perf_counter() - begun if heard.wait(PATIENCE) else None
    finally:
        for holder in (second, first):
            driver.call(Leave(key, holder))


def _deaf(found: str) -> Finding:
    return risk(
        "notices",
        found,
        "who waits is not woken but asks: every few milliseconds at first, four times a second "
        "later. A hand-off takes that much longer, and each waiting process costs the store that",
        "see what the page of this store says of waiting",
    )
