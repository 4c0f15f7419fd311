"""The options of the plug-in: each stands here once, as a field of what a run is asked.

pytest's options, what they are read into, which of them choose cases, and those that
`qnn-harness run` hands on are all made of it. All begin with `--qnn-`, which is ours. What people
write is a short form (`--device`), which other plug-ins may have for something else: it is ours
where nobody has it. What the harness itself writes are the long forms.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pytest

from harness.core.axes import BACKENDS, ENGINES
from harness.core.codes import PROFILES, ProfileAsked
from harness.core.errors import ConfigError
from harness.plugin.pytest_internals import names_of_options
from harness.probe.plan import Rounds


def named(text: str) -> str:
    """A path; not an empty text, as of a shell variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; name a file or a folder")
    return text


def drift_steps(text: str) -> int:
    """The STEPS of `--fail-on drift:STEPS`."""
    from harness.results.drift import steps_of

    steps = steps_of(text)
    if steps is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not drift:STEPS, as in drift:1")
    return steps


_SUITES: Final = "harness.suites"
_KNOWN_ISSUES: Final = Path(__file__).parents[1] / "suites/known_issues.yaml"


def shipped(
    config: pytest.Config, lab: Path, devices: Sequence[str], known_issues: Path | None
) -> dict[str, Any]:
    """What to take instead of options of these names, where nothing was named and none is there.

    Simulated devices are had by their names; the suites of the package (`--pyargs harness.suites`)
    bring their known issues.
    """
    found: dict[str, Any] = {}
    packaged = any(str(one).startswith(_SUITES) for one in config.invocation_params.args)
    if packaged and known_issues is None and _KNOWN_ISSUES.exists():
        found["known_issues"] = _KNOWN_ISSUES
    if devices and config.getoption("--qnn-lab") is None and not lab.exists():
        from harness.lab.inventory import shipped_lab

        try:
            instead = shipped_lab(devices)
        except ConfigError as error:
            raise pytest.UsageError(str(error)) from None
        if instead is not None:
            found["lab"] = instead
    return found


_AUTO: Final = "auto"
_AUTO_MS: Final = 2000
_AUTO_WARMUP: Final = 2
_AUTO_MOST: Final = 1000
_LONGEST_MS: Final = 200_000
_MOST: Final = 99999


def rounds(text: str) -> int | Literal["auto"]:
    """The N of `--contexts-rounds`."""
    return _AUTO if text == _AUTO else _number(text, 1, f"{_AUTO}, or ")


def warmup(text: str) -> int:
    """The M of `--contexts-warmup`."""
    return _number(text, 0)


def rounds_asked(most: int | Literal["auto"], warmup: int | None) -> Rounds:
    """What both come to. However many rounds there are to be, they end before their case must."""
    if most == _AUTO:
        return Rounds(_AUTO_MOST, _AUTO_WARMUP if warmup is None else warmup, _AUTO_MS)
    before = warmup or 0
    return Rounds(most, before, _LONGEST_MS if most + before > 1 else None)


def _number(text: str, least: int, other: str = "") -> int:
    if not (text.isdecimal() and len(text) <= len(str(_MOST)) and int(text) >= least):
        told = f"{text[:40]!r} is no number of rounds: {other}{least} to {_MOST}"
        raise argparse.ArgumentTypeError(told)
    return int(text)


CLAIMED = pytest.StashKey[frozenset[str]]()
"""The short forms that another plug-in has."""
_GROUP: Final = "qnn-harness"
_TITLE: Final = (
    "Qualcomm device tests (qnn-harness); the short form of --qnn-NAME is --NAME, as in --device, "
    "and that of --qnn-version is --qnn, unless another plug-in has it"
)


@dataclass(frozen=True)
class _Started:
    """Where pytest was started, its root, and where results go."""

    here: Path
    root: Path
    reports: Path


_Get = Callable[[str], Any]


def split_list(values: Sequence[str] | None, _: object = None) -> list[str]:
    """Flattens a repeatable, comma-separated option: ["a,b", "c"] -> [a, b, c]."""
    parts = (part.strip() for value in values or () for part in value.split(","))
    return [part for part in parts if part]


def _specs(values: Sequence[str] | None, _: object = None) -> list[str]:
    return [value for value in values or () if value.strip(" ,")]


def _tuple(values: Sequence[str] | None, _: object) -> tuple[str, ...]:
    return tuple(split_list(values))


def _path(given: str | None, at: _Started) -> Path | None:
    return at.here / given if given else None


def _run(given: str | None, at: _Started) -> Path | None:
    # a bare name means a run among the reports; anything else is a path
    return None if given is None else Path(at.reports if "/" not in given else at.here, given)


