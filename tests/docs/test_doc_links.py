"""Links between the pages lead somewhere, and every page can be reached from the README."""

from __future__ import annotations

import pytest
from doc_pages import ROOT, Page, all_pages

PAGES = [*all_pages(), *(Page(ROOT / name) for name in ("CHANGELOG.md", "CONTRIBUTING.md"))]
BY_NAME = {page.name: page for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_exist(page):
    dead = [f"{page.name}:{line}: {target}" for line, target in page.links() if _dead(page, target)]
    assert dead == []


def test_every_page_can_be_reached_from_the_readme():
    seen: set[str] = set()
    ahead = ["README.md"]
    while ahead:
        name = ahead.pop()
        if name not in seen and name in BY_NAME:
            seen.add(name)
            ahead += [_file(BY_NAME[name], target) for _, target in BY_NAME[name].links()]
    assert seen >= {page.name for page in all_pages()}


def test_the_readme_lists_exactly_the_stores_that_have_a_page():
    linked = {_file(BY_NAME["README.md"], target) for _, target in BY_NAME["README.md"].links()}
    stores = {page.name for page in PAGES if page.name.startswith("docs/stores/")}
    assert {name for name in linked if name.startswith("docs/stores/")} == stores


def _dead(page: Page, target: str) -> bool:
    if "://" in target or target.startswith("mailto:"):
        return False
    name, _, anchor = target.partition("#")
    file = _file(page, target) if name else page.name
    if not (ROOT / file).exists():
        return True
    return bool(anchor) and file in BY_NAME and anchor not in BY_NAME[file].anchors()


def _file(page: Page, target: str) -> str:
    name = target.partition("#")[0]
    path = (page.path.parent / name).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else name
