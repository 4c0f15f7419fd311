"""Runs `pytest -m device` as a user would: a process of its own, in a folder of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.forked import ROOT, run_module

RUN_TIMEOUT_S = 1500
WITHOUT_HYPOTHESIS = "-p no:hypothesispytest"
"""Its plug-in imports all of it as a run ends, which takes as long as a case."""

LAB = """schema: 1
devices:
  - name: sim-v73
    simulated: true
    soc: QCS8550
    target: linux-x64
"""


@dataclass(frozen=True)
class Finished:
    """A run that has ended, and its folder."""

    code: int
    output: str
    folder: Path

    @property
    def journal(self) -> list[dict[str, Any]]:
        lines = (self.folder / "latest/results.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def cases(self) -> list[dict[str, Any]]:
        return [row for row in self.journal if row["kind"] == "case"]

    @property
    def by_test(self) -> dict[str, list[dict[str, Any]]]:
        """The cases by the names of their functions."""
        by_name: dict[str, list[dict[str, Any]]] = {}
        for case in self.cases:
            name = case["case"].partition("::")[2].partition("[")[0]
            by_name.setdefault(name, []).append(case)
        return by_name

    @property
    def events(self) -> list[dict[str, Any]]:
        """Faults of devices besides cases, and what was done about them."""
        events = [row for row in self.journal if row["kind"] == "device"]
        return [row for row in events if row["event"] != "push" and not _is_well(row)]

    @property
    def pushes(self) -> list[dict[str, Any]]:
        """Pushes to devices."""
        return [row for row in self.journal if row.get("event") == "push"]

    def case(self, **axes: object) -> dict[str, Any]:
        (record,) = (
            case
            for case in self.cases
            if all(case["axes"].get(name) == value for name, value in axes.items())
        )
        return record


def misnamed(cases: Sequence[dict[str, Any]]) -> list[str]:
    """The cases whose name, axis and device do not agree about where they ran."""
    devices = {case["device"]["name"] for case in cases}
    errors = []
    for case in cases:
        ran = case["device"]["name"]
        placed = case["placement"]["device"]
        assert f"[{placed}-" in case["case"]
        if {case["axes"].get("device", ran), placed} & (devices - {ran}):
            errors.append(f"{case['case']} ran on {ran}, axes.device: {case['axes'].get('device')}")
    return errors


def _is_well(row: dict[str, Any]) -> bool:
    return (row["event"], row["state"]) == ("health", "good")


@dataclass
class DeviceRuns:
    """A lab folder with one simulated device, and a way to run device tests on it."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.file = self.folder / "devices.yaml"
        self.file.write_text(LAB)
        self.environment = os.environ | {
            "QNN_HARNESS_SIMULATED": str(self.folder / "simulated"),
            "QNN_HARNESS_QUARANTINE": str(self.folder / "quarantine"),
            "QNN_HARNESS_LEASES": str(self.folder / "leases"),
        }
        for name in [name for name in self.environment if name.startswith("PYTEST_")]:
            del self.environment[name]  # what the tests themselves run under
        self.environment["PYTEST_ADDOPTS"] = WITHOUT_HYPOTHESIS

    def write_suite(self, text: str, name: str = "test_suite.py") -> Path:
        """Write a file of tests into a folder beside the lab."""
        path = self.folder / "suite" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def without_gpu(self) -> None:
        """Leave its GPU backend unable to prepare graphs."""
        self.file.write_text(f"{LAB}    prepares_gpu: false\n")

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    def command(self, *arguments: object) -> list[str]:
        base = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ROOT]
        base += ["-c", ROOT / "pyproject.toml", "-m", "device", "--lab", self.file]
        base += ["--reports", self.reports]
        return [str(argument) for argument in (*base, *arguments)]

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command with nothing on stdin, and both outputs in one."""
        place: dict[str, Any] = {"cwd": ROOT, "env": self.environment, "text": True}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, **place | streams | options)

    def qnn_harness(
        self, *arguments: object, timeout_s: float = RUN_TIMEOUT_S, code: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command in a process of its own, called in the folder of the lab.

        It ends with code, if that is given.
        """
        words = ["harness.cli.main", *map(str, arguments)]
        completed = run_module(words, self.folder, self.environment, timeout_s)
        assert code in (None, completed.returncode), f"{completed.stdout}{completed.stderr}"
        return completed

    def run_files(
        self, *arguments: object, timeout_s: float = RUN_TIMEOUT_S
    ) -> tuple[int, str, list[dict[str, Any]]]:
        """`qnn-harness run --json`: exit code, what was said, the records that were printed."""
        rounds = (
            () if any("--rounds" in str(argument) for argument in arguments) else ("--rounds=1",)
        )
        completed = self.qnn_harness("run", "--json", *rounds, *arguments, timeout_s=timeout_s)
        records = [json.loads(line) for line in completed.stdout.splitlines()]
        return completed.returncode, completed.stderr, records

    def run(
        self,
        *arguments: object,
        suites: Path = ROOT / "suites",
        code: int | None = None,
        **settings: str,
    ) -> Finished:
        """Run device tests, which end with code, if that is given."""
        _, _, *words = self.command(*arguments, suites)
        environment = self.environment | settings
        completed = run_module(words, ROOT, environment, RUN_TIMEOUT_S, stderr=subprocess.STDOUT)
        assert code in (None, completed.returncode), completed.stdout
        return Finished(completed.returncode, completed.stdout, self.reports)
