"""Holding a lease: requests that arrive twice or late, and whose lease it is."""

from __future__ import annotations

from joblock.store.ops import Granted, Refresh, Renewal
from joblock.testing.contract.bench import LONG, Bench, Contract, Key
from joblock.values.records import moment

MONTH = 30 * 24 * 3_600_000


class Holding(Contract):
    """Nothing that comes twice or late touches what is not the sender's."""

    def test_an_acquire_sent_again_gives_the_same_grant(self, key: Key) -> None:
        first = key.grant("A")
        again = key.grant("A")
        assert again.token == first.token
        assert key.states() == {"A": "held"}

    def test_an_acquire_sent_again_for_a_permit_takes_no_second_one(self, key: Key) -> None:
        first = key.grant("A", limit=2)
        assert key.grant("A", limit=2).token == first.token
        key.grant("B", limit=2)
        key.refuse("C", limit=2)

    def test_an_acquire_that_queues_sent_again_keeps_its_place(self, key: Key) -> None:
        key.grant("A")
        first = key.wait("W")
        key.wait("V")
        again = key.wait("W")
        assert again.arrival == first.arrival
        assert key.line() == ["W", "V"]

    def test_a_confirmation_sent_again_gives_the_same_grant(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        key.release("A")
        first = key.confirm("W")
        assert key.confirm("W").token == first.token

    def test_a_release_sent_again_does_nothing(self, key: Key) -> None:
        key.grant("A")
        assert key.release("A")
        key.grant("B")
        assert not key.release("A")
        assert key.states() == {"B": "held"}

    def test_a_permit_released_twice_frees_nobody_elses(self, key: Key) -> None:
        key.grant("A", limit=2)
        key.grant("B", limit=2)
        assert key.release("A")
        assert not key.release("A")
        key.grant("C", limit=2)
        key.refuse("D", limit=2)

    def test_a_refresh_after_the_release_does_not_bring_the_lease_back(self, key: Key) -> None:
        token = key.grant("A").token
        key.release("A", token=token)
        assert not key.refresh("A", token=token)
        assert key.states() == {}

    def test_raw_acquire_of_what_one_holds_sets_its_end_exactly(self, key: Key) -> None:
        key.grant("A", ttl=2 * LONG)
        again = key.grant("A", ttl=LONG)
        assert again.expires_at == again.acquired_at + LONG

    def test_reentry_by_a_client_never_shortens_the_lease(self, key: Key) -> None:
        first = key.grant("A", ttl=2 * LONG)
        assert key.grant("A", ttl=LONG, extend_only=True).expires_at == first.expires_at

    def test_reentry_by_a_client_extends_the_lease(self, key: Key) -> None:
        key.grant("A", ttl=LONG)
        again = key.grant("A", ttl=2 * LONG, extend_only=True)
        assert again.expires_at == again.acquired_at + 2 * LONG

    def test_raw_refresh_sets_the_end_exactly(self, key: Key) -> None:
        key.grant("A", ttl=2 * LONG)
        assert key.refresh("A", ttl=LONG)
        assert key.about(key.refuse("B").remaining, LONG)

    def test_a_keepers_refresh_never_shortens_the_lease(self, key: Key) -> None:
        first = key.grant("A", ttl=2 * LONG)
        assert key.refresh("A", ttl=LONG, extend_only=True)
        assert key.leases()[0].expires_at == moment(first.expires_at)

    def test_a_keepers_refresh_extends_the_lease(self, key: Key) -> None:
        key.grant("A", ttl=LONG)
        assert key.refresh("A", ttl=2 * LONG, extend_only=True)
        assert key.about(key.refuse("B").remaining, 2 * LONG)

    def test_refresh_with_the_token_of_the_lease_renews_it(self, key: Key) -> None:
        token = key.grant("A", ttl=key.short).token
        assert key.refresh("A", token=token)
        key.elapse(key.short)
        assert key.states() == {"A": "held"}

    def test_refresh_with_another_token_is_refused_and_changes_nothing(self, key: Key) -> None:
        granted = key.grant("A")
        assert not key.refresh("A", token=granted.token - 1, ttl=2 * LONG)
        assert not key.refresh("A", token=granted.token + 1, ttl=2 * LONG)
        assert key.leases()[0].expires_at == moment(granted.expires_at)

    def test_refresh_by_another_holder_with_the_right_token_is_refused(self, key: Key) -> None:
        token = key.grant("A").token
        assert not key.refresh("B", token=token)

    def test_release_with_the_token_of_the_lease_frees_it(self, key: Key) -> None:
        assert key.release("A", token=key.grant("A").token)

    def test_release_with_another_token_does_nothing(self, key: Key) -> None:
        token = key.grant("A").token
        assert not key.release("A", token=token - 1)
        assert not key.release("A", token=token + 1, grace=LONG)
        assert key.states() == {"A": "held"}

    def test_release_by_another_holder_with_the_right_token_does_nothing(self, key: Key) -> None:
        token = key.grant("A").token
        assert not key.release("B", token=token)
        assert key.states() == {"A": "held"}

    def test_what_arrives_late_for_an_earlier_lease_of_the_same_holder_is_refused(
        self, key: Key
    ) -> None:
        old = key.grant("A").token
        key.release("A")
        new = key.grant("A").token
        assert not key.refresh("A", token=old)
        assert not key.release("A", token=old)
        assert not key.release("A", token=old, grace=LONG)
        assert key.refresh("A", token=new)

    def test_what_arrives_late_for_a_lapsed_lease_leaves_its_successor_alone(
        self, key: Key
    ) -> None:
        token = key.grant("A", ttl=key.short).token
        key.elapse(key.short)
        granted = key.grant("B")
        assert not key.refresh("A", token=token)
        assert not key.release("A", token=token, grace=LONG, ok=True)
        assert not key.release("A", token=token)
        assert not key.leave("A")
        assert key.leases()[0].expires_at == moment(granted.expires_at)
        assert key.refuse("C").holder == "B"

    def test_leave_undoes_an_acquire(self, key: Key) -> None:
        key.grant("A")
        assert key.leave("A")
        assert key.states() == {}
        key.grant("B")

    def test_leave_undoes_an_acquire_that_was_to_keep_the_key_closed(self, key: Key) -> None:
        key.grant("A", at_least=LONG)
        assert key.leave("A")
        key.grant("B")

    def test_leave_does_not_end_a_grace(self, key: Key) -> None:
        key.grant("A")
        key.release("A", grace=LONG)
        assert not key.leave("A")
        assert key.states() == {"A": "grace"}

    def test_a_month_is_no_longer_than_a_month(self, key: Key) -> None:
        granted = key.grant("A", ttl=MONTH)
        assert granted.expires_at - granted.acquired_at == MONTH
        assert key.refresh("A", ttl=2 * MONTH)
        assert key.about(key.refuse("B").remaining, 2 * MONTH)

    def test_keys_do_not_touch_one_another(self, key: Key) -> None:
        other = key.bench.key()
        key.grant("A")
        other.grant("B")
        assert not other.release("A")
        assert key.release("A")
        assert other.states() == {"B": "held"}

    def test_what_one_store_object_grants_all_others_see(self, key: Key) -> None:
        other = key.bench.elsewhere(key)
        token = key.grant("A").token
        assert other.refuse("B").holder == "A"
        assert other.refresh("A", token=token)
        assert other.release("A", token=token)
        other.grant("B")
        assert key.refuse("A").holder == "B"

    def test_a_store_closed_and_used_again_has_forgotten_nothing(self, key: Key) -> None:
        other = key.bench.elsewhere(key)
        key.grant("A")
        other.store.close()
        other = key.bench.elsewhere(key)
        assert other.refuse("B").holder == "A"

    def test_a_thousand_leases_are_renewed_in_one_batch(self, bench: Bench) -> None:
        """Every third is not the sender's (any more); the replies are in the order of asking."""
        keys = [bench.key() for _ in range(1_000)]
        tokens = [key.grant("A", ttl=LONG).token for key in keys]
        for key in keys[::3]:
            key.release("A")
        renewals = tuple(
            Renewal(key.name, "A", token, 2 * LONG) for key, token in zip(keys, tokens, strict=True)
        )
        reply = bench.driver.call(Refresh(renewals))
        assert list(reply.renewed) == [number % 3 != 0 for number in range(1_000)]
        assert keys[0].states() == {}
        assert keys[1].about(keys[1].refuse("B").remaining, 2 * LONG)
        assert keys[999].states() == {}

    def test_a_batch_may_hold_leases_and_permits_and_strangers_to_both(self, bench: Bench) -> None:
        mutex, permits, foreign = bench.key(), bench.key(), bench.key()
        mutex.grant("A")
        permits.grant("A", limit=3)
        permits.grant("B", limit=3)
        foreign.grant("B")
        asked = [(permits, "A"), (mutex, "A"), (foreign, "A"), (permits, "B"), (permits, "C")]
        renewals = tuple(Renewal(key.name, holder, 0, LONG) for key, holder in asked)
        reply = bench.driver.call(Refresh(renewals))
        assert reply.renewed == (True, True, False, True, False)

    def test_an_empty_batch_is_answered(self, bench: Bench) -> None:
        assert bench.driver.call(Refresh(())).renewed == ()

    def test_a_renewal_tells_for_which_keys_somebody_waits(self, bench: Bench) -> None:
        wanted, unwanted = bench.key(), bench.key()
        wanted.grant("A")
        unwanted.grant("A")
        wanted.wait("W")
        renewals = (Renewal(unwanted.name, "A", 0, LONG), Renewal(wanted.name, "A", 0, LONG))
        assert bench.driver.call(Refresh(renewals)).waiting == (False, True)

    def test_a_grant_tells_whether_somebody_waits(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        key.wait("V")
        key.release("A")
        reply = key.ask("W")
        assert isinstance(reply, Granted)
        assert reply.waiting
        key.release("W")
        assert not key.confirm("V").waiting

    def test_a_reader_sees_what_was_granted(self, key: Key) -> None:
        granted = key.grant("A", weight=2, limit=5, worker="host-1\x1f4711\x1fnightly")
        (lease,) = key.leases()
        assert (lease.key, lease.holder, lease.token) == (key.name, "A", granted.token)
        assert (lease.weight, lease.limit) == (2, 5)
        assert lease.acquired_at == moment(granted.acquired_at)
        assert lease.expires_at == moment(granted.expires_at)
        assert (lease.ended_at, lease.state) == (None, "held")
        assert lease.worker == ("host-1", 4711, "nightly")
