"""The options of the plug-in: each is defined once, as a field of `Options` or `ContextOptions`.

pytest's options and ini keys, the values read from them, the options that select cases, and those
of `qnn-harness run` are all derived from these fields. Options begin with `--qnn-`, ini keys with
`qnn_`. People use the short forms (`--device`), as long as no other plug-in claims them; the
harness itself writes the long forms, and ini keys as `-o KEY=VALUE`.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pytest

from harness.core.durations import parse_duration
from harness.core.engine import find_engine
from harness.core.error_codes import PROFILES, ProfileAsked
from harness.core.errors import ConfigError
from harness.core.matrix_axes import AXES, IN_AXES, LISTED, nonblank
from harness.plugin.pytest_internals import names_of_options
from harness.probe.plan import DEFAULT_WINDOW, FULL, Rounds
from harness.results.case_names import placement_in, split_node_id


def nonempty(text: str) -> str:
    """Return a path; reject an empty text, as from a shell variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; name a file or a folder")
    return text


_SUITES: Final = "harness.suites"
_KNOWN_ISSUES: Final = Path(__file__).parents[1] / "suites/known_issues.yaml"
_AUTO: Final = "auto"
_AUTO_MS: Final = 2000
_AUTO_WARMUP: Final = 2
_AUTO_MOST: Final = 1000
_LONGEST_MS: Final = 200_000
_MOST: Final = 99999


def rounds(text: str) -> int | Literal["auto"]:
    """Return a number of rounds, or "auto"."""
    return _AUTO if text == _AUTO else _number(text, 1, f"{_AUTO}, or ")


def count(text: str) -> int:
    """Return a number from 0."""
    return _number(text, 0)


def residencies(text: str) -> str:
    """Return residencies, of which one may have the size of a window. Raises ArgumentTypeError."""
    from harness.models.session_plan import RESIDENCIES

    for part in split_list([text]) or [""]:
        name, equals, size = part.partition("=")
        if name not in RESIDENCIES or (equals and name != "window"):
            valid = ", ".join((*RESIDENCIES, "window=N"))
            raise argparse.ArgumentTypeError(f"{part[:80]!r} is not a residency (valid: {valid})")
        if equals:
            _number(size, 1)
    return text


def limits(text: str) -> dict[str, float]:
    """Return the limits of `NAME=X[,NAME=X]` by name. Raises ArgumentTypeError."""
    values = {}
    for part in split_list([text]) or [""]:
        name, _, value = part.partition("=")
        try:
            values[name] = float(value) if name != "drift" else int(value)
        except ValueError:
            name = ""
        if name not in LIMITS or values[name] != values[name] or values.get("drift", 0) < 0:
            valid = ", ".join(f"{name}={text}" for name, text in LIMITS.items())
            raise argparse.ArgumentTypeError(f"{part[:80]!r} is not a limit (valid: {valid})")
    return values


def rounds_option(options: ContextOptions, *, is_bundle: bool = False) -> Rounds:
    """Return the rounds of these options, limited so that they end before their case must.

    Raises ConfigError for a number of rounds besides a full profile run, and for one of a bundle's
    contexts, which run as they were packed.
    """
    most, warmup = options.rounds or 1, options.warmup
    usual = _AUTO_WARMUP if warmup is None else warmup
    if options.profile_run is not None:
        if is_bundle:
            problem = "a bundle runs as it was packed; run what `qnn-harness model extract` writes"
            raise ConfigError(problem, field="--profile-run")
        if options.rounds is not None:
            problem = "--profile-run full sets the number of rounds itself; leave out --rounds"
            raise ConfigError(problem, field="--rounds")
        return replace(FULL, warmup=usual)
    if most == _AUTO:
        return Rounds(_AUTO_MOST, usual, _AUTO_MS)
    before = warmup or 0
    return Rounds(most, before, _LONGEST_MS if most + before > 1 else None)


