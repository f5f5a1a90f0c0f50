"""The pages a user reads, taken apart: fenced blocks, headings, links, tables.

How a block is run is said by its fence:

- ``python`` is executed; ``text output`` after it is what it prints.
- ``console`` holds commands after ``$`` (``>`` goes on with one) and what each of them prints.
- ``no-run`` in the fence keeps a block from running; `test_doc_examples` lists why.
- ``pyi`` holds signatures, which `test_doc_reference` holds against the code.
- Whatever else is only shown.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
RUNNABLE = ("python", "console", "sh", "bash", "shell", "pycon")

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`]*)$")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<text>.*?) *$")


class Block(NamedTuple):
    """A fenced block: its language, the other words of its fence, its first line's number."""

    page: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def runs(self) -> bool:
        return self.language in ("python", "console") and "no-run" not in self.words


class Page:
    """One Markdown file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.relative_to(ROOT).as_posix()
        self.blocks: list[Block] = []
        self.prose: list[tuple[int, str]] = []
        self._read(path.read_text(encoding="utf-8").splitlines())

    def _read(self, lines: list[str]) -> None:
        numbered = iter(enumerate(lines, 1))
        for number, line in numbered:
            fence = _FENCE.match(line)
            if fence is None:
                self.prose.append((number, line))
                continue
            indent, (language, *words) = fence["indent"], fence["info"].split() or [""]
            inside: list[str] = []
            for _, inner in numbered:
                if inner.strip() == "```":
                    break
                inside.append(inner.removeprefix(indent))
            else:
                raise AssertionError(f"{self.name}:{number}: the block is never closed")
            text = "".join(f"{inner}\n" for inner in inside)
            self.blocks.append(Block(self.name, number + 1, language, tuple(words), text))

    def links(self) -> list[tuple[int, str]]:
        """Where each link of the prose points, with its line."""
        return [
            (number, match["target"])
            for number, line in self.prose
            for match in _LINK.finditer(re.sub(r"`[^`]*`", "``", line))
        ]

    def anchors(self) -> set[str]:
        """What can stand after # in a link to this page, as GitHub makes it of the headings."""
        found: set[str] = set()
        for _, line in self.prose:
            heading = _HEADING.match(line)
            if heading is not None:
                kept = re.sub(r"[^\w\- ]", "", heading["text"].lower())
                found.add(kept.strip().replace(" ", "-"))
        return found

    def table(self, first_heading: str) -> list[list[str]]:
        """The rows of the table whose first column has that heading."""
        rows: list[list[str]] = []
        found = False
        for _, line in self.prose:
            cells = [
                cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]
            ]
            if not cells:
                found = found and not rows
            elif found and not set(cells[0]) <= set("-: "):
                rows.append(cells)
            elif cells[0] == first_heading:
                found = True
        return rows


def all_pages() -> list[Page]:
    """What a user reads."""
    return [Page(ROOT / "README.md"), *map(Page, sorted((ROOT / "docs").rglob("*.md")))]
