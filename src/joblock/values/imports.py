"""What is imported only when it is first used is imported so that no fork falls into it.

A module that another thread was importing at a fork stays locked in the child for ever: whoever
imports it there hangs. So whatever joblock imports late it imports inside ``importing()``, and a
fork waits until nobody is in there. Inside it nothing but imports may be done, and above all no
lock of ours may be taken: who has one may come to import something.

Such a module tells what it does around forks here: what it would tell the interpreter while a fork
waits for it to be imported would not be done before that fork.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock, get_ident

TYPE_CHECKING = False  # see joblock/__init__.py

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PATIENCE = 10.0
"""Seconds that a fork waits for an import at most: one that hangs must not keep others from it."""

# logging takes its own lock before each fork too. Loaded after this module it does so before a fork
# waits here, while what is imported may need it; loaded while a fork waits it never does, and gives
# it back all the same.
_LOGGING_IS_LATE = "logging" not in sys.modules

_lock = RLock()
_hooks: list[tuple[Callable[[], None], Callable[[], None]]] = []
_locked: set[int] = set()
_done: dict[int, list[Callable[[], None]]] = {}


def importing() -> Any:
    """A context to import something in."""
    return _lock


def around_forks(before: Callable[[], None], after_in_parent: Callable[[], None]) -> None:
    """Call ``before`` before each fork, and the other in the parent if it was called."""
    _hooks.append((before, after_in_parent))


def _before_fork() -> None:
    me = get_ident()
    # It takes that lock from somewhere in the middle of its import on.
    theirs = _lock_of_logging(loading=True)
    had = theirs is not None and theirs._is_owned()  # noqa: SLF001
    if theirs is not None and had:
        theirs.release()
    if _lock.acquire(timeout=PATIENCE):
        _locked.add(me)
    theirs = theirs if had else _lock_of_logging(loading=False)
    if theirs is not None and not theirs._is_owned():  # noqa: SLF001
        theirs.acquire()
    done = _done[me] = []
    for before, after_in_parent in tuple(_hooks):
        before()
        done.append(after_in_parent)


def _lock_of_logging(*, loading: bool) -> Any:
    """That lock, if it is there; also while logging is being imported, if ``loading``."""
    module = sys.modules.get("logging") if _LOGGING_IS_LATE else None
    spec: Any = getattr(module, "__spec__", None)
    if spec is None or (getattr(spec, "_initializing", False) and not loading):
        return None
    return getattr(module, "_lock", None)


def _after_fork_in_parent() -> None:
    me = get_ident()
    for after_in_parent in reversed(_done.pop(me, [])):
        after_in_parent()
    if me in _locked:
        _locked.discard(me)
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603 - what it was may never be given back
    _locked.clear()
    _done.clear()
    _lock = RLock()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
