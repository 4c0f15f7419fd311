"""`qnn-harness run`: the contexts of files, without writing a test: pytest runs the files."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import pytest

from harness.cli.lab_options import DEFAULT_LAB, NamedPath, json_option, simulated_instead
from harness.cli.say import say
from harness.contexts.schedule import RESIDENCIES
from harness.errors import ConfigError, HarnessError
from harness.pytest_plugin.options import split_list
from harness.pytest_plugin.terminal import LIVE_FROM
from harness.qnn.backends import BACKENDS
from harness.qnn.engines import ENGINES

if TYPE_CHECKING:
    from harness.results.run_folder import RunFolder

_FLAGS: Final = ("plan", "strict_known", "trace_json")
# How pytest ends where the plug-in had no word in it: wrong usage, nothing collected.
_CODES: Final = {4: 2, 5: 2}


@click.command()
@click.argument("files", nargs=-1, type=NamedPath())
@click.option(
    "--contexts", "contexts_number", metavar="N[,N]", help="How many (default: each once)."
)
@click.option(
    "--residency",
    "contexts_residency",
    multiple=True,
    type=click.Choice(RESIDENCIES),
    help="How they are loaded (default: resident, all at once).",
)
@click.option(
    "--inputs",
    "contexts_inputs",
    metavar="DIR",
    type=NamedPath(),
    help="Inputs (default: made up).",
)
@click.option(
    "--expected",
    "contexts_expected",
    metavar="DIR",
    type=NamedPath(),
    help="What outputs should be.",
)
@click.option("--tolerance", "contexts_tolerance", type=float, help="How far they may be off.")
@click.option("--graph", "contexts_graph", metavar="NAME", help="Which of several to execute.")
@click.option("--engine", "contexts_engine", default="qnn", help=f"{', '.join(ENGINES)}.")
@click.option(
    "--executorch",
    metavar="BUILD_DIR",
    type=NamedPath(),
    help="A build for --engine executorch (default: its wheel).",
)
@click.option("--qnn", multiple=True, metavar="VERSION", help="QNN runtimes (default: latest).")
@click.option("--ort", multiple=True, metavar="VERSION", help="ONNX Runtimes of --engine ort.")
@click.option(
    "--compiler",
    multiple=True,
    metavar="VERSION",
    help="QNN versions that compile what is compiled here (default: the runtime's own).",
)
@click.option("--backend", multiple=True, metavar="NAME", help=f"{', '.join(BACKENDS)}.")
@click.option(
    "--device",
    multiple=True,
    metavar="NAME",
    help="Devices, or their addresses (default: all enabled).",
)
@click.option(
    "--lab",
    metavar="FILE",
    help="The lab's devices (default: devices.yaml, else one simulated device).",
)
@click.option("--reports", metavar="DIR", help="Where results go (default: reports).")
@click.option("--known-issues", metavar="FILE", help="Failures that are expected.")
@click.option("--strict-known", is_flag=True, help="One that does not fail fails the run.")
@click.option("--preflight", type=click.Choice(["strict", "warn", "off"]), help="As of pytest.")
@click.option("--retries", type=int, metavar="N", help="For what only the lab failed.")
@click.option("--fail-on", metavar="drift:STEPS", help="Outputs may differ so much at most.")
@click.option("--resume", metavar="RUN", help="Complete a run: its folder, name, or latest.")
@click.option("--trace-json", is_flag=True, help="Write a timeline, for ui.perfetto.dev.")
@click.option("--plan", is_flag=True, help="List cases and files, and run nothing.")
@click.option("--pytest-arg", "more", multiple=True, metavar="ARG", help="Goes to pytest as it is.")
@json_option
def run(files: tuple[Path, ...], more: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Load and run the contexts of FILEs on devices: context binaries, or what holds some.

    Each file is a case for every device, runtime, residency and number. It is the run that
    `pytest FILE` makes, with the same records and reports; --json prints the records, one a line.

    \b
    Exit codes: 0 all is well, 1 a case failed, 2 the input is wrong, 3 the lab failed.
    """
    engine = given["contexts_engine"]
    if engine not in ENGINES:
        problem = f"no engine {engine!r} runs artefacts"
        raise ConfigError(problem, field="--engine", choices=tuple(ENGINES))
    for other in ENGINES.values():
        if other.option is not None and given[other.option] and engine != other.name:
            problem = f"the engine {engine} does without {other.title}"
            choices = [f"--engine {other.name}"]
            raise ConfigError(problem, field=f"--{other.option}", choices=choices)
    if not files:
        raise click.UsageError("FILE: which contexts to run")
    from harness.contexts.artefact_sources import artefacts_with_contexts
    from harness.pytest_plugin.own_contexts import (
        context_numbers,
        nothing_beside,
        require_name,
    )
    from harness.results.drift import steps_of

    if (told := given["fail_on"]) is not None and steps_of(told) is None:
        raise ConfigError(f"{told!r} is not drift:STEPS, as in drift:1", field="--fail-on")

    context_numbers(split_list([given["contexts_number"] or ""]), "--contexts")
    found = [artefact.path for artefact in artefacts_with_contexts(files)]
    for path in found:
        require_name(path)
    # the folder where it is called is the root, whatever folder the files lie in
    arguments = ["-m", "device", "-p", "no:cacheprovider", *nothing_beside(Path.cwd())]
    arguments += ["-q", *_options(given), *more]
    arguments += [os.path.join(os.curdir, path) for path in found]  # no name is an option
    seen = _Watch()
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        code = int(pytest.main(arguments, plugins=[seen]))
    if as_json and seen.folder is not None:
        try:
            _say_records(seen.folder)
        except BrokenPipeError:
            # the reader went away (`| head`): that is no verdict, and nothing is left to be written
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _CODES.get(code, code)


def _say_records(folder: RunFolder) -> None:

    for record in folder.contents().cases:
        say(record.model_dump_json(by_alias=True))
    for output in folder.drift():
        if output.drifts:
            say(json.dumps({"kind": "drift"} | output.as_json()))


class _Watch:
    """Gives a run of pytest a lab if there is none, and sees where it keeps its results."""

    folder: RunFolder | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Comes when all options are known, also those of PYTEST_ADDOPTS."""
        config.stash[LIVE_FROM] = -1
        if config.option.lab is not None or (config.rootpath / DEFAULT_LAB).exists():
            return
        lab = simulated_instead(split_list(config.option.device))
        if lab is not None:
            config.option.lab = str(lab)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Comes when all is written."""
        from harness.pytest_plugin.plugin import RUN
        from harness.results.run_folder import RunFolder

        records = config.stash[RUN].records
        self.folder = records.folder
        with contextlib.suppress(HarnessError):  # the run has told that it has no such folder
            if self.folder is None and records.earlier:
                self.folder = RunFolder.open(records.planned_folder)  # nothing was missing in it


def _options(given: dict[str, Any]) -> list[str]:
    """What pytest is told; paths with "=", since it takes a word of its own for that of a test."""
    told = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if name in _FLAGS:
            told += [option] if value else []
        elif value is not None:
            values = value if isinstance(value, tuple) else (value,)
            told += [f"{option}={one}" for one in values]
    return told
