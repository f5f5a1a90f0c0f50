"""Whoever is measured: one module per contender, which says in its first lines what it is.

A module states

- ``NAME``, as the tables show it, ``KIND`` (``floor``, ``ours`` or ``peer``) and ``GIVES``, what a
  caller gets for the time: two contenders are alike only where that is alike;
- ``STORE``: ``redis``, ``postgres``, ``files``, ``memory``, or ``any`` of them;
- ``REQUIRES``, for a peer: what pip installs into an environment of its own (`benchmarks.peers`);
- ``make(url, key)`` and/or ``make_async(url, key)``: set up, and return a function that gives a
  fresh context manager at each call. What they need is imported in them, so that the facts above
  can be read where nothing of it is installed;
- ``BLOCKING``: whether entering waits until the key is free;
- ``arrival(entry)``: the place in the queue of the waiter that a context manager gave ``entry`` to;
  0 for none. ``watch_arrivals()`` is called before anything is made where that is wanted;
- ``make_kept(url, ttl)``, where leases are renewed: a function of a key that gives the same.
"""

from __future__ import annotations

import hashlib
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".venv-peers"


def load(name: str) -> ModuleType:
    """The contender's module."""
    return import_module(f"benchmarks.contenders.{name}")


def names() -> list[str]:
    """Every contender there is."""
    files = Path(__file__).parent.glob("[a-z]*.py")
    return sorted(file.stem for file in files if file.stem != "shape")


def requires(contender: ModuleType) -> tuple[str, ...]:
    """What pip installs for it; nothing where the project's own environment will do."""
    return getattr(contender, "REQUIRES", ())


def mark(contender: ModuleType) -> str:
    """Tells one set of requirements from another."""
    return hashlib.sha256("\n".join(requires(contender)).encode()).hexdigest()


def python(name: str) -> str | None:
    """The interpreter that a contender runs in; None where its environment was not made."""
    contender = load(name)
    if not requires(contender):
        return sys.executable
    place = ENVIRONMENTS / name
    made = place / "made"
    if not made.is_file() or made.read_text() != mark(contender):
        return None
    return str(place / "bin" / "python")
