"""The whole examination: the look at the set-up, then the trial."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from joblock.doctor.report import Finding, Look, Report, broken, good, note, unchecked
from joblock.doctor.trial import try_out
from joblock.stores.notified import NotifiedStore
from joblock.stores.registry import open_store
from joblock.values.errors import StoreMisconfigured
from joblock.values.names import checked_prefix

if TYPE_CHECKING:
    from joblock.store.contract import Store

_KINDS = ("memory", "postgres", "redis", "sqlite")


def examine(store: Any = None, *, prefix: str | None = None) -> Report:
    """Look at a store as it is set up, and try it out; it is left as it was found.

    ``store`` and ``prefix`` are what `joblock.JobLocks` takes. A lease is taken under a key of its
    own; no table and no lease file is made that was not there. Raises StoreUnavailable if the
    store cannot be reached, ValueError for a URL that cannot be read.
    """
    prefix = os.environ.get("JOBLOCK_PREFIX", "") if prefix is None else prefix
    opened = open_store(store)
    findings: list[Finding] = []
    try:
        look = _look(opened)
        findings += look.findings
        try:
            findings += _prefix(prefix)
            if look.trial is not None:
                findings += try_out(look.trial, prefix, reached=look.reached)
        finally:
            look.clean_up()
    except StoreMisconfigured as error:
        findings.append(_refused(error))
    finally:
        if opened is not store:
            opened.close()
    return Report(opened.url, tuple(findings))


def _look(store: Store) -> Look:
    if isinstance(store, NotifiedStore):
        inner: Store = store._store  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        look = _look(inner)
        # Tried out with its notifier, since that is what waiters depend on.
        return look._replace(trial=store) if look.trial is inner else look
    module = type(store).__module__.split(".")
    if module[:2] == ["joblock", "stores"] and module[2] in _KINDS:
        return import_module(f"joblock.doctor.{module[2]}").look(store)
    found = f"nothing is known here of how a {type(store).__qualname__} should be set up"
    return Look([unchecked("settings", found)], store)


def _refused(error: StoreMisconfigured) -> Finding:
    return broken(
        "set-up",
        str(error),
        "no lease can be had here",
        "what the message says, or name another store",
    )


def _prefix(prefix: str) -> list[Finding]:
    try:
        checked_prefix(prefix)
    except (TypeError, ValueError) as error:
        return [broken("prefix", str(error), "no key can be locked", "set another JOBLOCK_PREFIX")]
    if prefix:
        return [note("prefix", f"every key begins with {prefix!r}", "all must say the same")]
    return [good("prefix", "none")]