def _known_issues(given: str | None, at: _Started) -> Path | None:
    usual = [at.root / name for name in ("known_issues.yaml", "suites/known_issues.yaml")]
    found = _path(given, at) or next((one for one in usual if one.exists()), None)
    return usual[-1] if found is None and given is not None else found


@dataclass(frozen=True)
class Option:
    """One option. `given` are pytest's words for it, which are those of `argparse`.

    `chooses` tells whether it says which cases a run has, as one for versions does not. `run` is
    its help in `qnn-harness run`, None if that does not have it.
    """

    name: str
    given: Mapping[str, Any]
    chooses: bool = False
    run: str | None = None

    @property
    def short(self) -> str:
        """The short form."""
        return "--qnn" if self.name == "--qnn-version" else self.name.replace("--qnn-", "--")

    @property
    def parameter(self) -> str:
        return self.short.removeprefix("--").replace("-", "_")

    @property
    def takes_value(self) -> bool:
        return not str(self.given.get("action")).startswith("store_")


Preflight = Literal["strict", "warn", "off"]
PREFLIGHT: Final[tuple[Preflight, ...]] = get_args(Preflight)
"""What may be done about libraries that do not fit."""

_Words = dict[str, Any]
_NUMBER: Final[_Words] = {"type": float, "chooses": True}
_FLAG: Final[_Words] = {"action": "store_true"}
_VERSIONS: Final[_Words] = {"action": "append", "read": _specs}
_NAMES: Final[_Words] = {"action": "append", "read": split_list, "chooses": True}
_WORDS: Final[_Words] = {"action": "append", "read": _tuple, "chooses": True}
_DIR: Final[_Words] = {"type": named, "read": _path, "chooses": True}


def _option(
    usage: str,
    help: str,
    run: str | None = None,
    chooses: bool = False,
    read: Callable[[Any, _Started], Any] = lambda given, _: given,
    **given: Any,
) -> Any:
    name, _, metavar = usage.partition(" ")
    given |= {"help": help} | ({"metavar": metavar} if metavar else {})
    return _field(lambda get, at: read(get(name), at), Option(name, given, chooses, run))


def _field(read: Callable[[_Get, _Started], Any], *options: Option) -> Any:
    return field(metadata={"read": read, "options": options})


def _options_of(asked: type) -> Iterator[Option]:
    for one in fields(asked):
        yield from one.metadata["options"]


def _read_all(asked: type, get: _Get, at: _Started) -> dict[str, Any]:
    return {one.name: one.metadata["read"](get, at) for one in fields(asked)}


@dataclass(frozen=True)
class ContextsAsked:
    """What is asked of contexts of the user's own: the options called `--contexts...`."""

    paths: tuple[Path, ...] = _option(
        "--qnn-contexts PATH",
        "run the suites that take contexts on those of a file, a folder or a pattern, instead "
        "of their own models (repeatable): a context binary, or what has some inside",
        action="append",
        chooses=True,
        type=named,
        read=lambda given, at: tuple(at.here / one for one in given or ()),
    )
    numbers: tuple[str, ...] = _option(
        "--qnn-contexts-number N[,N]",
        "how many contexts a named file is run with, its own taken in turn (default: each once)",
        "How many (default: each once).",
        **_WORDS,
    )
    residencies: tuple[str, ...] = _option(
        "--qnn-contexts-residency NAME",
        "resident, sequential or window: how a named file is run (default: resident)",
        "How they are loaded (default: resident, all at once).",
        **_WORDS,
    )
    inputs: Path | None = _option(
        "--qnn-contexts-inputs DIR",
        "inputs for these contexts (default: made up)",
        "Inputs (default: made up).",
        **_DIR,
    )
    expected: Path | None = _option(
        "--qnn-contexts-expected DIR",
        "what they should give (default: not known)",
        "What outputs should be.",
        **_DIR,
    )
    tolerance: float = _option(
        "--qnn-contexts-tolerance T",
        "by how much an output may differ from that, in units of the raw values (default: 0)",
        "How far they may be off.",
        chooses=True,
        type=float,
        default=0.0,
    )
    rounds: int | Literal["auto"] = _option(
        "--qnn-contexts-rounds N",
        "how often each graph of a named file is executed, or auto: for 2 s (default: once)",
        "How often each graph is executed (default: for 2 s).",
        type=rounds,
        default=1,
    )
    warmup: int | None = _option(
        "--qnn-contexts-warmup M",
        "rounds before those that count (default: 0, with auto 2)",
        "Rounds before those that count (default: 2).",
        type=warmup,
    )
    reference: Path | None = _option(
        "--qnn-reference MODEL",
        "an .onnx with the same tensors, whose outputs are right (default: the named one's own)",
        "An .onnx whose outputs are right.",
        **_DIR,
    )
    max_error: float | None = _option(
        "--qnn-max-error X",
        "how far outputs of a named file may be from their reference, in units of their values",
        "How far an output may be from its reference.",
        **_NUMBER,
    )
    min_cosine: float | None = _option(
        "--qnn-min-cosine X", "their least cosine with it", "The least cosine with it.", **_NUMBER
    )
    min_sqnr: float | None = _option(
        "--qnn-min-sqnr DB", "their least signal-to-noise ratio", "The same of its SQNR.", **_NUMBER
    )
    graph: str | None = _option(
        "--qnn-contexts-graph NAME",
        "the graph to execute of contexts with several",
        "Which of several to execute.",
        chooses=True,
    )
    fallback: Literal["allow", "refuse"] = _option(
        "--qnn-fallback",
        "whether ONNX Runtime may run on the CPU what the NPU refuses (default: refuse)",
        "Whether nodes that the NPU refuses may run on the CPU, by --engine ort (default: refuse).",
        choices=("allow", "refuse"),
        default="refuse",
        chooses=True,
    )


