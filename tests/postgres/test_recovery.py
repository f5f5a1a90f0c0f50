"""What is tried again after an error of PostgreSQL, of a pooler or of a connection."""

from __future__ import annotations

import pytest

from joblock.stores.postgres.faults import PATIENCE, PREPARED, Manner, Recovery, Trouble
from joblock.values.errors import StoreError


@pytest.mark.parametrize("code", sorted(PREPARED))
def test_any_number_of_connections_may_have_prepared_what_a_pooler_does_not_know(code):
    now = [0.0]
    manner = Manner("postgresql://pooler", "public")
    recovery = Recovery(manner, lambda: now[0])
    for _ in range(8):
        assert 0 <= recovery.after(Trouble("unknown", code, gone=True), lambda: now[0]) < 0.1
    assert not manner.prepared
    now[0] = PATIENCE
    assert recovery.after(Trouble("unknown", code, gone=True), lambda: now[0]) == 0
    with pytest.raises(StoreError):
        recovery.after(Trouble("unknown", code, gone=True), lambda: now[0])


def test_a_connection_that_was_idle_is_replaced_once():
    recovery = Recovery(Manner("postgresql://server", "public"))
    assert recovery.after(Trouble("closed", gone=True)) == 0
    with pytest.raises(StoreError):
        recovery.after(Trouble("closed", gone=True))
