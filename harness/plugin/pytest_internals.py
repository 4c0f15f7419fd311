"""What the plug-in uses of pytest and pytest-xdist although neither promises that it stays.

All of it is in this file, so that a new version is read against one page. Each part says why
nothing public does the same, and what fails without it. `make matrix` runs every version that
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
from _pytest.junitxml import xml_key
from _pytest.mark.expression import Expression
from _pytest.runner import runtestprotocol


def run_phases(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Runs setup, call and teardown of an item, and logs none of their reports.

    Every public way logs each report at once; pytest-rerunfailures calls this, too. Without it a
    case that only the lab failed could not be tried again.
    """
    return runtestprotocol(item, log=False, nextitem=nextitem)


class FileOfTests(pytest.Module):
    """A file whose tests are functions of a module that lies elsewhere.

    pytest imports the file itself. Without these two methods `pytest model.pte` would have no case.
    """

    def module_of_tests(self) -> ModuleType:
        """The module that has the tests."""
        raise NotImplementedError

    def is_test(self, name: str) -> bool:
        """Whether a function of that module is a test of this file."""
        raise NotImplementedError

    def _getobj(self) -> ModuleType:
        return self.module_of_tests()

    def funcnamefilter(self, name: str) -> bool:
        """What pytest asks of each function of the module."""
        return self.is_test(name)


def marks_asked(expression: str) -> Callable[[Callable[..., bool]], bool] | None:
    """Whether `-m EXPRESSION` takes a test, by what says of each mark whether the test has it.

    None for what pytest refuses. Nothing public reads such an expression. Without it, `-m "not
    device"` could not be told from `-m device`.
    """
    try:
        return Expression.compile(expression).evaluate
    except Exception:  # another class in each version; pytest tells of it itself
        return None


def root_for(
    config: pytest.Config, known: Namespace, tests: Sequence[str]
) -> tuple[Path, Path | None]:
    """The root folder and the configuration that pytest would take if it were given `tests`.

    `known` is what it was given besides. Nothing public says how pytest finds them. Without it the
    value of `--lab FILE` could move the root folder, and nobody would know.
    """
    wanted = {
        "inifile": known.inifilename,
        "override_ini": known.override_ini,
        "args": tests,
        "rootdir_cmd_arg": known.rootdir or None,
        "invocation_dir": config.invocation_params.dir,
    }
    takes = inspect.signature(determine_setup).parameters  # not the same in all versions
    root, file, *_ = determine_setup(**{k: v for k, v in wanted.items() if k in takes})
    return root, file


def names_of_options(parser: pytest.Parser) -> set[str]:
    """The options that are registered by now.

    Nothing public tells. Without it, an option that another plug-in has, too, would keep pytest
    from starting.
    """
    groups = [*parser._groups, parser._anonymous]
    return {name for group in groups for option in group.options for name in option.names()}


def take_paths(config: pytest.Config, paths: Sequence[str]) -> None:
    """Has pytest take these for the paths that it was given, until it knows all options.

    It loads what conftest.py files lie there. Without it, the FILE of `--lab FILE` would be one.
    """
    config.known_args_namespace.file_or_dir = [*paths]


def say_if_refused(parser: pytest.Parser, name: str, text: str) -> None:
    """Has pytest say this below the options that it does not know, if it refuses some.

    Nothing public adds to that message. Without it a misspelt option of ours would have no hint.
    """
    parser.extra_info[name] = text


@contextlib.contextmanager
def no_test_of_junitxml(config: pytest.Config) -> Generator[None]:
    """Keeps reports of an attempt that is made again out of pytest's own `--junitxml`.

    pytest makes a test of the reports of each worker, whatever their outcome. Without this, a case
    that went on with another device would be several tests there.
    """
    xml = config.stash.get(xml_key, None)
    before = 0 if xml is None else len(xml.node_reporters_ordered)
    yield
    if xml is not None:
        made = xml.node_reporters_ordered[before:]
        del xml.node_reporters_ordered[before:]
        for key in [key for key, one in xml.node_reporters.items() if one in made]:
            del xml.node_reporters[key]


def forget_in_junitxml(
    config: pytest.Config, worker: object, said: Sequence[pytest.TestReport]
) -> None:
    """Takes the test out of `--junitxml` in which a worker died, and which another runs again.

    `said` are the reports of it that had come. Nothing public takes one back; without this, the
    case would be counted twice.
    """
    xml = config.stash.get(xml_key, None)
    if xml is None:
        return
    for key in [key for key in xml.node_reporters if key[1] is worker]:
        made = xml.node_reporters.pop(key)
        xml.node_reporters_ordered.remove(made)
        for node in made.nodes:
            if node.tag in xml.stats:
                xml.stats[node.tag] -= 1
    xml.stats["passed"] -= sum(one.passed and one.when == "call" for one in said)
    xml.open_reports[:] = [one for one in xml.open_reports if one not in said]


