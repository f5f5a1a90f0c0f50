"""Stores in memory that are wrong in one way each, as lock libraries have been.

They share the store's own machinery (`joblock.store.machine` by way of the memory store), so each
is wrong in nothing but what its name says.
"""

from __future__ import annotations

import threading
import time

from joblock.store.ops import Acquire, Holders, Leave, Release, Released
from joblock.stores.memory import MemoryDriver, MemoryStore
from joblock.values.clock import SystemClock


class _Broken(MemoryStore):
    """A memory store whose drivers are of the class that its subclass names."""

    driver_class = MemoryDriver

    def driver(self):
        return self.driver_class(self._room)


class _CheckThenSet(MemoryDriver):
    """Looks whether the key is free, and a little later takes it without looking again."""

    __slots__ = ()

    def call(self, op):
        if isinstance(op, Acquire):
            held = any(lease.state != "expired" for lease in super().call(Holders(op.key)))
            time.sleep(0.01)
            if not held:
                with self._room.lock:
                    key = self._room.key(op.key)
                    if key is not None:
                        key.held.clear()
        return super().call(op)


class CheckThenSet(_Broken):
    driver_class = _CheckThenSet


class _ReleaseAnybody(MemoryDriver):
    """Frees the key, whoever holds it."""

    __slots__ = ()

    def call(self, op):
        if isinstance(op, Release):
            leases = super().call(Holders(op.key))
            if leases:
                op = op._replace(holder=leases[0].holder, token=0)
        return super().call(op)


class ReleaseAnybody(_Broken):
    driver_class = _ReleaseAnybody


class _CallersClock(SystemClock):
    """Shows each thread its own time, ahead by as much as that thread says."""

    def __init__(self):
        super().__init__()
        self.caller = threading.local()
        true = self.monotonic
        self.monotonic = lambda: true() + getattr(self.caller, "ahead", 0.0)


CALLERS_CLOCK = _CallersClock()


class _ClientClock(MemoryDriver):
    """Decides by the clock of whoever asks whether a lease has expired."""

    __slots__ = ("ahead",)

    def call(self, op):
        CALLERS_CLOCK.caller.ahead = self.ahead
        return super().call(op)


class ClientClock(_Broken):
    """The clocks of the clients that open it one after the other are seconds apart."""

    opened = 0

    def __init__(self, name):
        super().__init__(name, clock=CALLERS_CLOCK)

    def driver(self):
        driver = _ClientClock(self._room)
        ClientClock.opened += 1
        driver.ahead = 10.0 * (ClientClock.opened % 2)
        return driver


class _OldSnapshot(MemoryDriver):
    """A release reads the queue before it has the key's lock, and so misses who came meanwhile."""

    __slots__ = ()

    def call(self, op):
        if not isinstance(op, Release):
            return super().call(op)
        with self._room.lock:
            key = self._room.key(op.key)
            line = key is not None and bool(key.line)
        time.sleep(0.05)
        if line:
            return super().call(op)
        with self._room.lock:
            key = self._room.key(op.key)
            mine = [lease for lease in key.held if lease.holder == op.holder] if key else []
            for lease in mine:
                key.drop(lease)
        return Released(freed=bool(mine))


class OldSnapshot(_Broken):
    driver_class = _OldSnapshot


class _EternalClaim(MemoryDriver):
    """Hands the key over for good: a claim that nobody confirms never lapses."""

    __slots__ = ()

    def call(self, op):
        reply = super().call(op)
        if isinstance(op, Release | Leave):
            with self._room.lock:
                key = self._room.key(op.key)
                for lease in key.held if key is not None else ():
                    if lease.claim:
                        lease.expires_at += 3_600_000
        return reply


class EternalClaim(_Broken):
    driver_class = _EternalClaim


class _LastComeFirstServed(MemoryDriver):
    """Hands the key to whoever came last."""

    __slots__ = ()

    def call(self, op):
        if isinstance(op, Release):
            with self._room.lock:
                key = self._room.key(op.key)
                if key is not None and len(key.line) > 1:
                    key.line.insert(0, key.line.pop())
        return super().call(op)


class LastComeFirstServed(_Broken):
    driver_class = _LastComeFirstServed


class _RefreshAnybody(MemoryDriver):
    """Renews whatever it is asked to, whoever has the key by now."""

    __slots__ = ()

    def call(self, op):
        reply = super().call(op)
        if hasattr(reply, "renewed"):
            return reply._replace(renewed=tuple(True for _ in reply.renewed))
        return reply


class RefreshAnybody(_Broken):
    driver_class = _RefreshAnybody


class Sound(_Broken):
    """Wrong in nothing."""


BROKEN = {
    CheckThenSet: "exclusion",
    ReleaseAnybody: "exclusion",
    ClientClock: "exclusion",
    OldSnapshot: "liveness",
    EternalClaim: "liveness",
    LastComeFirstServed: "order",
    RefreshAnybody: "ownership",
}
"""The wrong stores, and a promise that each is seen to break."""

QUIET = {CheckThenSet, OldSnapshot}
"""Those whose fault shows only on a key that is free now and then."""