def _number(text: str, least: int, other: str = "") -> int:
    if not (text.isdecimal() and len(text) <= len(str(_MOST)) and int(text) >= least):
        message = f"{text[:40]!r} is not a whole number: {other}{least} to {_MOST}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


SPELLED = pytest.StashKey[Mapping[str, str]]()
"""How pytest spells the options that messages name: long forms of claimed ones, and ini keys."""
_GROUP: Final = "qnn-harness"
_TITLE: Final = (
    "Qualcomm device tests (qnn-harness); the short form of --qnn-NAME is --NAME, as in --device, "
    "and that of --qnn-version is --qnn, unless another plug-in has it"
)


@dataclass(frozen=True)
class _Folders:
    """The folder where pytest was started, its root folder, and the folder of results."""

    here: Path
    root: Path
    reports: Path


_Get = Callable[[str], Any]


def split_list(values: Sequence[str] | None) -> list[str]:
    """Flatten a repeatable, comma-separated option: ["a,b", "c"] -> [a, b, c]."""
    parts = (part.strip() for value in values or () for part in value.split(","))
    return [part for part in parts if part]


def _specs(values: Sequence[str] | None) -> list[str]:
    return [value for value in values or () if value.strip(" ,")]


def _axis_values(get: _Get, _: object) -> dict[str, list[str]]:
    # a single case has the backend in its name, but any versions and devices
    named, _ = placement_in(split_node_id(get("qnn_only_case") or "")[1] or "") or ({}, "")
    usual = {name: [named.get(name) or ""] for name in IN_AXES if AXES[name].type == "name"}
    values = {}
    for axis in LISTED:
        split = split_list if axis.type == "name" else _specs
        values[axis.name] = split(get(axis.option) or usual.get(axis.name))
    if not values["device"] and (serial := os.environ.get("ANDROID_SERIAL")):
        values["device"] = [serial]  # as adb does
    return values


def _tuple(values: Sequence[str] | None, _: object) -> tuple[str, ...]:
    return tuple(split_list(values))


def _path(value: str | None, folders: _Folders) -> Path | None:
    return folders.here / value if value else None


def _window(residencies: Sequence[str]) -> int:
    sizes = dict.fromkeys(text.partition("=")[2] for text in residencies if "=" in text)
    if len(sizes) > 1:
        raise pytest.UsageError("--residency: name one size of a window")
    return int(next(iter(sizes))) if sizes else DEFAULT_WINDOW


def _limit(get: _Get, name: str) -> Any:
    named = (values[name] for values in reversed(get(_LIMIT.name) or ()) if name in values)
    return next(named, None)


def _run(value: str | None, folders: _Folders) -> Path | None:
    # a bare name is a run among the reports; anything else is a path
    if value is None:
        return None
    return Path(folders.reports if "/" not in value else folders.here, value)


def _known_issues(value: str | None, folders: _Folders) -> Path | None:
    usual = [folders.root / name for name in ("known_issues.yaml", "suites/known_issues.yaml")]
    path = _path(value, folders) or next((path for path in usual if path.exists()), None)
    return usual[-1] if path is None and value is not None else path


@dataclass(frozen=True)
class Option:
    """One option, or ini key, with the `arguments` of argparse.

    `chooses`: it selects cases, which an option for versions does not. `run` is its help in
    `qnn-harness run` where that differs, None if that does not have it.
    """

    name: str
    arguments: Mapping[str, Any]
    chooses: bool = False
    run: str | None = ""

    @property
    def is_ini(self) -> bool:
        return not self.name.startswith("-")

    def words(self, value: object) -> list[str]:
        """Return pytest's arguments for a value, with "=": it takes a word for a test's path."""
        return ["-o", f"{self.name}={value}"] if self.is_ini else [f"{self.name}={value}"]

    @property
    def run_help(self) -> str:
        help: str = self.arguments["help"]
        return self.run or f"{help[:1].upper()}{help[1:]}."

    @property
    def short(self) -> str:
        if self.is_ini:
            return self.name.replace("qnn_", "--").replace("_", "-")
        return "--qnn" if self.name == "--qnn-version" else self.name.replace("--qnn-", "--")

    @property
    def parameter(self) -> str:
        return self.short.removeprefix("--").replace("-", "_")

    @property
    def takes_value(self) -> bool:
        return not str(self.arguments.get("action")).startswith("store_")


