"""The options of the plug-in: each is defined once, as a field of `Options` or `ContextOptions`.

pytest's options, the values read from them, the options that select cases, and those of
`qnn-harness run` are all derived from these fields. All begin with `--qnn-`. People use the short
forms (`--device`), as long as no other plug-in claims them; the harness itself writes the long
forms.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pytest

from harness.core.engine import find_engine
from harness.core.error_codes import PROFILES, ProfileAsked
from harness.core.errors import ConfigError
from harness.core.matrix_axes import AXES, IN_AXES, LISTED
from harness.plugin.pytest_internals import names_of_options
from harness.probe.plan import DEFAULT_WINDOW, FULL, Rounds
from harness.results.case_names import placement_in, split_node_id


def nonempty(text: str) -> str:
    """Return a path; reject an empty text, as from a shell variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty; name a file or a folder")
    return text


def drift_steps(text: str) -> int:
    """Return the STEPS of `--fail-on drift:STEPS`."""
    from harness.results.output_drift import steps_of

    steps = steps_of(text)
    if steps is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form drift:STEPS, as in drift:1")
    return steps


_SUITES: Final = "harness.suites"
_KNOWN_ISSUES: Final = Path(__file__).parents[1] / "suites/known_issues.yaml"
_AUTO: Final = "auto"
_AUTO_MS: Final = 2000
_AUTO_WARMUP: Final = 2
_AUTO_MOST: Final = 1000
_LONGEST_MS: Final = 200_000
_MOST: Final = 99999


def rounds(text: str) -> int | Literal["auto"]:
    """Return the N of `--contexts-rounds`."""
    return _AUTO if text == _AUTO else _number(text, 1, f"{_AUTO}, or ")


def warmup(text: str) -> int:
    """Return the M of `--contexts-warmup`."""
    return _number(text, 0)


def window(text: str) -> int:
    """Return the N of `--contexts-window`."""
    return _number(text, 1)


def rounds_option(options: ContextOptions, *, is_bundle: bool = False) -> Rounds:
    """Return the rounds of these options, limited so that they end before their case must.

    Raises ConfigError for a number of rounds besides a full profile run, and for one of a bundle's
    contexts, which run as they were packed.
    """
    most, warmup = options.rounds or 1, options.warmup
    usual = _AUTO_WARMUP if warmup is None else warmup
    if options.profile_run is not None:
        if is_bundle:
            problem = "the contexts of a bundle run as they were packed; extract them"
            raise ConfigError(problem, field="--profile-run")
        if options.rounds is not None:
            problem = (
                "--profile-run full makes as many rounds as MLPerf asks for; leave out --rounds"
            )
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


CLAIMED = pytest.StashKey[frozenset[str]]()
"""The short forms that other plug-ins have claimed."""
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
    named, _ = placement_in(split_node_id(get("--qnn-only-case") or "")[1] or "") or ({}, "")
    usual = {name: [named.get(name) or ""] for name in IN_AXES if AXES[name].type == "name"}
    values = {}
    for axis in LISTED:
        split = split_list if axis.type == "name" else _specs
        values[axis.name] = split(get(axis.option) or usual.get(axis.name))
    return values


def _tuple(values: Sequence[str] | None, _: object) -> tuple[str, ...]:
    return tuple(split_list(values))


def _path(value: str | None, folders: _Folders) -> Path | None:
    return folders.here / value if value else None


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
    """One option, with the `arguments` of argparse.

    `chooses`: it selects cases, which an option for versions does not. `run` is its help in
    `qnn-harness run` where that differs, None if that does not have it.
    """

    name: str
    arguments: Mapping[str, Any]
    chooses: bool = False
    run: str | None = ""

    @property
    def run_help(self) -> str:
        help: str = self.arguments["help"]
        return self.run or f"{help[:1].upper()}{help[1:]}."

    @property
    def short(self) -> str:
        return "--qnn" if self.name == "--qnn-version" else self.name.replace("--qnn-", "--")

    @property
    def parameter(self) -> str:
        return self.short.removeprefix("--").replace("-", "_")

    @property
    def takes_value(self) -> bool:
        return not str(self.arguments.get("action")).startswith("store_")


