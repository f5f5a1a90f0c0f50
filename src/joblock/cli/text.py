"""Keys, moments and durations as a person at a terminal should see them."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

# Characters that count as printable although nothing is seen of them: fillers, variation selectors.
_UNSEEN = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)


def visible(text: str) -> str:
    r"""``text`` with all that could hide, imitate or do something on a terminal written out.

    Control characters become ``\x1b``, those that turn the direction of writing or are otherwise
    invisible ``\u202e``, blanks at either end ``\x20``, and a backslash ``\\``, so that two
    different texts never look the same for any of these.
    """
    shown = "".join(map(_character, text))
    inner = shown.strip(" ")
    if len(inner) == len(shown):
        return shown
    before = len(shown) - len(shown.lstrip(" "))
    after = len(shown) - len(inner) - before if inner else 0
    return "\\x20" * before + inner + "\\x20" * after


def _character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable() and character not in _UNSEEN:
        return character
    code = ord(character)
    if code < 0x100:  # noqa: PLR2004 - what two digits can write
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004


def brief(text: str, longest: int = 2_000) -> str:
    """``text`` without its middle, if it is longer: an argument may be as long as it likes."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} ... ({len(text):,} characters) ... {text[-half:]}"


def now() -> datetime:
    """This machine's time, to tell how long ago something was."""
    return datetime.now(UTC)


def moment(at: datetime) -> str:
    """A moment to the second, in UTC as the store gives it."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def span(duration: timedelta) -> str:
    """A duration in its two largest units, such as ``3m 2s``; nothing below zero."""
    seconds = max(0, int(duration.total_seconds()))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def say(message: str) -> None:
    """A message to whoever started this, on standard error."""
    write_error("\n".join(map(brief, f"joblock: {message}".split("\n"))) + "\n")


def write_error(text: str) -> None:
    """Write to standard error, if it is still there."""
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison] - it is if fd 2 is closed
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        return
