"""Conflicts with pytest and other plug-ins over options and cases."""

from __future__ import annotations

import contextlib
import copy
import os
import shlex
from argparse import Namespace
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePath
from typing import Final

import pytest

from harness.core.errors import ConfigError
from harness.plugin.options import LONG, WITH_VALUE, in_long_forms
from harness.plugin.pytest_internals import (
    add_usage_hint,
    names_of_options,
    root_for,
    take_paths,
)

_WITH_VALUE: Final = WITH_VALUE | {short for short, name in LONG.items() if name in WITH_VALUE}
_CLOSE: Final = 0.75
"""The similarity from which an unknown option is taken for a misspelt one of ours."""
_REPEATING: Final = ("rerunfailures", "pytest-retry")
"""The plug-ins that repeat tests."""
_RERUNS: Final = (
    "after a fault of the lab they are tried again anyway (--retries N), and a verdict about the "
    "target stands; `qnn-harness bisect --repeat N` measures how often a case fails"
)
_TIMEOUT: Final = (
    "That is no verdict: the result is not known. Use the deadline of the plan, which gives one: "
    "bench.run(plan, timeout_s=...)"
)


def ignored_options(config: pytest.Config, cases: Sequence[pytest.Item]) -> list[str]:
    """Return a warning about options of other plug-ins that do not apply to these cases."""
    if not any(map(config.pluginmanager.hasplugin, _REPEATING)):
        return []
    ignored = ["--reruns"] if config.getoption("reruns", None) else []
    ignored += ["--force-reruns"] if config.getoption("force_reruns", None) else []
    with contextlib.suppress(KeyError, ValueError):  # an older version has only options
        if not ignored and config.getini("reruns"):
            ignored = ["reruns of the configuration"]
    marked = [case for case in cases if case.get_closest_marker("flaky") is not None]
    ignored += [f"the mark flaky (on {len(marked)} of them)"] if marked else []
    for case in marked:  # otherwise pytest-retry repeats a test within its report
        case.add_marker(pytest.mark.flaky(condition=False), append=False)
    if not ignored:
        return []
    return [f"cases with devices are not repeated for {' and '.join(ignored)}: {_RERUNS}"]


def timeout_message(failure: BaseException) -> str | None:
    """Return the message for a failure of pytest-timeout; None for any other failure."""
    trace, line, is_timeout = failure.__traceback__, "", False
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        is_timeout = is_timeout or module == "pytest_timeout"
        if not is_timeout and module.rpartition(".")[2].startswith("test_"):
            file = PurePath(trace.tb_frame.f_code.co_filename).name
            line = f", at {file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{str(failure).rstrip('.')} ended the case{line}. {_TIMEOUT}" if is_timeout else None


def words_after(options: Collection[str], words: Sequence[str]) -> list[tuple[str, str]]:
    """Return those of `options` whose value is the next word, with that value (pure).

    There are no options after `--`.
    """
    words = words[: words.index("--")] if "--" in words else words
    pairs, remaining = [], iter(words)
    for word in remaining:
        if word in options and (value := next(remaining, None)) is not None:
            pairs.append((word, value))
    return pairs


def known_arguments(
    config: pytest.Config, parser: pytest.Parser, words: Sequence[str]
) -> Namespace:
    """Parse the command line before pytest runs a conftest.py, and add all its paths.

    Unclaimed short forms count as ours; an error in one is ignored, since a conftest.py may define
    it. If pytest refuses an unknown option, it will suggest one of ours. Before pytest 9, a path
    after an unknown option is unknown, too.
    """
    read, option = parser.parse_known_and_unknown_args, config.option
    try:
        known, more = read(in_long_forms(words, names_of_options(parser)), copy.copy(option))
    except pytest.UsageError:
        known, more = read(words, copy.copy(option))
    known.file_or_dir += [word for word in more if not word.startswith("-")]
    take_paths(config, known.file_or_dir)
    names = (word.partition("=")[0] for word in more if word.startswith("--"))
    ours = [name for pair in LONG.items() for name in pair]
    close = [get_close_matches(name, ours, 1, _CLOSE) for name in names]
    if meant := ", ".join(name for matches in close for name in matches):
        add_usage_hint(parser, "did you mean", meant)
    return known


