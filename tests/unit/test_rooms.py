"""The house stands on ten floors: imports go down, through faces, and the plug-in loads cheaply."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
HARNESS = ROOT / "harness"

# Floors and their rooms, from top to bottom; what stands higher may import what stands lower.
FLOORS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "tools": ("cli", "doctor"),
        "search": ("minimize", "diverge", "nightly", "bisect"),
        "run": ("pytest_plugin", "experiments", "bench", "scheduling", "workbench"),
        "answers": ("site", "telling", "merging", "history", "report"),
        "verdict": ("results", "failure"),
        "contexts": ("sources", "capacity", "compiler", "context"),
        "probe": (),
        "libraries": ("runtimes", "containers"),
        "device": (
            "store",
            "lab",
            "evidence",
            "simulator",
            "dsp",
            "adb",
            "ssh",
            "labgrid",
            "transport",
        ),
        "ground": ("progress", "yaml_lines", "host", "files", "facts", "errors"),
    }
)
ROOMS: Final = tuple(
    f"{floor}/{room}" if room else floor
    for floor, rooms in FLOORS.items()
    for room in rooms or ("",)
)
TREES = (ROOT, HARNESS, *(HARNESS / floor for floor in FLOORS))
MOST_NAMES: Final = 30

MODULES: Final = MappingProxyType(
    {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(HARNESS.rglob("*.py"))
    }
)


@cache
def imports_of(module: str) -> tuple[tuple[str, str], ...]:
    """What a module imports of the harness, wherever in it: (module, name; "" for all of it)."""
    return tuple(_imports(MODULES[module].read_text()))


def _imports(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "harness":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole, "") if whole in MODULES else (str(node.module), alias.name)
        elif isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names if one.name in MODULES)


def room_of(module: str) -> str:
    """The room of a module, `device/lab`; of a floor's face, the floor."""
    floor, *rest = module.split(".")[1:]
    return f"{floor}/{rest[0]}" if rest and FLOORS[floor] else floor


@cache
def face_of(floor: str) -> Mapping[str, str]:
    """The names that a floor hands out, and the module of each."""
    stub = HARNESS / floor / "__init__.pyi"
    nodes = ast.parse(stub.read_text()).body if stub.exists() else []
    return {
        alias.name: f"harness.{floor}.{node.module}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


INNER: Final = tuple(name for name in MODULES if name.count(".") > 1 or name == "harness.probe")


@pytest.mark.parametrize("module", INNER)
def test_imports_go_down(module: str) -> None:
    """To rooms that stand lower on the same floor, and to lower floors."""
    floor, room = room_of(module).partition("/")[0], room_of(module)
    below = list(FLOORS)[list(FLOORS).index(floor) + 1 :]
    for imported, name in imports_of(module):
        if imported == "harness":
            assert name in ("", "__version__")
        elif imported.split(".")[1] == floor:
            assert ROOMS.index(room_of(imported)) >= ROOMS.index(room), imported
        else:
            assert imported.split(".")[1] in below, imported


@pytest.mark.parametrize("module", INNER)
def test_whoever_is_outside_uses_the_face(module: str) -> None:
    for imported, name in imports_of(module):
        floor = imported.removeprefix("harness").lstrip(".").partition(".")[0]
        if floor and floor != module.split(".")[1]:
            assert face_of(floor).get(name) != imported, f"from harness.{floor} import {name}"


@pytest.mark.parametrize("floor", FLOORS)
def test_a_face_is_small_and_every_name_of_it_is_used(floor: str) -> None:
    face = face_of(floor)
    assert len(face) <= MOST_NAMES
    used = {
        name
        for module in INNER
        for imported, name in imports_of(module)
        if imported == f"harness.{floor}"
    }
    assert set(face) == used
    handed_out = import_module(f"harness.{floor}")
    for name, module in face.items():
        assert getattr(handed_out, name) is getattr(import_module(module), name)


def imported_files(module: str, known: Collection[str]) -> set[str]:
    """The modules of the harness that one imports, wherever in it, also for its types alone."""
    return {imported for imported, _ in imports_of(module)} & set(known) - {module, "harness"}


def test_no_files_import_each_other_in_a_circle() -> None:
    """Within a floor; between floors none can be, since all arrows go down."""
    imports = {module: imported_files(module, MODULES) for module in MODULES}
    assert sum(map(len, imports.values())) > len(MODULES)
    assert list(TopologicalSorter(imports).static_order())  # raises CycleError, which names it


def test_files_stay_small() -> None:
    """At most 450 lines a file; a room holds one subject, however many files that takes."""
    assert not [room for room in ROOMS if not list((HARNESS / room).glob("*.py"))]
    files = [*HARNESS.rglob("*"), *(ROOT / "suites").glob("*.py")]
    code = [path for path in files if path.suffix in {".py", ".c", ".cpp", ".h", ".sh"}]
    lines = {path.name: len(path.read_bytes().splitlines()) for path in code}
    assert not {name: count for name, count in lines.items() if count > 450}


def test_every_file_says_what_it_is_for() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for folder in ("harness", "suites", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if not re.match(r'(#.*\n|\n)*(r?"""\S|$)', path.read_text())
    ]
    assert not silent


def test_loading_the_plugin_does_not_load_the_heavy_libraries() -> None:
    code = (
        "import sys, harness.run.pytest_plugin.plugin\n"
        "heavy = {'onnx', 'numpy', 'pydantic', 'adbutils', 'jinja2', 'yaml', 'xdist'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_on_the_tree_has_every_room_in_its_place() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    told = re.findall(r"^\| `harness/([\w/]+)/` \|", page, re.MULTILINE)
    assert tuple(one for one in told if one in ROOMS) == ROOMS
    assert tuple(one for one in told if "/" not in one) == tuple(FLOORS)


def test_the_docs_name_files_that_there_are() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"`([a-z_]+(?:/[\w.]+)+\.(?:py|c|h|j2|sh|tsv))`", page.read_text())
    }
    assert ("architecture.md", "failure/rules.py") in named
    gone = [one for one in named if not any((root / one[1]).exists() for root in TREES)]
    assert not gone
