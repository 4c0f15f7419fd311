"""Programs beside a file of contexts are never run by pytest."""

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
        arguments = [str(word) for word in words]
        return run_module(arguments, self.here, self._lab.environment, 300)

    @property
    def ran(self) -> list[str]:
        return sorted(path.name for path in self._marks.iterdir())


@pytest.fixture
def handed(lab: DeviceRuns, tmp_path: Path) -> Handed:
    return Handed(lab, tmp_path)


def test_run_runs_no_program_beside_its_files(handed: Handed) -> None:
    (handed.folder / "pytest.ini").write_text("[pytest]\naddopts = test_evil.py\npythonpath = .\n")
    for path in (handed.folder, handed.folder / BINARY):
        completed = handed.run("harness.cli.main", "run", "--dry-run", path)
        assert (completed.returncode, handed.ran) == (0, []), completed.stdout + completed.stderr


@pytest.mark.slow
def test_pytest_refuses_programs_beside_a_named_file(handed: Handed) -> None:
    named = [handed.folder / "conftest.py", handed.folder.parent / "conftest.py"]
    for program in (*named, handed.folder / "pytest.ini"):
        if program.suffix == ".ini":
            program.write_text("[pytest]\naddopts = test_evil.py\npythonpath = .\n")
        completed = handed.run("pytest", "--collect-only", handed.folder / BINARY)
        output = completed.stdout + completed.stderr
        assert (completed.returncode, handed.ran) == (4, []), output
        assert str(program) in output
        program.unlink()


def test_contexts_bring_no_programs(handed: Handed) -> None:
    suites = ROOT / "suites/test_context_count.py"
    assert suites.exists()
    for option in ([f"--model={handed.folder}"], ["--model", handed.folder]):
        completed = handed.run("pytest", "--dry-run", "-m", "device", suites, *option)
        assert handed.ran == [], completed.stdout + completed.stderr


def test_what_is_named_or_lies_where_pytest_is_called_is_run(handed: Handed) -> None:
    """Nothing that users write for themselves is refused."""
    path = handed.folder / BINARY
    completed = handed.run("pytest", "--collect-only", "--noconftest", path)
    assert (completed.returncode, handed.ran) == (0, []), completed.stdout + completed.stderr
    completed = handed.run("pytest", "--collect-only", f"--rootdir={handed.folder.parent}", path)
    assert (completed.returncode, handed.ran) == (4, []), completed.stdout + completed.stderr
    handed.here = handed.folder
    completed = handed.run("pytest", "--collect-only", BINARY)
    assert handed.ran == ["conftest"], completed.stdout + completed.stderr
