"""Notices: who is told of what, and when. A notice is a hint and never a grant."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from joblock.store.ops import CLAIM_MS, Busy, Granted, Notice
from joblock.testing.contract.bench import LONG, PATIENCE, Contract, Key, is_about


class Notices(Contract):
    """Whoever can do something now is told; nobody else is."""

    def test_a_waiter_is_told_when_it_was_handed_the_key(self, key: Key) -> None:
        ear = key.ear("W")
        key.grant("A")
        key.wait("W", listening=True)
        key.release("A")
        notice = ear.next()
        assert is_about(notice, key)
        assert (notice.client, notice.holder, notice.after) == (key.client("W"), "W", 0)
        assert ear.heard() == []
        ear.close()

    def test_the_state_a_notice_tells_of_is_there_when_it_arrives(self, key: Key) -> None:
        """The listener asks at once, in the thread that brings the notice."""
        key.needs_push()
        other = key.bench.open()
        asking = Key(key.bench, other, other.driver(), key.name)
        replies: SimpleQueue[object] = SimpleQueue()
        connected = threading.Event()

        def ask(notice: Notice) -> None:
            replies.put(asking.ask(notice.holder, client="W"))

        subscription = other.subscribe(key.client("W"), ask, connected.set)
        assert connected.wait(PATIENCE)
        for _ in range(20):
            key.grant("A")
            key.wait("W", listening=True)
            key.release("A")
            assert isinstance(replies.get(timeout=PATIENCE), Granted)
            key.release("W")
        subscription.close()

    def test_the_right_waiter_of_the_right_client_is_told(self, key: Key) -> None:
        first, second = key.ear("one"), key.ear("two")
        key.grant("A")
        key.wait("W", client="one", listening=True)
        key.wait("V", client="two", listening=True)
        key.wait("U", client="one", listening=True)
        key.release("A")
        assert first.heard() == [("W", 0)]
        key.confirm("W", client="one")
        key.release("W")
        assert [heard for heard in second.heard() if not heard[1]] == [("V", 0)]
        key.confirm("V", client="two")
        key.release("V")
        assert [heard for heard in first.heard() if not heard[1]] == [("U", 0)]
        first.close()
        second.close()

    def test_the_next_in_line_is_told_when_the_claim_lapses(self, key: Key) -> None:
        ears = {name: key.ear(name) for name in "WVU"}
        key.grant("A")
        for name in "WVU":
            key.wait(name, listening=True)
        key.release("A")
        assert ears["W"].heard() == [("W", 0)]
        assert ears["V"].heard() == [("V", CLAIM_MS)]
        assert ears["U"].heard() == []
        for ear in ears.values():
            ear.close()

    def test_all_that_one_release_serves_are_told(self, key: Key) -> None:
        ear = key.ear("client")
        key.grant("A", weight=2, limit=2)
        for waiter in "WV":
            key.wait(waiter, client="client", limit=2, listening=True)
        key.release("A")
        assert ear.heard() == [("W", 0), ("V", 0)]
        ear.close()

    def test_a_waiter_is_told_when_the_one_before_it_leaves(self, key: Key) -> None:
        ear = key.ear("V")
        key.grant("A")
        key.wait("W")
        key.wait("V", listening=True)
        key.release("A")
        key.leave("W")
        assert [heard for heard in ear.heard() if not heard[1]] == [("V", 0)]
        ear.close()

    def test_a_waiter_is_told_when_the_one_before_it_is_struck(self, key: Key) -> None:
        ear = key.ear("V")
        key.grant("A")
        key.wait("W")
        key.wait("V", listening=True)
        key.release("A")
        key.strike("W")
        assert [heard for heard in ear.heard() if not heard[1]] == [("V", 0)]
        ear.close()

    def test_a_waiter_is_told_when_the_lease_is_broken(self, key: Key) -> None:
        ear = key.ear("W")
        key.grant("A")
        key.wait("W", listening=True)
        key.force()
        assert ear.heard() == [("W", 0)]
        ear.close()

    def test_a_waiter_is_told_when_another_finds_the_lapse(self, key: Key) -> None:
        ear = key.ear("W")
        key.grant("A", ttl=key.short)
        key.wait("W", listening=True)
        key.elapse(key.short)
        key.refuse("B")
        assert ear.heard() == [("W", 0)]
        ear.close()

    def test_one_who_learns_it_from_the_reply_is_not_told_twice(self, key: Key) -> None:
        ear = key.ear("W")
        key.grant("A", ttl=key.short)
        key.wait("W", listening=True)
        key.elapse(key.short)
        key.confirm("W")
        assert ear.heard() == []
        ear.close()

    def test_a_client_that_learns_it_from_its_check_is_not_told_twice(self, key: Key) -> None:
        ear = key.ear("W")
        key.grant("A", ttl=key.short)
        key.wait("W", listening=True)
        key.elapse(key.short)
        assert key.check("W").claimed == ("W",)
        assert ear.heard() == []
        ear.close()

    def test_a_release_with_grace_tells_everyone_once(self, key: Key) -> None:
        first, second = key.ear("one"), key.ear("two")
        key.grant("A")
        key.wait("W", client="one", listening=True)
        key.wait("V", client="two", listening=True)
        key.wait("U", client="one", listening=True)
        key.release("A", grace=LONG)
        assert first.heard() == [("", 0)]
        assert second.heard() == [("", 0)]
        first.close()
        second.close()

    def test_a_quick_release_under_at_least_tells_everyone_once(self, key: Key) -> None:
        ear = key.ear("W")
        key.grant("A", at_least=LONG)
        key.wait("W", listening=True)
        key.release("A")
        assert ear.heard() == [("", 0)]
        ear.close()

    def test_joiners_are_told_once_that_the_run_ended_well(self, key: Key) -> None:
        first, second = key.ear("one"), key.ear("two")
        key.grant("A")
        for joiner, client in (("J", "one"), ("K", "two"), ("L", "one")):
            key.wait(joiner, client=client, join=0, listening=True)
        key.release("A", ok=True)
        assert first.heard() == [("", 0)]
        assert second.heard() == [("", 0)]
        first.close()
        second.close()

    def test_the_first_joiner_alone_is_told_that_the_run_ended_badly(self, key: Key) -> None:
        first, second = key.ear("J"), key.ear("L")
        key.grant("A")
        for joiner in "JKL":
            key.wait(joiner, join=0, listening=joiner != "K")
        key.release("A")
        assert first.heard() == [("J", 0)]
        assert second.heard() == []
        first.close()
        second.close()

    def test_nobody_is_told_of_what_concerns_nobody(self, key: Key) -> None:
        ear = key.ear("W")
        key.grant("A")
        key.refresh("A")
        key.refuse("B")
        key.wait("W", listening=True)
        key.wait("W", listening=True)
        key.release("stranger")
        key.leave("stranger")
        key.check("W")
        assert ear.heard() == []
        key.leave("W")
        key.release("A", grace=LONG)
        assert ear.heard() == []
        ear.close()

    def test_a_waiter_that_left_is_not_told(self, key: Key) -> None:
        ear = key.ear("W")
        key.grant("A")
        key.wait("W", listening=True)
        key.leave("W")
        key.release("A")
        assert ear.heard() == []
        ear.close()

    def test_a_dead_waiter_is_not_told_and_the_next_one_is(self, key: Key) -> None:
        dead, live = key.ear("dead"), key.ear("live")
        key.grant("A")
        key.wait("W1", client="dead", ttl=key.short)
        key.wait("W2", client="dead")
        key.wait("V", client="live", listening=True)
        key.release("A")
        assert dead.heard() == [("W1", 0), ("W2", min(key.short, CLAIM_MS))]
        key.elapse(key.short)
        key.refuse("B")
        assert dead.heard() == []
        assert live.heard() == [("V", 0)]
        dead.close()
        live.close()

    def test_whoever_becomes_next_in_line_is_told_when_the_claim_before_it_lapses(
        self, key: Key
    ) -> None:
        ear = key.ear("V")
        key.grant("A")
        key.wait("W")
        key.wait("U")
        key.wait("V", listening=True)
        key.release("A")
        key.leave("U")
        ((holder, after),) = ear.heard()
        assert holder == "V"
        assert key.about(after, CLAIM_MS)
        ear.close()

    def test_a_client_that_listens_in_another_store_object_is_told(self, key: Key) -> None:
        other = key.bench.elsewhere(key)
        ear = other.ear("W")
        key.grant("A")
        other.wait("W", listening=True)
        key.release("A")
        assert ear.heard() == [("W", 0)]
        ear.close()

    def test_whoever_stops_listening_hears_no_more(self, key: Key) -> None:
        key.needs_push()
        heard: list[Notice] = []
        subscription = key.store.subscribe(key.client("W"), heard.append, lambda: None)
        subscription.close()
        ear = key.ear("V")
        key.grant("A")
        key.wait("W")
        key.release("A")
        assert ear.heard() == []
        assert heard == []
        ear.close()

    def test_a_waiter_that_nobody_hears_for_is_served_all_the_same(self, key: Key) -> None:
        key.grant("A")
        key.wait("W")
        key.release("A")
        reply = key.ask("W")
        assert not isinstance(reply, Busy)
