"""What is asked for is checked at every door, before anything is sent, and shown when refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from joblock.testing.clients.stage import Actor, Client, ClientScenarios, Stage

DURATIONS = ("ttl", "wait", "max_duration", "timeout", "refresh", "model.acquire", "model.refresh")

BAD_DURATIONS: list[tuple[Any, type[Exception]]] = [
    (-1.5, ValueError),
    (math.nan, ValueError),
    (math.inf, ValueError),
    ("soon", ValueError),
    ("", ValueError),
    ("10 parsecs", ValueError),
    ((5, "fortnights"), ValueError),
    (timedelta(seconds=-1), ValueError),
    (200 * 365 * 86_400, ValueError),
    ([30], TypeError),
    (object, TypeError),
]

GOOD_DURATIONS: list[tuple[Any, float]] = [
    (20, 20),
    (0.25, 0.25),
    ("500ms", 0.5),
    ("30s", 30),
    ("1h30m", 5400),
    ((10, "minutes"), 600),
    (timedelta(minutes=2), 120),
    (0.0101, 0.011),
]

BAD_KEYS: list[tuple[Any, type[Exception]]] = [
    ("", ValueError),
    ("a\0b", ValueError),
    ("\ud800", ValueError),
    ("x" * 501, ValueError),
    (5, TypeError),
    (None, TypeError),
    (b"key", TypeError),
    ({"a": 1}, TypeError),
]


class Asking(ClientScenarios):
    """See the module."""

    @pytest.mark.parametrize("door", DURATIONS)
    def test_what_is_no_duration_is_refused_with_an_example(
        self, stage: Stage, a: Actor, locks: Client, door: str
    ) -> None:
        call = self._door(stage, locks, door)
        for value, kind in BAD_DURATIONS:
            with pytest.raises(kind) as caught:
                a.do(call, value)
            assert repr(value) in str(caught.value)
            assert '"30s"' in str(caught.value) or "hundred years" in str(caught.value)
        self._nothing_was_sent(stage, locks)

    @pytest.mark.parametrize("door", ["ttl", "max_duration", "model.acquire", "model.refresh"])
    def test_nothing_and_a_bool_are_no_duration(
        self, stage: Stage, a: Actor, locks: Client, door: str
    ) -> None:
        call = self._door(stage, locks, door)
        for value in (0, True, False):
            with pytest.raises((TypeError, ValueError)) as caught:
                a.do(call, value)
            assert repr(value) in str(caught.value)
        self._nothing_was_sent(stage, locks)

    def test_a_duration_is_written_in_any_of_these_ways(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        for value, seconds in GOOD_DURATIONS:
            lease = a.do(locks.acquire, stage.key, value, renew=False)
            (stored,) = stage.leases()
            assert (stored.expires_at - stored.acquired_at).total_seconds() == seconds
            a.do(lease.release)

    @pytest.mark.parametrize("door", ["lock", "acquire", "run_with_lock", "peek", "model.acquire"])
    def test_what_is_no_key_is_refused_and_shown(
        self, stage: Stage, a: Actor, locks: Client, door: str
    ) -> None:
        calls: dict[str, Callable[[Any], Any]] = {
            "lock": locks.lock,
            "acquire": locks.acquire,
            "run_with_lock": lambda key: locks.run_with_lock(key, 30, stage.work()),
            "peek": locks.model.peek,
            "model.acquire": lambda key: locks.model.acquire(key, 30, "holder"),
        }
        for key, kind in BAD_KEYS:
            with pytest.raises(kind) as caught:
                a.do(calls[door], key)
            assert repr(key)[:40] in str(caught.value)
        self._nothing_was_sent(stage, locks)

    def test_a_key_and_its_prefix_have_five_hundred_characters_at_most(
        self, stage: Stage, a: Actor
    ) -> None:
        locks = stage.client(prefix=f"{stage.key[:32]}/")
        with a.inside(locks.lock("x" * 467, stage.ttl)):
            pass
        with pytest.raises(ValueError, match="501"):
            locks.lock("x" * 468)

    @pytest.mark.parametrize("holder", ["", "a\0b", 5, "x" * 501])
    def test_what_is_no_holder_is_refused_and_shown(
        self, stage: Stage, a: Actor, locks: Client, holder: Any
    ) -> None:
        for call in (
            lambda: locks.acquire(stage.key, holder=holder),
            lambda: locks.run_with_lock(stage.key, 30, stage.work(), holder=holder),
            lambda: locks.model.release(stage.key, holder),
        ):
            with pytest.raises((TypeError, ValueError), match="holder") as caught:
                a.do(call)
            assert repr(holder)[:40] in str(caught.value)
        self._nothing_was_sent(stage, locks)

    @pytest.mark.parametrize(
        ("options", "shown"),
        [
            ({"limit": 0}, "0"),
            ({"limit": True}, "True"),
            ({"limit": 2.0}, "2.0"),
            ({"limit": 2, "weight": 3}, "weight=3"),
            ({"weight": 2}, "weight=2"),
            ({"weight": -1}, "-1"),
            ({"shared": True, "limit": 2}, "limit=2"),
            ({"shared": 1}, "1"),
            ({"renew": "yes"}, "'yes'"),
            ({"on_lost": "explode"}, "'explode'"),
            ({"on_lost": ["raise"]}, "['raise']"),
            ({"wait": None}, "None"),
            ({"ttl": "2m", "max_duration": "1m"}, "2m"),
        ],
    )
    def test_options_that_make_no_sense_are_refused_and_shown(
        self, stage: Stage, a: Actor, locks: Client, options: dict[str, Any], shown: str
    ) -> None:
        for door in (locks.lock, locks.acquire):
            with pytest.raises((TypeError, ValueError)) as caught:
                a.do(door, stage.key, **options)
            assert shown in str(caught.value)
        self._nothing_was_sent(stage, locks)

    def test_only_a_client_for_tasks_can_cancel(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        if stage.asynchronous:
            with a.inside(locks.lock(stage.key, stage.ttl, on_lost="cancel")):
                return
        for call in (
            lambda: locks.lock(stage.key, on_lost="cancel"),
            lambda: locks.acquire(stage.key, on_lost="cancel"),
            lambda: locks.run_with_lock(stage.key, 30, stage.work(), on_lost="cancel"),
        ):
            with pytest.raises(ValueError, match="'cancel'"):
                a.do(call)

    @pytest.mark.parametrize(
        "options", [{"on_store_error": "ignore"}, {"on_lost": "die"}, {"renew": None}]
    )
    def test_options_of_a_run_that_make_no_sense_are_refused_and_shown(
        self, stage: Stage, a: Actor, locks: Client, options: dict[str, Any]
    ) -> None:
        work = stage.work()
        with pytest.raises((TypeError, ValueError)) as caught:
            a.do(locks.run_with_lock, stage.key, 30, work, **options)
        assert repr(next(iter(options.values()))) in str(caught.value)
        assert work.calls == 0
        self._nothing_was_sent(stage, locks)

    @pytest.mark.parametrize("work", [None, 5, "prune()"])
    def test_work_that_cannot_be_called_is_refused_and_shown(
        self, stage: Stage, a: Actor, locks: Client, work: Any
    ) -> None:
        with pytest.raises(TypeError) as caught:
            a.do(locks.run_with_lock, stage.key, 30, work)
        assert repr(work) in str(caught.value)
        self._nothing_was_sent(stage, locks)

    @pytest.mark.parametrize("prefix", [5, "a\0", "x" * 501, ["p"]])
    def test_what_is_no_prefix_is_refused_and_shown(self, stage: Stage, prefix: Any) -> None:
        make = cast("Any", type(stage.client()))
        with pytest.raises((TypeError, ValueError), match="prefix") as caught:
            make("memory://", prefix=prefix)
        assert repr(prefix)[:40] in str(caught.value)

    @pytest.mark.parametrize("label", [5, None, b"night", "a\0", "\ud800"])
    def test_what_is_no_label_is_refused_and_shown(self, stage: Stage, label: Any) -> None:
        make = cast("Any", type(stage.client()))
        with pytest.raises((TypeError, ValueError), match="label") as caught:
            make("memory://", label=label)
        assert repr(label) in str(caught.value)

    @pytest.mark.parametrize("option", ["by", "why"])
    @pytest.mark.parametrize("value", [5, None, ["ops"], "a\0", "\ud800"])
    def test_who_breaks_a_lease_and_why_is_text(
        self, stage: Stage, a: Actor, locks: Client, option: str, value: Any
    ) -> None:
        with pytest.raises((TypeError, ValueError), match=option) as caught:
            a.do(locks.model.delete, stage.key, **{option: value})
        assert repr(value) in str(caught.value)
        self._nothing_was_sent(stage, locks)

    @pytest.mark.parametrize("store", [5, object(), ["memory://"]])
    def test_what_is_no_store_is_refused(self, stage: Stage, store: Any) -> None:
        make = cast("Any", type(stage.client()))
        with pytest.raises(TypeError, match="store"):
            make(store)

    @pytest.mark.parametrize("url", ["locks.db", "nosuch://host/db", ""])
    def test_a_url_that_names_no_store_is_refused(self, stage: Stage, url: str) -> None:
        make = cast("Any", type(stage.client()))
        with pytest.raises(ValueError, match="URL"):
            make(url)

    def _door(self, stage: Stage, locks: Client, door: str) -> Callable[[Any], Any]:
        if door == "refresh":
            holder = stage.client()
            lease = stage.actor().do(holder.acquire, stage.key, stage.ttl)
            stage.keep(lease)
            return lease.refresh
        doors: dict[str, Callable[[Any], Any]] = {
            "ttl": lambda value: locks.lock(stage.key, value),
            "wait": lambda value: locks.acquire(stage.key, wait=value),
            "max_duration": lambda value: locks.acquire(stage.key, max_duration=value),
            "timeout": lambda value: locks.lock(stage.key).acquire(timeout=value),
            "model.acquire": lambda value: locks.model.acquire(stage.key, value, "holder"),
            "model.refresh": lambda value: locks.model.refresh(stage.key, value, "holder"),
        }
        return doors[door]

    def _nothing_was_sent(self, stage: Stage, locks: Client) -> None:
        assert stage.faults(locks).requests == []
