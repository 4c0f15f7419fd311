"""Options that several commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from harness.cli.common_options import DEFAULT_LAB, NamedPath
from harness.cli.say import say
from harness.core.durations import parse_duration
from harness.core.errors import ConfigError
from harness.core.matrix_axes import nonblank
from harness.core.socs import HOST_TARGET
from harness.core.state_folders import cache_root, lease_root, simulated_root
from harness.lab.inventory import Lab, load_lab, shipped_lab
from harness.lab.lab_device import OpenLab
from harness.lab.lease import Leases
from harness.results.file_options import lab_in
from harness.runtimes.catalog import Catalog
from harness.runtimes.pypi import all_versions
from harness.runtimes.runtime import Runtime

_LONGEST_WAIT_S: Final = 86400.0

SERIAL: Final = "ANDROID_SERIAL"
"""The environment variable that names a device, as for adb."""


class Checked(click.ParamType[str]):
    """A text that is checked as pytest checks it, so that errors have the names of commands."""

    name = "text"

    def __init__(self, check: Callable[[str], object]) -> None:
        self._check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text."""
        try:
            self._check(value)
        except (argparse.ArgumentTypeError, ValueError) as error:
            self.fail(str(error), param, ctx)
        return value


class Number(click.IntRange):
    """A whole number within limits."""

    name = "whole number"


def require_output(file: Path, *, new: bool = False) -> None:
    """Raise ConfigError for an --output that cannot be written, before a long computation."""
    folder, problem = file.parent, None
    if file.is_dir():
        problem = "is a folder; name a file"
    elif new and file.exists():
        problem = "already exists; name another file"
    elif not folder.is_dir():
        file, problem = folder, "the folder does not exist"
    elif not os.access(folder, os.W_OK | os.X_OK):
        file, problem = folder, "the folder cannot be written"
    if problem is not None:
        raise ConfigError(problem, file=file, field="--output")


class PytestCommand(click.Command):
    """A command that passes what follows `--` to pytest, as its parameter `pytest_arguments`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before `--`."""
        end = args.index("--") if "--" in args else len(args)
        ctx.params["pytest_arguments"] = tuple(args[end + 1 :])
        try:
            return super().parse_args(ctx, args[:end])
        except click.NoSuchOption as error:
            from harness.plugin.options import SPELLINGS

            advice, spelling = "options of pytest follow `--`", SPELLINGS.get(error.option_name, "")
            if any(spelling.split()[:1] == option.opts for option in self.params):
                advice = f"use `{spelling}`"
            problem = f"No such option {error.option_name!r}; {advice}."
            raise click.NoSuchOption(error.option_name, problem, error.possibilities, ctx) from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the words of the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- PYTEST_ARGS]"]


files_argument = click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=NamedPath()
)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def duration_option(name: str, parameter: str, help: str, default: str | None = None) -> Decorator:
    """Return an option for a duration, given to the command in seconds."""
    return click.option(
        name,
        parameter,
        type=Checked(parse_duration),
        callback=lambda _, __, value: None if value is None else parse_duration(value),
        metavar="TIME",
        default=default,
        show_default=default is not None,
        help=help,
    )


def device_option(help: str, **more: Any) -> Decorator:
    """Return `-s/--device`, given to the command as `device`."""
    return click.option("-s", "--device", metavar="NAME", type=Checked(nonblank), help=help, **more)


class _DeviceArgument(click.Argument):
    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """Return what was given, else what follows `-s`, else the device of ANDROID_SERIAL."""
        value, source = super().consume_value(ctx, opts)
        if (named := opts.get("device")) is None:
            return value, source
        if source is ParameterSource.COMMANDLINE:
            raise click.UsageError("Name devices either as DEVICE or with -s.", ctx)
        names = named if self.nargs == 1 else [part for text in named for part in text.split(",")]
        return names, ParameterSource.COMMANDLINE


