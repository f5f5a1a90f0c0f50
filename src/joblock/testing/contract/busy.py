"""What a refused caller is told: who is in the way, for how long, and why."""

from __future__ import annotations

from joblock.store.ops import CLAIM_MS, Busy
from joblock.testing.contract.bench import LONG, Contract, Key


class BusyReplies(Contract):
    """So that a caller can wait precisely, and a person knows whom to ask."""

    def test_busy_names_the_holder_and_its_token(self, key: Key) -> None:
        token = key.grant("A").token
        busy = key.refuse("B")
        assert (busy.holder, busy.token, busy.why) == ("A", token, "held")

    def test_busy_tells_in_how_many_milliseconds_the_lease_lapses(self, key: Key) -> None:
        key.grant("A", ttl=LONG)
        assert key.about(key.refuse("B").remaining, LONG)
        key.elapse(key.short)
        assert key.about(key.refuse("B").remaining, LONG - key.short)

    def test_whoever_asks_again_after_that_time_is_granted_the_key(self, key: Key) -> None:
        key.grant("A", ttl=key.short)
        busy = key.refuse("B")
        assert 0 < busy.remaining <= key.short
        key.elapse(key.short)
        key.grant("B")

    def test_busy_tells_that_it_is_grace_and_for_how_long(self, key: Key) -> None:
        token = key.grant("A").token
        key.release("A", grace=2 * LONG)
        busy = key.refuse("B")
        assert (busy.holder, busy.token, busy.why) == ("A", token, "grace")
        assert key.about(busy.remaining, 2 * LONG)

    def test_busy_tells_of_the_permit_that_lapses_first(self, key: Key) -> None:
        key.grant("A", limit=2, ttl=2 * LONG)
        key.grant("B", limit=2, ttl=LONG)
        busy = key.refuse("C", limit=2)
        assert busy.holder == "B"
        assert key.about(busy.remaining, LONG)

    def test_busy_is_held_while_one_permit_is_held_and_another_in_grace(self, key: Key) -> None:
        key.grant("A", limit=2)
        key.grant("B", limit=2)
        key.release("A", grace=LONG)
        assert key.refuse("C", limit=2).why == "held"
        key.release("B", grace=LONG)
        assert key.refuse("C", limit=2).why == "grace"

    def test_busy_names_the_waiter_that_was_handed_the_key(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        key.release("A")
        busy = key.refuse("B")
        assert (busy.holder, busy.why) == ("W", "held")
        assert 0 < busy.remaining <= CLAIM_MS

    def test_busy_says_that_others_wait_for_what_would_else_be_granted(self, key: Key) -> None:
        key.grant("A", limit=2)
        key.wait("heavy", weight=2, limit=2)
        assert key.refuse("B", limit=2).why == "waiting"
        assert key.refuse("B", weight=2, limit=2).why == "held"

    def test_busy_gives_no_arrival_number_to_one_who_is_not_queued(self, key: Key) -> None:
        key.grant("A")
        assert key.refuse("B").arrival == 0
        assert key.waiters() == ()

    def test_busy_gives_growing_arrival_numbers_to_those_who_queue(self, key: Key) -> None:
        key.grant("A")
        numbers = [key.wait(holder).arrival for holder in "WVU"]
        assert numbers == sorted(set(numbers))
        assert all(0 < number < 2**53 for number in numbers)

    def test_a_key_in_grace_ends_the_wait_of_one_who_skips_grace(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        key.release("A", grace=LONG)
        reply = key.ask("W", skip_grace=True)
        assert isinstance(reply, Busy)
        assert (reply.why, reply.arrival) == ("grace", 0)
        assert key.waiters() == ()

    def test_one_who_skips_grace_is_not_queued_by_a_key_in_grace(self, key: Key) -> None:
        key.grant("A")
        key.release("A", grace=LONG)
        reply = key.ask("B", skip_grace=True)
        assert isinstance(reply, Busy)
        assert (reply.why, reply.arrival) == ("grace", 0)
        assert key.waiters() == ()

    def test_one_who_skips_grace_waits_for_a_held_key_as_anybody(self, key: Key) -> None:
        key.grant("A")
        reply = key.ask("B", skip_grace=True)
        assert isinstance(reply, Busy)
        assert reply.arrival > 0
        key.release("A")
        key.confirm("B")
