"""Limits and weights: semaphores, shared and exclusive leases, and permits that lapse."""

from __future__ import annotations

import pytest

from joblock.store.ops import LINGER_MS
from joblock.testing.contract.bench import LONG, Contract, Key

MANY = 2**30
"""The limit of a shared lock: more than there will ever be holders."""


class Capacity(Contract):
    """Each grant fits under the grantee's own limit, beside the live leases."""

    def test_a_semaphore_grants_as_many_permits_as_its_limit(self, key: Key) -> None:
        for holder in "ABCD":
            key.grant(holder, limit=4)
        key.refuse("E", limit=4)
        assert key.states() == dict.fromkeys("ABCD", "held")

    def test_a_released_permit_can_be_had_again(self, key: Key) -> None:
        key.grant("A", limit=2)
        key.grant("B", limit=2)
        key.release("A")
        key.grant("C", limit=2)
        key.refuse("D", limit=2)

    def test_weights_add_up(self, key: Key) -> None:
        key.grant("A", weight=2, limit=5)
        key.grant("B", weight=2, limit=5)
        key.refuse("C", weight=2, limit=5)
        key.grant("C", weight=1, limit=5)
        key.refuse("D", weight=1, limit=5)

    def test_each_callers_own_limit_decides(self, key: Key) -> None:
        key.grant("A", limit=4)
        key.grant("B", limit=2)
        key.refuse("C", limit=2)
        key.grant("C", limit=4)
        key.refuse("D", limit=3)
        key.grant("D", weight=7, limit=10)

    def test_many_share_a_key(self, key: Key) -> None:
        for number in range(30):
            key.grant(f"reader {number}", limit=MANY)
        assert len(key.leases()) == 30

    def test_one_that_wants_it_alone_is_refused_while_others_share(self, key: Key) -> None:
        key.grant("reader", limit=MANY)
        key.refuse("writer", weight=MANY, limit=MANY)
        key.refuse("mutex")
        key.release("reader")
        key.grant("writer", weight=MANY, limit=MANY)

    def test_an_exclusive_lease_closes_the_key_whatever_limit_others_state(self, key: Key) -> None:
        for weight, limit in ((1, 1), (4, 4), (MANY, MANY)):
            key.grant("A", weight=weight, limit=limit)
            key.refuse("B")
            key.refuse("B", limit=100)
            key.refuse("B", limit=MANY)
            key.refuse("B", weight=MANY, limit=MANY)
            key.release("A")

    def test_a_single_permit_keeps_a_mutex_out(self, key: Key) -> None:
        key.grant("A", limit=100)
        key.refuse("B")

    def test_a_permit_that_lapsed_can_be_had_again_and_the_others_stay(self, key: Key) -> None:
        key.grant("A", limit=2, ttl=key.short)
        key.grant("B", limit=2)
        key.refuse("C", limit=2)
        key.elapse(key.short)
        key.grant("C", limit=2)
        key.refuse("D", limit=2)
        assert key.states() == {"B": "held", "C": "held"}

    def test_an_expired_permit_is_refreshed_while_it_still_fits(self, key: Key) -> None:
        key.needs_expired()
        key.grant("A", limit=3, ttl=key.short)
        key.elapse(key.short)
        granted = key.grant("B", limit=3)
        assert granted.replaced == ""
        assert key.states() == {"A": "expired", "B": "held"}
        assert key.refresh("A")
        key.grant("C", limit=3)
        key.refuse("D", limit=3)

    def test_an_expired_permit_is_not_refreshed_once_it_no_longer_fits(self, key: Key) -> None:
        key.grant("A", limit=2, ttl=key.short)
        key.grant("B", limit=2)
        key.elapse(key.short)
        assert key.grant("C", limit=2).replaced == (
            "A" if key.bench.abilities.keeps_expired else ""
        )
        assert not key.refresh("A")
        assert key.states() == {"B": "held", "C": "held"}

    def test_an_expired_permit_goes_by_its_own_limit(self, key: Key) -> None:
        """What takes its room states a larger limit, so that both would fit under that one."""
        key.needs_expired()
        key.grant("A", limit=1 + 1, ttl=key.short)
        key.elapse(key.short)
        key.grant("B", weight=2, limit=10)
        assert not key.refresh("A")

    def test_an_expired_permit_is_gone_for_good_once_its_room_was_taken(self, key: Key) -> None:
        """Were it only hidden, it would come back when the other one is released."""
        key.grant("A", limit=2, ttl=key.short)
        key.grant("B", limit=2)
        key.elapse(key.short)
        key.grant("C", limit=2)
        key.release("C")
        assert not key.refresh("A")

    def test_of_two_expired_permits_with_room_for_one_the_first_refresh_wins(
        self, key: Key
    ) -> None:
        key.needs_expired()
        key.grant("A", limit=2, ttl=key.short)
        key.grant("B", limit=2, ttl=key.short)
        key.elapse(key.short)
        key.grant("C", limit=2)
        assert [key.refresh("B"), key.refresh("A")].count(True) == 1
        key.refuse("D", limit=2)

    def test_permits_that_lapsed_long_ago_are_forgotten_where_one_is_held_all_along(
        self, key: Key
    ) -> None:
        """Those of the killed would pile up where others always share the key."""
        key.needs_expired()
        key.grant("stays", limit=MANY, ttl=10 * LINGER_MS)
        for number in range(20):
            key.grant(f"killed {number}", limit=MANY, ttl=1_000)
        key.elapse(LINGER_MS)
        key.grant("first", limit=MANY, ttl=1_000)
        assert len(key.leases()) == 22
        key.elapse(1_000)
        key.grant("next", limit=MANY)
        assert list(key.states()) == ["stays", "first", "next"]
        assert not key.refresh("killed 0")

    @pytest.mark.parametrize("what", ["acquire", "check", "release", "leave"])
    def test_whoever_comes_upon_a_permit_that_lapsed_long_ago_forgets_it(
        self, key: Key, what: str
    ) -> None:
        key.needs_expired()
        key.grant("stays", limit=3, ttl=10 * LINGER_MS)
        key.grant("killed", limit=3, ttl=1_000)
        key.elapse(1_000 + LINGER_MS)
        assert key.states() == {"stays": "held", "killed": "expired"}
        if what == "acquire":
            assert key.grant("stays", limit=3, ttl=10 * LINGER_MS).reentered
        elif what == "check":
            key.check("somebody")
        elif what == "release":
            assert not key.release("killed")
        else:
            assert not key.leave("killed")
        assert key.states() == {"stays": "held"}

    def test_a_permit_that_lapsed_is_refreshed_for_minutes(self, key: Key) -> None:
        """Others come and go meanwhile, and leave it room."""
        key.needs_expired()
        key.grant("stays", limit=3, ttl=10 * LINGER_MS)
        key.grant("paused", limit=3, ttl=1_000)
        key.elapse(LINGER_MS)
        key.grant("other", limit=3, ttl=1_000)
        key.release("other")
        assert key.refresh("paused")
        assert key.states() == {"stays": "held", "paused": "held"}

    def test_a_permit_is_not_forgotten_before_it_opens(self, key: Key) -> None:
        key.grant("A", limit=2, ttl=1_000, at_least=2 * LINGER_MS)
        key.grant("stays", limit=2, ttl=10 * LINGER_MS)
        key.elapse(1_500 + LINGER_MS)
        key.refuse("B", limit=2)
        assert key.states() == {"A": "grace", "stays": "held"}

    def test_an_expired_permit_is_not_refreshed_beside_an_exclusive_lease(self, key: Key) -> None:
        key.grant("A", limit=MANY, ttl=key.short)
        key.elapse(key.short)
        key.grant("B")
        assert not key.refresh("A")
        assert key.states() == {"B": "held"}

    def test_an_expired_exclusive_lease_is_not_refreshed_beside_a_permit(self, key: Key) -> None:
        key.grant("A", ttl=key.short)
        key.elapse(key.short)
        key.grant("B", limit=MANY)
        assert not key.refresh("A")
        key.grant("C", limit=MANY)

    def test_the_release_of_an_expired_permit_frees_nobody_elses(self, key: Key) -> None:
        key.grant("A", limit=2, ttl=key.short)
        key.grant("B", limit=2)
        key.elapse(key.short)
        key.grant("C", limit=2)
        assert not key.release("A")
        key.refuse("D", limit=2)

    def test_the_release_of_an_expired_permit_that_still_fits_adds_none(self, key: Key) -> None:
        key.needs_expired()
        key.grant("A", limit=3, ttl=key.short)
        key.elapse(key.short)
        key.grant("B", limit=3)
        assert key.release("A")
        key.grant("C", weight=2, limit=3)
        key.refuse("D", limit=3)

    def test_a_permit_is_refreshed_like_any_lease(self, key: Key) -> None:
        key.grant("A", limit=2, ttl=key.short)
        key.grant("B", limit=2)
        assert key.refresh("A", ttl=LONG)
        key.elapse(key.short)
        assert key.states() == {"A": "held", "B": "held"}
        assert not key.refresh("C")

    def test_permits_are_listed_oldest_first(self, key: Key) -> None:
        for holder in ("C", "A", "B"):
            key.grant(holder, limit=5)
        key.grant("C", limit=5)
        assert [lease.holder for lease in key.leases()] == ["C", "A", "B"]
