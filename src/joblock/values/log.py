"""Loggers below ``joblock``, got when something is to be said: importing logging costs 15 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger(name: str) -> logging.Logger:
    """The logger ``joblock.<name>``."""
    import logging

    return logging.getLogger(f"joblock.{name}")
