"""What makes two failures the same: API, code, and the message without what varies (pure)."""

from __future__ import annotations

import re
from typing import Final

MAX_CHARS: Final = 300

# In this order: each takes out what a later one would take apart. A placeholder holds nothing
# that any of them matches, and none matches right behind one, so that a second pass changes
# nothing.
_VARYING: Final = (
    (re.compile(r"(?<![\w<>])(?:/[\w.+@~%:-]+)+/?"), "<path>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I), "<uuid>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.I), "<hex>"),
    (re.compile(r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b", re.I), "<hex>"),
    (re.compile(r"(?:(?<![\w>.)])[-+])?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", re.I), "<n>"),
)
_SPACE = re.compile(r"\s+")


def signature(api: str | None, code: int | None, message: str) -> str:
    """`api|code|message`, the same for two failures that differ only in what varies by chance.

    Numbers, addresses, hashes, UUIDs and absolute paths are taken out of the message; lines that
    then are equal count once. At most 300 characters of it are used. A missing part is "-".
    """
    return f"{api or '-'}|{'-' if code is None else code}|{without_varying_parts(message) or '-'}"


def without_varying_parts(message: str) -> str:
    """The message as it stands in a signature; applied twice it changes nothing more."""
    lines = (_plain(line) for line in message[: 20 * MAX_CHARS].splitlines())
    text = " / ".join(dict.fromkeys(line for line in lines if line))
    return text[:MAX_CHARS].rstrip()


def _plain(line: str) -> str:
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return _SPACE.sub(" ", line).strip()
