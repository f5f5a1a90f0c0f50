"""Loggers below ``joblock``, got when something is to be said: importing logging costs 15 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joblock.values.imports import importing

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

_get: list[Callable[[str], logging.Logger]] = []


def logger(name: str) -> logging.Logger:
    """The logger ``joblock.<name>``."""
    if not _get:
        with importing():
            import logging
        _get.append(logging.getLogger)
    return _get[0](f"joblock.{name}")
