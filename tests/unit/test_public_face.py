"""The names of `harness` that suites import: documented, and loaded when used."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import harness
from harness import experiments

ROOT = Path(__file__).parents[2]
SUITES = [path for path in sorted((ROOT / "suites").glob("*.py")) if "page" not in path.stem]


def test_each_name_is_in_the_reference_with_an_example() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    imports = re.findall(r"^from harness import (.*)$", page, re.MULTILINE)
    shown = {name for line in imports for name in line.split(", ")}
    assert shown >= {*harness.__all__}
    assert {*re.findall(r"^::: harness\.(\w+)$", page, re.MULTILINE)} == {*harness.__all__}


@pytest.mark.parametrize("module", [harness, experiments])
def test_lazy_modules_have_their_names_and_no_others(module: ModuleType) -> None:
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError):
        getattr(module, "Workbench")  # noqa: B009 - mypy would see it


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.name)
def test_suites_import_nothing_else(path: Path) -> None:
    """But for what writes a page of results, which is no suite."""
    imported: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harness"):
            names = [alias.name for alias in node.names if alias.name not in harness.__all__]
            imported += names if node.module == "harness" else [str(node.module)]
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names if alias.name.startswith("harness")]
    assert not imported


def loaded_by(used: str) -> set[str]:
    """The modules that a fresh interpreter has loaded once it used these names."""
    code = f"import sys, harness\n{used}\nprint(*sys.modules)"
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    return set(completed.stdout.split())


HEAVY = {"numpy", "onnx", "pydantic", "yaml", "jinja2", "sqlalchemy", "rich", "adbutils", "re2"}


def test_no_more_is_loaded_than_is_used() -> None:
    loaded = loaded_by("dir(harness), harness.__version__")
    assert not {name for name in loaded if name.startswith("harness.")}
    loaded = loaded_by("harness.Bench, harness.Model, harness.ContextFile")
    assert not {"numpy", "onnx", "onnxruntime", "flatbuffers", "jinja2"} & loaded
    # what a run asks of earlier ones
    loaded = loaded_by("import harness.history.previous_run, harness.report.report_files")
    assert "sqlalchemy" not in loaded


def test_plain_tests_load_nothing_heavy(tmp_path: Path) -> None:
    """The plug-in is in every run of pytest, whatever that collects."""
    (tmp_path / "test_plain.py").write_text(
        "import sys\ndef test_loaded():\n    print('loaded', *sys.modules)\n"
    )
    command = [sys.executable, "-m", "pytest", "-sp", "no:cacheprovider"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command += ["-p", "harness.plugin.plugin", "-c", os.devnull, tmp_path]
    completed = subprocess.run(
        [*map(str, command), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout
    (loaded,) = re.findall("loaded (.*)", completed.stdout)
    assert "harness.plugin.plugin" in loaded.split()
    assert not HEAVY & set(loaded.split())
