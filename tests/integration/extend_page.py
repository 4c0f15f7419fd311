"""The plug-ins that docs/reference/api.md shows, installed as packages of their own."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.integration.forked import ROOT
from tests.processes import run_to_end
from tests.unit.core.test_hooks import installed


def shown_module(title: str) -> str:
    """Return the module on the page whose docstring begins with a title."""
    page = (ROOT / "docs/reference/api.md").read_text()
    modules: list[str] = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (module,) = (text for text in modules if text.startswith(f'"""acme_plugin.py: {title}'))
    assert len(module.splitlines()) <= 60
    return module


def run_with_plugin(
    module: str, folder: Path, *words: object, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a module of Python (`pytest`, `harness.cli.main`) with a plug-in that is installed."""
    packages = folder / "packages"
    if not packages.exists():
        packages.mkdir()
        installed(packages, module)
    environment = dict(environment) | {"PYTHONPATH": f"{packages}:{ROOT}"}
    return run_to_end(sys.executable, "-m", *words, cwd=folder, env=environment, timeout=300)
