"""A shell takes what a reader copies from the site."""

from pathlib import Path

import markdown
import pytest

import harness
from tests.site_pages import as_on_github, with_types

DOCS = Path(__file__).parents[2] / "docs"
WITH_PIPES = [path for path in sorted(DOCS.rglob("*.md")) if "\\|" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", WITH_PIPES, ids=lambda path: path.name)
def test_a_pipe_in_a_table_has_no_backslash(path: Path) -> None:
    page = as_on_github(path.read_text("utf-8"))
    assert "\\|" not in markdown.markdown(page, extensions=["tables"])


def test_the_site_says_each_public_name_by_mkdocstrings() -> None:
    page = with_types((DOCS / "reference/api.md").read_text("utf-8"))
    named = [line.removeprefix("::: harness.") for line in page.splitlines() if line[:3] == ":::"]
    assert sorted(named) == sorted(harness.__all__)
    assert "### " not in page
    assert page.count("```python") == page.count("## ")
