"""The plug-in with other versions of Python, pytest and pytest-xdist: `make matrix`, or `nox`.

`nox --list` shows the sessions. A Python that this computer lacks is left out.
"""

from __future__ import annotations

import re
from pathlib import Path

import nox

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
VERSIONS = (
    *(("==8.2.1", "==3.6.1"), ("==8.2.*", "==3.7.*"), ("==8.3.*", "")),
    *(("==8.4.*", "==3.6.1"), ("==9.0.*", "==3.7.*"), ("", "")),
)
"""Versions of pytest and pytest-xdist; the newest where there is none."""

UNIT = ("case_order", "notices", "terminal")
INTEGRATION = ("live", "parallel", "programs_beside", "retries")
TESTS = (
    *(f"tests/unit/plugin/test_{name}.py" for name in UNIT),
    *(f"tests/integration/plugin/test_{name}.py" for name in INTEGRATION),
)
LAB = """schema: 1
devices:
  - {name: one, simulated: true, soc: QCS8550, target: linux-x64}
  - {name: two, simulated: true, soc: SM8650, target: linux-x64}
"""

nox.options.error_on_missing_interpreters = False


def run_tests(session: nox.Session, *requirements: str) -> None:
    """Run the plug-in's tests and a suite on two devices."""
    session.install("-e", ".", "hypothesis", "pyte", *requirements)
    session.run("pytest", "-q", "-m", "not nightly and not slow", *TESTS, *session.posargs)
    lab = Path(session.create_tmp(), "devices.yaml")
    lab.write_text(LAB)
    suite = ("suites/test_runtime_versions.py", "--lab", str(lab), "-n", "auto")
    session.run("pytest", "-q", "-m", "device", *suite, "--reports", str(lab.parent / "reports"))


@nox.session(python=PYTHONS[0])
@nox.parametrize("pytest, xdist", VERSIONS)
def plugin(session: nox.Session, pytest: str, xdist: str) -> None:
    run_tests(session, f"pytest{pytest}", f"pytest-xdist{xdist}")


@nox.session(python=PYTHONS[1:])
def newest(session: nox.Session) -> None:
    run_tests(session)


@nox.session(python=PYTHONS[0])
def lowest(session: nox.Session) -> None:
    """All that pyproject.toml requires in the lowest version that it allows."""
    required = nox.project.load_toml("pyproject.toml")["project"]["dependencies"]
    run_tests(session, *(re.sub(r">=([\d.]+).*", r"==\1", requirement) for requirement in required))