def device_argument(parameter: str, **more: Any) -> Decorator:
    """Return the argument DEVICE, or several with `nargs=-1`, for which `-s/--device` may stand."""
    text = "The same as DEVICE (default: ANDROID_SERIAL)."
    option = device_option(text, multiple="nargs" in more, expose_value=False)
    argument = click.argument(parameter, cls=_DeviceArgument, envvar=SERIAL, **more)
    return lambda command: argument(option(command))


def output_option(help: str, *, metavar: str = "FILE", **more: Any) -> Decorator:
    """Return `-o/--output`, given to the command as `output`."""
    return click.option("-o", "--output", type=NamedPath(), metavar=metavar, help=help, **more)


def qnn_option(help: str) -> Decorator:
    """Return `--qnn` for one version, given to the command as `qnn`."""
    return click.option("--qnn", metavar="VERSION", help=help)


def verbose_option(help: str) -> Decorator:
    """Return `-v/--verbose`, given to the command as `verbose`."""
    return click.option("-v", "--verbose", is_flag=True, help=help)


def lab_to_name(lab_file: Path, command: object = None) -> str:
    """Return the --lab for another command; empty if the default lab does not exist.

    Then it runs on a simulated device, as this one did. A run's `command` may name its own --lab.
    """
    if lab_file == DEFAULT_LAB and (named := lab_in(command)):
        return named
    return "" if lab_file == DEFAULT_LAB and not lab_file.exists() else str(lab_file)


def lab_or_simulated(lab_file: Path, names: Sequence[str], *, notice: bool = False) -> Path:
    """Return the lab's file, or that of this computer's simulated devices.

    That is used if the default lab does not exist and all names are theirs; without names it is the
    first device. With a `notice` on stderr. Raises ConfigError for one that cannot be simulated
    here.
    """
    if lab_to_name(lab_file) or (shipped := shipped_lab(names)) is None:
        return lab_file
    if notice:
        devices = [device.name for device in load_lab(shipped).select(names or None)]
        noun = "device" if len(devices) == 1 else "devices"
        say(
            f"no {DEFAULT_LAB} here: running on the simulated {noun} {', '.join(devices)} of this "
            "computer; for attached devices run `qnn-harness init`, or use --lab FILE",
            err=True,
        )
    return shipped


def open_lab(lab: Lab, command: str, *, loan_s: float = 0.0) -> OpenLab:
    """Open the lab for one command, which leases every device that it uses, without waiting.

    With `loan_s` the user reserves devices for this time, each once the case on it has ended.
    """
    cache = cache_root()
    return OpenLab(
        lab,
        key_folder=cache / "keys",
        storage_root=simulated_root(cache),
        leases=Leases(lease_root(), purpose=f"qnn-harness {command}", loan_s=loan_s),
        lease_wait_s=_LONGEST_WAIT_S if loan_s else 0.0,
    )


def only_version(spec: str | None, resolve: Callable[..., Sequence[str]], field: str) -> str:
    """Return the QNN version that a spec means; the newest where none is named.

    Raises ConfigError for several, and for one that there is not.
    """
    if spec is None:
        return all_versions()[-1]
    names = resolve(spec, field=field)
    if len(names) > 1:
        raise ConfigError(f"{spec!r} is several versions; name one", field=field, choices=names)
    return names[0]


def host_runtime(catalog: Catalog, qnn: str | None) -> Runtime:
    """Return the libraries of a QNN version for this computer (default: the newest).

    Raises ConfigError for an unknown version, InfraError if it cannot be fetched.
    """
    resolve = partial(catalog.resolve, target=HOST_TARGET)
    return catalog.runtime(only_version(qnn, resolve, "--qnn"), HOST_TARGET)


def open_catalog(lab_file: Path = DEFAULT_LAB) -> Catalog:
    """Return the catalog of the lab, or only PyPI's if the default lab does not exist."""
    nothing = Lab.model_construct(schema_number=1, runtimes=())
    lab = load_lab(lab_file, find=None) if lab_to_name(lab_file) else nothing
    return Catalog.of(lab, os.environ, cache_root())
