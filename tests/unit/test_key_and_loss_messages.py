"""What a caller is told who passes no key, or uses a lease that is gone."""

from __future__ import annotations

import pytest

from joblock import LockLost
from joblock.values.names import full_key


@pytest.mark.parametrize("key", [5, None, b"a", ["a", "b"], {"a": 1}, {"a"}])
def test_what_is_no_text_is_refused_as_a_key_and_shown(key):
    with pytest.raises(TypeError, match="a key is text") as refusal:
        full_key("shop:", key)
    assert repr(key) in str(refusal.value)


def test_using_a_released_lease_is_not_called_a_loss_that_may_have_overlapped():
    text = str(LockLost("reindex", "me:1", 7, "released"))
    assert "it was released before" in text
    assert "overlapped" not in text


def test_a_loss_says_that_another_run_may_have_overlapped():
    assert "overlapped" in str(LockLost("reindex", "me:1", 7, "deadline"))
