"""The package as an index would have it: made twice, and used where there is no checkout."""

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harness.core.socs import TARGETS
from tests.processes import run_to_end

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests/field/executorch-3-contexts.pte"
TIMEOUT_S = 900
COMPILERS = r"(^|-)(cc|gcc|clang|zig|c[0-9]+|tcc)(-[0-9.]+)?$"
OWN_TEST = '''"""A user's own test, with types."""

import pytest

from harness import Bench, Model


def test_plain() -> None:
    assert Model("tiny") == Model("tiny")


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("contexts", [1, 3])
def test_my_contexts(bench: Bench, contexts: int) -> None:
    bench.resident(Model("tiny"), contexts).check()
'''


def run(*words: str | Path, cwd: Path, code: int = 0, path: str = os.defpath) -> str:
    prefixes = ("HOME", "PIP_", "SSL_", "XDG_")
    environment = {k: v for k, v in os.environ.items() if k.startswith(prefixes)}
    completed = run_to_end(*words, cwd=cwd, env=environment | {"PATH": path}, timeout=TIMEOUT_S)
    assert completed.returncode == code, completed.stdout
    return completed.stdout


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is in version control, made into packages twice."""
    folders = []
    for name in ("once", "again"):
        copy = tmp_path_factory.mktemp(name) / "checkout"
        subprocess.run(["git", "clone", "-q", ROOT, copy], check=True, timeout=TIMEOUT_S)
        (copy / ".venv").symlink_to(ROOT / ".venv")
        subprocess.run(
            ["make", "-o", ".venv/.ready-dev", "dist"], cwd=copy, check=True, timeout=TIMEOUT_S
        )
        folders.append(copy / "dist")
    once, again = ({path.name: _sha256(path) for path in folder.iterdir()} for folder in folders)
    assert once == again
    assert len(once) == 2
    return folders[0]


def _without_compilers(folder: Path) -> Path:
    folder.mkdir()
    for place in map(Path, os.defpath.split(":")):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            if not link.is_symlink() and not re.search(COMPILERS, program.name):
                link.symlink_to(program)
    return folder


def test_it_has_a_probe_for_each_target(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if "/shipped/" in name}
    assert {name.partition("qnn-probe-")[2] for name in shipped} == set(TARGETS)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_it_works_where_there_is_no_checkout(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    bin_ = tmp_path / "venv/bin"
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    run(bin_ / "pip", "install", "--quiet", wheel, cwd=tmp_path)
    folder = tmp_path / "empty"
    folder.mkdir()

    path = f"{bin_}:{_without_compilers(tmp_path / 'programs')}"
    output = run(bin_ / "qnn-harness", "doctor", "--no-smoke", cwd=folder, path=path)
    assert re.search(
        r"ok +probe for linux-x64 +not needed: the probe came with the package", output
    )
    output = run(bin_ / "qnn-harness", "--help", cwd=folder).partition("All pages to read:")[2]
    assert Path("".join(output.split())).with_name("tutorial").joinpath("first-model.md").exists()
    output = run(bin_ / "qnn-harness", "run", MODEL, cwd=folder, path=path)
    assert "1 passed" in output
    assert "AssertRewriteWarning" not in output

    (folder / "test_mine.py").write_text(OWN_TEST)
    assert "1 passed, 2 skipped" in run(bin_ / "pytest", cwd=folder)
    output = run(bin_ / "pytest", "--device", "sim-v73", cwd=folder)
    assert "2 passed" in output
    assert "AssertRewriteWarning" not in output

    suites = (bin_ / "pytest", "--pyargs", "harness.suites", "-m", "device", "--device", "sim-v73")
    output = run(*suites, "-k", "context_count and tiny or backends", cwd=folder)
    assert " expected failure" in output
    assert "expected failures: gpu-without-a-gpu (1)" in output, "known issues come with the suites"

    case = "test_mine.py::test_my_contexts[sim-v73-htp-2.51.0-1]"
    bisect = ("--axis", "qnn", "--case", case, "--good", "2.47.0", "--bad", "2.51.0")
    assert "no change" in run(bin_ / "qnn-harness", "bisect", *bisect, cwd=folder, code=1)
    output = run(bin_ / "qnn-harness", "nightly", "--timeout", "10m", cwd=folder)
    assert "2 passed" in output


def test_a_users_test_has_types(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    bin_ = tmp_path / "venv/bin"
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    run(bin_ / "pip", "install", "--quiet", wheel, "mypy", "pyright[nodejs]", cwd=tmp_path)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "test_mine.py").write_text(OWN_TEST)
    run(bin_ / "mypy", "--strict", "test_mine.py", cwd=folder)
    run(bin_ / "pyright", "test_mine.py", cwd=folder, path=f"{bin_}:{os.defpath}")
