"""The page on the command line knows every command and each of its options."""

from __future__ import annotations

import re

import click
import pytest
from doc_pages import ROOT, Page

from joblock.cli.app import joblock as command_line

TEXT = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
CONTEXT = click.Context(command_line)
NAMES = command_line.list_commands(CONTEXT)
SECTIONS = dict(re.findall(r"^## ([\w ]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def _options(name):
    command = command_line.get_command(CONTEXT, name)
    return [each.opts for each in command.params if isinstance(each, click.Option)]


def test_every_command_is_in_the_table():
    rows = Page(ROOT / "docs" / "command-line.md").table("command")
    listed = [re.search(r"`joblock (\w+)", row[0])[1] for row in rows]
    assert listed == NAMES


@pytest.mark.parametrize("name", sorted(set(NAMES) & set(SECTIONS)))
def test_every_option_of_a_command_is_told_of(name):
    text = SECTIONS[name] + SECTIONS["The store"]
    missing = [names for names in _options(name) if not any(f"`{one}" in text for one in names)]
    assert missing == []
