"""A hook by which the site reads the pages of docs/ (mkdocs.yml names this file)."""

import re


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page whose tables the site reads as GitHub does.

    GitHub takes `\\|` in the code of a table for a pipe. Python-Markdown, which makes the site,
    takes the pipe as it is, and would show the backslash.
    """
    return re.sub(r"^\|.*$", _row, markdown, flags=re.MULTILINE)


def _row(line: re.Match[str]) -> str:
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line[0])
