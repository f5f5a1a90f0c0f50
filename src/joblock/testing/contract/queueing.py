"""The queue: first come, first served, nobody barges in, and whoever leaves passes it on."""

from __future__ import annotations

from joblock.testing.contract.bench import LONG, Contract, Key


def held_with_line(key: Key, *waiters: str) -> None:
    """A holds the key as a mutex, and the others wait for it in that order."""
    key.grant("A")
    for waiter in waiters:
        key.wait(waiter)


class Queue(Contract):
    """Order, and leaving."""

    def test_waiters_are_served_first_come_first_served(self, key: Key) -> None:
        names = [f"W{number}" for number in range(8)]
        held_with_line(key, *names)
        holder = "A"
        for waiter in names:
            key.release(holder)
            assert key.states() == {waiter: "held"}
            key.confirm(waiter)
            holder = waiter

    def test_a_newcomer_does_not_barge_in_between_release_and_confirmation(self, key: Key) -> None:
        held_with_line(key, "W")
        key.release("A")
        assert key.refuse("B").holder == "W"
        assert key.wait("B").holder == "W"
        key.confirm("W")

    def test_the_former_holder_queues_behind_those_who_wait(self, key: Key) -> None:
        held_with_line(key, "W", "V")
        key.release("A")
        key.wait("A")
        key.confirm("W")
        assert key.line() == ["V", "A"]

    def test_a_heavy_waiter_is_not_overtaken_by_a_light_newcomer(self, key: Key) -> None:
        key.grant("A", limit=3)
        key.wait("heavy", weight=3, limit=3)
        key.refuse("B", limit=3)
        key.wait("light", limit=3)
        assert key.states() == {"A": "held"}
        key.release("A")
        assert key.states() == {"heavy": "held"}

    def test_a_heavy_waiter_is_not_overtaken_when_some_but_too_little_is_freed(
        self, key: Key
    ) -> None:
        key.grant("A", limit=3)
        key.grant("B", limit=3)
        key.grant("C", limit=3)
        key.wait("heavy", weight=2, limit=3)
        key.wait("light", limit=3)
        key.release("A")
        assert key.states() == {"B": "held", "C": "held"}
        key.release("B")
        assert key.states() == {"C": "held", "heavy": "held"}

    def test_a_writer_is_not_overtaken_by_readers(self, key: Key) -> None:
        many = 2**30
        key.grant("reader 1", limit=many)
        key.wait("writer", weight=many, limit=many)
        key.refuse("reader 2", limit=many)
        key.wait("reader 2", limit=many)
        key.release("reader 1")
        key.confirm("writer", weight=many, limit=many)
        key.release("writer")
        key.confirm("reader 2", limit=many)

    def test_one_release_serves_all_that_fit(self, key: Key) -> None:
        key.grant("A", weight=2, limit=2)
        for waiter in "WVU":
            key.wait(waiter, limit=2)
        key.release("A")
        assert key.states() == {"W": "held", "V": "held"}
        key.confirm("V", limit=2)
        key.confirm("W", limit=2)
        key.release("V")
        key.confirm("U", limit=2)

    def test_a_release_serves_the_second_though_the_first_has_not_confirmed_yet(
        self, key: Key
    ) -> None:
        key.grant("A", limit=2)
        key.grant("B", limit=2)
        key.wait("W", limit=2)
        key.wait("V", limit=2)
        key.release("A")
        key.release("B")
        assert key.states() == {"W": "held", "V": "held"}

    def test_a_release_serves_nobody_while_the_first_does_not_fit(self, key: Key) -> None:
        key.grant("A", limit=2)
        key.grant("B", limit=2)
        key.wait("mutex")
        key.wait("permit", limit=2)
        key.release("A")
        assert key.states() == {"B": "held"}

    def test_a_waiter_who_is_granted_the_key_waits_no_longer(self, key: Key) -> None:
        held_with_line(key, "W", "V")
        key.release("A")
        key.confirm("W")
        assert key.line() == ["V"]
        key.release("W")
        key.confirm("V")
        assert key.waiters() == ()

    def test_a_waiter_that_gives_up_leaves_the_queue(self, key: Key) -> None:
        held_with_line(key, "W", "V")
        assert key.leave("W")
        assert key.line() == ["V"]
        key.release("A")
        key.confirm("V")

    def test_a_waiter_may_leave_from_the_middle(self, key: Key) -> None:
        held_with_line(key, "W", "V", "U")
        key.leave("V")
        assert key.line() == ["W", "U"]
        key.release("A")
        key.confirm("W")
        key.release("W")
        key.confirm("U")

    def test_a_waiter_that_leaves_with_the_key_in_hand_passes_it_on(self, key: Key) -> None:
        held_with_line(key, "W", "V")
        key.release("A")
        assert key.leave("W")
        assert key.states() == {"V": "held"}
        key.confirm("V")

    def test_a_heavy_waiter_that_leaves_lets_those_behind_it_in(self, key: Key) -> None:
        key.grant("A", limit=2)
        key.wait("heavy", weight=2, limit=2)
        key.wait("light", limit=2)
        key.leave("heavy")
        assert key.states() == {"A": "held", "light": "held"}

    def test_the_last_waiter_may_leave(self, key: Key) -> None:
        held_with_line(key, "W")
        key.leave("W")
        assert key.waiters() == ()
        key.release("A")
        key.grant("B")

    def test_one_who_neither_waits_nor_holds_leaves_nothing_behind_and_changes_nothing(
        self, key: Key
    ) -> None:
        held_with_line(key, "W")
        assert not key.leave("stranger")
        assert key.line() == ["W"]
        assert key.states() == {"A": "held"}
        assert not key.bench.key().leave("stranger")

    def test_a_waiter_that_left_may_come_again_at_the_back(self, key: Key) -> None:
        held_with_line(key, "W", "V")
        key.leave("W")
        key.wait("W")
        assert key.line() == ["V", "W"]

    def test_a_waiter_the_store_forgot_comes_back_under_its_old_number(self, key: Key) -> None:
        key.grant("A")
        first = key.wait("W").arrival
        key.wait("V")
        key.leave("W")
        assert key.wait("W", arrival=first).arrival == first
        assert key.line() == ["W", "V"]

    def test_numbers_go_on_above_one_that_was_brought_back(self, key: Key) -> None:
        key.grant("A")
        assert key.wait("W", arrival=1_000).arrival == 1_000
        assert key.wait("V").arrival > 1_000
        assert key.line() == ["W", "V"]

    def test_a_waiter_that_asks_from_another_client_keeps_its_place_and_is_looked_for_there(
        self, key: Key
    ) -> None:
        """A process died and another one runs under the same holder."""
        key.grant("A")
        first = key.wait("W", client="dead").arrival
        key.wait("V", client="dead")
        assert key.wait("W", client="live").arrival == first
        key.release("A")
        assert key.check("dead").claimed == ()
        assert key.check("live").claimed == ("W",)
        key.strike("W")
        assert key.check("dead").claimed == ("V",)

    def test_a_last_try_without_queueing_keeps_the_place(self, key: Key) -> None:
        held_with_line(key, "W", "V")
        key.refuse("W")
        assert key.line() == ["W", "V"]

    def test_force_serves_the_first_waiter_and_keeps_the_order_of_the_rest(self, key: Key) -> None:
        held_with_line(key, "W", "V", "U")
        key.force()
        key.confirm("W")
        assert key.line() == ["V", "U"]

    def test_an_expired_lease_is_served_to_the_first_waiter_by_the_next_acquire(
        self, key: Key
    ) -> None:
        self._expired_with_line(key)
        assert key.refuse("B").holder == "W"

    def test_an_expired_lease_is_served_to_the_first_waiter_by_its_late_release(
        self, key: Key
    ) -> None:
        self._expired_with_line(key)
        key.release("A")
        assert key.states() == {"W": "held"}

    def test_an_expired_lease_is_served_to_the_first_waiter_by_the_release_of_a_stranger(
        self, key: Key
    ) -> None:
        self._expired_with_line(key)
        assert not key.release("stranger")
        assert key.states() == {"W": "held"}

    def test_an_expired_lease_is_served_to_the_first_waiter_by_the_next_check(
        self, key: Key
    ) -> None:
        self._expired_with_line(key)
        key.check("V")
        assert key.states() == {"W": "held"}

    def test_an_expired_lease_is_served_to_the_first_waiter_when_another_leaves(
        self, key: Key
    ) -> None:
        self._expired_with_line(key)
        key.leave("V")
        assert key.states() == {"W": "held"}

    def test_an_expired_permit_is_served_by_the_release_of_another(self, key: Key) -> None:
        key.grant("A", limit=2, ttl=key.short)
        key.grant("B", limit=2)
        key.wait("W", weight=2, limit=2)
        key.elapse(key.short)
        key.release("B")
        assert key.states() == {"W": "held"}

    def test_a_reader_sees_who_waits_for_what_and_where(self, key: Key) -> None:
        key.grant("A", limit=5)
        first = key.wait("W", weight=5, limit=5, worker="host-1\x1f4711\x1fnightly").arrival
        second = key.wait("V", weight=2, limit=5).arrival
        one, two = key.waiters()
        assert (one.key, one.holder, one.arrival) == (key.name, "W", first)
        assert (one.weight, one.limit, one.live) == (5, 5, True)
        assert one.worker == ("host-1", 4711, "nightly")
        assert (two.holder, two.arrival, two.weight) == ("V", second, 2)
        assert two.queued_at >= one.queued_at

    def test_a_thousand_waiters_keep_their_order(self, key: Key) -> None:
        """Few clients, as in life; every third leaves before its turn."""
        key.grant("A")
        names = [f"W{number}" for number in range(1_000)]
        for number, name in enumerate(names):
            key.wait(name, client=f"client {number % 4}")
        for name in names[::3]:
            key.leave(name)
        stay = [name for number, name in enumerate(names) if number % 3]
        assert key.line() == stay
        holder = "A"
        for name in stay[:50]:
            key.release(holder)
            key.confirm(name, client=f"client {names.index(name) % 4}")
            holder = name

    def test_waiters_are_the_same_for_all_store_objects(self, key: Key) -> None:
        other = key.bench.elsewhere(key)
        key.grant("A")
        other.wait("W")
        key.wait("V")
        assert key.line() == other.line() == ["W", "V"]
        key.release("A")
        assert other.confirm("W").waiting
        assert key.refuse("B").holder == "W"

    @staticmethod
    def _expired_with_line(key: Key) -> None:
        key.grant("A", ttl=key.short)
        key.wait("W", ttl=LONG)
        key.wait("V", ttl=LONG)
        key.elapse(key.short)
