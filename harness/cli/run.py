"""`qnn-harness run`: the contexts of files, without writing a test: pytest runs the files."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import pytest
from click.shell_completion import CompletionItem

from harness.cli.lab_options import (
    DEFAULT_LAB,
    NamedPath,
    complete_devices,
    json_option,
    simulated_instead,
)
from harness.cli.say import say
from harness.core.axes import BACKENDS, ENGINES, ORT
from harness.core.codes import PROFILES
from harness.core.errors import ConfigError, HarnessError
from harness.core.schema_field import Schema2
from harness.models.source import RESIDENCIES
from harness.plugin.axes import DEFAULT_BACKEND
from harness.plugin.options import CLAIMED, OPTIONS, PREFLIGHT, Option, split_list
from harness.plugin.pytest_internals import say_no_count
from harness.plugin.terminal import LIVE_FROM
from harness.results.drift import DriftedOutput, steps_of
from harness.results.record import SCHEMA

if TYPE_CHECKING:
    from harness.containers.artefact import ArtefactError
    from harness.plugin.plan_view import PlanReport
    from harness.results.run_folder import RunFolder

# What is read otherwise than pytest does, so that a mistake is told with the name that it has here.
_READ: Final[Mapping[str, Any]] = {
    "--residency": click.Choice(RESIDENCIES),
    "--inputs": NamedPath(),
    "--expected": NamedPath(),
    "--executorch": NamedPath(),
    "--preflight": click.Choice(PREFLIGHT),
    "--rounds": click.IntRange(1, 99999),
    "--warmup": click.IntRange(0, 99999),
    "--profile": click.Choice(PROFILES),
    "--fail-on": str,
    "--fallback": click.Choice(("allow", "refuse")),
}
_PATHS: Final = ("FILE", "DIR", "MODEL", "RUN")
_Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
# How pytest ends where the plug-in had no word in it: wrong usage, nothing collected.
_CODES: Final = {4: 2, 5: 2}
_WRONG: Final = 2
_INTERRUPTED: Final = 130


def _with_options_of_pytest(command: click.Command) -> click.Command:
    """Has a command take those of pytest's options that have words for it."""
    made = []
    for option in OPTIONS:
        if option.run is None:
            continue
        type_ = _READ.get(_name(option), option.given.get("type"))
        one = click.Option(
            [_name(option), option.parameter],
            type=type_,
            metavar=_metavar(type_, option.given),
            # False would have click take the option without its value, too
            is_flag=None if option.takes_value else True,
            multiple=option.given.get("action") == "append",
            help=option.run,
            shell_complete=_completion(option),
        )
        made.append(one)
    command.params[1:1] = made
    return command


def _name(option: Option) -> str:
    """Return what `run` calls an option of pytest; its FILEs are the contexts."""
    name = option.short.replace("--contexts-", "--")
    return "--contexts" if name == "--number" else name


def _metavar(type_: object, given: Mapping[str, Any]) -> str | None:
    if isinstance(type_, click.Choice):
        return None
    return f"[{'|'.join(given['choices'])}]" if "choices" in given else given.get("metavar")


def _completion(option: Option) -> _Completion | None:
    """What the Tab key writes behind an option whose type click does not know."""
    if option.short == "--device":
        return complete_devices
    choices = BACKENDS if option.short == "--backend" else option.given.get("choices")
    if choices:
        return lambda _, __, begun: [
            CompletionItem(one) for one in choices if one.startswith(begun)
        ]
    if option.given.get("metavar") in _PATHS:
        return lambda _, __, begun: [CompletionItem(begun, type="file")]
    return None


class OutputDrifted(DriftedOutput):
    """A line of `run --json`, after the records: an output that was not the same everywhere."""

    schema_number: Schema2 = SCHEMA
    kind: Literal["drift"] = "drift"


@_with_options_of_pytest
@click.command()
@click.argument("files", nargs=-1, type=NamedPath())
@click.option("--quick", is_flag=True, help="Execute each graph once or twice, and tell no median.")
@click.option("--pytest-arg", "more", multiple=True, metavar="ARG", help="Goes to pytest as it is.")
@json_option
def run(
    files: tuple[Path, ...], more: tuple[str, ...], as_json: bool, quick: bool, **given: Any
) -> int:
    """Load and run the contexts of FILEs on devices: context binaries, or what holds some.

    Each file is a case for every device, runtime, residency and number. It is the run that
    `pytest FILE` makes, with the same records and reports; --json prints the records, one a line,
    or with --plan the plan.

    \b
    Exit codes: 0 all is well, 1 a case failed, 2 the input is wrong, 3 the lab failed, 130 it was
    interrupted (--resume goes on).
    """
    if given["fallback"] == "allow" and given["engine"] is None:
        given["engine"] = ORT.name  # nothing else runs nodes on the CPU
    _choose_rounds(given, quick)
    if not files:
        raise click.UsageError("FILE: none is named: which contexts or models to run?")
    from harness.models.artefact_sources import artefacts_with_contexts
    from harness.plugin.own_contexts import (
        context_numbers,
        nothing_beside,
        require_name,
        usual_engine,
    )

    if (told := given["fail_on"]) is not None and steps_of(told) is None:
        raise ConfigError(f"{told!r} is not drift:STEPS, as in drift:1", field="--fail-on")

    context_numbers(split_list(given["contexts_number"]), "--contexts")
    wrong: list[ArtefactError] = []
    artefacts = artefacts_with_contexts(files, wrong.append)
    if wrong and not artefacts:
        raise wrong[0]
    elsewhere = set(split_list(given["backend"])) - {DEFAULT_BACKEND}
    if elsewhere and {one.kind for one in artefacts} == {"onnx"}:
        given["engine"] = given["engine"] or ORT.name  # contexts are for HTP
    found = [artefact.path for artefact in artefacts]
    for path in found:
        require_name(path)
    asked = given["engine"]
    _require_engines({asked} if asked else {usual_engine(path).name for path in found}, given)
    # the folder where it is called is the root, whatever folder the files lie in
    arguments = ["-m", "device", "-p", "no:cacheprovider", *nothing_beside(Path.cwd())]
    arguments += ["-q", *_options(given), *more]
    arguments += [os.path.join(os.curdir, path) for path in found]  # no name is an option
    seen = _Watch()
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        code = int(pytest.main(arguments, plugins=[seen]))
    if as_json:
        try:
            _say_found(seen)
        except BrokenPipeError:
            # the reader went away (`| head`): that is no verdict, and nothing is left to be written
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if seen.interrupted and seen.folder is not None:
        say(f"stopped; {seen.folder.to_go_on}", err=True)
    elif code == 1 and seen.folder is not None:
        _say_bundle(seen.folder, given)
    for error in wrong:
        say(f"error: not run: {error}", err=True)
    return _INTERRUPTED if seen.interrupted else _CODES.get(code, code) or (_WRONG if wrong else 0)


