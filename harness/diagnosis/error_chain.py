"""The chain of causes of a failed step, from the lines logged during it (pure).

The code that a call returns is often the last of several, and the least specific: 14001 (invalid
config) follows a DSP library that could not be opened.

`messages.tsv` has parts of messages as they are in the libraries and in their sources (`*` is any
short text), and their roles: `known` states a cause, `consequence` follows from one of several,
`benign` is no failure. A cause is a rule's id.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from importlib.resources import files
from typing import Final

from harness.core.error_codes import GPU_ERRORS, describe, unsigned
from harness.core.json_record import clean_text
from harness.diagnosis.error_record import ChainLink
from harness.diagnosis.line_patterns import first_name, only_pattern, patterns_of
from harness.probe.transcript import StepResult

_GAP: Final = ".{0,80}?"
_ROLES: Final = ("known", "consequence", "benign")


def read_messages(text: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the patterns of a table by (role, cause); benign ones have no cause.

    Raises ValueError for a row without three columns or with an unknown role.
    """
    patterns_of: dict[tuple[str, str], list[str]] = defaultdict(list)
    for number, line in enumerate(text.splitlines()[1:], 2):
        columns = line.split("\t")
        if len(columns) != 3 or columns[1] not in _ROLES:
            raise ValueError(f"messages.tsv:{number}: no pattern, role and cause: {line!r}")
        patterns_of[columns[1], columns[2]].append(columns[0])
    return {key: tuple(patterns) for key, patterns in patterns_of.items()}


@cache
def message_table() -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the patterns of the project's table."""
    return read_messages(files("harness.diagnosis").joinpath("messages.tsv").read_text("utf-8"))


@cache
def messages_of(role: str, cause: str = "") -> str:
    """Return a regular expression for all messages of a role and cause; empty if there are none."""
    patterns = message_table().get((role, cause), ())
    return "|".join(_GAP.join(map(re.escape, pattern.split("*"))) for pattern in patterns)


MAX_LINKS: Final = 40
MAX_LINE_CHARS: Final = 1000
"""The most characters of a line that are searched."""
_MAX_LINK_CHARS: Final = 500

# Some versions put the level before each line.
_LEVEL: Final = re.compile(r"^\s*<[EWIVD]>\s*")
# ORT appends the location in its source to each line.
_PLACE: Final = re.compile(r"\s*\[[\w./-]+\.(?:cc|cpp|h|hpp):\d+ [^\]]{0,200}\]\s*$")


def failure_chain(step: StepResult) -> tuple[ChainLink, ...]:
    """Return the causes of a failed step in order; the result of the call is the last link.

    The links are the library's error lines, each once, and warnings about a failure right before
    one. There are at most 40 links.
    """
    if not step.code and step.error is None:
        return _logged(step)
    info = None if step.code is None else describe(step.code, api=step.api)
    message = step.message or step.error or (info.note if info else None) or ""
    return call_chain(step, code=step.code, symbol=step.symbol, message=message)


def call_chain(
    step: StepResult, *, code: int | None, symbol: str | None, message: str
) -> tuple[ChainLink, ...]:
    """Return the chain of a step whose call returned this code and message."""
    info = None if code is None else describe(code, api=step.api)
    returned = ChainLink(
        code=code,
        hex=info.hex if info else None,
        symbol=symbol or (info.symbol if info else None),
        component=info.component if info else None,
        message=str(clean_text(message))[:_MAX_LINK_CHARS],
        source="call",
    )
    return (*_logged(step), returned)


def is_benign(line: str) -> bool:
    """Return whether a line of a log is no failure."""
    text = line[:MAX_LINE_CHARS]
    named = first_name("benign", text) or first_name("echo", text)
    return named is not None or re.search(messages_of("benign"), text, re.I) is not None


def _logged(step: StepResult) -> tuple[ChainLink, ...]:
    return tuple(link_of(text) for text in _failing_lines(step)[: MAX_LINKS - 1])


def error_lines(step: StepResult) -> list[str]:
    """Return the library's first 40 distinct error lines of a step, without benign ones."""
    texts = (_plain(line.text) for line in step.logs if line.level == "error")
    return list(dict.fromkeys(text for text in texts if _is_relevant(text)))[:MAX_LINKS]


def _failing_lines(step: StepResult) -> list[str]:
    failing: dict[str, None] = {}
    warnings: list[str] = []
    for line in step.logs:
        text = _plain(line.text)
        if not _is_relevant(text):
            continue
        if line.level == "error":
            failing.update(dict.fromkeys([*warnings, text]))
            warnings = []
        elif line.level == "warn" and only_pattern("failing warning").search(text):
            warnings.append(text)
        else:
            warnings = []
    return list(failing or dict.fromkeys(warnings))


def link_of(text: str) -> ChainLink:
    """Return the link of a logged line, with the code in it if there is one."""
    text = text[:_MAX_LINK_CHARS]
    of_gpu = (pattern.search(text) for _, pattern in patterns_of("gpu code"))
    if named := next(filter(None, of_gpu), None):
        number = int(named["number"])
        name = named.groupdict().get("name") or GPU_ERRORS.get(number)
        return ChainLink(code=number, hex=hex(number), symbol=name, message=text, source="log")
    for _, pattern in patterns_of("code"):
        for digits in pattern.findall(text):
            number = int(digits, 0) if digits[:2] in ("0x", "0X") else int(digits)
            info = describe(unsigned(number))
            known = info.component == "dsp" or (info.raw <= 0xFFFF and info.symbol is not None)
            if known and info.component != "none":
                return ChainLink(
                    code=info.raw,
                    hex=info.hex,
                    symbol=info.symbol,
                    component=info.component,
                    message=text,
                    source="log",
                )
    return ChainLink(message=text, source="log")


def _plain(text: str) -> str:
    return str(clean_text(_PLACE.sub("", _LEVEL.sub("", text)).strip()))


def _is_relevant(text: str) -> bool:
    return bool(text) and not is_benign(text)
