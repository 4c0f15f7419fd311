"""The command-line options of the plug-in."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import pytest

from harness.qnn.engines import ENGINES


def split_list(values: Sequence[str] | None) -> list[str]:
    """Flattens a repeatable, comma-separated option: ["a,b", "c"] -> [a, b, c]."""
    parts = (part.strip() for value in values or () for part in value.split(","))
    return [part for part in parts if part]


def _specs(values: Sequence[str] | None) -> list[str]:
    """Versions and ranges as given: what their commas mean is for who resolves them."""
    return [value for value in values or () if value.strip(" ,")]


def _drift_steps(text: str) -> int:
    """The STEPS of `--fail-on drift:STEPS`."""
    from harness.results.drift import steps_of

    steps = steps_of(text)
    if steps is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not drift:STEPS, as in drift:1")
    return steps


def _named(text: str) -> str:
    """A path; not an empty text, as of a shell variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; name a file or a folder")
    return text


WITH_VALUE: Final = (
    *("--lab", "--device", "--qnn", "--ort", "--compiler", "--backend", "--known-issues"),
    *("--reports", "--preflight", "--retries", "--lease-timeout", "--resume", "--only-case"),
    *("--problem-file", "--ahead", "--contexts", "--contexts-inputs", "--contexts-expected"),
    *("--contexts-tolerance", "--contexts-graph", "--contexts-number", "--contexts-residency"),
    *("--contexts-engine", "--executorch", "--fail-on", "--shard", "--shard-by"),
)
"""Our options that take a value."""


# What a command line says besides which cases it means; the versions are what is compared.
_SHORT: Final = ("-n", "-p", "-c")
_SAYS_NO_CASE: Final = frozenset(
    {
        *("--qnn", "--ort", "--compiler", "--executorch", "--lab", "--reports", "--known-issues"),
        *("--preflight", "--retries", "--lease-timeout", "--fail-on", "--ahead", "--problem-file"),
        # which part of the cases a run has is said beside its selection, which all parts share
        *("--shard", "--shard-by", "--resume", "--junitxml", "--durations", "--color", "--tb"),
        *("--timeout", "--dist"),
        *("--numprocesses", "--maxprocesses", "--rootdir", "--basetemp", *_SHORT),
    }
)
_FLAGS: Final = frozenset(
    {"--strict-known", "--trace-json", "--json", "-q", "-v", "-vv", "-s", "-x", "-ra"}
)