def _require_engines(names: Collection[str], given: Mapping[str, Any]) -> None:
    """Raises ConfigError for an unknown engine, and for options that an engine does not take."""
    for name in sorted(names):
        engine = ENGINES.get(name)
        if engine is None:
            problem = f"no engine {name!r} runs artefacts"
            raise ConfigError(problem, field="--engine", choices=tuple(ENGINES))
        for other in ENGINES.values():
            if other.option is not None and given[other.option] and other.name not in names:
                problem = f"the engine {engine.name} does without {other.title}"
                choices = [f"--engine {other.name}"]
                raise ConfigError(problem, field=f"--{other.option}", choices=choices)
        for backend in split_list(given["backend"]):
            if backend not in engine.backends:
                problem = f"{engine.title} does not run on {backend[:80]!r}"
                if backend not in BACKENDS:
                    problem = f"there is no backend {backend[:80]!r}"
                raise ConfigError(problem, field="--backend", choices=engine.backends)


def _choose_rounds(given: dict[str, Any], quick: bool) -> None:
    asked = [name for name in ("rounds", "warmup") if given[f"contexts_{name}"] is not None]
    if quick and asked:
        raise ConfigError("--quick executes once, without a warm-up", field=f"--{asked[0]}")
    if not quick and given["contexts_rounds"] is None:
        given["contexts_rounds"] = "auto"


def _say_bundle(folder: RunFolder, given: Mapping[str, Any]) -> None:
    """How to hand the first failing case over, unless it was handed over itself."""
    from harness.plugin.own_contexts import is_of_a_file

    for record in folder.contents().cases:
        is_bundle = "came_again" in record.measurements
        if record.cause == "target" and is_of_a_file(record.case) and not is_bundle:
            words = ["qnn-harness", "contexts", "bundle", record.case]
            words += [f"--run={os.path.relpath(folder.path)}"]
            words += [] if given["lab"] is None else [f"--lab={given['lab']}"]
            say(f"to hand it over: {shlex.join([*words, '-o', 'case.zip'])}", err=True)
            return


def _say_found(seen: _Watch) -> None:
    if seen.plan is not None:
        say(seen.plan.model_dump_json(by_alias=True))
    if (folder := seen.folder) is None:
        return
    for record in folder.contents().cases:
        say(record.model_dump_json(by_alias=True))
    for output in folder.drift():
        if output.drifts:
            say(OutputDrifted(**dict(output.document())).model_dump_json())


class _Watch:
    """Gives a run of pytest a lab if there is none, and sees where it keeps its results."""

    folder: RunFolder | None = None
    plan: PlanReport | None = None
    interrupted = False
    config: pytest.Config | None = None

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.interrupted = isinstance(excinfo.value, KeyboardInterrupt)
        if not self.interrupted and self.config is not None:
            say_no_count(self.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Comes when all options are known, also those of PYTEST_ADDOPTS."""
        self.config = config
        config.stash[LIVE_FROM] = -1
        config.stash[CLAIMED] = frozenset()  # what is said is of the options of `run`
        if config.option.qnn_lab is not None or (config.rootpath / DEFAULT_LAB).exists():
            return
        with contextlib.suppress(ConfigError):  # the plug-in tells it
            lab = simulated_instead(split_list(config.option.qnn_device))
            config.option.qnn_lab = str(lab) if lab is not None else None

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Comes when all is written."""
        from harness.plugin.plan_view import PLAN
        from harness.plugin.plugin import RUN
        from harness.results.run_folder import RunFolder

        self.plan = config.stash.get(PLAN, None)
        if (running := config.stash.get(RUN, None)) is None:  # it was ended before it began
            return
        records = running.records
        self.folder = records.folder
        with contextlib.suppress(HarnessError):  # the run has told that it has no such folder
            if self.folder is None and records.earlier:
                self.folder = RunFolder.open(records.planned_folder)  # nothing was missing in it


def _options(given: dict[str, Any]) -> list[str]:
    """What pytest is told; paths with "=": a word alone would be the path of a test."""
    told, names = [], {option.parameter: option.name for option in OPTIONS}
    for parameter, value in given.items():
        option = names[parameter]
        if isinstance(value, bool):
            told += [option] if value else []
        elif value is not None:
            values = value if isinstance(value, tuple) else (value,)
            told += [f"{option}={one}" for one in values]
    return told
