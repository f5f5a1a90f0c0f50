"""Claims: the short lease of a waiter that was handed the key and has not confirmed yet.

Waiters here have a short ttl where a claim is to lapse, since a claim is never longer than that.
"""

from __future__ import annotations

from joblock.store.ops import CLAIM_MS, PRESENCE_MS, Busy
from joblock.testing.contract.bench import LONG, Contract, Key
from joblock.values.records import moment


def hand_over(key: Key, *waiters: str, ttl: int) -> None:
    """A held the key and released it, so that the first waiter has a claim."""
    key.grant("A")
    for waiter in waiters:
        key.wait(waiter, ttl=ttl)
    key.release("A")


class Claims(Contract):
    """A dead or slow waiter costs those behind it one claim, and a live one is never forgotten."""

    def test_a_claim_is_no_longer_than_a_second(self, key: Key) -> None:
        hand_over(key, "W", ttl=LONG)
        assert 0 < key.refuse("B").remaining <= CLAIM_MS

    def test_a_claim_is_no_longer_than_the_waiters_ttl(self, key: Key) -> None:
        hand_over(key, "W", ttl=key.short)
        assert 0 < key.refuse("B").remaining <= key.short

    def test_a_claim_becomes_the_full_lease_when_it_is_confirmed(self, key: Key) -> None:
        hand_over(key, "W", ttl=key.short)
        key.elapse(key.short // 2)
        granted = key.confirm("W", ttl=LONG, worker="host-1\x1f4711\x1fnightly")
        key.elapse(key.short)
        assert granted.expires_at - granted.acquired_at == LONG
        assert key.refuse("B").holder == "W"
        (lease,) = key.leases()
        assert lease.acquired_at == moment(granted.acquired_at)
        assert lease.expires_at == moment(granted.expires_at)
        assert lease.worker == ("host-1", 4711, "nightly")

    def test_a_lapsed_claim_is_passed_on_by_the_next_acquire(self, key: Key) -> None:
        hand_over(key, "W", "V", ttl=key.short)
        key.elapse(key.short)
        assert key.refuse("B").holder == "V"

    def test_a_lapsed_claim_is_passed_on_by_the_next_check(self, key: Key) -> None:
        hand_over(key, "W", "V", ttl=key.short)
        key.elapse(key.short)
        assert key.check("V").claimed == ("V",)

    def test_a_lapsed_claim_is_passed_on_by_the_next_release_even_of_a_stranger(
        self, key: Key
    ) -> None:
        hand_over(key, "W", "V", ttl=key.short)
        key.elapse(key.short)
        assert not key.release("stranger")
        assert key.states() == {"V": "held"}

    def test_a_claim_cannot_be_confirmed_by_a_late_release(self, key: Key) -> None:
        hand_over(key, "W", "V", ttl=key.short)
        key.elapse(key.short)
        assert not key.release("W", grace=LONG)
        assert key.states() == {"V": "held"}

    def test_a_lapsed_claim_is_passed_on_by_the_next_to_leave(self, key: Key) -> None:
        hand_over(key, "W", "V", "U", ttl=key.short)
        key.elapse(key.short)
        key.leave("U")
        assert key.states() == {"V": "held"}
        assert "W" not in key.line()

    def test_a_lapsed_claim_is_seen_by_no_reader(self, key: Key) -> None:
        hand_over(key, "W", ttl=key.short)
        key.elapse(key.short)
        assert key.states() == {}

    def test_a_lapsed_claim_leaves_the_key_free_if_nobody_else_waits(self, key: Key) -> None:
        hand_over(key, "W", ttl=key.short)
        key.elapse(key.short)
        assert key.grant("B").replaced == ""

    def test_a_waiter_that_is_late_by_a_moment_is_served_if_nobody_else_was(self, key: Key) -> None:
        hand_over(key, "W", ttl=key.short)
        key.elapse(key.short)
        key.confirm("W")

    def test_a_lapsed_claim_counts_all_waiters_of_its_client_as_dead(self, key: Key) -> None:
        """However many a dead process had, those behind them lose one claim only."""
        key.grant("A")
        for number in range(20):
            key.wait(f"dead {number}", client="dead", ttl=key.short)
        key.wait("live")
        key.release("A")
        key.elapse(key.short)
        assert key.refuse("B").holder == "live"
        assert not [waiter for waiter in key.line() if waiter.startswith("dead")]

    def test_a_waiter_whose_claim_lapsed_once_comes_back_to_its_place(self, key: Key) -> None:
        key.grant("A")
        first = key.wait("W", ttl=key.short).arrival
        key.wait("V")
        key.wait("U")
        key.release("A")
        key.elapse(key.short)
        key.confirm("V")
        assert key.wait("W", ttl=key.short).arrival == first
        assert key.line() == ["W", "U"]

    def test_a_waiter_whose_claims_lapsed_twice_goes_to_the_back(self, key: Key) -> None:
        first = self._lapse_twice(key)
        assert key.wait("W", ttl=key.short, arrival=first).arrival > first
        assert key.line() == ["U", "W"]

    def test_a_waiter_whose_claims_lapsed_twice_goes_to_the_back_though_nobody_came_between(
        self, key: Key
    ) -> None:
        hand_over(key, "W", ttl=key.short)
        key.elapse(key.short)
        assert key.check("W").claimed == ()
        key.grant("A")
        first = key.wait("W", ttl=key.short).arrival
        key.release("A")
        key.elapse(key.short)
        assert key.check("W").claimed == ()
        key.grant("A")
        assert key.wait("W").arrival > first

    def test_a_waiter_at_the_back_has_two_claims_again(self, key: Key) -> None:
        first = self._lapse_twice(key)
        second = key.wait("W", ttl=key.short, arrival=first).arrival
        key.release("V")
        key.confirm("U")
        key.release("U")
        key.elapse(key.short)
        key.grant("B")
        assert key.wait("W", arrival=second).arrival == second

    def test_a_confirmation_makes_good_for_a_lapsed_claim(self, key: Key) -> None:
        hand_over(key, "W", ttl=key.short)
        key.elapse(key.short)
        key.confirm("W")
        key.grant("W")
        key.release("W")
        key.grant("A")
        number = key.wait("W", ttl=key.short).arrival
        key.release("A")
        key.elapse(key.short)
        key.grant("B")
        assert key.wait("W", arrival=number).arrival == number

    def test_a_waiter_whose_claim_lapsed_may_leave(self, key: Key) -> None:
        hand_over(key, "W", ttl=key.short)
        key.elapse(key.short)
        key.grant("B")
        key.leave("W")
        assert key.waiters() == ()

    def test_a_waiter_whose_claim_lapsed_is_not_handed_the_key_again_unasked(
        self, key: Key
    ) -> None:
        hand_over(key, "W", ttl=key.short)
        key.elapse(key.short)
        key.grant("B")
        key.release("B")
        key.grant("C")

    def test_a_waiter_whose_claim_lapsed_may_acquire_without_queueing(self, key: Key) -> None:
        hand_over(key, "W", ttl=key.short)
        key.elapse(key.short)
        key.grant("B")
        key.refuse("W")
        key.release("B")
        key.grant("W")
        assert key.waiters() == ()

    def test_a_client_that_fell_silent_is_passed_over_and_may_come_back(self, key: Key) -> None:
        key.grant("A")
        first = key.wait("silent").arrival
        key.elapse(PRESENCE_MS)
        key.wait("other")
        assert key.line() == ["other"]
        key.release("A")
        key.confirm("other")
        key.wait("third")
        assert key.wait("silent", arrival=first).arrival == first
        assert key.line() == ["silent", "third"]

    def test_a_client_that_was_silent_but_not_passed_over_yet_keeps_its_place(
        self, key: Key
    ) -> None:
        key.grant("A")
        first = key.wait("silent").arrival
        key.wait("other")
        key.elapse(PRESENCE_MS)
        assert key.wait("silent", arrival=first).arrival == first
        key.wait("other")
        assert key.line() == ["silent", "other"]

    def test_a_client_that_reports_is_not_passed_over(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        for _ in range(2):
            key.elapse(PRESENCE_MS * 3 // 5)
            key.check("W")
        key.release("A")
        assert key.states() == {"W": "held"}

    def test_a_waiter_behind_dead_ones_is_not_held_up_by_a_newcomer(self, key: Key) -> None:
        key.grant("A", limit=2)
        key.wait("silent", weight=2, limit=2)
        key.elapse(PRESENCE_MS)
        key.grant("B", limit=2)

    def test_strike_passes_the_key_on_at_once(self, key: Key) -> None:
        hand_over(key, "W", "V", ttl=LONG)
        assert key.strike("W")
        assert key.states() == {"V": "held"}

    def test_strike_counts_all_waiters_of_the_client_as_dead(self, key: Key) -> None:
        key.grant("A")
        for number in range(5):
            key.wait(f"dead {number}", client="dead")
        key.wait("live")
        key.release("A")
        key.strike("dead 0")
        assert key.states() == {"live": "held"}

    def test_strike_is_one_of_the_claims_that_a_waiter_may_miss(self, key: Key) -> None:
        key.grant("A")
        first = key.wait("W").arrival
        key.release("A")
        key.strike("W")
        key.grant("B")
        assert key.wait("W", arrival=first).arrival == first
        key.wait("V")
        key.release("B")
        key.strike("W")
        key.confirm("V")
        assert key.wait("W", arrival=first).arrival > first

    def test_strike_of_one_who_has_confirmed_does_nothing(self, key: Key) -> None:
        hand_over(key, "W", ttl=LONG)
        key.confirm("W")
        assert not key.strike("W")
        assert key.states() == {"W": "held"}

    def test_a_confirm_that_finds_a_lapse_serves_the_next(self, key: Key) -> None:
        key.grant("A", limit=2)
        key.grant("B", limit=2)
        key.wait("W", limit=2, ttl=key.short)
        key.wait("V", limit=2)
        key.wait("U", limit=2)
        key.release("A")
        key.release("B")
        key.elapse(key.short)
        key.confirm("V", limit=2)
        assert key.states() == {"V": "held", "U": "held"}

    def test_a_re_entry_that_finds_a_lapse_serves_the_next(self, key: Key) -> None:
        key.grant("A", limit=2, ttl=key.short)
        key.grant("B", limit=2)
        key.wait("W", limit=2)
        key.elapse(key.short)
        key.grant("B", limit=2)
        assert key.states() == {"B": "held", "W": "held"}

    def test_a_waiter_that_leaves_because_of_a_grace_lets_those_behind_it_in(
        self, key: Key
    ) -> None:
        key.grant("A", limit=2)
        key.wait("H", weight=2, limit=2)
        key.wait("L", limit=2)
        key.release("A", grace=LONG)
        reply = key.ask("H", weight=2, limit=2, skip_grace=True)
        assert isinstance(reply, Busy)
        assert reply.why == "grace"
        assert key.states() == {"A": "grace", "L": "held"}

    def test_strike_of_one_who_only_waits_does_nothing(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        assert not key.strike("W")
        assert key.line() == ["W"]

    def test_strike_of_a_stranger_does_nothing(self, key: Key) -> None:
        assert not key.strike("nobody")
        key.grant("A")
        assert not key.strike("nobody")
        assert key.states() == {"A": "held"}

    @staticmethod
    def _lapse_twice(key: Key) -> int:
        """W missed two claims; V holds the key now, and U waits behind."""
        key.grant("A")
        first = key.wait("W", ttl=key.short).arrival
        key.release("A")
        key.elapse(key.short)
        key.grant("B")
        assert key.wait("W", ttl=key.short, arrival=first).arrival == first
        key.wait("V")
        key.wait("U")
        key.release("B")
        key.elapse(key.short)
        key.confirm("V")
        return first