def is_pytests_own(reporter: object) -> bool:
    """Whether the plug-in that writes to the terminal is the one of pytest.

    Its class is public since pytest 8.4 only. Without this, live lines would be drawn into what
    another plug-in draws.
    """
    return type(reporter).__module__ == "_pytest.terminal"


def column(reporter: Any) -> int:
    """How many columns of the terminal's current line are written.

    The reporter says it of file names only. Without it, our lines would begin behind the dots of
    `pytest -q` or of pytest-xdist.
    """
    return int(reporter._tw.width_of_current_line)


def write_through(reporter: Any, made_of: Callable[[TextIO], Any]) -> TextIO:
    """Has all that pytest prints go to what `made_of` makes of its file; returns that file.

    pytest has no public way to see what it writes. Without it, a word of a device could steer the
    terminal, and live lines would be mixed with pytest's own.
    """
    before: TextIO = reporter._tw._file
    reporter._tw._file = made_of(before)
    return before


def say_no_end(config: pytest.Config) -> None:
    """Keeps pytest from a last line about an exception that ends the run, whose error is told.

    pytest has no public way to end a run with a code of one's own and no such line. Without it,
    `!!! builtins.error: ... !!!` would repeat every error.
    """
    if (reporter := config.pluginmanager.get_plugin("terminalreporter")) is not None:
        reporter._report_keyboardinterrupt = lambda: None


def say_no_count(config: pytest.Config) -> None:
    """Keeps pytest from counting the tests of a run in which nothing was run.

    Its quiet forms have that line, too. Without it, `no tests ran` would follow an error that says
    all to who named a file and no test.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not reporter.stats:
        reporter.summary_stats = lambda: None


@contextlib.contextmanager
def uncaptured(config: pytest.Config) -> Generator[None]:
    """What is written in this block is seen, though pytest captures what a case writes.

    The public way is a fixture, which only a test has. Without it, warnings in a case that passes
    are lost.
    """
    capture = config.pluginmanager.get_plugin("capturemanager")
    with contextlib.nullcontext() if capture is None else capture.global_and_fixture_disabled():
        yield


def reword(longrepr: Any, message: Callable[[str], str], line: Callable[[str], str]) -> None:
    """Changes what pytest will print of an exception: the messages in it, and its lines.

    Nothing else is changed, and nothing in a form that pytest does not give exceptions. The form is
    not public. Without it, a word of a device in a traceback could steer the terminal.
    """
    if not hasattr(longrepr, "reprtraceback"):
        return
    chain = getattr(longrepr, "chain", ()) or ((longrepr.reprtraceback, longrepr.reprcrash, None),)
    for trace, crash, _ in chain:
        for place in filter(None, (crash, getattr(longrepr, "reprcrash", None))):
            place.message = message(place.message)
        for entry in trace.reprentries:
            entry.lines[:] = map(line, entry.lines)


def fails_as_marked(report: pytest.TestReport) -> bool:
    """Makes the report of an `xfail` test that seemed to pass one of an expected failure.

    False for a test without that mark. pytest tells a strict one by its words alone. Without it, a
    device that failed unseen by the test would count as one that passed unexpectedly.
    """
    strict = "[XPASS(strict)] "
    if isinstance(report.longrepr, str) and report.longrepr.startswith(strict):
        report.wasxfail, report.longrepr = report.longrepr.removeprefix(strict), None
    elif not hasattr(report, "wasxfail"):
        return False
    report.outcome = "skipped"
    return True


def message_of(report: pytest.TestReport) -> str:
    """What a failed report says went wrong, without the traceback.

    The form of a traceback is not public. Without it, a line about a failure would show code.
    """
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)


def missing_fixture(report: pytest.TestReport) -> str | None:
    """What pytest says of a fixture that does not exist; None if it says nothing.

    The words of the exception are not its own. Without it, a record would have its address only.
    """
    said = getattr(report.longrepr, "errorstring", None)
    return None if said is None else str(said)


def is_maxfail(error: KeyboardInterrupt) -> bool:
    """Whether pytest-xdist ends because of `--maxfail`, and not of Ctrl-C: its text alone tells.

    Without it, such a run would end with the exit code of an interrupt.
    """
    return str(error).startswith("stopping after")
