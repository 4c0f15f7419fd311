"""`qnn-harness run`: run the contexts of files with pytest, without writing a test."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import pytest

from harness.cli.common_options import DEFAULT_LAB, CommonOption, NamedPath, json_option
from harness.cli.lab_options import Checked, PytestCommand, files_argument, lab_or_simulated
from harness.cli.say import say
from harness.core.engine import ENGINES, find_engine
from harness.core.errors import INTERRUPTED, ConfigError, HarnessError
from harness.core.json_record import Schema2
from harness.core.matrix_axes import BACKENDS
from harness.plugin.axes import DEFAULT_BACKEND
from harness.plugin.options import ALL, SPELLED, nonempty, read_options, split_list
from harness.plugin.terminal import LIVE_FROM
from harness.results.output_drift import Output
from harness.results.record import SCHEMA

if TYPE_CHECKING:
    from harness.containers.artefact import ArtefactError
    from harness.plugin.plan_view import PlanReport
    from harness.results.run_folder import RunFolder

# Exit codes of pytest itself: wrong usage, nothing collected.
_CODES: Final = {4: 2, 5: 2}


def _add_pytest_options(command: click.Command) -> click.Command:
    """Add those options of pytest to a command that have a help text for it."""
    options = []
    for option in ALL:
        if option.run is None:
            continue
        check = option.arguments.get("type")
        type_: click.ParamType[Any] | None = Checked(check) if check else None
        if "choices" in option.arguments:
            type_ = click.Choice(option.arguments["choices"])
        elif check is nonempty:
            type_ = NamedPath()
        kind = CommonOption if option.parameter in ("lab", "reports") else click.Option
        click_option = kind(
            [*(["-s"] if option.short == "--device" else []), option.short, option.parameter],
            type=type_,
            metavar=None if isinstance(type_, click.Choice) else option.arguments.get("metavar"),
            # with False click would accept the option without its value, too
            is_flag=None if option.takes_value else True,
            multiple=option.arguments.get("action") == "append",
            help=option.run_help,
        )
        options.append(click_option)
    command.params[1:1] = options
    return command


class OutputDrifted(Output):
    """A line of `run --json`, after the records: an output that differs between cases."""

    schema_number: Schema2 = SCHEMA
    kind: Literal["drift"] = "drift"


@_add_pytest_options
@click.command(cls=PytestCommand)
@files_argument
@json_option
def run(
    files: tuple[Path, ...], pytest_arguments: tuple[str, ...], as_json: bool, **options: Any
) -> int:
    """Run model files on devices: load their contexts, execute them and record the result.

    FILE is a context binary, an .onnx, .pte or .tflite, a bundle, or a folder of these. Each is a
    case for every device, runtime, residency and number of copies. --json prints the records, one
    per line, or with --dry-run the plan.

    \b
    Examples:
      qnn-harness run model.bin
      qnn-harness run model.onnx --limit max-error=0.01 --qnn 2.47,2.51
      qnn-harness run model.pte -s 1A2B3C4D -- -x -o qnn_retries=0

    \b
    Exit codes: 0 all passed, 1 a case failed, 2 the input is wrong, 3 the lab failed, 130 it was
    interrupted (--resume continues).
    """
    if options["fallback"] == "allow" and options["engine"] is None:
        options["engine"] = _engine_of_models()  # nothing else runs nodes on the CPU
    if options["profile_run"] is None:
        options["rounds"] = options["rounds"] or "auto"
    from harness.models.artefact_sources import artefacts_with_contexts
    from harness.plugin.user_files import context_numbers, default_engine, require_name

    context_numbers(split_list(options["copies"]), "--copies")
    wrong: list[ArtefactError] = []
    artefacts = artefacts_with_contexts(files, wrong.append)
    if wrong and not artefacts:
        raise wrong[0]
    elsewhere = set(split_list(options["backend"])) - {DEFAULT_BACKEND}
    if elsewhere and {artefact.kind for artefact in artefacts} == {"onnx"}:
        options["engine"] = options["engine"] or _engine_of_models()  # contexts are for HTP
    paths = [artefact.path for artefact in artefacts]
    for path in paths:
        require_name(path)
    engine = options["engine"]
    _require_engines({engine} if engine else {default_engine(path).name for path in paths}, options)
    watch = RunWatcher()
    code = run_files(paths, [*_options(options), *pytest_arguments], watch, quiet=as_json)
    if as_json:
        try:
            _print_results(watch)
        except BrokenPipeError:
            # the reader is gone (`| head`), which does not change the verdict
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if watch.interrupted and watch.folder is not None:
        say(f"stopped; {watch.folder.resume_hint}", err=True)
    elif code == 1 and watch.folder is not None:
        _say_next(watch.folder, options)
    for error in wrong:
        say(f"error: not run: {error}", err=True)
    return watch.exit_code(code) or (ConfigError.exit_code if wrong else 0)


def run_files(
    paths: Iterable[Path], words: Sequence[str], watch: RunWatcher, *, quiet: bool
) -> int:
    """Run files with pytest and these arguments. `quiet` leaves stdout to the caller."""
    from harness.plugin.user_files import isolated_arguments

    # the current folder is the root, wherever the files are
    arguments = ["-m", "device", "-p", "no:cacheprovider", *isolated_arguments(Path.cwd())]
    arguments += ["-rN", *words]
    arguments += [os.path.join(os.curdir, path) for path in paths]  # no name is an option
    with contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext():
        return int(pytest.main(arguments, plugins=[watch]))


def _engine_of_models() -> str:
    return next(engine.name for engine in ENGINES.values() if engine.takes_models)


def _require_engines(names: Collection[str], options: Mapping[str, Any]) -> None:
    for name in sorted(names):
        engine = find_engine(name)
        for other in ENGINES.values():
            if other.option and options.get(other.option) and other.name not in names:
                problem = f"engine {engine.name} does not use {other.title}"
                choices = [f"--engine {other.name}"]
                raise ConfigError(problem, field=f"--{other.option}", choices=choices)
        for backend in split_list(options["backend"]):
            if backend not in engine.backends:
                problem = f"{engine.title} does not run on {backend[:80]!r}"
                if backend not in BACKENDS:
                    problem = f"unknown backend {backend[:80]!r}"
                raise ConfigError(problem, field="--backend", choices=engine.backends)


def _say_next(folder: RunFolder, options: Mapping[str, Any]) -> None:
    """Print what loads the first contexts that found no room, and how to share a failing case."""
    from harness.diagnosis.diagnosis import PD_EXHAUSTED
    from harness.experiments.remedy_ranking import known_remedies
    from harness.plugin.user_files import is_of_a_file

    failed = [record for record in folder.contents().cases if record.cause == "target"]
    lab = [] if options["lab"] is None else [f"--lab={options['lab']}"]
    for record in failed:
        known = record.error.diagnosis if record.error is not None else None
        if record.device is None or known is None or known.id != PD_EXHAUSTED:
            continue
        file, name = record.case.partition("::")[0], record.device.name
        number, reports = record.axes.get("contexts"), folder.path.parent
        rows = known_remedies(reports, name, record.files_sha256, number)
        found = next((row for row in rows if row.use["run"]), None)
        lead, words = "to find an option with which it loads", ["model", "fit", "--remedies"]
        if found is not None:
            lead, words = f"it worked with {found.remedy}", ["run", *str(found.use["run"]).split()]
        words += [f"--copies={number}"] if options["copies"] else []
        words += [f"--qnn={record.axes['qnn']}"] if options["qnn"] and "qnn" in record.axes else []
        _say_command(lead, *words, f"--device={name}", *lab, file)
        break
    for record in failed:
        if is_of_a_file(record.case) and "came_again" not in record.measurements:  # of a bundle
            words = ["model", "bundle", record.case, f"--run={os.path.relpath(folder.path)}"]
            _say_command("to share the first failing case", *words, *lab, "-o", "case.zip")
            break


def _say_command(lead: str, *words: str) -> None:
    say(f"{lead}:", err=True)
    say(f"    {shlex.join(['qnn-harness', *words])}", err=True)


def _print_results(watch: RunWatcher) -> None:
    if watch.plan is not None:
        say(watch.plan.model_dump_json(by_alias=True))
    if (folder := watch.folder) is None:
        return
    for record in folder.contents().cases:
        say(record.model_dump_json(by_alias=True))
    for output in folder.drift():
        if output.drifts:
            say(OutputDrifted(**dict(output)).model_dump_json())


class RunWatcher:
    """A plug-in that sets a default lab, and remembers the run folder."""

    config: pytest.Config
    folder: RunFolder | None = None
    plan: PlanReport | None = None
    interrupted = False

    def exit_code(self, code: int) -> int:
        """Return the exit code of the command for that of pytest."""
        return INTERRUPTED if self.interrupted else _CODES.get(code, code)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.interrupted = isinstance(excinfo.value, KeyboardInterrupt)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        self.config = config
        config.stash[LIVE_FROM] = -2
        config.option.verbose = config.option.verbose or -2  # the summary has all that pytest says
        config.stash[SPELLED] = {}  # messages use the option names of `run`
        if config.option.qnn_lab is None:
            with contextlib.suppress(ConfigError):  # the plug-in reports it
                names = read_options(config).axes["device"]
                config.option.qnn_lab = str(lab_or_simulated(DEFAULT_LAB, names, notice=True))

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        from harness.plugin.plan_view import PLAN
        from harness.plugin.plugin import RUN
        from harness.results.run_folder import RunFolder

        self.plan = config.stash.get(PLAN, None)
        if (running := config.stash.get(RUN, None)) is None:  # it ended before it began
            return
        records = running.records
        self.folder = records.folder
        with contextlib.suppress(HarnessError):  # the run has reported it
            if self.folder is None and records.earlier:
                self.folder = RunFolder.open(records.planned_folder)  # nothing was missing in it


def _options(options: dict[str, Any]) -> list[str]:
    arguments, by_parameter = [], {option.parameter: option for option in ALL}
    for parameter, value in options.items():
        option = by_parameter[parameter]
        if isinstance(value, bool):
            arguments += [option.name] if value else []
        elif isinstance(value, tuple) and not option.is_ini:
            arguments += [word for item in value for word in option.words(item)]
        elif value not in (None, ()):
            text = ",".join(value) if isinstance(value, tuple) else value
            arguments += option.words(text)
    return arguments
