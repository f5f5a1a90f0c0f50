"""How a value that is refused is shown to whoever passed it."""

from __future__ import annotations

from typing import Any

LONGEST = 200
"""Characters that tell enough of a value."""


def shown(value: Any) -> str:
    """Its repr, without its middle if that is longer than anybody reads."""
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than Python writes out
        return f"a {type(value).__name__} too long to be shown"
    return shortened(text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """A text without its middle, if it is longer than that."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} ... ({len(text):,} characters) ... {text[-half:]}"
