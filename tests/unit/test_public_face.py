"""What a suite imports: the names of `harness`, all of them told of, and loaded when used."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import harness
from harness import experiments
from tests.unit import api_page

ROOT = Path(__file__).parents[2]
SUITES = [path for path in sorted((ROOT / "suites").glob("*.py")) if "page" not in path.stem]


@pytest.mark.parametrize("name", harness.__all__)
def test_each_name_is_there_and_told_of(name: str) -> None:
    assert getattr(harness, name) is not None
    assert f"`{name}`" in (ROOT / "docs/suites.md").read_text()


def test_each_method_that_the_suites_page_names_is_there() -> None:
    _, _, table = (ROOT / "docs/suites.md").read_text().partition("A bench has these methods")
    first_cells = [
        line.split("|")[1] for line in table.partition("\n## ")[0].splitlines()[4:] if line
    ]
    methods = re.findall(r"`(\w+)\(", " ".join(first_cells))
    assert {"resident", "run_contexts", "qnn_in"} <= {*methods}
    assert [name for name in methods if not hasattr(harness.Bench, name)] == []


@pytest.mark.parametrize("name", harness.__all__)
def test_each_name_has_its_place_among_the_apis_and_an_example(name: str) -> None:
    page = api_page.PAGE.read_text("utf-8")
    assert f"\n### {name}\n\n" in page
    imports = re.findall(r"^from harness import (.*)$", page, re.MULTILINE)
    assert name in {one for line in imports for one in line.split(", ")}


def test_the_apis_are_those_of_the_code() -> None:
    page = api_page.PAGE.read_text("utf-8")
    assert page == api_page.page(page), f"docs/api.md is outdated: run `{api_page.COMMAND}`"
    assert (
        "- `Bench.resident(contexts: Source | Sequence[Source], number: int | None = None" in page
    )
    assert "- `steps.context_free(context: int) -> Step`\n\n    Free a context, if it" in page
    assert " object at 0x" not in page


def test_of_a_page_that_is_outdated_the_examples_are_kept() -> None:
    kept = "# Names\n\nWhat.\n\n## held\n\n```\nexample\n```\n\n### held\n\n"
    made = api_page.page(f"{kept}- `held()`\n\n    Old.\n")
    assert made.startswith(kept)
    assert "- `held(name: str, holds: bool, reason: str, **figures: JsonValue) -> Check`" in made
    assert "Old." not in made


@pytest.mark.parametrize("name", experiments.__all__)
def test_each_name_of_an_experiment_is_there(name: str) -> None:
    assert getattr(experiments, name) is not None


def test_what_is_no_name_of_it() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Workbench'"):
        from harness import Workbench  # noqa: F401
    with pytest.raises(AttributeError, match="no attribute 'find_limits'"):
        getattr(experiments, "find_limits")  # noqa: B009 - mypy would see it


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.name)
def test_suites_import_nothing_else(path: Path) -> None:
    """But for what writes a page of results, which is no suite."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harness"):
            names = [alias.name for alias in node.names if alias.name not in harness.__all__]
            found += names if node.module == "harness" else [str(node.module)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("harness")]
    assert not found


SHOWN = re.compile(r"^\s*from (harness[\w.]*) import \(?([\w, ]+)", re.MULTILINE)


def test_what_texts_import_is_there() -> None:
    """Suites and programs inside tests' texts, and those of the pages, as well as code."""
    texts = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    found = {
        (module, name.strip().partition(" as ")[0])
        for path in texts
        for module, names in SHOWN.findall(path.read_text())
        for name in names.split(",")
        if name.strip()
    }
    assert len(found) > 500
    missing = {
        f"from {module} import {name}"
        for module, name in found
        if find_spec(module) is None
        or not (hasattr(import_module(module), name) or find_spec(f"{module}.{name}"))
    }
    assert missing == {"from harness import Workbench"}  # a test of its own: it is no name of it


def loaded_by(used: str) -> set[str]:
    """The modules that a fresh interpreter has loaded once it used these names."""
    code = f"import sys, harness\n{used}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_face_loads_nothing_by_itself() -> None:
    loaded = loaded_by("dir(harness), harness.__version__")
    assert not {name for name in loaded if name.startswith("harness.")}


def test_what_suites_take_does_not_load_what_few_need() -> None:
    loaded = loaded_by("harness.Bench, harness.Model, harness.ContextFile")
    assert not {"numpy", "onnx", "onnxruntime", "flatbuffers", "jinja2"} & loaded


HEAVY = {"numpy", "onnx", "pydantic", "yaml", "jinja2", "sqlalchemy", "rich", "adbutils", "re2"}


def test_plain_tests_load_nothing_heavy(tmp_path: Path) -> None:
    """The plug-in is in every run of pytest, whatever that collects."""
    (tmp_path / "test_plain.py").write_text(
        "import sys\ndef test_loaded():\n    print('loaded', *sys.modules)\n"
    )
    command = [sys.executable, "-m", "pytest", "-sp", "no:cacheprovider"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command += ["-p", "harness.plugin.plugin", "-c", os.devnull, tmp_path]
    done = subprocess.run(
        [*map(str, command), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (loaded,) = re.findall("loaded (.*)", done.stdout)
    assert "harness.plugin.plugin" in loaded.split()
    assert not HEAVY & set(loaded.split())