def selection(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line that choose cases, in one order (pure).

    Versions choose none: other ones are the same cases.
    """
    return tuple(sorted(_words(iter(command[1:]))))


def _words(command: Iterator[str]) -> Iterator[str]:
    for word in command:
        name, equals, value = word.partition("=")
        short = len(word) == 2 and word[0] == "-"
        if word in _FLAGS or (word[:2] in _SHORT and len(word) > 2):
            continue  # as in -nauto
        if short or name in WITH_VALUE or name in _SAYS_NO_CASE:
            value = value if equals else next(command, "")
            if name not in _SAYS_NO_CASE:
                yield f"{name}={value}"
        else:
            yield word


def add_options(parser: pytest.Parser) -> None:
    """Registers the options; every list takes commas, repetition, or both."""
    group = parser.getgroup("qnn-harness", "Qualcomm device tests (qnn-harness)")
    lists = partial(group.addoption, action="append")
    group.addoption(
        "--lab", metavar="FILE", help="the lab's devices (default: devices.yaml in the rootdir)"
    )
    lists(
        "--device",
        metavar="NAME",
        help="devices to run on, by name, or by address (adb://host:port/serial, "
        "ssh://user@host/serial) also such as the lab does not have (default: every enabled one)",
    )
    for flag, value, said in (
        ("--each-device", "device", "each device that fits, also of a pool"),
        ("--each-soc", "soc", "each kind of device that fits (SoC, target, tags), on any of it"),
        ("--any-device", "any", "one device that fits, whichever is free"),
    ):
        group.addoption(
            flag, dest="fan_out", action="store_const", const=value, help=f"run a case on {said}"
        )
    lists(
        "--qnn",
        metavar="VERSION",
        help="QNN runtimes: versions (2.51.0, 2.48), ranges (>=2.48,<2.51), `latest`, `all`, any "
        "of them of one source of the lab (sdk:latest), or the path of an SDK, folder, AAR or "
        "Maven repository (default: latest)",
    )
    lists(
        "--ort",
        metavar="VERSION",
        help="ONNX Runtime versions for tests that use it: as for --qnn",
    )
    lists(
        "--compiler",
        metavar="VERSION",
        help="QNN versions that compile the contexts (default: the runtime's own)",
    )
    lists(
        "--backend",
        metavar="NAME",
        help="htp, gpu, cpu (default: those that a test names, else htp)",
    )
    group.addoption(
        "--known-issues",
        metavar="FILE",
        help="expected failures (default: suites/known_issues.yaml in the rootdir, if there)",
    )
    group.addoption(
        "--strict-known",
        action="store_true",
        help="a case that passes where a known issue is expected fails the run",
    )
    group.addoption(
        "--reports", metavar="DIR", help="where results go (default: reports in the rootdir)"
    )
    group.addoption(
        "--preflight",
        choices=("strict", "warn", "off"),
        default="warn",
        help="what to do about libraries that do not fit together, the device or the contexts: "
        "run nothing with them, run and record it, do not look (default: warn)",
    )
    group.addoption(
        "--retries",
        type=int,
        default=2,
        metavar="N",
        help="how often a case is tried again that only the lab failed (default: 2)",
    )
    group.addoption(
        "--lease-timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for a device that another process holds (default: 60)",
    )
    group.addoption(
        "--resume",
        metavar="RUN",
        help="complete a run (its folder, its name, or `latest`): only cases that have no record "
        "in it, or whose verdict was lost",
    )
    group.addoption(
        "--shard",
        metavar="I/N",
        help="of the cases, run the I-th of N parts, as other machines run the others; "
        "`qnn-harness merge` makes one run of them",
    )
    group.addoption(
        "--shard-by",
        type=_named,
        metavar="RUN",
        help="divide by how long cases took in a run (its folder, its name, or its journal), which "
        "has to be the same on all machines (default: each case counts the same)",
    )
    group.addoption(
        "--plan",
        action="store_true",
        help="list the cases and the files each would push, and run nothing",
    )
    group.addoption(
        "--only-case",
        metavar="NODEID",
        help="run the one case of this name, whatever versions it names, with those asked for, on "
        "the first of the devices asked for that fits",
    )
    group.addoption(
        "--problem-file",
        metavar="FILE",
        help="where to say, as JSON, what kept the run from its cases (for programs)",
    )
    lists(
        "--ahead",
        metavar="VERSIONS",
        help="while cases run, fetch, compile and push what a run with other versions will need: "
        '"qnn=2.50.40 compiler=2.47.0" (repeatable; not beside tests marked `timed`)',
    )

    group.addoption(
        "--fail-on",
        type=_drift_steps,
        metavar="drift:STEPS",
        help="the run fails if an output of named files differs between versions, devices or "
        "backends by more than so many steps of its type; what has none, if it differs at all and "
        "STEPS is 0",
    )
    _add_contexts_options(group)


def _add_contexts_options(group: pytest.OptionGroup) -> None:
    """Options for contexts of the user's own."""
    lists = partial(group.addoption, action="append")
    lists(
        "--contexts",
        type=_named,
        metavar="PATH",
        help="run the suites that take contexts on those of a file, a folder or a pattern, instead "
        "of their own models (repeatable): a context binary, or what has some inside",
    )
    for name, said in (
        ("inputs", "inputs for these contexts (default: made up)"),
        ("expected", "what they should give (default: not known)"),
    ):
        group.addoption(f"--contexts-{name}", type=_named, metavar="DIR", help=said)
    group.addoption(
        "--contexts-tolerance",
        type=float,
        default=0.0,
        metavar="T",
        help="by how much an output may differ from that, in units of the raw values (default: 0)",
    )
    group.addoption(
        "--contexts-graph", metavar="NAME", help="the graph to execute of contexts with several"
    )
    lists(
        "--contexts-number",
        metavar="N",
        help="how many contexts a named file is run with, its own taken in turn (default: each "
        "once)",
    )
    group.addoption(
        "--contexts-engine",
        default="qnn",
        choices=tuple(ENGINES),
        help="what loads the contexts of a named file: the harness by QNN's API (default), ONNX "
        "Runtime (ort), for an .onnx, ExecuTorch, for a .pte, or LiteRT, for a .tflite that is "
        "compiled first",
    )
    group.addoption(
        "--trace-json",
        action="store_true",
        help="write a timeline of the run (trace.json), which ui.perfetto.dev opens",
    )
    group.addoption(
        "--executorch",
        metavar="BUILD_DIR",
        help="a build of ExecuTorch with qnn_executor_runner, for devices that its wheel has no "
        "libraries for: phones",
    )
    lists(
        "--contexts-residency",
        metavar="NAME",
        help="resident, sequential or window: how a named file is run (default: resident)",
    )


@dataclass(frozen=True)
class ContextsAsked:
    """What is asked of contexts of the user's own: the options called `--contexts...`."""

    paths: tuple[Path, ...] = ()
    inputs: Path | None = None
    expected: Path | None = None
    tolerance: float = 0.0
    graph: str | None = None
    numbers: tuple[str, ...] = ()
    residencies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """The options as given, with paths made absolute and lists taken apart."""

    lab: Path
    devices: list[str]
    qnn: list[str]
    qnn_given: bool
    ort: list[str]
    compilers: list[str]
    backends: list[str]
    known_issues: Path | None
    strict_known: bool
    reports: Path
    retries: int
    lease_timeout_s: float
    resume: Path | None
    plan: bool
    preflight: Literal["strict", "warn", "off"]
    only_case: str | None = None
    ahead: tuple[str, ...] = ()
    problem_file: Path | None = None
    drift_steps: int | None = None
    contexts: ContextsAsked = ContextsAsked()
    executorch: Path | None = None
    trace: bool = False
    fan_out: Literal["device", "soc", "any"] | None = None
    shard: str | None = None
    shard_by: Path | None = None


def read_options(config: pytest.Config) -> Options:
    """Reads the options; nothing is checked against the lab or the catalog yet."""
    get, here = config.getoption, config.invocation_params.dir

    def path(name: str) -> Path | None:
        return here / get(name) if get(name) else None

    issues = path("--known-issues") or config.rootpath / "suites/known_issues.yaml"
    reports = path("--reports") or config.rootpath / "reports"

    def run(name: str) -> Path | None:
        # A bare name means a run among the reports; anything else is a path.
        given = get(name)
        return None if given is None else Path(reports if "/" not in given else here, given)

    return Options(
        lab=path("--lab") or config.rootpath / "devices.yaml",
        devices=split_list(get("--device")),
        qnn=_specs(get("--qnn")) or ["latest"],
        qnn_given=bool(_specs(get("--qnn"))),
        ort=_specs(get("--ort")),
        compilers=_specs(get("--compiler")),
        backends=split_list(get("--backend")),
        known_issues=issues if get("--known-issues") is not None or issues.exists() else None,
        strict_known=get("--strict-known"),
        reports=reports,
        retries=max(0, get("--retries")),
        lease_timeout_s=max(0.0, get("--lease-timeout")),
        resume=run("--resume"),
        plan=get("--plan"),
        preflight=get("--preflight"),
        only_case=get("--only-case"),
        ahead=tuple(get("--ahead") or ()),
        problem_file=path("--problem-file"),
        drift_steps=get("--fail-on"),
        contexts=ContextsAsked(
            paths=tuple(here / one for one in get("--contexts") or ()),
            inputs=path("--contexts-inputs"),
            expected=path("--contexts-expected"),
            tolerance=get("--contexts-tolerance"),
            graph=get("--contexts-graph"),
            numbers=tuple(split_list(get("--contexts-number"))),
            residencies=tuple(split_list(get("--contexts-residency"))),
        ),
        executorch=path("--executorch"),
        trace=get("--trace-json"),
        fan_out=get("fan_out"),
        shard=get("--shard"),
        shard_by=run("--shard-by"),
    )
