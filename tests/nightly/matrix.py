"""Versions of Python, pytest and pytest-xdist side by side, each as a cell with a short run.

A cell is a small virtual environment with its own pytest and pytest-xdist. All else it has from
another one: for the Python that runs this, that is the environment we are in; for each other Python
it is made here, of what pyproject.toml asks for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import platformdirs

ROOT = Path(__file__).parents[2]
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
NEWEST = "newest"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PYTESTS = ("8.2.1", "8.2.*", "8.3.*", "8.4.*", "9.0.*", "9.1.*", NEWEST)
XDISTS = ("3.6.1", "3.7.*", NEWEST)

FOR_TESTS = ("hypothesis", "pyte")
"""What the tests of a cell need besides, of those that are for tests."""


@dataclass(frozen=True)
class Cell:
    """What is run together; versions as in a requirement of pip.

    `lowest`: all else that pyproject.toml requires is of the lowest version that it allows.
    """

    python: str
    pytest: str
    xdist: str
    lowest: bool = False

    def __str__(self) -> str:
        name = f"python{self.python}-pytest{self.pytest}-xdist{self.xdist}".replace(".*", "")
        return f"{name}-lowest" if self.lowest else name

    @property
    def wants(self) -> list[str]:
        """The requirements of its own environment."""
        asked = {"pytest": self.pytest, "pytest-xdist": self.xdist}
        return [f"{name}=={of}" if of != NEWEST else limits()[name] for name, of in asked.items()]


OLDEST = Cell(HERE, PYTESTS[0], XDISTS[0])


def cells() -> tuple[Cell, ...]:
    """Each pytest on the Python at hand, and each other Python with the two ends and a middle.

    Each pytest-xdist comes to old and new versions of pytest.
    """
    here = [Cell(HERE, *pair) for pair in zip(PYTESTS, cycle(XDISTS), strict=False)]
    ends = [(PYTESTS[0], XDISTS[0]), ("9.0.*", "3.7.*"), (NEWEST, NEWEST)]
    others = [Cell(python, *end) for python in PYTHONS if python != HERE for end in ends]
    return (*here, Cell(HERE, NEWEST, NEWEST), replace(OLDEST, lowest=True), *others)


@cache
def limits() -> dict[str, str]:
    """What pyproject.toml requires, also for its tests, by name."""
    texts = (*required(), *_project()["optional-dependencies"]["test"])
    return {re.split(r"[<>=\[]", text, maxsplit=1)[0]: text for text in texts}


def required() -> list[str]:
    """What whoever uses the project needs."""
    return list(_project()["dependencies"])


@cache
def _project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


@cache
def program_of(python: str) -> Path | None:
    """The Python of a version: on PATH, or one that pyenv or uv has; None if there is none.

    A name on PATH may be a link of pyenv to a version that is not chosen.
    """
    if python == HERE:
        return Path(sys.executable)
    home = Path.home()
    kept = [Path(os.environ.get("PYENV_ROOT", home / ".pyenv"), "versions")]
    kept.append(Path(os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local/share/uv/python")))
    on_path = shutil.which(f"python{python}")
    found = [Path(on_path)] if on_path else []
    found += [one for folder in kept for one in sorted(folder.glob(f"*/bin/python{python}"))]
    return next((one for one in found if _runs(one)), None)


def _runs(program: Path) -> bool:
    return subprocess.run([program, "-c", "import ssl, venv"], capture_output=True).returncode == 0


def _folder() -> Path:
    folder = platformdirs.user_cache_path("qnn-harness-tests", appauthor=False) / "matrix"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def environment_of(python: str, lowest: bool) -> Path:
    """The site-packages with all that is required: those we are in, or made, or brought up to date.

    Raises CalledProcessError.
    """
    if python == HERE and not lowest:
        return Path(sysconfig.get_path("purelib"))
    made = _made(_folder() / f"python{python}{'-lowest' if lowest else ''}", program_of(python))
    words = [limits()[name] for name in FOR_TESTS]
    if lowest:
        words += [re.sub(r">=([\d.]+).*", r"==\1", text) for text in required()]
    _pip(made, "--editable", str(ROOT), *words)
    return _packages(made, python)


def program_in(cell: Cell) -> Path:
    """The Python of a cell's environment, which is made where there is none.

    Raises CalledProcessError.
    """
    made = _made(_folder() / str(cell), program_of(cell.python))
    # what stands first on the path is found first; a folder added so has its own .pth files read
    line = f"import site; site.addsitedir({str(environment_of(cell.python, cell.lowest))!r})\n"
    (_packages(made, cell.python) / "required.pth").write_text(line)
    _pip(made, "--ignore-installed", *cell.wants)
    return made / "bin/python"


def _made(folder: Path, program: Path | None) -> Path:
    assert program is not None
    if not (folder / "bin/python").exists():
        subprocess.run([program, "-m", "venv", "--without-pip", folder], check=True)
    return folder


def _packages(folder: Path, python: str) -> Path:
    return folder / "lib" / f"python{python}" / "site-packages"


def _pip(folder: Path, *words: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet"]
    subprocess.run([*pip, *words], check=True, capture_output=True, text=True, cwd=ROOT)


def runs(cell: Cell, selection: Sequence[str], lab: Path) -> Iterator[list[str]]:
    """The words of the runs of a cell: of tests of the plug-in, and of suites on two devices."""
    pytest = [str(program_in(cell)), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    yield [*pytest, "-m", "not nightly", *selection]
    suites = ["suites/test_runtime_versions.py", "--lab", str(lab / "devices.yaml")]
    yield [*pytest, "-m", "device", *suites, "--reports", str(lab / "reports"), "-n", "auto"]