_ENGINE: Final = Option(
    "--qnn-engine",
    {
        "help": "what executes a named file (default: qnn; litert for a .tflite): "
        + ", ".join(f"{one.name} ({one.title})" for one in ENGINES.values()),
        "choices": tuple(ENGINES),
    },
    chooses=True,
    run="What executes a FILE (default: qnn; litert for a .tflite).",
)
_FAN_OUTS: Final = (
    ("--qnn-each-device", "device", "each device that fits, also of a pool"),
    ("--qnn-each-soc", "soc", "each kind of device that fits (SoC, target, tags), on any of it"),
    ("--qnn-any-device", "any", "one device that fits, whichever is free"),
)
_STORED: Final[_Words] = {"action": "store_const", "dest": "qnn_fan_out"}


@dataclass(frozen=True)
class Options:
    """The options as given, with paths made absolute and lists taken apart."""

    contexts: ContextsAsked = _field(
        lambda get, at: ContextsAsked(**_read_all(ContextsAsked, get, at)),
        *_options_of(ContextsAsked),
        _ENGINE,
    )
    executorch: Path | None = _option(
        "--qnn-executorch BUILD_DIR",
        "a build of ExecuTorch with qnn_executor_runner, for devices that its wheel has no "
        "libraries for: phones",
        "A build for --engine executorch (default: its wheel).",
        read=_path,
    )
    qnn: list[str] = _option(
        "--qnn-version VERSION",
        "QNN runtimes: versions (2.51.0, 2.48), ranges (>=2.48,<2.51), `latest`, `all`, any "
        "of them of one source of the lab (sdk:latest), or the path of an SDK, folder, AAR or "
        "Maven repository (default: latest)",
        "QNN runtimes (default: latest).",
        action="append",
        read=lambda given, _: _specs(given) or ["latest"],
    )
    qnn_given: bool = _field(lambda get, _: bool(_specs(get("--qnn-version"))))
    ort: list[str] = _option(
        "--qnn-ort VERSION",
        "ONNX Runtime versions for tests that use it: as for --qnn",
        "ONNX Runtimes of --engine ort.",
        **_VERSIONS,
    )
    compilers: list[str] = _option(
        "--qnn-compiler VERSION",
        "QNN versions that compile the contexts (default: the runtime's own)",
        "QNN versions that compile what is compiled here (default: the runtime's own).",
        **_VERSIONS,
    )
    backends: list[str] = _option(
        "--qnn-backend NAME",
        "htp, gpu, cpu (default: those that a test names, else htp)",
        f"{', '.join(BACKENDS)}.",
        **_NAMES,
    )
    devices: list[str] = _option(
        "--qnn-device NAME",
        "devices, or addresses (adb://host:port/serial, ssh://user@host/serial; default: all)",
        "Devices, or their addresses (default: all enabled).",
        **_NAMES,
    )
    fan_out: Literal["device", "soc", "any"] | None = _field(
        lambda get, _: get("qnn_fan_out"),
        *(
            Option(name, _STORED | {"const": value, "help": f"run a case on {said}"}, chooses=True)
            for name, value, said in _FAN_OUTS
        ),
    )
    lab: Path = _option(
        "--qnn-lab FILE",
        "the lab's devices (default: devices.yaml in the rootdir)",
        "The lab's devices (default: devices.yaml, else one simulated device).",
        read=lambda given, at: _path(given, at) or at.root / "devices.yaml",
    )
    reports: Path = _option(
        "--qnn-reports DIR",
        "where results go (default: reports in the rootdir)",
        "Where results go (default: reports).",
        read=lambda _, at: at.reports,
    )
    known_issues: Path | None = _option(
        "--qnn-known-issues FILE",
        "expected failures (default: known_issues.yaml or suites/known_issues.yaml in the rootdir)",
        "Failures that are expected.",
        read=_known_issues,
    )
    strict_known: bool = _option(
        "--qnn-strict-known",
        "a case that passes where a known issue is expected fails the run",
        "One that does not fail fails the run.",
        **_FLAG,
    )
    preflight: Preflight = _option(
        "--qnn-preflight",
        "what to do about libraries that do not fit together, the device or the contexts: "
        "run nothing with them, run and record it, do not look (default: warn)",
        "As of pytest.",
        choices=PREFLIGHT,
        default="warn",
    )
    retries: int = _option(
        "--qnn-retries N",
        "how often a case is tried again that only the lab failed (default: 2)",
        "For what only the lab failed.",
        type=int,
        default=2,
        read=lambda given, _: max(0, given),
    )
    lease_timeout_s: float = _option(
        "--qnn-lease-timeout SECONDS",
        "how long to wait for one process that holds a device (default: 60)",
        type=float,
        default=60.0,
        read=lambda given, _: max(0.0, given),
    )
    drift_steps: int | None = _option(
        "--qnn-fail-on drift:STEPS",
        "the run fails if an output of named files differs between versions, devices or backends "
        "by more than so many steps of its type; without steps, if it differs and STEPS is 0",
        "Outputs may differ so much at most.",
        type=drift_steps,
    )
    resume: Path | None = _option(
        "--qnn-resume RUN",
        "complete a run (its folder, its name, or `latest`): only cases that have no record "
        "in it, or whose verdict was lost",
        "Complete a run: its folder, name, or latest.",
        read=_run,
    )
    again: Path | None = _option(
        "--qnn-again FILE",
        "run again what a file names (JSON: how often by node id), and nothing else (for programs)",
        read=_path,
    )
    profile: ProfileAsked | None = _option(
        "--qnn-profile",
        "profile files of one's own: basic (totals) or ops (cycles of each op)",
        "Which op is slow: basic (totals) or ops (cycles of each op).",
        choices=PROFILES,
    )
    plan: bool = _option(
        "--qnn-plan",
        "list the cases and the files each would push, and run nothing",
        "List cases and files, and run nothing.",
        **_FLAG,
        chooses=True,
    )
    only_case: str | None = _option(
        "--qnn-only-case NODEID",
        "run the one case of this name, with the versions asked for, on the first device that fits",
        chooses=True,
    )
    problem_file: Path | None = _option(
        "--qnn-problem-file FILE",
        "where to say, as JSON, what kept the run from its cases (for programs)",
        read=_path,
    )