Preflight = Literal["strict", "warn", "off"]
PREFLIGHT: Final[tuple[Preflight, ...]] = get_args(Preflight)
"""The choices of `--preflight`."""

_Words = dict[str, Any]
_NUMBER: Final[_Words] = {"type": float, "chooses": True}
_FLAG: Final[_Words] = {"action": "store_true"}
_WORDS: Final[_Words] = {"action": "append", "read": _tuple, "chooses": True}
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
    return _field(lambda get, folders: read(get(name), folders), option)


def _field(read: Callable[[_Get, _Folders], Any], *options: Option) -> Any:
    return field(metadata={"read": read, "options": options})


def _options_of(options: type) -> Iterator[Option]:
    for field_ in fields(options):
        yield from field_.metadata["options"]


def _read_all(options: type, get: _Get, folders: _Folders) -> dict[str, Any]:
    return {each.name: each.metadata["read"](get, folders) for each in fields(options)}


@dataclass(frozen=True)
class ContextOptions:
    """The options for a user's own contexts, `--contexts...`."""

    paths: tuple[Path, ...] = _option(
        "--qnn-contexts PATH",
        "run the suites for contexts with those of a file or a folder instead of their own models "
        "(repeatable); a file is a context binary, or contains some",
        action="append",
        chooses=True,
        type=nonempty,
        read=lambda value, folders: tuple(folders.here / path for path in value or ()),
        run=None,
    )
    numbers: tuple[str, ...] = _option(
        "--qnn-contexts-number N[,N]",
        "number of contexts to load from a file, repeating its own in turn (default: each once)",
        **_WORDS,
    )
    residencies: tuple[str, ...] = _option(
        "--qnn-contexts-residency NAME",
        "how contexts of a file are loaded: resident, sequential or window (default: resident)",
        **_WORDS,
    )
    window: int = _option(
        "--qnn-contexts-window N",
        "most contexts of a file that are loaded at once with residency window (default: 4)",
        chooses=True,
        type=window,
        default=DEFAULT_WINDOW,
    )
    remedies: tuple[str, ...] = _option(
        "--qnn-remedies NAME[,NAME]",
        "load the contexts of a file by these remedies for contexts that do not fit; "
        "`qnn-harness model fit --remedies` ranks them",
        run=None,
        **_WORDS,
    )
    inputs: Path | None = _option(
        "--qnn-contexts-inputs DIR", "inputs for these contexts (default: generated)", **_DIR
    )
    expected: Path | None = _option(
        "--qnn-contexts-expected DIR", "expected outputs of these contexts (default: none)", **_DIR
    )
    tolerance: float = _option(
        "--qnn-contexts-tolerance T",
        "allowed difference of an output from the expected one, in raw values (default: 0)",
        chooses=True,
        type=float,
        default=0.0,
    )
    rounds: int | Literal["auto"] | None = _option(
        "--qnn-contexts-rounds N",
        "number of executions of each graph of a file, or auto: for 2 s (default: 1)",
        "Number of executions of each graph (default: for 2 s).",
        type=rounds,
    )
    warmup: int | None = _option(
        "--qnn-contexts-warmup M",
        "rounds before the measured ones (default: 0, with auto 2)",
        "Rounds before the measured ones (default: 2, or none with --rounds).",
        type=warmup,
    )
    profile_run: Literal["full"] | None = _option(
        "--qnn-profile-run",
        "measure your own files as MLPerf does: on a cool and idle device, 1,024 executions of "
        "each graph and 60 s at least, 600 s at most",
        choices=("full",),
    )
    reference: Path | None = _option(
        "--qnn-reference MODEL",
        "an .onnx with the same tensors, whose outputs are correct (default: the tested model)",
        **_DIR,
    )
    max_error: float | None = _option(
        "--qnn-max-error X",
        "largest error of an output of a file to its reference, in units of its values",
        **_NUMBER,
    )
    min_cosine: float | None = _option(
        "--qnn-min-cosine X", "least cosine of an output of a file with its reference", **_NUMBER
    )
    min_sqnr: float | None = _option(
        "--qnn-min-sqnr DB",
        "least signal-to-noise ratio (SQNR) of an output of a file to its reference",
        **_NUMBER,
    )
    graph: str | None = _option(
        "--qnn-contexts-graph NAME",
        "the graph to execute of contexts with several graphs",
        chooses=True,
    )
    context_option: tuple[str, ...] = _option(
        "--qnn-context-option NAME=VALUE",
        "an option of each context of a file, as in reused_io_limit_mb=64 (repeatable); "
        "docs/reference/context-options.md lists them",
        **_WORDS,
    )
    fallback: Literal["allow", "refuse"] = _option(
        "--qnn-fallback",
        "allow ONNX Runtime to run nodes on the CPU that the NPU refuses (default: refuse)",
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
    },
    chooses=True,
)
_BUILDS: Final = {
    "executorch": "a build of ExecuTorch with qnn_executor_runner, for devices without libraries "
    "in its wheel (phones)"
}
"""The engines of which a user may name a build, with the help for the option."""
_FAN_OUTS: Final = (
    ("--qnn-each-device", "device", "run on each device that fits, also those of a pool"),
    ("--qnn-each-soc", "soc", "run on one device of each kind that fits (SoC, target, tags)"),
    ("--qnn-any-device", "any", "run on any device that fits and is free"),
)
_STORED: Final[_Words] = {"action": "store_const", "dest": "qnn_fan_out"}