def refuse_a_moved_rootdir(config: pytest.Config, known: Namespace) -> None:
    """Raise UsageError if the value of one of our options has moved pytest's root folder.

    The root folder determines the configuration, the names of tests and the place of reports.
    pytest finds it before plug-ins add options: in `--lab FILE` it takes FILE for a path of tests,
    but not in `--lab=FILE`.
    """
    here = config.invocation_params.dir
    arguments = [
        *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
        *map(str, config.invocation_params.args),
    ]
    options = [(option, value) for option, value in words_after(_WITH_VALUE, arguments)]
    paths = [(option, value) for option, value in options if _is_path(here, value)]
    if not paths:
        return
    for option, _ in options:
        if option in arguments:
            del arguments[arguments.index(option) : arguments.index(option) + 2]
    tests = [word for word in arguments if not word.startswith("-") and _is_path(here, word)]
    root, file = root_for(config, known, tests)
    if (root, file) != (config.rootpath, config.inipath):
        better = " ".join(f"{option}={value}" for option, value in paths)
        raise pytest.UsageError(
            f"pytest took {paths[0][1]} for a path of tests, and {config.rootpath} for its root "
            f"folder instead of {root}; write {better}"
        )


def refuse_programs_beside_files(config: pytest.Config, known: Namespace) -> None:
    """Raise UsageError if pytest would run a program because it is beside a named file.

    pytest imports the conftest.py of a file's folder and of those above, and reads a pytest.ini
    there. Beside a context file they may come from somebody else. They are only accepted in the
    folder where pytest is called, in those above it, and in folders that are named themselves.
    """
    here = config.invocation_params.dir
    paths = [Path(os.path.abspath(here / word.partition("::")[0])) for word in known.file_or_dir]
    files = [path for path in paths if path.suffix != ".py" and path.is_file()]
    named = [path for path in paths if path not in files]
    ours = [here, *named, *([config.rootpath] if known.rootdir else [])]
    for file in files:
        for folder in file.parents:
            if any(folder == path or folder in path.parents for path in ours):
                continue
            if any(path in folder.parents for path in named):
                continue
            program = folder / "conftest.py"
            ini = config.inipath
            if not known.noconftest and program.is_file():
                path, advice = program, "--noconftest leaves it out"
            elif ini is not None and not known.inifilename and ini.parent == folder:
                path, advice = ini, f"`-c {os.devnull} --rootdir=.` leaves it out"
            else:
                continue
            raise pytest.UsageError(
                f"pytest would run what {path} says, since it lies beside {file.name}; {advice}, "
                f"`qnn-harness run` runs no such file, and --rootdir={folder} says that it is yours"
            )


def refuse_cases_of_one_name(cases: Sequence[pytest.Item]) -> None:
    """Raise ConfigError for two cases of one node id, whose results would be mixed up.

    pytest names a file by its path below the root folder, or below the path that it was given.
    """
    first: dict[str, pytest.Item] = {}
    for case in cases:
        other = first.setdefault(case.nodeid, case)
        if other is case:
            continue
        if other.path == case.path:
            problem, advice = f"in {case.path} twice", "collect it once"
        else:
            common = os.path.commonpath([other.path, case.path])
            problem, advice = f"in {other.path} and in {case.path}", f"give --rootdir={common}"
        raise ConfigError(f"{case.nodeid} is {problem}; no two cases have one name: {advice}")


def _is_path(here: Path, word: str) -> bool:
    try:
        return (here / word.partition("::")[0]).exists()
    except OSError:
        return False
