"""Hooks by which the site reads the pages of docs/ (mkdocs.yml names this file)."""

import re

from mkdocs.structure.pages import Page


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """A page as the site shows it."""
    return (
        with_types(markdown) if page.file.src_uri == "reference/api.md" else as_on_github(markdown)
    )


def as_on_github(markdown: str) -> str:
    """A page whose tables the site reads as GitHub does.

    GitHub takes `\\|` in the code of a table for a pipe. Python-Markdown, which makes the site,
    takes the pipe as it is, and would show the backslash.
    """
    return re.sub(r"^\|.*$", _row, markdown, flags=re.MULTILINE)


def with_types(markdown: str) -> str:
    """api.md with what mkdocstrings says of each name; its text is for readers elsewhere."""
    return re.sub(r"^### (\w+)\n.*?(?=^##|\Z)", r"::: harness.\1\n\n", markdown, flags=re.M | re.S)


def _row(line: re.Match[str]) -> str:
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line[0])
