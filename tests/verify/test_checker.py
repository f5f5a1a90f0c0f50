"""Hand-made histories: each kind of breach is found, and what may be no breach is not."""

from __future__ import annotations

import pytest
from tale import Tale, acts_of

from joblock.verify import Bounds, check
from joblock.verify.checker import explain


@pytest.fixture
def tale(tmp_path):
    return Tale(tmp_path / "history")


def found(tale, **bounds):
    """The promises that were broken, each once."""
    return sorted({violation.promise for violation in check(tale.history(), Bounds(**bounds))})


def test_a_history_without_a_breach_has_none(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.queue("b", 0.2, 0.3, 1, by="a")
    tale.refresh("a", 3.0, 3.1, 5, done=True)
    tale.view("a", 4.0, 5)
    tale.release("a", 5.0, 5.1, 5)
    tale.acquire("b", 5.1, 5.2, 6, queue=["client-b", 1])
    tale.view("b", 5.3, 6)
    tale.refresh("a", 6.0, 6.1, 5, done=False)
    tale.release("b", 7.0, 7.1, 6)
    assert found(tale) == []


# Exclusion.


def test_two_exclusive_leases_at_once_are_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.acquire("c", 0.0, 0.1, 3, key="another")
    tale.acquire("b", 1.0, 1.1, 6)
    (violation,) = check(tale.history())
    assert violation.promise == "exclusion"
    assert acts_of(violation) == {("a", "Acquire"), ("b", "Acquire")}


def test_grants_that_were_asked_for_at_the_same_time_are_a_breach_too(tale):
    tale.acquire("a", 0.0, 0.5, 5)
    tale.acquire("b", 0.1, 0.4, 6)
    assert found(tale) == ["exclusion"]


def test_a_grant_after_the_ttl_is_none(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.acquire("b", 0.995, 1.1, 6)
    assert found(tale) == []


def test_a_grant_after_the_first_ttl_is_one_if_a_renewal_was_confirmed(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.refresh("a", 0.5, 0.6, 5, done=True, ttl=1000)
    tale.acquire("b", 1.1, 1.2, 6)
    (violation,) = check(tale.history())
    assert violation.promise == "exclusion"
    assert ("a", "Refresh") in acts_of(violation)


def test_a_grant_while_a_release_is_on_its_way_is_none(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("a", 1.0, 3.0, 5)
    tale.acquire("b", 1.5, 1.6, 6)
    assert found(tale) == []


def test_a_grant_whose_answer_came_after_its_ttl_shows_nothing(tale):
    tale.acquire("a", 0.0, 3.0, 5, ttl=1000)
    tale.acquire("b", 1.5, 1.6, 6)
    assert found(tale) == []


def test_a_grant_in_anothers_grace_is_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("a", 1.0, 1.1, 5, grace=5000)
    tale.acquire("b", 3.0, 3.1, 6)
    assert found(tale) == ["exclusion"]


def test_a_grant_after_the_grace_is_none(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("a", 1.0, 1.1, 5, grace=5000)
    tale.acquire("b", 6.1, 6.2, 6)
    assert found(tale) == []


def test_a_grant_before_a_key_opens_again_is_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5, at_least=5000)
    tale.release("a", 1.0, 1.1, 5)
    tale.acquire("b", 3.0, 3.1, 6)
    assert found(tale) == ["exclusion"]


def test_permits_beyond_the_limit_are_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5, weight=1, limit=3)
    tale.acquire("b", 0.2, 0.3, 6, weight=2, limit=3)
    assert found(tale) == []
    tale.acquire("c", 1.0, 1.1, 7, weight=1, limit=3)
    (violation,) = check(tale.history())
    assert violation.promise == "exclusion"
    assert acts_of(violation) == {("a", "Acquire"), ("b", "Acquire"), ("c", "Acquire")}


def test_a_permit_beside_an_exclusive_lease_is_a_breach_whatever_limit_it_states(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.acquire("b", 1.0, 1.1, 6, weight=1, limit=100)
    assert found(tale) == ["exclusion"]


def test_after_a_fault_that_voids_leases_others_may_be_granted(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.fault("flush", 0.5, 0.6, voids=True)
    tale.acquire("b", 1.0, 1.1, 6)
    tale.view("a", 1.2, 5)
    assert found(tale) == []


def test_a_fault_that_voids_leases_may_have_come_after_a_grant_that_was_on_its_way(tale):
    tale.acquire("a", 0.0, 0.5, 5)
    tale.fault("flush", 0.1, 0.2, voids=True)
    tale.release("a", 0.6, 0.7, 5, done=False)
    tale.acquire("b", 1.0, 1.1, 6)
    assert found(tale) == []


# Tokens.


def test_a_token_that_does_not_grow_is_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("a", 0.2, 0.3, 5)
    tale.acquire("b", 0.4, 0.5, 4)
    (violation,) = check(tale.history())
    assert violation.promise == "tokens"
    assert acts_of(violation) == {("a", "Acquire"), ("b", "Acquire")}


def test_a_token_that_is_given_twice_is_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("a", 0.2, 0.3, 5)
    tale.acquire("b", 0.4, 0.5, 5)
    assert "tokens" in found(tale)


def test_tokens_of_grants_at_the_same_time_may_come_in_any_order(tale):
    tale.acquire("a", 0.0, 0.5, 6, limit=2)
    tale.acquire("b", 0.1, 0.2, 5, limit=2)
    assert found(tale) == []


def test_permits_handed_over_together_may_be_confirmed_in_any_order(tale):
    tale.acquire("z", 0.0, 0.1, 4, limit=2, weight=2)
    tale.queue("a", 0.2, 0.3, 1, by="z", limit=2)
    tale.queue("b", 0.4, 0.5, 2, by="z", limit=2)
    tale.release("z", 1.0, 1.1, 4)
    tale.acquire("b", 1.2, 1.3, 6, limit=2, queue=["client-b", 2])
    tale.acquire("a", 1.4, 1.5, 5, limit=2, queue=["client-a", 1])
    assert found(tale) == []


# Ownership.


def test_a_renewal_after_the_key_went_to_another_is_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.acquire("b", 2.0, 2.1, 6, ttl=1000)
    tale.release("b", 2.2, 2.3, 6)
    tale.refresh("a", 3.0, 3.1, 5, done=True)
    assert found(tale) == ["ownership"]


def test_a_renewal_of_an_expired_lease_that_nobody_took_is_none(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.refresh("a", 3.0, 3.1, 5, done=True)
    assert found(tale) == []


def test_a_renewal_that_is_refused_while_the_lease_is_live_is_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("b", 1.0, 1.1, 5, done=True)
    tale.refresh("a", 3.0, 3.1, 5, done=False)
    assert found(tale) == ["ownership"]


def test_a_renewal_that_brings_a_released_lease_back_is_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("a", 1.0, 1.1, 5)
    tale.refresh("a", 1.2, 1.3, 5, done=True)
    assert found(tale) == ["ownership"]


def test_a_renewal_that_crosses_with_the_release_is_none(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("a", 1.0, 1.3, 5)
    tale.refresh("a", 1.1, 1.2, 5, done=True)
    tale.refresh("a", 1.25, 1.4, 5, done=False)
    assert found(tale) == []


def test_a_renewal_that_is_refused_while_the_lease_is_only_in_grace_is_none(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("a", 1.0, 1.1, 5, grace=5000)
    tale.refresh("a", 1.2, 1.3, 5, done=False)
    assert found(tale) == []


def test_a_crash_of_the_store_may_undo_a_release_just_before_it(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("a", 1.0, 1.1, 5)
    tale.fault("crash", 1.5, 2.5, forgets=True)
    tale.look("b", 3.0, 3.1, ("a", 5, "held"))
    tale.release("a", 3.2, 3.3, 5)
    assert found(tale) == []


# The holder's own view.


def test_a_holder_that_still_counts_on_a_lease_which_another_has_is_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.acquire("b", 2.0, 2.1, 6)
    tale.view("a", 2.2, 5)
    assert found(tale) == ["held"]


def test_a_look_that_began_before_the_other_grant_was_answered_is_none(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.acquire("b", 2.0, 2.3, 6)
    tale.view("a", 2.2, 5)
    assert found(tale) == []


# Lifetimes.


def test_a_lease_that_stands_after_its_ttl_is_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.look("b", 1.5, 1.6, ("a", 5, "held"))
    assert found(tale) == ["lifetime"]


def test_a_lease_that_is_seen_as_expired_after_its_ttl_is_none(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.look("b", 1.5, 1.6, ("a", 5, "expired"))
    assert found(tale) == []


def test_a_lease_may_stand_longer_by_what_the_stores_clock_was_set_back_meanwhile(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.fault("back", 0.5, 0.6, delays=2.0)
    tale.fault("back", 2.5, 2.6, delays=2.0)
    tale.look("b", 5.0, 5.0, ("a", 5, "held"))
    assert found(tale) == []
    tale.look("b", 5.2, 5.2, ("a", 5, "held"))
    assert found(tale) == ["lifetime"]


def test_a_lease_stands_no_longer_if_the_stores_clock_was_set_back_before_or_after(tale):
    tale.fault("back", 0.0, 0.1, delays=2.0)
    tale.acquire("a", 0.2, 0.3, 5, ttl=1000)
    tale.fault("back", 3.5, 3.6, delays=2.0)
    tale.look("b", 4.0, 4.0, ("a", 5, "held"))
    assert found(tale) == ["lifetime"]


def test_a_lease_that_lapsed_just_before_the_stores_clock_was_set_back_may_stand_again(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.fault("back", 2.5, 2.6, delays=2.0)
    tale.look("b", 2.9, 2.9, ("a", 5, "held"))
    assert found(tale) == []


def test_a_released_lease_that_is_still_in_the_way_is_a_breach(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.release("a", 1.0, 1.1, 5)
    tale.acquire("b", 2.0, 2.1, busy=["a", 900, "held", 5, 0, 0])
    assert found(tale) == ["lifetime"]


def put_back(tale, token):
    tale.queue("a", 0.0, 0.1, 1, by="z")
    tale.acquire("a", 0.3, 0.4, 5, ttl=1000, queue=["client-a", 1])
    tale.release("a", 0.6, 0.7, 5)
    tale.acquire("b", 3.0, 3.1, busy=["a", 900, "held", token, 0, 0])


def test_a_waiter_that_a_failover_has_put_back_may_be_handed_the_key_once_more(tale):
    put_back(tale, token=6)
    assert found(tale) == ["lifetime"]
    tale.fault("replaced", 0.5, 1.0, voids=True)
    assert found(tale) == []


def test_a_failover_brings_no_lease_back_that_has_lapsed(tale):
    put_back(tale, token=5)
    tale.fault("replaced", 0.5, 1.0, voids=True)
    assert found(tale) == ["lifetime"]


def test_a_request_without_an_answer_may_have_renewed_a_lease(tale):
    tale.acquire("a", 0.0, 0.1, 5, ttl=1000)
    tale.request("a", "Refresh", [[["k", "a", 5, 1000]], True], 0.5, 0.6, error="StoreUnavailable")
    tale.look("b", 1.55, 1.6, ("a", 5, "held"))
    assert found(tale) == []


# Order.


def overtaken(tale, *, epoch_after=1):
    tale.acquire("z", 0.0, 0.1, 1)
    tale.queue("a", 0.2, 0.3, 1, by="z")
    tale.queue("b", 0.4, 0.5, 2, by="z")
    tale.release("z", 1.0, 1.1, 1)
    tale.acquire("b", 1.1, 1.2, 2, queue=["client-b", 2])
    tale.check("a", 1.3, 1.4, epoch_after)
    tale.release("b", 2.0, 2.1, 2)
    tale.acquire("a", 2.1, 2.2, 3, queue=["client-a", 1])
    tale.release("a", 2.3, 2.4, 3)


def test_a_waiter_that_is_overtaken_is_a_breach(tale):
    overtaken(tale)
    (violation,) = check(tale.history())
    assert violation.promise == "order"
    assert ("a", "Checking") in acts_of(violation)


def test_a_waiter_that_was_given_up_in_between_may_be_overtaken(tale):
    overtaken(tale, epoch_after=2)
    assert found(tale) == []


def newcomer(tale, *, live=True, claimed=False):
    tale.acquire("z", 0.0, 0.1, 1)
    tale.queue("a", 0.2, 0.3, 1, by="z")
    tale.release("z", 0.4, 0.5, 1)
    tale.acquire("b", 0.6, 0.7, 3)
    tale.line("watch", 0.80, 0.81, ("a", 1, live))
    leases = [("a", 2, "held")] if claimed else []
    tale.look("watch", 0.82, 0.83, ("b", 3, "held"), *leases)
    tale.release("b", 2.0, 2.1, 3)
    tale.acquire("a", 2.1, 2.2, 4, queue=["client-a", 1])
    tale.release("a", 2.3, 2.4, 4)


def test_a_newcomer_that_is_let_in_before_a_waiter_is_a_breach(tale):
    newcomer(tale)
    assert found(tale) == ["order"]


def test_a_waiter_that_was_not_seen_in_line_afterwards_may_have_been_struck(tale):
    newcomer(tale, live=False)
    assert found(tale) == []


def test_a_waiter_that_had_its_claim_first_was_not_overtaken(tale):
    newcomer(tale, claimed=True)
    assert found(tale) == []


def test_a_waiter_that_had_its_claim_first_may_confirm_it_last(tale):
    tale.acquire("z", 0.0, 0.1, 1, limit=2, weight=2)
    tale.queue("a", 0.2, 0.3, 1, by="z", limit=2)
    tale.queue("b", 0.4, 0.5, 2, by="z", limit=2)
    tale.release("z", 1.0, 1.1, 1)
    tale.acquire("b", 1.2, 1.3, 3, limit=2, queue=["client-b", 2])
    tale.line("watch", 1.4, 1.41, ("a", 1, True))
    tale.look("watch", 1.42, 1.43, ("a", 2, "held"), ("b", 3, "held"))
    tale.acquire("a", 1.6, 1.7, 2, limit=2, queue=["client-a", 1])
    assert found(tale) == []


# Liveness.


def test_a_waiter_that_sleeps_before_a_free_key_is_a_breach(tale):
    tale.acquire("z", 0.0, 0.1, 1)
    tale.queue("a", 0.2, 0.3, 1, by="z")
    tale.release("z", 1.0, 1.1, 1)
    tale.acquire("a", 9.0, 9.1, 2, queue=["client-a", 1])
    assert found(tale, stall=5.0) == ["liveness"]
    assert found(tale, stall=8.0) == []


def test_a_waiter_behind_a_lease_that_may_still_stand_is_none(tale):
    tale.acquire("z", 0.0, 0.1, 1, ttl=9000)
    tale.queue("a", 0.2, 0.3, 1, by="z", ttl=9000)
    tale.acquire("a", 9.5, 9.6, 2, queue=["client-a", 1])
    assert found(tale, stall=2.0) == []


def test_a_waiter_that_was_stopped_meanwhile_is_none(tale):
    tale.acquire("z", 0.0, 0.1, 1)
    tale.queue("a", 0.2, 0.3, 1, by="z")
    tale.release("z", 1.0, 1.1, 1)
    tale.fault("pause", 1.2, 20.0, "a")
    tale.acquire("a", 20.5, 20.6, 2, queue=["client-a", 1])
    assert found(tale) == []


def test_a_waiter_that_sleeps_through_the_faults_of_others_is_a_breach(tale):
    tale.acquire("z", 0.0, 0.1, 1)
    tale.queue("a", 0.2, 0.3, 1, by="z")
    tale.release("z", 1.0, 1.1, 1)
    tale.fault("pause", 1.2, 20.0, "b")
    tale.acquire("a", 20.5, 20.6, 2, queue=["client-a", 1])
    assert found(tale) == ["liveness"]


def test_a_joiner_that_was_told_of_the_end_of_its_run_does_not_sleep(tale):
    tale.acquire("z", 0.0, 0.1, 1)
    tale.queue("a", 0.2, 0.3, 1, by="z", join=0)
    tale.release("z", 1.0, 1.1, 1)
    tale.check("a", 1.2, 1.3, 1, ok_token=1)
    tale.mark(30.0)
    assert found(tale) == []


def test_a_joiner_that_nobody_told_of_the_end_of_its_run_sleeps(tale):
    tale.acquire("z", 0.0, 0.1, 1)
    tale.queue("a", 0.2, 0.3, 1, by="z", join=0)
    tale.release("z", 1.0, 1.1, 1)
    tale.mark(30.0)
    assert found(tale) == ["liveness"]


# What is told.


def test_a_violation_is_told_with_the_requests_that_show_it_and_no_others(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.acquire("b", 1.0, 1.1, 6)
    tale.acquire("c", 1.2, 1.3, busy=["b", 900, "held", 6, 0, 0])
    history = tale.history()
    (violation,) = check(history)
    text = explain(violation, history)
    assert "exclusion: 2 leases stood at once" in text
    assert "worker a: acquire by a 1 of 1 for 10000 ms -> granted token 5" in text
    assert "worker b: acquire by b 1 of 1 for 10000 ms -> granted token 6" in text
    assert "worker c" not in text


def test_a_line_that_was_cut_off_is_left_out_and_counted(tale):
    tale.acquire("a", 0.0, 0.1, 5)
    tale.history()
    with tale.path.open("a") as file:
        file.write('{"t": 3, "w": "b", "e": "ca')
    from joblock.verify import read_history

    history = read_history(tale.path)
    assert (len(history.acts), history.torn) == (1, 1)
