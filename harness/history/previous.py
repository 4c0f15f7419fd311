"""The last run of the same selection: what `compare --previous` takes as its base."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from harness.errors import ConfigError
from harness.pytest_plugin.options import WITH_VALUE
from harness.results.rundir import JOURNAL, LATEST, RunFolder

# What a command line says besides which cases it means; the versions are what is compared.
_SHORT: Final = ("-n", "-p", "-c")
_SAYS_NO_CASE: Final = frozenset(
    {
        *("--qnn", "--ort", "--compiler", "--executorch", "--lab", "--reports", "--known-issues"),
        *("--preflight", "--retries", "--lease-timeout", "--fail-on", "--ahead", "--problem-file"),
        *("--resume", "--junitxml", "--durations", "--color", "--tb", "--timeout", "--dist"),
        *("--numprocesses", "--maxprocesses", "--rootdir", "--basetemp", *_SHORT),
    }
)
_FLAGS: Final = frozenset({"--strict-known", "--json", "-q", "-v", "-vv", "-s", "-x", "-ra"})


def previous_of(folder: RunFolder) -> RunFolder:
    """The last finished run before this one, beside it, that was asked for the same cases.

    Raises ConfigError if there is none.
    """
    reports, own = folder.path.parent, folder.info()
    wanted, started = selection(_command(own)), str(own.get("started"))
    names = sorted((one.parent.name for one in reports.glob(f"*/{JOURNAL}")), reverse=True)
    # names tell the second, run.json tells the rest
    for _, same_second in groupby((name for name in names if name != LATEST), _second):
        found = []
        for earlier in (RunFolder.open(reports / name) for name in same_second):
            info = earlier.info()
            before = str(info.get("started")) < started and earlier.run_id != folder.run_id
            if before and info.get("finished") and selection(_command(info)) == wanted:
                found.append((str(info["started"]), earlier.run_id, earlier))
        if found:
            return max(found)[2]
    raise ConfigError(
        f"has no finished run before {folder.run_id} that was asked for the same cases "
        f"({' '.join(wanted) or 'no words'})",
        file=reports,
        field="--previous",
        choices=["BASE NEW"],
    )


def selection(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line that choose cases, in one order (pure).

    Versions choose none: other ones are the same cases.
    """
    return tuple(sorted(_words(iter(command[1:]))))


def _second(run_id: str) -> str:
    return run_id.partition("-")[0]


def _words(command: Iterator[str]) -> Iterator[str]:
    for word in command:
        name, equals, value = word.partition("=")
        short = len(word) == 2 and word[0] == "-"
        if word in _FLAGS or (word[:2] in _SHORT and len(word) > 2):
            continue  # as in -nauto
        if short or name in WITH_VALUE or name in _SAYS_NO_CASE:
            value = value if equals else next(command, "")
            if name not in _SAYS_NO_CASE:
                yield f"{name}={value}"
        else:
            yield word


def _command(info: dict[str, Any]) -> list[str]:
    told = info.get("command")
    return [str(word) for word in told] if isinstance(told, list) else []