Preflight = Literal["strict", "warn", "off"]
PREFLIGHT: Final[tuple[Preflight, ...]] = get_args(Preflight)
"""The choices of `qnn_preflight`."""

_Words = dict[str, Any]
_WORDS: Final[_Words] = {"action": "append", "type": nonblank, "read": _tuple, "chooses": True}
_DIR: Final[_Words] = {"type": nonempty, "read": _path, "chooses": True}


def _option(
    usage: str,
    help: str,
    run: str | None = "",
    chooses: bool = False,
    read: Callable[[Any, _Folders], Any] = lambda value, _: value,
    **arguments: Any,
) -> Any:
    name, _, metavar = usage.partition(" ")
    arguments |= {"help": help} | ({"metavar": metavar} if metavar else {})
    option = Option(name, arguments, chooses, run)

    def value(get: _Get, folders: _Folders) -> Any:
        # paths in an ini file are relative to the root folder
        return read(get(name), replace(folders, here=folders.root) if option.is_ini else folders)

    return _field(value, option)


def _field(read: Callable[[_Get, _Folders], Any], *options: Option) -> Any:
    return field(metadata={"read": read, "options": options})


def _options_of(options: type) -> Iterator[Option]:
    for field_ in fields(options):
        yield from field_.metadata["options"]


def _read_all(options: type, get: _Get, folders: _Folders) -> dict[str, Any]:
    return {each.name: each.metadata["read"](get, folders) for each in fields(options)}


LIMITS: Final = {
    "tolerance": "RAW",
    "max-error": "X",
    "min-cosine": "X",
    "min-sqnr": "DB",
    "drift": "STEPS",
}
"""The limits of outputs, with their values."""
SPELLINGS: Final = {f"--{name}": f"--limit {name}={value}" for name, value in LIMITS.items()} | {
    "--contexts": "--copies N"
}
"""How options that people may try are spelled here."""

_LIMIT: Final = Option(
    "--qnn-limit",
    {
        "action": "append",
        "metavar": "NAME=X",
        "type": limits,
        "help": "limit of the outputs of a file (repeatable): tolerance (largest difference from "
        "the expected output, in raw values; default: 0); max-error, min-cosine or min-sqnr (in "
        "dB) against the reference; drift (steps of its type between versions, devices or "
        "backends, else the run fails)",
    },
    chooses=True,
)
_RESIDENCY: Final = Option(
    "--qnn-residency",
    {
        "action": "append",
        "metavar": "NAME",
        "type": residencies,
        "help": "how contexts of a file are loaded: resident (all at once, the default), "
        "sequential (one at a time) or window=N (the last N; default: 4)",
    },
    chooses=True,
)


