"""Which words of a command line choose cases (pure)."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence, Set
from functools import partial
from itertools import compress, product
from typing import TYPE_CHECKING, Final

from harness.run.pytest_plugin.options import OPTIONS, WITH_VALUE, in_long_forms
from harness.run.pytest_plugin.pytest_internals import marks_asked

if TYPE_CHECKING:
    import pytest

_NO_CASE: Final = {one.name: one for one in OPTIONS if not one.chooses}
# what a command line says besides which cases it means, of pytest's own options and of plug-ins
_SHORT: Final = ("-n", "-p", "-c", "-r", "-W")
_SHORT_FLAGS: Final = re.compile("-[dlqsvx]+")
"""Flags of one letter, also several in one word (`-xvs`)."""
# these have more options than are listed here, and some whose value may be left out
_TOLD_TO: Final = ("--cov", "--log-", "--json-report", "--reruns", "--metadata")
_MARK: Final = re.compile(r"[\w:+\-.\[\]/\\]+")
_MOST_MARKS: Final = 10
_VALUE_MAY_FOLLOW: Final = ("--cov", "--debug")
SAYS_NO_CASE: Final = frozenset(
    {
        *(name for name, one in _NO_CASE.items() if one.takes_value),
        *("--junitxml", "--junit-xml", "--junitprefix", "--junit-prefix", "--durations"),
        *("--durations-min", "--color", "--code-highlight", "--tb", "--show-capture", "--capture"),
        *("--verbosity", "--maxfail", "--rootdir", "--basetemp", "--config-file", "--pdbcls"),
        *("--pythonwarnings", "--max-warnings", "--report-chars", "--pastebin", *_SHORT),
        *("--dist", "--numprocesses", "--maxprocesses", "--max-worker-restart", "--maxschedchunk"),
        *("--timeout", "--timeout-method", "--session-timeout", "--reruns", "--reruns-delay"),
        *("--only-rerun", "--rerun-except", "--html", "--css", "--report-log"),
        *("--alluredir", "--allure-link-pattern", "--json-report-file", "--cov-report"),
        *("--cov-config", "--cov-fail-under", "--cov-context", "--cov-precision", "--log-level"),
        *("--log-format", "--log-date-format", "--log-cli-level", "--log-cli-format"),
        *("--log-file", "--log-file-mode", "--log-file-level", "--log-file-format"),
    }
)
FLAGS: Final = frozenset(
    {
        *(name for name, one in _NO_CASE.items() if not one.takes_value),
        *("--json", "--showlocals", "--no-showlocals", "--exitfirst", "--full-trace", "--pdb"),
        *("--no-header", "--no-summary", "--quiet", "--verbose", "--no-fold-skipped", "--xfail-tb"),
        *("--disable-warnings", "--disable-pytest-warnings", "--force-short-summary"),
        *("--strict", "--strict-markers", "--strict-config", "--setup-show", "--cache-clear"),
        *("--failed-first", "--ff", "--new-first", "--nf", "--loadscope-reorder"),
        *("--no-loadscope-reorder", "--self-contained-html", "--clean-alluredir"),
        *("--allure-no-capture", "--json-report", "--cov-append", "--cov-branch", "--cov-reset"),
        *("--no-cov", "--no-cov-on-fail"),
    }
)


def asks_for_devices(config: pytest.Config) -> bool:
    """Whether a run is about devices, as far as that is known before anything is collected."""
    return wants_devices(config.getoption("markexpr", ""))


def asks_for_devices_alone(config: pytest.Config) -> bool:
    """Whether `-m` takes no other tests."""
    return is_of_devices(config.getoption("markexpr", ""))


def wants_devices(expression: str) -> bool:
    """Whether `-m` takes some test because it is a device test (pure)."""
    return (True, False) in _taken(expression)


def is_of_devices(expression: str) -> bool:
    """Whether `-m` takes device tests alone: `device and smoke and not slow` (pure)."""
    return _taken(expression) in ({(True, False)}, {(True, False), (False, False)})


def _taken(expression: str) -> set[tuple[bool, bool]]:
    """Whether a device test is taken, and the same test if it were none.

    It has a pair for each way in which the test's other marks make a difference.
    """
    if (asked := marks_asked(expression)) is None:
        return set()
    others = sorted({*_MARK.findall(expression)} - {"device"})[:_MOST_MARKS]
    found: set[tuple[bool, bool]] = set()
    for has in product((False, True), repeat=len(others)):
        marks = {*compress(others, has)}
        taken, otherwise = (partial(_is_in, marks | own) for own in ({"device"}, set[str]()))
        found.add((asked(taken), asked(otherwise)))
    return found


def _is_in(marks: Set[str], name: str, /, **_more: object) -> bool:
    return name in marks


def selection(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line that choose cases, in one order.

    Versions choose none: with other versions the cases are the same.
    """
    return tuple(sorted(_words(deque(in_long_forms(command[1:])))))


def _words(words: deque[str]) -> Iterator[str]:
    while words:
        word = words.popleft()
        name, equals, value = word.partition("=")
        short = len(word) == 2 and word[0] == "-"
        if equals and name.startswith(_TOLD_TO):
            continue
        if word in _VALUE_MAY_FOLLOW:
            if words and not words[0].startswith("-"):
                words.popleft()
            continue
        if word in FLAGS or _SHORT_FLAGS.fullmatch(word) or (word[:2] in _SHORT and len(word) > 2):
            continue  # as in -nauto
        if short or name in WITH_VALUE or name in SAYS_NO_CASE:
            value = value if equals or not words else words.popleft()
            if name not in SAYS_NO_CASE:
                yield f"{name}={value}"
        else:
            yield word
