"""What pytest and its other plug-ins make of our options and cases, and cannot do for them."""

from __future__ import annotations

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
    names_of_options,
    root_for,
    say_if_refused,
    take_paths,
)

_WITH_VALUE: Final = WITH_VALUE | {short for short, name in LONG.items() if name in WITH_VALUE}
_CLOSE: Final = 0.75
"""How like an option of ours an unknown one is that may be meant for it."""
_REPEATING: Final = ("rerunfailures", "pytest-retry")
_RERUNS: Final = (
    "what only the lab failed is tried again without it (--retries N), and a verdict about the "
    "target stands; for how often it fails see `qnn-harness bisect --repeat N`"
)
_TIMEOUT: Final = (
    "That is no verdict: nobody knows what it would have come to. A plan has a deadline of its "
    "own, whose end is judged: bench.run(plan, timeout_s=...)"
)


def ignored_options(config: pytest.Config, cases: Sequence[pytest.Item]) -> list[str]:
    """What was asked of other plug-ins and is not done for these cases, and what to use instead."""
    if not any(map(config.pluginmanager.hasplugin, _REPEATING)):
        return []
    asked = ["--reruns"] if config.getoption("reruns", None) else []
    asked += ["--force-reruns"] if config.getoption("force_reruns", None) else []
    asked += ["reruns of the configuration"] if not asked and _ini(config, "reruns") else []
    marked = [case for case in cases if case.get_closest_marker("flaky") is not None]
    asked += [f"the mark flaky (on {len(marked)} of them)"] if marked else []
    for case in marked:  # pytest-retry repeats a test within its report, unless told not to
        case.add_marker(pytest.mark.flaky(condition=False), append=False)
    if not asked:
        return []
    return [f"cases with devices are not repeated for {' and '.join(asked)}: {_RERUNS}"]


def _ini(config: pytest.Config, name: str) -> object:
    try:
        return config.getini(name)
    except (KeyError, ValueError):  # an older version has only options
        return None


def told_by_timeout(failure: BaseException) -> str | None:
    """What to say of a failure that is a limit of pytest-timeout; None if it is not one."""
    trace, own, told = failure.__traceback__, "", False
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        told = told or module == "pytest_timeout"
        if not told and module.rpartition(".")[2].startswith("test_"):
            file = PurePath(trace.tb_frame.f_code.co_filename).name
            own = f", at {file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{str(failure).rstrip('.')} ended the case{own}. {_TIMEOUT}" if told else None


def words_after(options: Collection[str], words: Sequence[str]) -> list[tuple[str, str]]:
    """Those of `options` whose value is a word of its own, with that value (pure).

    Behind `--` there are no options.
    """
    words = words[: words.index("--")] if "--" in words else words
    found, here = [], iter(words)
    for word in here:
        if word in options and (value := next(here, None)) is not None:
            found.append((word, value))
    return found


def known_arguments(
    config: pytest.Config, parser: pytest.Parser, words: Sequence[str]
) -> Namespace:
    """What of its command line pytest knows before it runs a conftest.py; all paths that it has.

    Short forms that nobody has yet are taken for ours; what is wrong with them then may be right
    when a conftest.py has them. Should pytest refuse what it does not know, it says which option of
    ours may be meant. Before pytest 9, a path that stands behind an option is still unknown to it.
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
    if meant := ", ".join(name for one in close for name in one):
        say_if_refused(parser, "did you mean", meant)
    return known


def refuse_a_moved_rootdir(config: pytest.Config, known: Namespace) -> None:
    """Raises UsageError where the value of an option of ours moved pytest's root folder.

    The root folder decides which configuration counts, what tests are called and where reports go.
    pytest looks for it before plug-ins have options: in `--lab FILE` it takes FILE for a path of
    tests, but not in `--lab=FILE`.
    """
    here = config.invocation_params.dir
    given = [
        *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
        *map(str, config.invocation_params.args),
    ]
    taken = [(option, value) for option, value in words_after(_WITH_VALUE, given)]
    paths = [(option, value) for option, value in taken if _is_path(here, value)]
    if not paths:
        return
    for option, _ in taken:
        if option in given:
            del given[given.index(option) : given.index(option) + 2]
    tests = [word for word in given if not word.startswith("-") and _is_path(here, word)]
    root, file = root_for(config, known, tests)
    if (root, file) != (config.rootpath, config.inipath):
        better = " ".join(f"{option}={value}" for option, value in paths)
        raise pytest.UsageError(
            f"pytest took {paths[0][1]} for a path of tests, and {config.rootpath} for its root "
            f"folder instead of {root}; write {better}"
        )


def refuse_programs_beside_files(config: pytest.Config, known: Namespace) -> None:
    """Raises UsageError where pytest would run a program because it lies beside a named file.

    pytest imports the conftest.py of a file's folder and of those above, and takes its options from
    a pytest.ini there. Beside a file of contexts they may be somebody else's. They are only run in
    the folder where pytest is called, in those above, and in those that are named themselves.
    """
    here = config.invocation_params.dir
    paths = [Path(os.path.abspath(here / word.partition("::")[0])) for word in known.file_or_dir]
    files = [one for one in paths if one.suffix != ".py" and one.is_file()]
    named = [one for one in paths if one not in files]
    ours = [here, *named, *([config.rootpath] if known.rootdir else [])]
    for file in files:
        for folder in file.parents:
            if any(folder == one or folder in one.parents for one in ours):
                continue
            if any(one in folder.parents for one in named):
                continue
            program = folder / "conftest.py"
            ini = config.inipath
            if not known.noconftest and program.is_file():
                found, how = program, "--noconftest leaves it out"
            elif ini is not None and not known.inifilename and ini.parent == folder:
                found, how = ini, f"`-c {os.devnull} --rootdir=.` leaves it out"
            else:
                continue
            raise pytest.UsageError(
                f"pytest would run what {found} says, since it lies beside {file.name}; {how}, "
                f"`qnn-harness run` runs no such file, and --rootdir={folder} says that it is yours"
            )


def refuse_cases_of_one_name(cases: Sequence[pytest.Item]) -> None:
    """Raises ConfigError for two cases of one node id: their results could not be told apart.

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