OPTIONS: Final = tuple(_options_of(Options))
"""All of them."""

LONG: Final = {option.short: option.name for option in OPTIONS}
"""What each short form stands for."""

WITH_VALUE: Final = frozenset(one.name for one in OPTIONS if one.takes_value)
"""Our options that take a value."""

_WORD: Final = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*(?![\w-])")


def add_options(parser: pytest.Parser) -> None:
    """Registers the options; every list takes commas, repetition, or both."""
    group = parser.getgroup(_GROUP, _TITLE)
    for option in OPTIONS:
        group.addoption(option.name, **option.given)


def add_short_forms(parser: pytest.Parser) -> frozenset[str]:
    """Registers the short forms that nobody has yet; returns the others."""
    claimed = LONG.keys() & names_of_options(parser)
    group = parser.getgroup(_GROUP)
    for option in OPTIONS:
        if option.short not in claimed:
            dest = option.name.removeprefix("--").replace("-", "_")
            group.addoption(
                option.short, **{"dest": dest, **option.given, "help": argparse.SUPPRESS}
            )
    return frozenset(claimed)


def in_long_forms(words: Sequence[str], claimed: Collection[str] = ()) -> list[str]:
    """A command line in which each short form is what it stands for, but those `claimed` (pure)."""
    end = words.index("--") if "--" in words else len(words)
    parts = [word.partition("=") for word in words[:end]]
    long = {short: name for short, name in LONG.items() if short not in claimed}
    return [*(long.get(name, name) + "".join(value) for name, *value in parts), *words[end:]]


def with_our_options(config: pytest.Config, text: str) -> str:
    """A text of ours, in which no short form stands that is another plug-in's."""
    claimed = config.stash.get(CLAIMED, frozenset())
    return _WORD.sub(lambda one: LONG[one[0]] if one[0] in claimed else one[0], text)


def read_options(config: pytest.Config) -> Options:
    """Reads the options; nothing is checked against the lab or the catalog yet."""
    here, reports = config.invocation_params.dir, config.getoption("--qnn-reports")
    at = _Started(here, config.rootpath, here / reports if reports else config.rootpath / "reports")
    options = Options(**_read_all(Options, config.getoption, at))
    instead = shipped(config, options.lab, options.devices, options.known_issues)
    return replace(options, **instead) if instead else options
