"""For tests: a clock turned by hand, and the contract suite that any store must pass.

The suite is imported only when it is asked for, since it needs pytest; the clock does not. How to
run it on a store of one's own is told in `joblock.testing.contract`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from joblock.testing.clock import ManualClock

if TYPE_CHECKING:
    from joblock.testing.contract import ManualHarness, StoreContract, StoreHarness

__all__ = ["ManualClock", "ManualHarness", "StoreContract", "StoreHarness"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from joblock.testing import contract

    return getattr(contract, name)
