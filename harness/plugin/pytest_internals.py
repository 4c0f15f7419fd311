"""All private parts of pytest and pytest-xdist that the plug-in uses.

They are in this file only, so that a new version can be checked against one page. Each part says
why nothing public does the same, and what fails without it. `make matrix` runs every version that
pyproject.toml allows.
"""

from __future__ import annotations

import contextlib
import inspect
from argparse import Namespace
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import pytest
from _pytest.config.findpaths import determine_setup
from _pytest.mark.expression import Expression
from _pytest.runner import runtestprotocol


def run_phases(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Run setup, call and teardown of an item without logging their reports.

    Every public way logs each report at once; pytest-rerunfailures calls this, too. Without it a
    case could not be tried again after a fault of the lab.
    """
    return runtestprotocol(item, log=False, nextitem=nextitem)


class FileOfTests(pytest.Module):
    """A file whose test is the function of a module somewhere else.

    pytest would import the file itself. Without these methods `pytest model.pte` would have no
    cases.
    """

    def module_of_tests(self) -> ModuleType:
        raise NotImplementedError

    def _getobj(self) -> ModuleType:
        return self.module_of_tests()

    def funcnamefilter(self, name: str) -> bool:
        return name.startswith("test_")


def compile_markexpr(expression: str) -> Callable[[Callable[..., bool]], bool] | None:
    """Compile `-m EXPRESSION` to a function of a predicate that says which marks a test has.

    Returns None for an invalid expression. Nothing public reads such an expression. Without it,
    `-m "not device"` could not be distinguished from `-m device`.
    """
    try:
        return Expression.compile(expression).evaluate
    except Exception:  # its class depends on the version; pytest reports it itself
        return None


def root_for(
    config: pytest.Config, known: Namespace, tests: Sequence[str]
) -> tuple[Path, Path | None]:
    """Return the root folder and the configuration that pytest would use for `tests`.

    `known` are its other arguments. Nothing public exposes how pytest finds them. Without it the
    value of `--lab FILE` could move the root folder unnoticed.
    """
    arguments = {
        "inifile": known.inifilename,
        "override_ini": known.override_ini,
        "args": tests,
        "rootdir_cmd_arg": known.rootdir or None,
        "invocation_dir": config.invocation_params.dir,
    }
    supported = inspect.signature(determine_setup).parameters  # not the same in all versions
    root, file, *_ = determine_setup(**{k: v for k, v in arguments.items() if k in supported})
    return root, file


def names_of_options(parser: pytest.Parser) -> set[str]:
    """Return the options that are registered so far.

    Nothing public lists them. Without it, an option that another plug-in has, too, would keep
    pytest from starting.
    """
    groups = [*parser._groups, parser._anonymous]
    return {name for group in groups for option in group.options for name in option.names()}


def take_paths(config: pytest.Config, paths: Sequence[str]) -> None:
    """Make these the paths on pytest's command line, until it knows all options.

    It loads the conftest.py files there. Without it, the FILE of `--lab FILE` would be a path.
    """
    config.known_args_namespace.file_or_dir = [*paths]


def is_pytests_own(reporter: object) -> bool:
    """Return whether pytest's own plug-in writes to the terminal.

    Its class is public since pytest 8.4 only. Without this, live lines would be drawn over the
    output of another plug-in.
    """
    return type(reporter).__module__ == "_pytest.terminal"


def column(reporter: Any) -> int:
    """Return the number of columns written in the terminal's current line.

    The reporter knows it for file names only. Without it, our lines would begin behind the dots of
    `pytest -q` or of pytest-xdist.
    """
    return int(reporter._tw.width_of_current_line)


def write_through(reporter: Any, wrap: Callable[[TextIO], Any]) -> TextIO:
    """Redirect pytest's output to the stream that `wrap` makes of its file; return that file.

    pytest has no public way to filter its output. Without it, text from a device could control the
    terminal, and live lines would be mixed with pytest's own.
    """
    before: TextIO = reporter._tw._file
    reporter._tw._file = wrap(before)
    return before


def suppress_exit_line(config: pytest.Config) -> None:
    """Suppress pytest's last line about the exception that ends the run.

    pytest has no public way to exit with another code and without that line. Without it,
    `!!! builtins.error: ... !!!` would repeat every error.
    """
    if (reporter := config.pluginmanager.get_plugin("terminalreporter")) is not None:
        reporter._report_keyboardinterrupt = lambda: None


@contextlib.contextmanager
def uncaptured(config: pytest.Config) -> Generator[None]:
    """Suspend pytest's capturing for a block.

    The public way is a fixture, which only a test has. Without it, warnings in a case that passes
    would be lost.
    """
    capture = config.pluginmanager.get_plugin("capturemanager")
    with contextlib.nullcontext() if capture is None else capture.global_and_fixture_disabled():
        yield


def reword(longrepr: Any, message: Callable[[str], str], line: Callable[[str], str]) -> None:
    """Change the messages and lines that pytest will print for an exception.

    Other forms of `longrepr` are left alone. The form is not public. Without it, text from a device
    in a traceback could control the terminal.
    """
    if not hasattr(longrepr, "reprtraceback"):
        return
    chain = getattr(longrepr, "chain", ()) or ((longrepr.reprtraceback, longrepr.reprcrash, None),)
    for trace, crash, _ in chain:
        for place in filter(None, (crash, getattr(longrepr, "reprcrash", None))):
            place.message = message(place.message)
        for entry in trace.reprentries:
            entry.lines[:] = map(line, entry.lines)


def apply_xfail(report: pytest.TestReport) -> bool:
    """Turn the report of an `xfail` test that seemed to pass into an expected failure.

    Returns False for a test without that mark. A strict one is recognizable by its text only.
    Without it, a device that failed unseen by the test would count as an unexpected pass.
    """
    strict = "[XPASS(strict)] "
    if isinstance(report.longrepr, str) and report.longrepr.startswith(strict):
        report.wasxfail, report.longrepr = report.longrepr.removeprefix(strict), None
    elif not hasattr(report, "wasxfail"):
        return False
    report.outcome = "skipped"
    return True


def is_maxfail(error: KeyboardInterrupt) -> bool:
    """Return whether pytest-xdist ends because of `--maxfail` instead of Ctrl-C, by its text.

    Without it, such a run would end with the exit code of an interrupt.
    """
    return str(error).startswith("stopping after")
