"""The table: what each operation does to a key in each state, cell by cell.

In each test A comes first and B second; W waits.
"""

from __future__ import annotations

from joblock.testing.contract.bench import LONG, Contract, Key
from joblock.values.records import moment

HOUR = 3_600_000


def held_by(key: Key, holder: str) -> Key:
    key.grant(holder)
    return key


def expired_of(key: Key, holder: str) -> Key:
    key.grant(holder, ttl=key.short)
    key.elapse(key.short)
    return key


def in_grace_after(key: Key, holder: str, grace: int = HOUR) -> Key:
    key.grant(holder)
    assert key.release(holder, grace=grace)
    return key


def vacated_by(key: Key, holder: str) -> Key:
    key.grant(holder)
    assert key.release(holder)
    return key


def claimed_for(key: Key, holder: str) -> Key:
    """The key was handed to a waiter who has not confirmed."""
    key.grant("before")
    key.wait(holder)
    assert key.release("before")
    return key


class AcquireRow(Contract):
    """The row "acquire"."""

    def test_acquire_grants_a_free_key(self, key: Key) -> None:
        granted = key.grant("A", ttl=LONG)
        assert granted.token > 0
        assert granted.expires_at == granted.acquired_at + LONG
        assert (granted.reentered, granted.waiting, granted.replaced) == (False, False, "")
        assert key.states() == {"A": "held"}

    def test_acquire_grants_a_vacated_key(self, key: Key) -> None:
        granted = vacated_by(key, "A").grant("B")
        assert (granted.reentered, granted.waiting, granted.replaced) == (False, False, "")
        assert key.states() == {"B": "held"}

    def test_acquire_renews_what_the_holder_has_under_the_same_token(self, key: Key) -> None:
        first = key.grant("A")
        key.elapse(key.short)
        again = key.grant("A", ttl=2 * LONG)
        assert (again.reentered, again.token) == (True, first.token)
        assert again.acquired_at >= first.acquired_at + key.short
        assert again.expires_at == again.acquired_at + 2 * LONG
        assert key.leases()[0].acquired_at == moment(again.acquired_at)

    def test_acquire_is_refused_while_another_holds_the_key(self, key: Key) -> None:
        assert held_by(key, "A").refuse("B").holder == "A"
        assert key.states() == {"A": "held"}

    def test_acquire_of_ones_own_expired_lease_is_a_new_grant(self, key: Key) -> None:
        first = key.grant("A", ttl=key.short)
        key.elapse(key.short)
        again = key.grant("A")
        assert not again.reentered
        assert again.token > first.token
        assert again.replaced == ""
        assert key.states() == {"A": "held"}

    def test_acquire_takes_over_anothers_expired_lease_and_says_whose(self, key: Key) -> None:
        granted = expired_of(key, "A").grant("B")
        assert granted.replaced == ("A" if key.bench.abilities.keeps_expired else "")
        assert key.states() == {"B": "held"}

    def test_acquire_is_refused_in_grace(self, key: Key) -> None:
        assert in_grace_after(key, "A").refuse("B").why == "grace"

    def test_acquire_is_refused_in_grace_to_the_former_holder_too(self, key: Key) -> None:
        assert in_grace_after(key, "A").refuse("A").why == "grace"

    def test_acquire_renews_what_the_holder_has_while_others_wait(self, key: Key) -> None:
        first = key.grant("A")
        key.wait("W")
        again = key.grant("A")
        assert (again.reentered, again.token, again.waiting) == (True, first.token, True)

    def test_acquire_is_refused_while_another_holds_the_key_and_a_third_waits(
        self, key: Key
    ) -> None:
        held_by(key, "A").wait("W")
        assert key.refuse("B").holder == "A"

    def test_acquire_of_a_free_key_serves_the_waiter_and_not_the_newcomer(self, key: Key) -> None:
        key.grant("A", ttl=key.short)
        key.wait("W")
        key.elapse(key.short)
        assert key.refuse("B").holder == "W"
        assert key.confirm("W").reentered is False

    def test_acquire_of_a_free_key_is_granted_to_the_first_waiter(self, key: Key) -> None:
        key.grant("A", ttl=key.short)
        key.wait("W")
        key.elapse(key.short)
        assert key.confirm("W").waiting is False
        assert key.states() == {"W": "held"}

    def test_acquire_of_ones_own_expired_lease_serves_a_waiter_first(self, key: Key) -> None:
        key.grant("A", ttl=key.short)
        key.wait("W")
        key.elapse(key.short)
        assert key.refuse("A").holder == "W"

    def test_acquire_is_refused_in_grace_to_waiters_too(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        key.release("A", grace=HOUR)
        assert key.wait("W").why == "grace"
        assert key.refuse("B").why == "grace"

    def test_acquire_confirms_what_was_claimed_for_the_caller(self, key: Key) -> None:
        granted = claimed_for(key, "W").confirm("W", ttl=2 * LONG)
        assert granted.expires_at == granted.acquired_at + 2 * LONG
        assert not granted.reentered
        assert key.states() == {"W": "held"}
        assert key.line() == []

    def test_acquire_without_queueing_confirms_a_claim_too(self, key: Key) -> None:
        claimed_for(key, "W").grant("W")
        assert key.line() == []

    def test_acquire_is_refused_while_the_key_is_claimed_for_another(self, key: Key) -> None:
        busy = claimed_for(key, "W").refuse("B")
        assert busy.holder == "W"


class RefreshRow(Contract):
    """The row "refresh"."""

    def test_refresh_is_refused_for_a_key_never_held(self, key: Key) -> None:
        assert not key.refresh("A")
        assert key.states() == {}

    def test_refresh_is_refused_for_a_vacated_key(self, key: Key) -> None:
        assert not vacated_by(key, "A").refresh("A")
        assert key.states() == {}

    def test_refresh_renews_ones_own_lease(self, key: Key) -> None:
        key.grant("A", ttl=key.short)
        assert key.refresh("A")
        key.elapse(key.short)
        assert key.states() == {"A": "held"}
        assert key.refuse("B").holder == "A"

    def test_refresh_is_refused_while_another_holds_the_key(self, key: Key) -> None:
        assert not held_by(key, "A").refresh("B")
        assert key.states() == {"A": "held"}

    def test_refresh_revives_ones_own_expired_lease_that_nobody_took(self, key: Key) -> None:
        key.needs_expired()
        assert expired_of(key, "A").refresh("A")
        assert key.states() == {"A": "held"}
        assert key.refuse("B").holder == "A"

    def test_refresh_revives_ones_own_expired_lease_even_if_others_wait(self, key: Key) -> None:
        key.needs_expired()
        key.grant("A", ttl=key.short)
        key.wait("W")
        key.elapse(key.short)
        assert key.refresh("A")
        assert key.wait("W").holder == "A"

    def test_refresh_of_an_expired_lease_is_refused_once_another_took_it(self, key: Key) -> None:
        expired_of(key, "A").grant("B")
        assert not key.refresh("A")
        assert key.states() == {"B": "held"}

    def test_refresh_of_an_expired_lease_is_refused_once_a_waiter_was_handed_it(
        self, key: Key
    ) -> None:
        key.grant("A", ttl=key.short)
        key.wait("W")
        key.elapse(key.short)
        key.refuse("B")
        assert not key.refresh("A")
        assert key.states() == {"W": "held"}

    def test_refresh_of_anothers_expired_lease_is_refused(self, key: Key) -> None:
        assert not expired_of(key, "A").refresh("B")
        assert "B" not in key.states()

    def test_refresh_is_refused_in_grace(self, key: Key) -> None:
        assert not in_grace_after(key, "A").refresh("A")
        assert key.states() == {"A": "grace"}

    def test_refresh_does_not_confirm_a_claim(self, key: Key) -> None:
        assert not claimed_for(key, "W").refresh("W")


class ReleaseRow(Contract):
    """The rows "release" and "release with grace"."""

    def test_release_of_a_key_never_held_does_nothing(self, key: Key) -> None:
        assert not key.release("A")
        assert key.states() == {}

    def test_release_of_a_vacated_key_does_nothing(self, key: Key) -> None:
        assert not vacated_by(key, "A").release("A")

    def test_release_frees_ones_own_lease(self, key: Key) -> None:
        assert held_by(key, "A").release("A")
        assert key.states() == {}
        key.grant("B")

    def test_release_serves_the_next_waiter(self, key: Key) -> None:
        held_by(key, "A").wait("W")
        assert key.release("A")
        assert key.states() == {"W": "held"}

    def test_release_of_anothers_lease_does_nothing(self, key: Key) -> None:
        assert not held_by(key, "A").release("B")
        assert key.states() == {"A": "held"}

    def test_release_frees_ones_own_expired_lease(self, key: Key) -> None:
        key.needs_expired()
        assert expired_of(key, "A").release("A")
        assert key.states() == {}

    def test_release_of_ones_own_expired_lease_serves_the_next_waiter(self, key: Key) -> None:
        key.grant("A", ttl=key.short)
        key.wait("W")
        key.elapse(key.short)
        key.release("A")
        assert key.states() == {"W": "held"}

    def test_release_of_anothers_expired_lease_does_nothing(self, key: Key) -> None:
        key.needs_expired()
        assert not expired_of(key, "A").release("B")
        assert key.states() == {"A": "expired"}

    def test_release_of_an_expired_lease_that_another_took_does_nothing(self, key: Key) -> None:
        expired_of(key, "A").grant("B")
        assert not key.release("A")
        assert key.states() == {"B": "held"}
        key.refuse("C")

    def test_release_in_grace_does_nothing(self, key: Key) -> None:
        assert not in_grace_after(key, "A").release("A")
        assert key.states() == {"A": "grace"}

    def test_release_with_grace_of_a_free_key_does_nothing(self, key: Key) -> None:
        assert not key.release("A", grace=HOUR)
        assert not vacated_by(key, "A").release("A", grace=HOUR)
        assert key.states() == {}

    def test_release_with_grace_closes_the_key_from_now_on(self, key: Key) -> None:
        key.grant("A", ttl=LONG)
        assert key.release("A", grace=HOUR)
        assert key.states() == {"A": "grace"}
        assert key.about(key.refuse("B").remaining, HOUR)

    def test_release_with_a_grace_shorter_than_the_ttl_ends_with_the_grace(self, key: Key) -> None:
        key.grant("A", ttl=HOUR)
        key.release("A", grace=key.short)
        key.elapse(key.short)
        key.grant("B")

    def test_release_with_grace_of_anothers_lease_does_nothing(self, key: Key) -> None:
        assert not held_by(key, "A").release("B", grace=HOUR)
        assert key.states() == {"A": "held"}

    def test_release_with_grace_of_ones_own_expired_lease_closes_the_key(self, key: Key) -> None:
        key.needs_expired()
        assert expired_of(key, "A").release("A", grace=HOUR)
        assert key.states() == {"A": "grace"}
        assert key.about(key.refuse("B").remaining, HOUR)

    def test_release_with_grace_of_anothers_expired_lease_does_nothing(self, key: Key) -> None:
        assert not expired_of(key, "A").release("B", grace=HOUR)
        key.grant("B")

    def test_release_with_grace_in_grace_does_not_prolong_it(self, key: Key) -> None:
        assert not in_grace_after(key, "A", HOUR).release("A", grace=10 * HOUR)
        assert key.refuse("B").remaining <= HOUR

    def test_release_of_a_claim_passes_it_on(self, key: Key) -> None:
        claimed_for(key, "W").wait("V")
        assert key.release("W")
        assert key.states() == {"V": "held"}


class PeekRow(Contract):
    """The row "peek"; it never writes."""

    def test_peek_sees_nothing_of_a_key_never_held(self, key: Key) -> None:
        assert key.leases() == ()

    def test_peek_sees_nothing_of_a_vacated_key(self, key: Key) -> None:
        assert vacated_by(key, "A").leases() == ()

    def test_peek_sees_a_held_lease(self, key: Key) -> None:
        assert held_by(key, "A").states() == {"A": "held"}

    def test_peek_sees_an_expired_lease_until_somebody_takes_it(self, key: Key) -> None:
        key.needs_expired()
        assert expired_of(key, "A").states() == {"A": "expired"}
        assert key.states() == {"A": "expired"}
        key.grant("B")
        assert key.states() == {"B": "held"}

    def test_peek_sees_a_grace_until_it_ends(self, key: Key) -> None:
        assert in_grace_after(key, "A", key.short).states() == {"A": "grace"}
        key.elapse(key.short)
        assert key.states() == {}

    def test_peek_does_not_serve(self, key: Key) -> None:
        key.needs_expired()
        key.grant("A", ttl=key.short)
        key.wait("W")
        key.elapse(key.short)
        assert key.states() == {"A": "expired"}
        assert key.refresh("A")


class ForceRow(Contract):
    """The row "force release"."""

    def test_force_of_a_key_never_held_breaks_nothing(self, key: Key) -> None:
        assert key.force() == ()

    def test_force_of_a_vacated_key_breaks_nothing(self, key: Key) -> None:
        assert vacated_by(key, "A").force() == ()

    def test_force_of_a_key_whose_grace_is_over_breaks_nothing(self, key: Key) -> None:
        in_grace_after(key, "A", key.short)
        key.elapse(key.short)
        assert key.force() == ()

    def test_force_frees_a_held_key_and_returns_the_lease(self, key: Key) -> None:
        granted = key.grant("A")
        (broken,) = key.force()
        assert (broken.key, broken.holder, broken.token) == (key.name, "A", granted.token)
        assert broken.state == "held"
        assert key.states() == {}
        assert not key.refresh("A")
        key.grant("B")

    def test_force_frees_an_expired_lease(self, key: Key) -> None:
        key.needs_expired()
        (broken,) = expired_of(key, "A").force()
        assert (broken.holder, broken.state) == ("A", "expired")
        assert not key.refresh("A")

    def test_force_ends_a_grace(self, key: Key) -> None:
        (broken,) = in_grace_after(key, "A").force()
        assert (broken.holder, broken.state) == ("A", "grace")
        key.grant("B")

    def test_force_serves_the_next_waiter(self, key: Key) -> None:
        held_by(key, "A").wait("W")
        key.force()
        assert key.states() == {"W": "held"}
        assert key.refuse("B").holder == "W"

    def test_force_breaks_every_permit(self, key: Key) -> None:
        key.grant("A", limit=3)
        key.grant("B", weight=2, limit=3)
        assert [lease.holder for lease in key.force()] == ["A", "B"]
        assert key.states() == {}


class Table(AcquireRow, RefreshRow, ReleaseRow, PeekRow, ForceRow):
    """All rows of the table."""