@dataclass(frozen=True)
class Options:
    """The options as given, with absolute paths and lists split; `axes` are {axis: values}."""

    contexts: ContextOptions = _field(
        lambda get, folders: ContextOptions(**_read_all(ContextOptions, get, folders)),
        *_options_of(ContextOptions),
        _ENGINE,
    )
    builds: Mapping[str, Path] = _field(
        lambda get, folders: {
            name: folders.here / path for name in _BUILDS if (path := get(f"--qnn-{name}"))
        },
        *(
            Option(f"--qnn-{name}", {"help": text, "metavar": "BUILD_DIR", "type": nonempty})
            for name, text in _BUILDS.items()
        ),
    )
    axes: Mapping[str, Sequence[str]] = _field(
        _axis_values,
        *(
            Option(
                axis.option,
                {"action": "append", "metavar": axis.type.upper(), "help": axis.help},
                chooses=axis.type == "name",
            )
            for axis in LISTED
        ),
    )
    fan_out: Literal["device", "soc", "any"] | None = _field(
        lambda get, _: get("qnn_fan_out"),
        *(
            Option(name, _STORED | {"const": value, "help": f"run a case on {text}"}, True, None)
            for name, value, text in _FAN_OUTS
        ),
    )
    lab: Path = _option(
        "--qnn-lab FILE",
        "the lab's devices (default: devices.yaml in the rootdir)",
        "The lab's devices (default: devices.yaml, else one simulated device).",
        read=lambda value, folders: _path(value, folders) or folders.root / "devices.yaml",
    )
    reports: Path = _option(
        "--qnn-reports DIR",
        "where results go (default: reports in the rootdir)",
        "Where results go (default: reports).",
        read=lambda _, folders: folders.reports,
    )
    known_issues: Path | None = _option(
        "--qnn-known-issues FILE",
        "expected failures (default: known_issues.yaml or suites/known_issues.yaml in the rootdir)",
        "Expected failures.",
        read=_known_issues,
    )
    strict_known: bool = _option(
        "--qnn-strict-known",
        "fail the run if a case passes where a known issue is expected",
        **_FLAG,
    )
    preflight: Preflight = _option(
        "--qnn-preflight",
        "for libraries that do not match each other, the device or the contexts: "
        "run nothing with them, run and record it, do not check (default: warn)",
        choices=PREFLIGHT,
        default="warn",
    )
    retries: int = _option(
        "--qnn-retries N",
        "how often a case is repeated after a failure of the lab (default: 2)",
        type=int,
        default=2,
        read=lambda value, _: max(0, value),
    )
    lease_timeout_s: float = _option(
        "--qnn-lease-timeout SECONDS",
        "how long to wait for one process that holds a device (default: 60)",
        type=float,
        default=60.0,
        read=lambda value, _: max(0.0, value),
        run=None,
    )
    drift_steps: int | None = _option(
        "--qnn-fail-on drift:STEPS",
        "fail the run if an output of files differs between versions, devices or backends by more "
        "than STEPS steps of its type (a type without steps: if it differs and STEPS is 0)",
        type=drift_steps,
    )
    resume: Path | None = _option(
        "--qnn-resume RUN",
        "complete a run (its folder, its name, or `latest`): run only cases without a record or "
        "without a verdict",
        read=_run,
    )
    again: Path | None = _option(
        "--qnn-again FILE",
        "for programs: repeat only the cases of FILE (JSON: {node id: number of runs})",
        read=_path,
        run=None,
    )
    profile: ProfileAsked | None = _option(
        "--qnn-profile",
        "profile your own files: basic (totals) or ops (cycles of each op)",
        choices=PROFILES,
    )
    plan: bool = _option(
        "--qnn-plan",
        "list the cases and the files that each would push, without running them",
        **_FLAG,
        chooses=True,
    )
    only_case: str | None = _option(
        "--qnn-only-case NODEID",
        "run only the case with this name, with selected versions, on the first device that fits",
        chooses=True,
        run=None,
    )
    problem_file: Path | None = _option(
        "--qnn-problem-file FILE",
        "for programs: write the error that stops the run into FILE, as JSON",
        read=_path,
        run=None,
    )


