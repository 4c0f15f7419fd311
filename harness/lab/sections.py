"""Cuts a device's answer into its named parts, and reads what several scripts ask (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MARK: Final = "@qnn-harness:"
"""What begins the line in front of each part."""


def sections_of(text: str) -> dict[str, list[str]]:
    """{name: its lines, stripped, without empty ones}; what stands before the first is dropped."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if line.startswith(MARK):
            lines = sections.setdefault(line.removeprefix(MARK).strip(), [])
        elif line.strip():
            lines.append(line.strip())
    return sections


def first_line(sections: Mapping[str, list[str]], name: str) -> str | None:
    """The first line of a part, at most 200 characters; None if there is none."""
    lines = sections.get(name) or [""]
    return lines[0][:200] or None


def integer(text: str | None) -> int | None:
    """A plain decimal number of at most 18 digits, else None."""
    return int(text) if text and re.fullmatch(r"\d{1,18}", text) else None


def free_storage(lines: list[str]) -> int | None:
    """Bytes free as `df -k` says for one folder."""
    # Long device names make some df break a row in two: the numbers are found from the right.
    fields = " ".join(lines[1:]).split()
    for index in range(len(fields) - 1, 2, -1):
        if re.fullmatch(r"\d{1,3}%", fields[index]) and fields[index - 1].isdigit():
            return int(fields[index - 1][:18]) * 1024
    return None
