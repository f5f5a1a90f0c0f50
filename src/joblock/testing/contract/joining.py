"""Joining: to wait for the run in progress, and be content if it ends well."""

from __future__ import annotations

from joblock.store.ops import CLAIM_MS, Busy, Granted, Joined
from joblock.testing.contract.bench import LONG, Contract, Key


class Joining(Contract):
    """A joiner of run T is done once a run with that token or a later one ended well."""

    def test_a_joiner_is_told_which_run_it_joined(self, key: Key) -> None:
        token = key.grant("A").token
        assert key.wait("J", join=0).token == token
        assert key.wait("J", join=token).token == token

    def test_joiners_are_done_when_the_run_ends_well(self, key: Key) -> None:
        token = key.grant("A").token
        for joiner in "JKL":
            key.wait(joiner, join=0)
        key.release("A", ok=True)
        assert key.waiters() == ()
        assert key.states() == {}
        for joiner in "JKL":
            assert key.ask(joiner, join=token) == Joined(token)

    def test_a_joiner_that_asks_again_after_the_run_ended_well_is_done(self, key: Key) -> None:
        token = key.grant("A").token
        key.wait("J", join=0)
        key.release("A", ok=True)
        key.grant("B")
        assert key.ask("J", join=token) == Joined(token)
        assert key.waiters() == ()

    def test_a_joiner_is_done_by_a_later_run_too(self, key: Key) -> None:
        token = key.grant("A").token
        key.wait("J", join=0)
        key.wait("K", join=0)
        key.release("A")
        later = key.confirm("J").token
        key.release("J", ok=True)
        assert key.ask("K", join=token) == Joined(later)
        assert key.waiters() == ()

    def test_a_joiner_is_done_though_the_key_is_in_grace(self, key: Key) -> None:
        token = key.grant("A").token
        key.wait("J", join=0)
        key.release("A", ok=True, grace=LONG)
        assert key.waiters() == ()
        assert key.ask("J", join=token) == Joined(token)
        assert key.states() == {"A": "grace"}

    def test_the_first_joiner_runs_when_the_run_ends_badly(self, key: Key) -> None:
        token = key.grant("A").token
        key.wait("J", join=0)
        key.wait("K", join=0)
        key.release("A")
        assert isinstance(key.ask("J", join=token), Granted)
        reply = key.ask("K", join=token)
        assert isinstance(reply, Busy)
        assert reply.holder == "J"

    def test_exactly_one_joiner_runs_when_the_run_was_killed(self, key: Key) -> None:
        token = key.grant("A", ttl=key.short).token
        for joiner in "JKL":
            key.wait(joiner, join=0)
        key.elapse(key.short)
        replies = [key.ask(joiner, join=token) for joiner in "KJL"]
        assert [type(reply) for reply in replies] == [Busy, Granted, Busy]
        key.release("J", ok=True)
        assert isinstance(key.ask("K", join=token), Joined)
        assert isinstance(key.ask("L", join=token), Joined)

    def test_a_join_that_begins_after_the_end_does_not_count_that_run(self, key: Key) -> None:
        key.grant("A")
        key.wait("J", join=0)
        key.release("A", ok=True)
        assert isinstance(key.ask("K", join=0), Granted)

    def test_a_join_that_begins_in_the_grace_of_a_run_counts_the_next_one(self, key: Key) -> None:
        token = key.grant("A").token
        key.release("A", ok=True, grace=key.short)
        joined = key.wait("J", join=0).token
        key.wait("K", join=0)
        assert joined > token
        busy = key.wait("J", join=joined)
        assert (busy.why, busy.holder, busy.token) == ("grace", "A", token)
        key.elapse(key.short)
        later = key.confirm("J").token
        key.release("J", ok=True)
        assert key.ask("K", join=joined) == Joined(later)

    def test_a_join_that_begins_in_the_grace_of_a_permit_counts_the_next_run(
        self, key: Key
    ) -> None:
        token = key.grant("A", limit=2).token
        later = key.grant("B", limit=2, ttl=2 * LONG).token
        key.release("A", ok=True, grace=LONG)
        joined = key.wait("J", limit=2, join=0).token
        assert token < joined <= later
        key.release("B", ok=True)
        assert key.ask("J", limit=2, join=joined) == Joined(later)

    def test_a_join_that_begins_in_the_next_run_waits_for_that_one(self, key: Key) -> None:
        first = key.grant("A").token
        key.release("A", ok=True)
        second = key.grant("B").token
        assert key.wait("J", join=0).token == second > first
        assert key.line() == ["J"]
        key.release("B", ok=True)
        assert key.ask("J", join=second) == Joined(second)

    def test_a_joiner_that_lost_the_first_reply_asks_the_same_again(self, key: Key) -> None:
        token = key.grant("A").token
        first = key.wait("J", join=0)
        again = key.wait("J", join=0)
        assert (again.token, again.arrival) == (token, first.arrival)

    def test_a_joiner_keeps_to_the_run_it_joined(self, key: Key) -> None:
        token = key.grant("A").token
        key.wait("I")
        key.wait("J", join=0)
        key.release("A")
        key.confirm("I")
        assert key.wait("J", join=0).token == token

    def test_one_who_wants_to_run_is_not_dismissed_with_the_joiners(self, key: Key) -> None:
        key.grant("A")
        key.wait("J", join=0)
        key.wait("W")
        key.release("A", ok=True)
        assert key.states() == {"W": "held"}
        key.confirm("W")
        assert key.waiters() == ()

    def test_joiners_behind_one_who_wants_to_run_are_dismissed_too(self, key: Key) -> None:
        token = key.grant("A").token
        key.wait("W")
        key.wait("J", join=0)
        key.release("A", ok=True)
        assert key.ask("J", join=token) == Joined(token)
        key.confirm("W")

    def test_a_joiner_that_makes_up_its_mind_to_run_is_not_dismissed(self, key: Key) -> None:
        key.grant("A")
        key.wait("W", join=0)
        key.wait("W")
        key.release("A", ok=True)
        assert key.states() == {"W": "held"}
        key.confirm("W")

    def test_joiners_of_a_claim_that_lapsed_wait_for_the_next_run(self, key: Key) -> None:
        key.grant("A")
        key.wait("W", ttl=key.short)
        key.release("A")
        joined = key.wait("J", join=0).token
        key.elapse(key.short)
        assert key.confirm("J").token > joined

    def test_who_ended_well_is_forgotten_no_sooner_than_its_joiners_may_ask(self, key: Key) -> None:
        """The row is vacated: nobody holds it, nobody waits."""
        token = key.grant("A").token
        key.wait("J", join=0)
        key.release("A", ok=True)
        key.elapse(key.short)
        assert key.bench.elsewhere(key).ask("J", join=token) == Joined(token)

    def test_a_joiner_that_was_passed_over_is_done_all_the_same(self, key: Key) -> None:
        token = key.grant("A").token
        key.wait("J1", client="J", join=0)
        key.wait("J2", client="J", join=0)
        key.wait("K", join=0)
        key.release("A")
        key.strike("J1")
        later = key.confirm("K").token
        key.release("K", ok=True)
        assert key.ask("J2", client="J", join=token) == Joined(later)
        assert key.ask("J1", client="J", join=token) == Joined(later)
        assert key.waiters() == ()

    def test_a_joiner_that_let_its_claim_lapse_is_dismissed_with_the_others(self, key: Key) -> None:
        token = key.grant("A").token
        key.wait("J", join=0)
        key.wait("K", join=0)
        key.release("A")
        key.elapse(CLAIM_MS)
        later = key.confirm("K").token
        assert not next(waiter for waiter in key.waiters() if waiter.holder == "J").live
        key.release("K", ok=True)
        assert key.waiters() == ()
        assert key.ask("J", join=token) == Joined(later)

    def test_a_joiner_that_was_just_handed_a_permit_is_done_and_passes_it_on(
        self, key: Key
    ) -> None:
        first = key.grant("A", limit=2).token
        later = key.grant("B", limit=2, ttl=2 * LONG).token
        assert key.wait("J", limit=2, join=0).token == first
        key.wait("W", weight=2, limit=2)
        key.release("A")
        assert key.states() == {"B": "held", "J": "held"}
        key.release("B", ok=True)
        assert key.states() == {"W": "held"}
        assert key.ask("J", limit=2, join=first) == Joined(later)

    def test_a_run_that_lost_its_lease_did_not_end_well(self, key: Key) -> None:
        token = key.grant("A", ttl=key.short).token
        key.elapse(key.short)
        key.grant("B")
        key.wait("J", join=0)
        assert not key.release("A", ok=True)
        assert key.line() == ["J"]
        assert key.check("J").ok_token < token

    def test_a_release_with_a_wrong_token_dismisses_nobody(self, key: Key) -> None:
        token = key.grant("A").token
        key.wait("J", join=0)
        assert not key.release("A", token=token - 1, ok=True)
        assert key.line() == ["J"]
        assert key.check("J").ok_token == 0