@dataclass(frozen=True)
class ContextOptions:
    """The options for a user's own contexts."""

    paths: tuple[Path, ...] = _option(
        "--qnn-model PATH",
        "run the suites for contexts with those of a file or a folder instead of their own models "
        "(repeatable); a file is a context binary, or contains some",
        action="append",
        chooses=True,
        type=nonempty,
        read=lambda value, folders: tuple(folders.here / path for path in value or ()),
        run=None,
    )
    numbers: tuple[str, ...] = _option(
        "--qnn-copies N[,N]",
        "number of contexts to load from a file, repeating its own in turn (default: each once)",
        **_WORDS,
    )
    residencies: tuple[str, ...] = _field(
        lambda get, _: tuple(text.partition("=")[0] for text in split_list(get(_RESIDENCY.name))),
        _RESIDENCY,
    )
    window: int = _field(lambda get, _: _window(split_list(get(_RESIDENCY.name))))
    remedies: tuple[str, ...] = _option(
        "qnn_remedies",
        "load the contexts of a file by these remedies for contexts that do not fit: set by "
        "`qnn-harness model fit --remedies`",
        run=None,
        chooses=True,
        read=lambda value, _: tuple(split_list([value or ""])),
    )
    inputs: Path | None = _option(
        "--qnn-inputs DIR", "folder with NAME.npy or 0.npy, 1.npy ... (default: generated)", **_DIR
    )
    expected: Path | None = _option(
        "--qnn-expected DIR", "folder of expected outputs, named alike (default: none)", **_DIR
    )
    tolerance: float = _field(lambda get, _: _limit(get, "tolerance") or 0.0, _LIMIT)
    max_error: float | None = _field(lambda get, _: _limit(get, "max-error"))
    min_cosine: float | None = _field(lambda get, _: _limit(get, "min-cosine"))
    min_sqnr: float | None = _field(lambda get, _: _limit(get, "min-sqnr"))
    rounds: int | Literal["auto"] | None = _option(
        "qnn_rounds",
        "number of executions of each graph of a file, or auto: for 2 s (default: 1); without "
        "expected outputs two at least, whose outputs are compared",
        "Number of executions of each graph, at least 2 without --expected (default: for 2 s).",
        type=rounds,
        metavar="N",
    )
    warmup: int | None = _option(
        "qnn_warmup",
        "rounds before the measured ones (default: 0; 2 if qnn_rounds is auto)",
        run=None,
        type=count,
    )
    profile_run: Literal["full"] | None = _option(
        "qnn_profile_run",
        "`full` measures a file as MLPerf does: on a cool and idle device, 1,024 executions of "
        "each graph and 60 s at least, 600 s at most",
        choices=("full",),
    )
    reference: Path | None = _option(
        "qnn_reference",
        "an .onnx with the same tensors, whose outputs are correct (default: the tested model)",
        metavar="MODEL",
        **_DIR,
    )
    graph: str | None = _option(
        "qnn_graph",
        "the graph to execute of contexts with several graphs",
        metavar="NAME",
        chooses=True,
    )
    context_option: tuple[str, ...] = _option(
        "qnn_context_option",
        "options of each context of a file, as in reused_io_limit_mb=64 (several with commas); "
        "docs/reference/context-options.md lists them",
        "An option of each context, as in reused_io_limit_mb=64 (repeatable).",
        metavar="NAME=VALUE",
        chooses=True,
        action="append",
        read=lambda value, _: tuple(split_list([value or ""])),
    )
    fallback: Literal["allow", "refuse"] = _option(
        "qnn_fallback",
        "`allow` lets ONNX Runtime run nodes on the CPU that the NPU refuses (default: refuse)",
        choices=("allow", "refuse"),
        default="refuse",
        chooses=True,
    )


_ENGINE: Final = Option(
    "--qnn-engine",
    {
        "help": "the engine for a file (default: qnn; litert for a .tflite): qnn (the probe), "
        "ort (ONNX Runtime), executorch (ExecuTorch), litert (LiteRT), or one of a plug-in",
        "metavar": "NAME",
        "type": nonblank,
    },
    chooses=True,
)


def _for_files(get: _Get) -> tuple[str, ...]:
    """Return the given options that only a file has; a limit of drift is for every case."""
    options = [option for option in (*_options_of(ContextOptions), _ENGINE) if not option.is_ini]
    limits = [name for values in get(_LIMIT.name) or () for name in values if name != "drift"]
    return tuple(each.short for each in options if (limits if each is _LIMIT else get(each.name)))


