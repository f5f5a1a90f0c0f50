"""Fencing tokens: each grant of a key has one greater than every grant before."""

from __future__ import annotations

import pytest

from joblock.store.ops import Purge
from joblock.testing.clock import ManualClock
from joblock.testing.contract.bench import Contract, Key

LARGEST = 2**53 - 1


class Tokens(Contract):
    """Tokens grow, whatever became of the lease before."""

    def test_a_token_is_a_positive_integer_below_two_to_the_53rd(self, key: Key) -> None:
        token = key.grant("A").token
        assert type(token) is int
        assert 0 < token <= LARGEST

    def test_a_token_of_a_local_store_is_at_least_its_wall_clock(self, key: Key) -> None:
        if key.bench.abilities.shared:
            pytest.skip("the wall clock of a shared store cannot be read from here")
        clock = key.bench.harness.clock
        for holder in ("first", "second", "third"):
            before = int(clock.wall() * 1_000_000)
            assert key.grant(holder, ttl=key.short).token >= before
            key.elapse(key.short)

    def test_tokens_grow_across_releases(self, key: Key) -> None:
        tokens: list[int] = []
        for _ in range(20):
            tokens.append(key.grant("A").token)
            key.release("A")
        assert tokens == sorted(set(tokens))

    def test_tokens_grow_across_an_expiry(self, key: Key) -> None:
        first = key.grant("A", ttl=key.short).token
        key.elapse(key.short)
        assert key.grant("B").token > first

    def test_tokens_grow_across_a_force(self, key: Key) -> None:
        first = key.grant("A").token
        key.force()
        assert key.grant("B").token > first

    def test_tokens_grow_across_a_grace(self, key: Key) -> None:
        first = key.grant("A").token
        key.release("A", grace=key.short)
        key.elapse(key.short)
        assert key.grant("B").token > first

    def test_tokens_grow_across_an_acquire_that_was_undone(self, key: Key) -> None:
        first = key.grant("A").token
        key.leave("A")
        assert key.grant("B").token > first

    def test_tokens_grow_across_a_purge(self, key: Key) -> None:
        first = key.grant("A").token
        key.release("A")
        key.elapse(key.short)
        key.driver.call(Purge(idle=1))
        assert key.grant("B").token > first

    def test_tokens_grow_across_a_purge_of_a_key_that_only_waiters_had(self, key: Key) -> None:
        first = key.grant("A").token
        key.wait("W")
        key.leave("A")
        second = key.confirm("W").token
        key.release("W")
        key.elapse(key.short)
        key.driver.call(Purge(idle=1))
        assert first < second < key.grant("B").token

    def test_tokens_grow_while_the_wall_clock_is_set_back(self, key: Key) -> None:
        clock = self._manual(key)
        first = key.grant("A").token
        clock.step_wall(-3_600)
        key.release("A")
        second = key.grant("B").token
        assert second > first
        key.release("B")
        key.elapse(key.short)
        key.driver.call(Purge(idle=1))
        assert key.grant("C").token > second

    def test_a_wall_clock_that_is_set_ends_no_lease_and_prolongs_none(self, key: Key) -> None:
        clock = self._manual(key)
        key.grant("A", ttl=2 * key.short)
        clock.step_wall(3_600)
        assert key.refuse("B").remaining == 2 * key.short
        clock.step_wall(-7_200)
        key.elapse(key.short)
        assert key.refuse("B").remaining == key.short
        key.elapse(key.short)
        key.grant("B")

    def test_tokens_of_permits_are_all_different_and_grow(self, key: Key) -> None:
        tokens = [key.grant(f"holder {number}", limit=50).token for number in range(50)]
        assert tokens == sorted(set(tokens))

    def test_tokens_grow_from_holder_to_waiter(self, key: Key) -> None:
        tokens = [key.grant("W0").token]
        for number in range(10):
            key.wait(f"W{number + 1}")
            key.release(f"W{number}")
            tokens.append(key.confirm(f"W{number + 1}").token)
        assert tokens == sorted(set(tokens))

    def test_a_claim_that_lapsed_takes_its_token_with_it(self, key: Key) -> None:
        key.grant("A")
        key.wait("W", ttl=key.short)
        key.wait("V")
        key.release("A")
        (claim,) = key.leases()
        key.elapse(key.short)
        assert key.confirm("V").token > claim.token

    def test_a_confirmed_lease_has_the_token_of_its_claim(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        key.release("A")
        (claim,) = key.leases()
        assert key.confirm("W").token == claim.token

    @staticmethod
    def _manual(key: Key) -> ManualClock:
        clock = key.bench.harness.clock
        if not isinstance(clock, ManualClock):
            pytest.skip("this store's wall clock cannot be set from here")
        return clock
