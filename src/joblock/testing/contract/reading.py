"""Reading many keys, and tidying up: pages, counts, prefixes, purging."""

from __future__ import annotations

import pytest

from joblock.store.ops import Count, Page, Purge
from joblock.testing.contract.bench import LONG, Bench, Contract, Key

WILDCARDS = ("%", "_", "*", "?", "[", "]", "\\", "^", "'", '"', ".", "{", "}", "-", "!")
"""What LIKE, GLOB, MATCH or a pattern of some store gives a meaning to."""


def fill(bench: Bench, prefix: str, *names: str) -> None:
    for name in names:
        bench.key(prefix + name).grant("A")


def page(bench: Bench, prefix: str, after: str = "", size: int = 200) -> list[str]:
    """The rest of each key that is listed behind the prefix of this test."""
    leases = bench.driver.call(Page(prefix, after, size))
    return [lease.key.removeprefix(bench.mark) for lease in leases]


def ended_well(key: Key) -> int:
    """The key is vacated, and a joiner has yet to ask how the run with that token ended."""
    token = key.grant("A").token
    key.wait("J", join=0)
    key.release("A", ok=True)
    return token


class Reading(Contract):
    """`Page`, `Count` and `Purge`."""

    def test_a_page_lists_the_leases_under_a_prefix_by_key(self, bench: Bench) -> None:
        fill(bench, bench.mark, ":b", ":c", ":a", "-other")
        assert page(bench, bench.mark + ":") == [":a", ":b", ":c"]

    def test_a_page_without_a_prefix_lists_all(self, bench: Bench) -> None:
        fill(bench, bench.mark, ":a", ":b")
        listed: list[str] = []
        after = ""
        while leases := bench.driver.call(Page("", after, 100)):
            listed += [lease.key for lease in leases]
            after = leases[-1].key
        assert listed == sorted(listed)
        assert {bench.mark + ":a", bench.mark + ":b"} <= set(listed)

    def test_pages_go_on_where_the_last_one_ended(self, bench: Bench) -> None:
        names = [f":{number:03}" for number in range(25)]
        fill(bench, bench.mark, *names)
        listed: list[str] = []
        sizes: list[int] = []
        while names_of_page := page(
            bench, bench.mark, bench.mark + listed[-1] if listed else "", size=10
        ):
            sizes.append(len(names_of_page))
            listed += names_of_page
        assert sizes == [10, 10, 5]
        assert listed == names

    def test_a_page_that_is_just_full_is_followed_by_an_empty_one(self, bench: Bench) -> None:
        fill(bench, bench.mark, ":a", ":b")
        assert page(bench, bench.mark, size=2) == [":a", ":b"]
        assert page(bench, bench.mark, after=bench.mark + ":b", size=2) == []

    def test_a_page_does_not_tear_the_leases_of_a_key_apart(self, bench: Bench) -> None:
        fill(bench, bench.mark, ":a")
        permits = bench.key(bench.mark + ":b")
        for holder in "ABC":
            permits.grant(holder, limit=3)
        fill(bench, bench.mark, ":c")
        assert page(bench, bench.mark, size=2) == [":a", ":b", ":b", ":b"]
        assert page(bench, bench.mark, after=bench.mark + ":b", size=2) == [":c"]

    def test_a_page_may_begin_after_a_key_that_is_not_there(self, bench: Bench) -> None:
        fill(bench, bench.mark, ":a", ":c")
        assert page(bench, bench.mark, after=bench.mark + ":b") == [":c"]

    def test_keys_are_sorted_by_code_point(self, bench: Bench) -> None:
        names = ["", "A", "Z", "a", "z", "~", "é", "中", "\uffee", "🔒"]
        fill(bench, bench.mark, *reversed(names))
        assert page(bench, bench.mark) == names

    def test_a_page_lists_expired_leases_and_graces_and_omits_what_is_vacated(
        self, bench: Bench
    ) -> None:
        states = dict.fromkeys(("expired", "grace", "held", "over", "vacated"), "")
        for name in states:
            key = bench.key(f"{bench.mark}:{name}")
            key.grant("A", ttl=bench.short if name == "expired" else LONG)
            if name in ("grace", "over", "vacated"):
                key.release("A", grace={"grace": LONG, "over": bench.short, "vacated": 0}[name])
        bench.elapse(bench.short)
        listed = {
            lease.key.removeprefix(bench.mark): lease.state
            for lease in bench.driver.call(Page(bench.mark))
        }
        expired = {":expired": "expired"} if bench.abilities.keeps_expired else {}
        assert listed == {**expired, ":grace": "grace", ":held": "held"}
        assert bench.driver.call(Count(bench.mark)) == len(listed)

    def test_keys_with_waiters_and_no_lease_are_not_listed(self, bench: Bench) -> None:
        key = bench.key(bench.mark)
        key.grant("A")
        key.wait("W", ttl=bench.short)
        key.release("A")
        bench.elapse(bench.short)
        assert page(bench, bench.mark) == []
        assert bench.driver.call(Count(bench.mark)) == 0

    def test_count_counts_leases_under_a_prefix(self, bench: Bench) -> None:
        fill(bench, bench.mark, ":a", ":b", "-other")
        permits = bench.key(bench.mark + ":c")
        permits.grant("A", limit=2)
        permits.grant("B", limit=2)
        assert bench.driver.call(Count(bench.mark + ":")) == 4
        assert bench.driver.call(Count(bench.mark)) == 5
        assert bench.driver.call(Count(bench.mark + "nothing")) == 0
        assert bench.driver.call(Count()) >= 5

    @pytest.mark.parametrize("wildcard", WILDCARDS)
    def test_a_prefix_is_plain_text(self, bench: Bench, wildcard: str) -> None:
        prefix = f"{bench.mark}a{wildcard}"
        fill(bench, bench.mark, f"a{wildcard}b", "axb", "ab", f"A{wildcard}b", f"x{wildcard}b")
        assert page(bench, prefix) == [f"a{wildcard}b"]
        assert bench.driver.call(Count(prefix)) == 1

    def test_a_prefix_tells_upper_from_lower_case(self, bench: Bench) -> None:
        fill(bench, bench.mark, "Key", "key", "KEY")
        assert page(bench, bench.mark + "k") == ["key"]

    def test_a_prefix_may_end_with_the_highest_of_characters(self, bench: Bench) -> None:
        """A range scan must not look for the character after it."""
        last = "\U0010ffff"
        fill(bench, bench.mark, "a", last, last + "a", last + last)
        assert page(bench, bench.mark + last) == [last, last + "a", last + last]
        assert bench.driver.call(Count(bench.mark + last)) == 3

    def test_a_prefix_may_end_just_before_the_surrogates(self, bench: Bench) -> None:
        """The character after it is none that text may hold."""
        last = "\ud7ff"
        fill(bench, bench.mark, last + "a", "\ue000")
        assert page(bench, bench.mark + last) == [last + "a"]

    def test_a_prefix_may_be_a_whole_key(self, bench: Bench) -> None:
        fill(bench, bench.mark, "", ":a")
        assert page(bench, bench.mark) == ["", ":a"]

    def test_purge_leaves_alone_what_is_in_use(self, key: Key) -> None:
        bench = key.bench
        held, grace, closed, wanted = (bench.key() for _ in range(4))
        held.grant("A")
        grace.grant("A")
        grace.release("A", grace=LONG)
        closed.grant("A", ttl=bench.short, at_least=LONG)
        wanted.grant("A", weight=2, limit=2)
        wanted.wait("W", weight=2, limit=2)
        bench.elapse(bench.short)
        key.driver.call(Purge(idle=1))
        assert held.refuse("B").holder == "A"
        assert grace.refuse("B").why == "grace"
        assert closed.refuse("B").why == "grace"
        assert wanted.line() == ["W"]
        assert held.refresh("A")

    def test_purge_leaves_alone_what_was_vacated_just_now(self, key: Key) -> None:
        token = ended_well(key)
        key.driver.call(Purge(idle=600_000))
        assert key.check("J").ok_token == token

    def test_purge_leaves_alone_a_waiter_that_has_just_missed_its_claim(self, key: Key) -> None:
        key.grant("A")
        first = key.wait("W", ttl=key.short).arrival
        key.release("A")
        key.elapse(key.short)
        key.check("somebody")
        key.driver.call(Purge(idle=600_000))
        key.grant("B")
        assert key.wait("W").arrival == first
        assert key.leave("W")

    def test_purge_leaves_an_expired_lease_its_holder_may_still_refresh(self, key: Key) -> None:
        key.needs_expired()
        key.grant("A", ttl=key.short)
        key.elapse(key.short)
        key.driver.call(Purge(idle=600_000))
        assert key.refresh("A")

    def test_purge_deletes_what_has_been_vacant_for_long(self, key: Key) -> None:
        ended_well(key)
        key.elapse(key.short)
        for _ in range(20):
            key.driver.call(Purge(batch=500, idle=1))
        assert key.check("J").ok_token == 0

    def test_purge_deletes_at_most_a_batch(self, key: Key) -> None:
        keys = [key.bench.key() for _ in range(10)]
        for each in keys:
            ended_well(each)
        key.elapse(key.short)
        assert key.driver.call(Purge(batch=4, idle=1)) <= 4
        assert sum(each.check("J").ok_token > 0 for each in keys) >= 6

    def test_purge_of_an_empty_store_is_answered(self, key: Key) -> None:
        assert key.driver.call(Purge(batch=1, idle=100 * 365 * 24 * 3_600_000)) == 0
