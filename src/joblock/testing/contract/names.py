"""Strange keys and holders: any text is as good a name as any other, and none is another."""

from __future__ import annotations

import pytest

from joblock.store.ops import Check, Refresh, Renewal
from joblock.testing.contract.bench import LONG, Bench, Contract, Key

STRANGE = (
    "it's",
    'say "key"',
    "back\\slash",
    "back`tick",
    "semi; colon -- drop",
    "percent%s and %d",
    "under_score",
    "star*",
    "[bracket]",
    "question?",
    "$1 :name @p",
    "{brace}",
    "}",
    "{",
    "a:b:c",
    "a/b/../c",
    "a b\tc\nd\re",
    "\x01\x1f\x7f",
    " leading and trailing ",
    "null",
    "0",
    "-1",
    "1e5",
    "🔒🏳️\u200d🌈",
    "עברית ו\u202eעוד",
    "中文",
    "ß",
    "\ufeffbom",
    "\u00a0",
    "\U0010ffff",
)

ALIKE = (
    ("key", "Key"),
    ("key", "key "),
    ("key", " key"),
    ("key", "key\n"),
    ("key", "key\u200b"),
    ("caf\u00e9", "cafe\u0301"),
    ("cafe", "caf\u00e9"),
    ("ss", "ß"),
    ("I", "ı"),
    ("1", "01"),
    ("1", "1.0"),
    ("a", "ａ"),
    ("\u03a9", "\u2126"),
    ("🔒", "🔓"),
)
"""Pairs that some collation, normalisation or conversion takes for the same."""

LONGEST = ("k" * 500, "é" * 500, "🔒" * 500)


class Names(Contract):
    """Names are compared exactly, and come back as they went in."""

    @pytest.mark.parametrize("name", STRANGE, ids=ascii)
    def test_any_text_names_a_key(self, bench: Bench, name: str) -> None:
        key = bench.key(f"{name}{bench.mark}{name}")
        self._use(key, "A", "W")

    @pytest.mark.parametrize("name", STRANGE, ids=ascii)
    def test_any_text_names_a_holder(self, key: Key, name: str) -> None:
        self._use(key, name, name + name)

    @pytest.mark.parametrize("name", LONGEST, ids=["ascii", "two bytes", "four bytes"])
    def test_five_hundred_characters_name_a_key_and_a_holder(self, bench: Bench, name: str) -> None:
        key = bench.key(bench.mark + name[len(bench.mark) :])
        assert len(key.name) == 500
        self._use(key, name, name[:-1] + "w")
        other = bench.key(key.name[:-1] + "x")
        other.grant("B")

    @pytest.mark.parametrize(("one", "other"), ALIKE, ids=ascii)
    def test_keys_that_look_alike_are_different_keys(
        self, bench: Bench, one: str, other: str
    ) -> None:
        first, second = bench.key(bench.mark + one), bench.key(bench.mark + other)
        first.grant("A")
        second.grant("B")
        assert first.states() == {"A": "held"}
        assert second.states() == {"B": "held"}
        assert not first.release("B")
        assert second.release("B")
        assert first.refuse("B").holder == "A"

    @pytest.mark.parametrize(("one", "other"), ALIKE, ids=ascii)
    def test_holders_that_look_alike_are_different_holders(
        self, key: Key, one: str, other: str
    ) -> None:
        key.grant(one, limit=2)
        assert not key.refresh(other)
        assert not key.release(other)
        assert not key.leave(other)
        key.grant(other, limit=2)
        assert list(key.states()) == [one, other]
        key.wait("W")
        assert key.release(other)
        assert key.states() == {one: "held"}

    @pytest.mark.parametrize(("one", "other"), ALIKE, ids=ascii)
    def test_waiters_that_look_alike_are_different_waiters(
        self, key: Key, one: str, other: str
    ) -> None:
        key.grant("A")
        key.wait(one)
        key.wait(other)
        assert key.line() == [one, other]
        key.leave(one)
        assert key.line() == [other]

    def test_the_worker_may_be_any_text(self, key: Key) -> None:
        label = "".join(name for name in STRANGE if "\x1f" not in name)
        key.grant("A", limit=9, worker=f"host\x1f1\x1f{label}")
        key.wait("W", weight=9, limit=9, worker=f"host\x1f2\x1f{label}")
        assert key.leases()[0].worker == ("host", 1, label)
        assert key.waiters()[0].worker == ("host", 2, label)

    def test_force_takes_any_text_for_who_and_why(self, key: Key) -> None:
        key.grant("A")
        assert len(key.force()) == 1

    @staticmethod
    def _use(key: Key, holder: str, waiter: str) -> None:
        """All operations that name a key or a holder, on one of each."""
        driver = key.driver
        token = key.grant(holder).token
        assert key.grant(holder).token == token
        assert [(lease.key, lease.holder) for lease in key.leases()] == [(key.name, holder)]
        renewal = Renewal(key.name, holder, token, LONG)
        assert driver.call(Refresh((renewal,))).renewed == (True,)
        key.wait(waiter, client="client")
        assert [(seen.key, seen.holder) for seen in key.waiters()] == [(key.name, waiter)]
        assert key.refuse(waiter).holder == holder
        assert key.release(holder, token=token)
        check = Check(key.client("client"), (key.name,))
        assert driver.call(check).states[0].claimed == (waiter,)
        key.confirm(waiter, client="client")
        assert key.leave(waiter)
        assert key.leases() == ()
        key.grant(holder)
        assert key.force()[0].holder == holder
