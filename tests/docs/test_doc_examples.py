"""Every example of the README and the docs runs, and prints what the page says it prints."""

from __future__ import annotations

from itertools import pairwise

import pytest
from doc_pages import RUNNABLE, Block, all_pages
from doc_sessions import PythonSession, ShellSession, commands_of, looks_like

PAGES = all_pages()

NOT_RUN = {
    ("README.md", "make try"): "sets up a virtual environment; CI runs it by itself",
    ("README.md", "make check"): "is what runs this very test",
    ("docs/fencing.md", "import redis"): "needs a server; tests/fencing does it with one",
    ("docs/fencing.md", "import psycopg"): "needs a server; tests/fencing does it with one",
    ("docs/from-redis-lock.md", "import redis"): "needs a server; its own test does it with one",
    ("docs/from-redis-lock.md", 'old = client.lock("reindex", timeout=600)'): "the same",
    ("docs/verify.md", "from joblock.verify import Plan, run"): "needs a server; see tests/verify",
    ("README.md", "pip install 'joblock[cli]'"): "would install over the package under test",
}
"""Blocks marked ``no-run``, by page and first line, and why each cannot run here."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_in_order_and_print_what_it_says(page, tmp_path):
    python, shell = PythonSession(tmp_path), ShellSession(tmp_path)
    try:
        for block, after in pairwise([*page.blocks, Block(page.name, 0, "", (), "")]):
            if block.runs and block.language == "console":
                shell.run(block)
            elif block.runs:
                printed = python.run(block)
                shown = after.text if _is_output(after) else ""
                assert looks_like(shown, printed), (
                    f"{page.name}:{block.line} prints\n{printed}\nand the page shows\n{shown}"
                )
    finally:
        python.close()
        shell.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shown_output_follows_what_prints_it(page):
    for before, block in pairwise([Block(page.name, 0, "", (), ""), *page.blocks]):
        if _is_output(block):
            assert before.runs, f"{page.name}:{block.line} is the output of no example"
            assert before.language == "python", f"{page.name}:{block.line}: show it in the console"


def test_blocks_that_do_not_run_are_few_and_each_has_a_reason():
    skipped = {
        (block.page, block.text.splitlines()[0])
        for page in PAGES
        for block in page.blocks
        if block.language in RUNNABLE and not block.runs
    }
    assert skipped == set(NOT_RUN)


def test_what_does_not_run_says_so_in_its_fence():
    silent = [
        f"{block.page}:{block.line}"
        for page in PAGES
        for block in page.blocks
        if block.language in RUNNABLE and not block.runs and "no-run" not in block.words
    ]
    assert silent == []


def test_output_is_matched_whole_but_for_its_dots():
    assert looks_like("a\n...\nb ... c\n", "a\nx\ny\nb 12 c\n")
    assert not looks_like("a ... b\n", "a x\ny b\n")
    assert not looks_like("a\n", "a\nb\n")
    assert not looks_like("", "a\n")


def test_a_console_block_is_taken_apart_into_commands_and_their_output():
    text = "$ one \\\n> two\nsaid\nmore\n$ three\n"
    commands = commands_of(Block("page", 7, "console", (), text))
    assert [command.text for command in commands] == ["one \\\ntwo", "three"]
    assert [command.output for command in commands] == ["said\nmore\n", ""]
    assert [command.line for command in commands] == [7, 11]


def _is_output(block: Block) -> bool:
    return block.language == "text" and "output" in block.words
