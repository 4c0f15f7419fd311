"""Each page of docs/ says first whom it is for, and has its place among the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


def navigation() -> dict[str, list[str]]:
    """The pages of each part of the site."""
    text = re.sub(r"^.*!!python.*$", "", (ROOT / "mkdocs.yml").read_text("utf-8"), flags=re.M)
    parts = yaml.safe_load(text)["nav"]
    return {name: pages for part in parts if isinstance(part, dict) for name, pages in part.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_first_whom_it_is_for(name: str) -> None:
    title, *paragraphs = (ROOT / "docs" / name).read_text("utf-8").split("\n\n")
    assert re.fullmatch(r"# \S.*", title)
    first = next(one.strip() for one in paragraphs if not one.startswith("<!--"))
    assert first.startswith("For whoever "), first
    assert "\n" not in first or len(first) < 400, "one short paragraph"


def test_each_page_stands_in_one_part() -> None:
    parts = navigation()
    assert list(parts) == ["Tutorials", "How to", "Reference", "Explanation"]
    listed = [page for pages in parts.values() for page in pages]
    assert sorted([*listed, "index.md"]) == PAGES


def test_the_tutorials_begin_with_four_first_times() -> None:
    first = ["first-file.md", "first-test.md", "android.md", "first-night.md"]
    assert navigation()["Tutorials"][:4] == first


def test_readme_is_the_first_minute() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150