@dataclass(frozen=True)
class Options:
    """The options as given, with absolute paths and lists split; `axes` are {axis: values}."""

    contexts: ContextOptions = _field(
        lambda get, folders: ContextOptions(**_read_all(ContextOptions, get, folders)),
        *_options_of(ContextOptions),
        _ENGINE,
    )
    for_files: tuple[str, ...] = _field(lambda get, _: _for_files(get))
    builds: Mapping[str, Path] = _option(
        "qnn_executorch",
        "folder of a build of ExecuTorch with qnn_executor_runner, for devices without libraries "
        "in its wheel (phones)",
        run=None,
        read=lambda value, folders: {"executorch": folders.root / value} if value else {},
    )
    axes: Mapping[str, Sequence[str]] = _field(
        _axis_values,
        *(
            Option(
                axis.option,
                {
                    "action": "append",
                    "type": nonblank,
                    "metavar": axis.type.upper(),
                    "help": axis.help,
                },
                chooses=axis.type == "name",
            )
            for axis in LISTED
        ),
    )
    spread: Literal["device", "soc", "any"] | None = _option(
        "--qnn-spread",
        "run a case on each device that fits (device), on one of each kind (soc: SoC, target, "
        "tags), or on any that is free (any); default: on each, and on one of a pool",
        run=None,
        choices=("device", "soc", "any"),
        chooses=True,
    )
    lab: Path = _option(
        "--qnn-lab FILE",
        "the lab's devices (default: devices.yaml in the rootdir)",
        type=nonempty,
        read=lambda value, folders: _path(value, folders) or folders.root / "devices.yaml",
    )
    reports: Path = _option(
        "--qnn-reports DIR",
        "where results go (default: reports in the rootdir)",
        type=nonempty,
        read=lambda _, folders: folders.reports,
    )
    known_issues: Path | None = _option(
        "--qnn-known-issues FILE",
        "expected failures (default: known_issues.yaml or suites/known_issues.yaml in the rootdir)",
        run=None,
        read=_known_issues,
    )
    strict_known: bool = _option(
        "qnn_strict_known",
        "`true` fails the run if a case passes where a known issue is expected",
        run=None,
        choices=("true", "false"),
        read=lambda value, _: value == "true",
    )
    preflight: Preflight = _option(
        "qnn_preflight",
        "for libraries that do not match each other, the device or the contexts: run nothing with "
        "them (strict), run and record it (warn), do not check (off); default: warn",
        run=None,
        choices=PREFLIGHT,
        default="warn",
    )
    retries: int = _option(
        "qnn_retries",
        "how often a case is repeated after a failure of the lab (default: 2)",
        run=None,
        type=count,
        default=2,
    )
    lease_timeout_s: float = _option(
        "qnn_lease_timeout",
        "how long to wait for one process that holds a device, as in 30s or 5m (default: 60s)",
        run=None,
        type=parse_duration,
        default=60.0,
    )
    drift_steps: int | None = _field(lambda get, _: _limit(get, "drift"))
    resume: Path | None = _option(
        "--qnn-resume RUN",
        "complete a run (its folder, its name, or `latest`): run only cases without a record or "
        "without a verdict",
        read=_run,
    )
    again: Path | None = _option(
        "qnn_again",
        "a file of cases to repeat (JSON: {node id: number of runs}): set by `qnn-harness nightly`",
        read=_path,
        run=None,
    )
    profile: ProfileAsked | None = _option(
        "--qnn-profile",
        "profile your own files: basic (totals) or ops (cycles of each op)",
        choices=PROFILES,
    )
    dry_run: bool = _option(
        "--qnn-dry-run",
        "list the cases and the files that each would push, without running them",
        action="store_true",
        chooses=True,
    )
    only_case: str | None = _option(
        "qnn_only_case",
        "the one case to run, with selected versions, on the first device that fits: set by "
        "`qnn-harness bisect` and `model reduce`",
        chooses=True,
        run=None,
    )
    problem_file: Path | None = _option(
        "qnn_problem_file",
        "a file for the error that stops the run: set by `qnn-harness nightly` and `bisect`",
        read=_path,
        run=None,
    )


ALL: Final = tuple(_options_of(Options))
"""All options and ini keys."""

OPTIONS: Final = tuple(option for option in ALL if not option.is_ini)
"""The options of pytest's command line."""