OPTIONS: Final = tuple(_options_of(Options))
"""All options."""

LONG: Final = {option.short: option.name for option in OPTIONS}
"""The long form of each short form."""

WITH_VALUE: Final = frozenset(option.name for option in OPTIONS if option.takes_value)
"""Our options that take a value."""

_WORD: Final = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w-])")


def add_options(parser: pytest.Parser) -> None:
    """Register the options; every list takes commas, repetition, or both."""
    group = parser.getgroup(_GROUP, _TITLE)
    for option in OPTIONS:
        group.addoption(option.name, **option.arguments)


def add_short_forms(parser: pytest.Parser) -> frozenset[str]:
    """Register the unclaimed short forms; return the claimed ones."""
    claimed = LONG.keys() & names_of_options(parser)
    group = parser.getgroup(_GROUP)
    for option in OPTIONS:
        if option.short not in claimed:
            dest = option.name.removeprefix("--").replace("-", "_")
            group.addoption(
                option.short, **{"dest": dest, **option.arguments, "help": argparse.SUPPRESS}
            )
    return frozenset(claimed)


def in_long_forms(words: Sequence[str], claimed: Collection[str] = ()) -> list[str]:
    """Return a command line with long forms for all short forms but the `claimed` ones (pure)."""
    end = words.index("--") if "--" in words else len(words)
    parts = [word.partition("=") for word in words[:end]]
    long = {short: name for short, name in LONG.items() if short not in claimed}
    return [*(long.get(name, name) + "".join(value) for name, *value in parts), *words[end:]]


def with_our_options(config: pytest.Config, text: str) -> str:
    """Return a text with long forms in the place of short forms that other plug-ins claim."""
    claimed = config.stash.get(CLAIMED, frozenset())
    return _WORD.sub(lambda match: LONG[match[0]] if match[0] in claimed else match[0], text)


def read_options(config: pytest.Config) -> Options:
    """Read the options, without checking them against the lab or the catalog.

    Files that are neither named nor there come from the package: the lab of simulated devices, by
    their names, and the known issues of the packaged suites (`--pyargs harness.suites`). Raises
    UsageError for an unknown engine or simulated device.
    """
    here, reports = config.invocation_params.dir, config.getoption("--qnn-reports")
    root = config.rootpath
    folders = _Folders(here, root, here / reports if reports else root / "reports")
    options = Options(**_read_all(Options, config.getoption, folders))
    packaged = any(str(argument).startswith(_SUITES) for argument in config.invocation_params.args)
    if packaged and options.known_issues is None and _KNOWN_ISSUES.exists():
        options = replace(options, known_issues=_KNOWN_ISSUES)
    try:
        if (engine := config.getoption("--qnn-engine")) is not None:
            find_engine(engine)
        devices, lab = options.axes["device"], config.getoption("--qnn-lab")
        if devices and lab is None and not options.lab.exists():
            from harness.lab.inventory import shipped_lab

            options = replace(options, lab=shipped_lab(devices) or options.lab)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from error
    return options
