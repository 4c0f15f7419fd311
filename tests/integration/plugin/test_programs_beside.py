"""What lies beside a file of contexts is never run as a program of pytest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.containers.extract import extract
from harness.containers.open import open_artefact
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.forked import run_module
from tests.unit.containers.made import FIELD

PTE = FIELD / "executorch-3-contexts.pte"
BINARY = f"{PTE.name}.1.bin"


class Handed:
    """A folder of contexts with programs beside them, each of which leaves a file if it is run."""

    def __init__(self, lab: DeviceRuns, tmp_path: Path) -> None:
        self._lab, self._marks = lab, tmp_path / "marks"
        self.folder, self.here = tmp_path / "handed/over", tmp_path / "here"
        self._marks.mkdir()
        self.here.mkdir()
        extract([open_artefact(PTE)], self.folder)
        mark = f"import pathlib; pathlib.Path({str(self._marks)!r}, __name__).touch()\n"
        for name in ("conftest.py", "test_evil.py", "evil.py", "sitecustomize.py"):
            (self.folder / name).write_text(mark)
        (self.folder.parent / "conftest.py").write_text(mark)

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Runs a module in a folder beside, where nothing is."""
        told = [str(word) for word in words]
        return run_module(told, self.here, self._lab.environment, 300)

    @property
    def ran(self) -> list[str]:
        return sorted(one.name for one in self._marks.iterdir())


@pytest.fixture
def handed(lab: DeviceRuns, tmp_path: Path) -> Handed:
    return Handed(lab, tmp_path)


def test_run_runs_no_program_beside_its_files(handed: Handed) -> None:
    (handed.folder / "pytest.ini").write_text("[pytest]\naddopts = test_evil.py\npythonpath = .\n")
    for given in (handed.folder, handed.folder / BINARY):
        done = handed.run("harness.cli.main", "run", "--plan", given)
        assert (done.returncode, handed.ran) == (0, []), done.stdout + done.stderr


def test_pytest_refuses_programs_beside_a_named_file(handed: Handed) -> None:
    given = handed.folder / BINARY
    done = handed.run("pytest", "--collect-only", given)
    said = done.stdout + done.stderr
    assert (done.returncode, handed.ran) == (4, []), said
    assert f"pytest would run what {handed.folder / 'conftest.py'} says" in said
    (handed.folder / "conftest.py").unlink()
    done = handed.run("pytest", "--collect-only", given)
    assert (done.returncode, handed.ran) == (4, []), done.stdout + done.stderr
    assert f"{handed.folder.parent / 'conftest.py'} says" in done.stdout + done.stderr
    (handed.folder.parent / "conftest.py").unlink()
    (handed.folder / "pytest.ini").write_text("[pytest]\naddopts = test_evil.py\npythonpath = .\n")
    done = handed.run("pytest", "--collect-only", given)
    assert (done.returncode, handed.ran) == (4, []), done.stdout + done.stderr
    assert f"{handed.folder / 'pytest.ini'} says" in done.stdout + done.stderr


def test_contexts_bring_no_programs(handed: Handed) -> None:
    suites = ROOT / "suites/test_context_count.py"
    assert suites.exists()
    for option in ([f"--contexts={handed.folder}"], ["--contexts", handed.folder]):
        done = handed.run("pytest", "--plan", "-m", "device", suites, *option)
        assert handed.ran == [], done.stdout + done.stderr


def test_what_is_named_or_lies_where_pytest_is_called_is_run(handed: Handed) -> None:
    """Nothing that users write for themselves is refused."""
    given = handed.folder / BINARY
    done = handed.run("pytest", "--collect-only", "--noconftest", given)
    assert (done.returncode, handed.ran) == (0, []), done.stdout + done.stderr
    done = handed.run("pytest", "--collect-only", f"--rootdir={handed.folder.parent}", given)
    assert (done.returncode, handed.ran) == (4, []), done.stdout + done.stderr
    handed.here = handed.folder
    done = handed.run("pytest", "--collect-only", BINARY)
    assert handed.ran == ["conftest"], done.stdout + done.stderr
