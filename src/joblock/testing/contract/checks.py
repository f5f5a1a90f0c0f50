"""The check: how a client that waits reports, and learns what no notice told it."""

from __future__ import annotations

from joblock.store.ops import PRESENCE_MS, Check
from joblock.testing.contract.bench import LONG, Contract, Key


class Checks(Contract):
    """What a check tells, what it does, and the epoch of a client's presence."""

    def test_a_check_of_a_free_key_sees_nothing_in_the_way(self, key: Key) -> None:
        state = key.check("W")
        assert (state.lapses_in, state.claimed, state.ok_token, state.grace) == (0, (), 0, False)

    def test_a_check_tells_when_what_is_in_the_way_lapses(self, key: Key) -> None:
        key.grant("A", ttl=LONG)
        key.wait("W")
        state = key.check("W")
        assert key.about(state.lapses_in, LONG)
        assert not state.grace

    def test_a_check_tells_of_the_lease_that_lapses_first(self, key: Key) -> None:
        key.grant("A", limit=2, ttl=3 * LONG)
        key.grant("B", limit=2, ttl=2 * LONG)
        key.wait("W", limit=2)
        assert key.about(key.check("W").lapses_in, 2 * LONG)

    def test_a_check_tells_of_grace_and_when_it_ends(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        key.release("A", grace=2 * LONG)
        state = key.check("W")
        assert state.grace
        assert key.about(state.lapses_in, 2 * LONG)

    def test_a_check_lists_what_was_claimed_for_the_client_and_not_confirmed(
        self, key: Key
    ) -> None:
        key.grant("A", weight=3, limit=3)
        key.wait("W1", client="W", limit=3)
        key.wait("W2", client="W", limit=3)
        key.wait("V", limit=3)
        assert key.check("W").claimed == ()
        key.release("A")
        assert sorted(key.check("W").claimed) == ["W1", "W2"]
        assert key.check("V").claimed == ("V",)
        assert key.check("U").claimed == ()
        key.confirm("W1", client="W", limit=3)
        assert key.check("W").claimed == ("W2",)

    def test_a_check_finds_a_lapsed_lease_and_claims_it_for_the_first(self, key: Key) -> None:
        key.grant("A", ttl=key.short)
        key.wait("W")
        key.wait("V")
        key.elapse(key.short)
        assert key.check("V").claimed == ()
        assert key.check("W").claimed == ("W",)

    def test_a_check_finds_a_grace_that_is_over(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        key.release("A", grace=key.short)
        key.elapse(key.short)
        state = key.check("W")
        assert state.claimed == ("W",)
        assert not state.grace

    def test_a_check_by_one_client_serves_another_clients_waiter(self, key: Key) -> None:
        key.grant("A", ttl=key.short)
        key.wait("W")
        key.elapse(key.short)
        assert key.check("bystander").claimed == ()
        assert key.states() == {"W": "held"}

    def test_a_check_answers_for_each_key_in_the_order_asked(self, key: Key) -> None:
        free, held = key.bench.key(), key.bench.key()
        held.grant("A")
        key.grant("A")
        key.wait("W")
        key.release("A")
        op = Check(key.client("W"), (held.name, key.name, free.name))
        states = key.driver.call(op).states
        assert [state.claimed for state in states] == [(), ("W",), ()]
        assert held.about(states[0].lapses_in, LONG)
        assert states[2].lapses_in == 0

    def test_a_check_of_no_key_is_answered(self, key: Key) -> None:
        assert key.driver.call(Check(key.client("W"), ())).states == ()

    def test_a_check_tells_the_token_of_the_newest_run_that_ended_well(self, key: Key) -> None:
        token = key.grant("A").token
        key.wait("J", join=0)
        key.release("A", ok=True)
        assert key.check("J").ok_token == token
        key.grant("B")
        key.release("B")
        assert key.check("J").ok_token == token
        token = key.grant("C").token
        key.wait("K", join=0)
        key.release("C", ok=True)
        assert key.check("K").ok_token == token

    def test_the_epoch_stays_while_the_client_is_present(self, key: Key) -> None:
        key.grant("A")
        epoch = key.wait("W1", client="W").epoch
        assert epoch > 0
        assert key.wait("W2", client="W").epoch == epoch
        assert key.check("W").epoch == epoch
        key.elapse(key.short)
        assert key.check("W").epoch == epoch
        assert key.wait("W1", client="W").epoch == epoch

    def test_the_epoch_is_another_after_the_client_was_struck(self, key: Key) -> None:
        key.grant("A")
        epoch = key.wait("W1", client="W").epoch
        key.wait("W2", client="W")
        key.release("A")
        key.strike("W1")
        assert key.check("W").epoch != epoch

    def test_the_epoch_is_another_after_a_claim_lapsed(self, key: Key) -> None:
        key.grant("A")
        epoch = key.wait("W1", client="W", ttl=key.short).epoch
        key.wait("W2", client="W", ttl=key.short)
        key.release("A")
        key.elapse(key.short)
        key.grant("B")
        assert key.check("W").epoch != epoch

    def test_a_check_that_finds_its_own_claim_lapsed_says_so_by_its_epoch(self, key: Key) -> None:
        """Else the client would learn only from the next check that it must ask again."""
        key.grant("A")
        epoch = key.wait("W", ttl=key.short).epoch
        key.release("A")
        key.elapse(key.short)
        first = key.check("W")
        assert first.epoch != epoch
        assert key.check("W").epoch == first.epoch

    def test_the_epoch_is_another_after_the_client_was_absent(self, key: Key) -> None:
        key.grant("A")
        epoch = key.wait("W").epoch
        key.elapse(PRESENCE_MS)
        state = key.check("W")
        assert state.epoch != epoch
        assert key.check("W").epoch == state.epoch
        assert key.wait("W").epoch == state.epoch

    def test_each_absence_has_an_epoch_of_its_own(self, key: Key) -> None:
        key.grant("A")
        epochs = {key.wait("W").epoch}
        for number in range(5):
            key.release("A" if not number else "B")
            key.strike("W")
            key.grant("B")
            epochs.add(key.wait("W").epoch)
        assert len(epochs) == 6

    def test_a_check_brings_no_waiter_back_that_was_passed_over(self, key: Key) -> None:
        """It costs one entry per key, so it cannot: the epoch tells the client to ask."""
        key.grant("A")
        key.wait("W")
        key.wait("V")
        key.release("A")
        key.strike("W")
        key.check("W")
        assert "W" not in key.line()
        key.leave("V")
        assert key.states() == {}
        key.confirm("W")

    def test_a_check_by_a_client_that_does_not_wait_leaves_the_key_alone(self, key: Key) -> None:
        key.grant("A")
        key.check("nobody")
        assert key.waiters() == ()
        assert key.states() == {"A": "held"}
