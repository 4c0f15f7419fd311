"""A shell takes what a reader copies from the site."""

from pathlib import Path

import markdown
import pytest

from tests.site_pages import on_page_markdown

DOCS = Path(__file__).parents[2] / "docs"
WITH_PIPES = [path for path in sorted(DOCS.rglob("*.md")) if "\\|" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", WITH_PIPES, ids=lambda path: path.name)
def test_a_pipe_in_a_table_has_no_backslash(path: Path) -> None:
    page = on_page_markdown(path.read_text("utf-8"))
    assert "\\|" not in markdown.markdown(page, extensions=["tables"])