INI_KEYS: Final = {option.name: option for option in ALL if option.is_ini}
"""The keys of pytest's ini file."""

LONG: Final = {option.short: option.name for option in OPTIONS}
"""The long form of each short form."""

WITH_VALUE: Final = frozenset(option.name for option in OPTIONS if option.takes_value)
"""Our options that take a value."""

_IN_INI: Final = {option.short: f"-o {option.name}" for option in INI_KEYS.values()}
_WORD: Final = re.compile(r"`qnn-harness [^`]*`|(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w-])")


def add_options(parser: pytest.Parser) -> None:
    """Register options and ini keys; every list takes commas, repetition, or both."""
    group = parser.getgroup(_GROUP, _TITLE)
    for option in OPTIONS:
        group.addoption(option.name, **option.arguments)
    for key, option in INI_KEYS.items():
        parser.addini(key, option.arguments["help"], default="")


def add_short_forms(parser: pytest.Parser) -> Mapping[str, str]:
    """Register the unclaimed short forms; return the `SPELLED` of the options."""
    claimed = LONG.keys() & names_of_options(parser)
    group = parser.getgroup(_GROUP)
    for option in OPTIONS:
        if option.short not in claimed:
            dest = option.name.removeprefix("--").replace("-", "_")
            group.addoption(
                option.short, **{"dest": dest, **option.arguments, "help": argparse.SUPPRESS}
            )
    return {short: LONG[short] for short in claimed} | _IN_INI


def in_long_forms(words: Sequence[str], claimed: Collection[str] = ()) -> list[str]:
    """Return a command line with long forms for all short forms but the `claimed` ones (pure)."""
    end = words.index("--") if "--" in words else len(words)
    parts = [word.partition("=") for word in words[:end]]
    long = {short: name for short, name in LONG.items() if short not in claimed}
    return [*(long.get(name, name) + "".join(value) for name, *value in parts), *words[end:]]


def with_our_options(config: pytest.Config, text: str) -> str:
    """Return a text with pytest's options in it as they are spelled here."""
    spelled = config.stash.get(SPELLED, {})
    return _WORD.sub(lambda match: spelled.get(match[0], match[0]), text)


def value_of(config: pytest.Config, name: str) -> Any:
    """Return the value of an option or ini key. Raises UsageError for a wrong ini value."""
    if (option := INI_KEYS.get(name)) is None:
        return config.getoption(name)
    text, arguments = str(config.getini(name)).strip(), option.arguments
    if not text:
        return arguments.get("default")
    choices = arguments.get("choices", ())
    if choices and (text := text.lower()) not in choices:
        raise pytest.UsageError(f"{name}: {text[:40]!r} is unknown (valid: {', '.join(choices)})")
    try:
        return arguments.get("type", str)(text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise pytest.UsageError(f"{name}: {error}") from None


def read_options(config: pytest.Config) -> Options:
    """Read the options, without checking them against the lab or the catalog.

    Files that are neither named nor there come from the package: the lab of simulated devices, by
    their names, and the known issues of the packaged suites (`--pyargs harness.suites`). Raises
    ConfigError for an unknown engine or simulated device.
    """
    here, reports = config.invocation_params.dir, config.getoption("--qnn-reports")
    root = config.rootpath
    folders = _Folders(here, root, here / reports if reports else root / "reports")
    options = Options(**_read_all(Options, partial(value_of, config), folders))
    packaged = any(str(argument).startswith(_SUITES) for argument in config.invocation_params.args)
    if packaged and options.known_issues is None and _KNOWN_ISSUES.exists():
        options = replace(options, known_issues=_KNOWN_ISSUES)
    if (engine := config.getoption("--qnn-engine")) is not None:
        find_engine(engine)
    devices, lab = options.axes["device"], config.getoption("--qnn-lab")
    if devices and lab is None and not options.lab.exists():
        from harness.lab.inventory import shipped_lab

        options = replace(options, lab=shipped_lab(devices) or options.lab)
    return options
