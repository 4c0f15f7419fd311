"""The command-line options of the plug-in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest


def split_list(values: Sequence[str] | None) -> list[str]:
    """Flattens a repeatable, comma-separated option: ["a,b", "c"] -> [a, b, c]."""
    parts = (part.strip() for value in values or () for part in value.split(","))
    return [part for part in parts if part]


def _specs(values: Sequence[str] | None) -> list[str]:
    """Versions and ranges as given: what their commas mean is for who resolves them."""
    return [value for value in values or () if value.strip(" ,")]


def add_options(parser: pytest.Parser) -> None:
    """Registers the options; every list takes commas, repetition, or both."""
    group = parser.getgroup("qnn-harness", "Qualcomm device tests (qnn-harness)")
    group.addoption(
        "--lab", metavar="FILE", help="the lab's devices (default: devices.yaml in the rootdir)"
    )
    group.addoption(
        "--device",
        action="append",
        metavar="NAME",
        help="devices to run on (default: every enabled one of the lab)",
    )
    group.addoption(
        "--qnn",
        action="append",
        metavar="VERSION",
        help="QNN runtimes: versions (2.51.0, 2.48), ranges (>=2.48,<2.51), `latest`, `all`, any "
        "of them of one source of the lab (sdk:latest), or the path of an SDK, folder, AAR or "
        "Maven repository (default: latest)",
    )
    group.addoption(
        "--ort",
        action="append",
        metavar="VERSION",
        help="ONNX Runtime versions for tests that use it: as for --qnn",
    )
    group.addoption(
        "--compiler",
        action="append",
        metavar="VERSION",
        help="QNN versions that compile the contexts (default: the runtime's own)",
    )
    group.addoption(
        "--backend",
        action="append",
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
        help="complete a run (its folder, its name, or `latest`): only what it lacks, or what "
        "the lab failed in it",
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
    group.addoption(
        "--ahead",
        action="append",
        metavar="VERSIONS",
        help="while cases run, fetch, compile and push what a run with other versions will need: "
        '"qnn=2.50.40 compiler=2.47.0" (repeatable; not beside tests marked `timed`)',
    )


@dataclass(frozen=True)
class Options:
    """The options as given, with paths made absolute and lists taken apart."""

    lab: Path
    devices: list[str]
    qnn: list[str]
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


def _refuse_a_lost_rootdir(config: pytest.Config) -> None:
    """Says why pytest lost its configuration, instead of running something else.

    pytest looks for it before plug-ins have options: a path given as a word of its own (`--lab
    FILE`) then counts as a test path, and one outside of the project moves the rootdir.
    """
    words, here = list(config.invocation_params.args), config.invocation_params.dir
    if config.inipath is not None or config.getoption("rootdir", None):
        return
    for option in ("--lab", "--reports", "--known-issues", "--qnn", "--ort"):
        if option in words[:-1]:
            given = here / str(words[words.index(option) + 1])
            if given.exists() and not given.resolve().is_relative_to(here.resolve()):
                problem = f"write {option}={given}, or pytest takes the path for one of tests"
                raise pytest.UsageError(problem)


def read_options(config: pytest.Config) -> Options:
    """Reads the options; nothing is checked against the lab or the catalog yet."""
    _refuse_a_lost_rootdir(config)
    root = config.rootpath

    def path(name: str, default: str) -> Path:
        given = config.getoption(name)
        return (config.invocation_params.dir / given) if given else root / default

    issues = path("--known-issues", "suites/known_issues.yaml")
    given_issues = config.getoption("--known-issues") is not None
    reports = path("--reports", "reports")
    resume = config.getoption("--resume")
    problem_file = config.getoption("--problem-file")
    if resume is not None:
        # A bare name means a run among the reports; anything else is a path.
        named = (reports / resume) if "/" not in resume else None
        resume = named if named is not None else config.invocation_params.dir / resume
    return Options(
        lab=path("--lab", "devices.yaml"),
        devices=split_list(config.getoption("--device")),
        qnn=_specs(config.getoption("--qnn")) or ["latest"],
        ort=_specs(config.getoption("--ort")),
        compilers=_specs(config.getoption("--compiler")),
        backends=split_list(config.getoption("--backend")),
        known_issues=issues if given_issues or issues.exists() else None,
        strict_known=bool(config.getoption("--strict-known")),
        reports=reports,
        retries=max(0, config.getoption("--retries")),
        lease_timeout_s=max(0.0, config.getoption("--lease-timeout")),
        resume=resume,
        plan=bool(config.getoption("--plan")),
        preflight=config.getoption("--preflight"),
        only_case=config.getoption("--only-case"),
        ahead=tuple(config.getoption("--ahead") or ()),
        problem_file=config.invocation_params.dir / problem_file if problem_file else None,
    )
