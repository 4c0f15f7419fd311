"""Which words of a command line choose cases (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from harness.run.pytest_plugin.options import OPTIONS, WITH_VALUE

if TYPE_CHECKING:
    import pytest

_NO_CASE: Final = {one.name: one for one in OPTIONS if not one.chooses}
# what a command line says besides which cases it means, of pytest's own options
_SHORT: Final = ("-n", "-p", "-c", "-r", "-W")
# these have more options than are listed here, and some whose value may be left out
_TOLD_TO: Final = ("--cov", "--log-", "--json-report")
SAYS_NO_CASE: Final = frozenset(
    {
        *(name for name, one in _NO_CASE.items() if one.takes_value),
        *("--junitxml", "--durations", "--color", "--tb", "--timeout", "--dist"),
        *("--numprocesses", "--maxprocesses", "--rootdir", "--basetemp", "--maxfail", *_SHORT),
        *("--html", "--css", "--alluredir", "--cov-report", "--cov-config", "--report-log"),
        *("--log-level", "--log-cli-level", "--log-file", "--log-file-level", "--show-capture"),
        *("--json-report-file", "--verbosity", "--capture", "--durations-min", "--pythonwarnings"),
    }
)
FLAGS: Final = frozenset(
    {
        *(name for name, one in _NO_CASE.items() if not one.takes_value),
        *("--json", "-q", "-qq", "-v", "-vv", "-vvv", "-s", "-x", "-l", "--showlocals"),
        *("--no-header", "--no-summary", "--quiet", "--verbose", "--exitfirst"),
        *("--self-contained-html", "--clean-alluredir", "--cov", "--no-cov", "--json-report"),
    }
)


def asks_for_devices(config: pytest.Config) -> bool:
    """Whether a run is about devices, as far as that is known before anything is collected."""
    return "device" in str(config.getoption("markexpr", ""))


def is_of_devices(expression: str) -> bool:
    """Whether `-m` chooses device tests alone: `device and smoke and not slow` (pure)."""
    words = expression.replace("not ", "not-").split()
    return "device" in words[::2] and set(words[1::2]) <= {"and"}


def selection(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line that choose cases, in one order.

    Versions choose none: with other versions the cases are the same.
    """
    return tuple(sorted(_words(iter(command[1:]))))


def _words(command: Iterator[str]) -> Iterator[str]:
    for word in command:
        name, equals, value = word.partition("=")
        short = len(word) == 2 and word[0] == "-"
        if equals and name.startswith(_TOLD_TO):
            continue
        if word in FLAGS or (word[:2] in _SHORT and len(word) > 2):
            continue  # as in -nauto
        if short or name in WITH_VALUE or name in SAYS_NO_CASE:
            value = value if equals else next(command, "")
            if name not in SAYS_NO_CASE:
                yield f"{name}={value}"
        else:
            yield word
