"""Occurrences: one tick of a schedule is run once, whoever comes when, and is then done."""

from __future__ import annotations

from joblock.store.ops import Busy, Done, Granted, Joined, Purge
from joblock.testing.contract.bench import LONG, Contract, Key

LARGEST = 2**53 - 1


class Occurrences(Contract):
    """The newest occurrence whose run ended well is remembered for its ttl."""

    def test_an_occurrence_is_granted_until_its_run_ended_well(self, key: Key) -> None:
        key.grant("A", occurrence=7)
        key.release("A")
        key.grant("B", occurrence=7)
        key.release("B", done=Done(7, LONG))
        assert key.acquire("C", occurrence=7) == Busy("", 0, "done")

    def test_one_that_is_older_than_the_newest_is_done_and_a_newer_one_is_not(
        self, key: Key
    ) -> None:
        key.grant("A", occurrence=7)
        key.release("A", done=Done(7, LONG))
        assert key.refuse("B", occurrence=6).why == "done"
        assert key.refuse("B", occurrence=0).why == "done"
        key.grant("B", occurrence=8)

    def test_those_who_state_no_occurrence_are_not_concerned(self, key: Key) -> None:
        key.grant("A", occurrence=7)
        key.release("A", done=Done(7, LONG))
        key.grant("B")
        key.release("B", ok=True)
        assert key.refuse("C", occurrence=7).why == "done"

    def test_an_occurrence_is_done_though_another_holds_the_key(self, key: Key) -> None:
        key.grant("A", occurrence=7)
        key.release("A", done=Done(7, LONG))
        key.grant("B", occurrence=8)
        assert key.refuse("C", occurrence=7).why == "done"
        assert key.refuse("C", occurrence=8).why == "held"

    def test_an_occurrence_is_done_though_the_key_is_in_grace(self, key: Key) -> None:
        key.grant("A", occurrence=7)
        key.release("A", grace=LONG, done=Done(7, LONG))
        assert key.refuse("B", occurrence=7).why == "done"
        assert key.refuse("B", occurrence=8).why == "grace"

    def test_a_later_end_of_an_older_occurrence_does_not_bring_the_newest_back(
        self, key: Key
    ) -> None:
        key.grant("A", limit=2, occurrence=7)
        key.grant("B", limit=2, occurrence=8)
        key.release("B", done=Done(8, LONG))
        key.release("A", done=Done(7, LONG))
        assert key.refuse("C", occurrence=8).why == "done"
        key.grant("C", occurrence=9)

    def test_what_is_done_is_forgotten_after_its_ttl_and_no_sooner(self, key: Key) -> None:
        key.grant("A", occurrence=7)
        key.release("A", done=Done(7, 4 * key.short))
        key.elapse(key.short)
        assert key.refuse("B", occurrence=7).why == "done"
        key.elapse(4 * key.short)
        key.grant("B", occurrence=6)
        key.release("B", done=Done(6, LONG))
        assert key.refuse("C", occurrence=6).why == "done"
        key.grant("C", occurrence=7)

    def test_a_repeated_end_counts_its_ttl_anew(self, key: Key) -> None:
        key.grant("A", limit=2, occurrence=7)
        key.grant("B", limit=2, occurrence=7)
        key.release("A", done=Done(7, key.short))
        key.release("B", done=Done(7, LONG))
        key.elapse(2 * key.short)
        assert key.refuse("C", occurrence=7).why == "done"

    def test_a_purge_forgets_no_occurrence_before_its_ttl(self, key: Key) -> None:
        key.grant("A", occurrence=7)
        key.release("A", done=Done(7, LONG))
        key.elapse(key.short)
        key.driver.call(Purge(idle=1))
        assert key.refuse("B", occurrence=7).why == "done"

    def test_force_does_not_undo_what_is_done(self, key: Key) -> None:
        key.grant("A", occurrence=7)
        key.release("A", done=Done(7, LONG))
        key.grant("B")
        key.force()
        assert key.refuse("C", occurrence=7).why == "done"

    def test_only_the_holder_can_say_that_an_occurrence_is_done(self, key: Key) -> None:
        token = key.grant("A").token
        assert not key.release("B", done=Done(7, LONG))
        assert not key.release("A", token=token - 1, done=Done(7, LONG))
        key.release("A")
        key.grant("C", occurrence=7)

    def test_a_run_that_lost_its_lease_did_not_end_its_occurrence(self, key: Key) -> None:
        key.grant("A", ttl=key.short, occurrence=7)
        key.elapse(key.short)
        key.grant("B")
        assert not key.release("A", done=Done(7, LONG))
        key.release("B")
        key.grant("C", occurrence=7)

    def test_a_request_whose_reply_was_lost_is_granted_again(self, key: Key) -> None:
        token = key.grant("A", limit=2, occurrence=7).token
        key.grant("B", limit=2, occurrence=7)
        key.release("B", done=Done(7, LONG))
        again = key.grant("A", limit=2, occurrence=7)
        assert (again.token, again.reentered) == (token, True)

    def test_a_waiter_whose_occurrence_is_done_leaves_and_the_next_is_served(
        self, key: Key
    ) -> None:
        key.grant("A", occurrence=7)
        key.wait("B", occurrence=7)
        key.wait("C", occurrence=8)
        key.release("A", done=Done(7, LONG))
        assert key.states() == {"B": "held"}
        assert key.ask("B", occurrence=7) == Busy("", 0, "done")
        assert key.states() == {"C": "held"}
        assert isinstance(key.ask("C", occurrence=8), Granted)
        assert key.waiters() == ()

    def test_one_that_is_done_is_not_queued(self, key: Key) -> None:
        key.grant("A", occurrence=7)
        key.release("A", done=Done(7, LONG))
        key.grant("B")
        assert key.ask("C", occurrence=7) == Busy("", 0, "done")
        assert key.waiters() == ()

    def test_a_waiter_in_line_that_asks_again_and_is_done_leaves_the_queue(self, key: Key) -> None:
        key.grant("A", limit=2, occurrence=7)
        key.grant("B", limit=2)
        key.wait("C", occurrence=7)
        key.wait("D")
        key.release("A", done=Done(7, LONG))
        assert key.ask("C", occurrence=7) == Busy("", 0, "done")
        assert key.line() == ["D"]

    def test_a_joiner_of_the_run_that_ended_its_occurrence_has_joined(self, key: Key) -> None:
        token = key.grant("A", occurrence=7).token
        key.wait("J", join=0, occurrence=7)
        key.release("A", ok=True, done=Done(7, LONG))
        assert key.ask("J", join=token, occurrence=7) == Joined(token)
        assert key.ask("K", join=0, occurrence=7) == Busy("", 0, "done")

    def test_the_largest_occurrence_is_told_from_the_one_before(self, key: Key) -> None:
        key.grant("A", occurrence=LARGEST - 1)
        key.release("A", done=Done(LARGEST - 1, LONG))
        key.grant("B", occurrence=LARGEST)
        key.release("B", done=Done(LARGEST, LONG))
        assert key.refuse("C", occurrence=LARGEST).why == "done"

    def test_each_key_has_its_own(self, key: Key) -> None:
        other = key.bench.key()
        key.grant("A", occurrence=7)
        key.release("A", done=Done(7, LONG))
        other.grant("A", occurrence=7)

    def test_what_is_done_is_seen_through_another_store_object(self, key: Key) -> None:
        key.grant("A", occurrence=7)
        key.release("A", done=Done(7, LONG))
        assert key.bench.elsewhere(key).refuse("B", occurrence=7).why == "done"

    def test_a_run_that_others_wait_behind_is_done_too(self, key: Key) -> None:
        key.grant("A", occurrence=7)
        key.wait("B")
        key.release("A", done=Done(7, LONG))
        key.confirm("B")
        assert key.refuse("C", occurrence=7).why == "done"
        key.release("B", ok=True)
        assert key.refuse("C", occurrence=7).why == "done"
