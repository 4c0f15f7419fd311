"""Conflicts with pytest and other plug-ins over options and cases."""

from __future__ import annotations

import contextlib
import copy
import os
import shlex
import traceback
from argparse import Namespace
from collections.abc import Generator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from harness.core.errors import ConfigError
from harness.plugin.options import LONG, WITH_VALUE, in_long_forms
from harness.plugin.pytest_internals import names_of_options, root_for, take_paths

_WITH_VALUE: Final = WITH_VALUE | {short for short, name in LONG.items() if name in WITH_VALUE}
_TIMEOUT: Final = (
    "The case has no verdict; to get one, set a deadline in the test: "
    "bench.run(plan, timeout_s=...)"
)

LIMIT: Final = pytest.StashKey[Any]()
"""The settings of pytest-timeout for each attempt at a case."""


@contextlib.contextmanager
def time_limit(item: pytest.Item) -> Generator[None]:
    """Limit an attempt at a case as pytest-timeout is told to.

    Its own limit includes the wait for a device, where its exception would end the run.
    """
    settings = item.stash.get(LIMIT, None)
    if settings is None:
        yield
        return
    item.ihook.pytest_timeout_set_timer(item=item, settings=settings)
    try:
        yield
    finally:
        item.ihook.pytest_timeout_cancel_timer(item=item)


def timeout_message(failure: BaseException) -> str | None:
    """Return the message for a failure of pytest-timeout; None for any other failure."""
    frames = (frame for frame, _ in traceback.walk_tb(failure.__traceback__))
    if any(frame.f_globals.get("__name__") == "pytest_timeout" for frame in frames):
        return f"{str(failure).rstrip('.')} ended the case. {_TIMEOUT}"
    return None


def known_arguments(
    config: pytest.Config, parser: pytest.Parser, words: Sequence[str]
) -> Namespace:
    """Parse the command line before pytest runs a conftest.py, and add all its paths.

    Unclaimed short forms count as ours; an error in one is ignored, since a conftest.py may define
    it. Before pytest 9, a path after an unknown option is unknown, too.
    """
    read, option = parser.parse_known_and_unknown_args, config.option
    try:
        known, more = read(in_long_forms(words, names_of_options(parser)), copy.copy(option))
    except pytest.UsageError:
        known, more = read(words, copy.copy(option))
    known.file_or_dir += [word for word in more if not word.startswith("-")]
    take_paths(config, known.file_or_dir)
    return known


def refuse_a_moved_rootdir(config: pytest.Config, known: Namespace) -> None:
    """Raise UsageError if the value of one of our options has moved pytest's root folder.

    The root folder determines the configuration, the names of tests and the place of reports.
    pytest finds it before plug-ins add options: in `--lab FILE` it takes FILE for a path of tests,
    but not in `--lab=FILE`.
    """
    here = config.invocation_params.dir
    words = [
        *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")),
        *map(str, config.invocation_params.args),
    ]
    values = {value: option for option, value in pairwise(words) if option in _WITH_VALUE}
    tests = [word for word in words if word not in values and _is_path(here, word)]
    root, file = root_for(config, known, tests)
    if values and (root, file) != (config.rootpath, config.inipath):
        better = " ".join(f"{o}={value}" for value, o in values.items() if _is_path(here, value))
        raise pytest.UsageError(
            f"pytest read the value of an option as a path of tests, and chose {config.rootpath} "
            f"as its root folder instead of {root}; write {better}"
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
            if any(folder == path or folder in path.parents for path in ours) or any(
                path in folder.parents for path in named
            ):
                continue
            program = folder / "conftest.py"
            ini = config.inipath
            if not known.noconftest and program.is_file():
                path, option = program, "--noconftest"
            elif ini is not None and not known.inifilename and ini.parent == folder:
                path, option = ini, f"`-c {os.devnull} --rootdir=.`"
            else:
                continue
            raise pytest.UsageError(
                f"pytest would execute {path}, which is in the folder of {file.name}; run the file "
                f"with `qnn-harness run`, leave {path.name} out with {option}, or trust it with "
                f"--rootdir={folder}"
            )


def refuse_cases_of_one_name(cases: Sequence[pytest.Item]) -> None:
    """Raise ConfigError for two cases of one node id, whose results would be mixed up.

    pytest names a file by its path below the root folder, or below the path that it was given.
    """
    first: dict[str, pytest.Item] = {}
    for case in cases:
        other = first.setdefault(case.nodeid, case)
        if other is not case:
            common = os.path.commonpath([other.path, case.path])
            raise ConfigError(
                f"{case.nodeid} is in {other.path} and in {case.path}, but names of cases must be "
                f"unique; use --rootdir={common}, and name each file once"
            )


def _is_path(here: Path, word: str) -> bool:
    try:
        return not word.startswith("-") and (here / word.partition("::")[0]).exists()
    except OSError:
        return False
