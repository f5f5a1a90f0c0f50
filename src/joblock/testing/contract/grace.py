"""Keeping a key closed: grace after a run, and a least time from its beginning."""

from __future__ import annotations

from joblock.testing.contract.bench import LONG, Contract, Key


class Grace(Contract):
    """A closed key is nobody's until it opens, its former holder's neither."""

    def test_grace_closes_the_key_to_everybody_until_it_ends(self, key: Key) -> None:
        key.grant("A")
        key.release("A", grace=key.short)
        for holder, limit in (("A", 1), ("B", 1), ("B", 100)):
            key.refuse(holder, limit=limit)
        key.elapse(key.short)
        granted = key.grant("B")
        assert granted.replaced == ""

    def test_grace_leaves_a_row_that_tells_when_the_run_ended(self, key: Key) -> None:
        granted = key.grant("A")
        key.elapse(key.short)
        key.release("A", grace=LONG)
        (lease,) = key.leases()
        assert (lease.holder, lease.token, lease.state) == ("A", granted.token, "grace")
        assert lease.ended_at is not None
        assert key.about(round((lease.expires_at - lease.ended_at).total_seconds() * 1000), LONG)
        assert lease.ended_at >= lease.acquired_at

    def test_grace_of_a_permit_keeps_its_own_weight_taken(self, key: Key) -> None:
        key.grant("A", weight=2, limit=4)
        key.release("A", grace=LONG)
        key.grant("B", weight=2, limit=4)
        key.refuse("C", weight=1, limit=4)

    def test_grace_of_a_permit_gives_its_weight_back_when_it_ends(self, key: Key) -> None:
        key.grant("A", limit=2)
        key.grant("B", limit=2)
        key.release("A", grace=key.short)
        key.refuse("C", limit=2)
        key.elapse(key.short)
        key.grant("C", limit=2)

    def test_grace_of_a_permit_keeps_its_former_holder_out_though_others_get_in(
        self, key: Key
    ) -> None:
        key.grant("A", limit=3)
        key.release("A", grace=key.short)
        busy = key.refuse("A", limit=3)
        assert (busy.holder, busy.why) == ("A", "grace")
        key.grant("B", limit=3)
        assert key.states() == {"A": "grace", "B": "held"}
        key.elapse(key.short)
        key.grant("A", limit=3)
        assert key.release("A")

    def test_a_former_holder_that_queues_for_its_permit_is_served_after_its_grace(
        self, key: Key
    ) -> None:
        key.grant("A", limit=3)
        key.release("A", grace=key.short)
        key.wait("A", limit=3)
        assert key.check("A").claimed == ()
        assert [lease.state for lease in key.leases()] == ["grace"]
        key.elapse(key.short)
        key.confirm("A", limit=3)
        assert key.states() == {"A": "held"}
        assert key.release("A")

    def test_grace_is_served_to_the_first_waiter_when_it_ends(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        key.wait("V")
        key.release("A", grace=key.short)
        assert key.wait("V").why == "grace"
        key.elapse(key.short)
        assert key.wait("V").holder == "W"
        key.confirm("W")

    def test_at_least_keeps_the_key_closed_after_a_quick_release(self, key: Key) -> None:
        key.grant("A", at_least=LONG)
        assert key.release("A")
        busy = key.refuse("B")
        assert busy.why == "grace"
        assert key.about(busy.remaining, LONG)
        assert key.refuse("A").why == "grace"
        assert key.states() == {"A": "grace"}

    def test_at_least_ends_where_it_was_set_at_the_grant(self, key: Key) -> None:
        key.grant("A", at_least=2 * key.short)
        key.elapse(key.short)
        key.release("A")
        assert key.refuse("B").remaining <= key.short
        key.elapse(key.short)
        key.grant("B")

    def test_at_least_keeps_the_key_closed_after_its_holder_was_killed(self, key: Key) -> None:
        key.grant("A", ttl=key.short, at_least=LONG)
        key.elapse(key.short)
        busy = key.refuse("B")
        assert busy.why == "grace"
        assert key.about(busy.remaining, LONG - key.short)
        assert key.states() == {"A": "grace"}

    def test_at_least_of_a_killed_holder_ends(self, key: Key) -> None:
        key.grant("A", ttl=key.short, at_least=2 * key.short)
        key.elapse(2 * key.short)
        key.grant("B")

    def test_at_least_after_the_lease_lapsed_is_grace_for_its_holder_too(self, key: Key) -> None:
        key.grant("A", ttl=key.short, at_least=LONG)
        key.elapse(key.short)
        assert not key.refresh("A")
        assert not key.release("A")
        assert key.refuse("A").why == "grace"

    def test_at_least_is_not_changed_by_refresh(self, key: Key) -> None:
        key.grant("A", ttl=key.short, at_least=2 * key.short)
        key.elapse(key.short // 2)
        assert key.refresh("A", ttl=LONG)
        key.release("A")
        assert 0 < key.refuse("B").remaining <= 2 * key.short

    def test_at_least_is_not_changed_by_reentry(self, key: Key) -> None:
        key.grant("A", at_least=2 * key.short)
        key.grant("A", at_least=LONG)
        key.release("A")
        assert 0 < key.refuse("B").remaining <= 2 * key.short

    def test_at_least_does_not_shorten_a_longer_lease(self, key: Key) -> None:
        key.grant("A", ttl=LONG, at_least=key.short)
        key.elapse(key.short)
        assert key.refuse("B").why == "held"
        assert key.release("A")
        key.grant("B")

    def test_the_longer_of_grace_and_at_least_keeps_the_key_closed(self, key: Key) -> None:
        key.grant("A", at_least=LONG)
        key.release("A", grace=2 * LONG)
        assert key.about(key.refuse("B").remaining, 2 * LONG)
        other = key.bench.key()
        other.grant("A", at_least=2 * LONG)
        other.release("A", grace=LONG)
        assert other.about(other.refuse("B").remaining, 2 * LONG)

    def test_at_least_of_a_permit_keeps_its_own_weight_taken(self, key: Key) -> None:
        key.grant("A", limit=2, at_least=LONG)
        key.release("A")
        key.grant("B", limit=2)
        key.refuse("C", limit=2)

    def test_at_least_counts_for_one_who_took_over_an_expired_lease(self, key: Key) -> None:
        key.grant("A", ttl=key.short)
        key.elapse(key.short)
        key.grant("B", at_least=LONG)
        key.release("B")
        assert key.about(key.refuse("C").remaining, LONG)

    def test_at_least_counts_for_a_waiter_from_its_confirmation(self, key: Key) -> None:
        key.grant("A")
        key.wait("W", at_least=LONG)
        key.release("A")
        key.confirm("W", at_least=LONG)
        key.release("W")
        assert key.about(key.refuse("B").remaining, LONG)

    def test_a_claim_that_is_not_confirmed_does_not_keep_the_key_closed(self, key: Key) -> None:
        key.grant("A")
        key.wait("W", at_least=LONG)
        key.release("A")
        key.leave("W")
        key.grant("B")
