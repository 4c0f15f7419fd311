"""`model diff` of public files, and of contexts that the real compilers made."""

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from harness.cli.model import diff_command
from harness.models.builtin_models import Model
from tests.integration.conftest import ContextFor
from tests.unit.containers.made import FIELD

SCHEMA = json.loads((FIELD.parents[1] / "docs/schema/diff.schema.json").read_text())
FILES = {
    "add": "add_add_1*.bin",
    "output": "add_output*.bin",
    "pte": "executorch-3-contexts.pte",
    "embedded": "qnn_multi_ctx_embed.onnx",
    "external": "qnn_multi_ctx_external.onnx",
    "tflite": "*sm8650*.tflite",
    "dlc": "test_abs.dlc",
}


def compared(a: Path, b: Path, *words: str) -> Result:
    return CliRunner().invoke(diff_command, [str(a), str(b), *words], standalone_mode=False)


def changed(a: Path, b: Path) -> tuple[set[str], set[str]]:
    """Return the fields that differ, and the failures, as `B context-newer`."""
    completed = compared(a, b, "--json")
    document = json.loads(completed.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert completed.return_value == bool(document["changes"])
    failures = {f"{each['files'][0]} {each['code']}" for each in document["failures"]}
    return {change["field"] for change in document["changes"]}, failures


NEWER = {"build_id", "compiler_options.memory_alloc_limit"}
OF_GRAPH = {"name", "dimensions"}


@pytest.mark.parametrize(
    ("pair", "fields", "failures"),
    [
        ("add add", set(), ""),
        ("add output", {"name"}, ""),
        ("add embedded", {"artefact", "context", "name", "origin", "container.sdk_version"}, ""),
        ("embedded external", {"name", "origin"}, ""),
        (
            "add pte",
            NEWER | OF_GRAPH | {"htp_arch", "context"},
            "B context-newer, A graph-too-large",
        ),
        (
            "add tflite",
            NEWER | OF_GRAPH | {"container.partitions", "input"},
            "B context-newer, B context-arch, A graph-too-large, A context-arch",
        ),
        ("external pte", NEWER | OF_GRAPH, "B context-newer, A graph-too-large"),
        (
            "tflite pte",
            {"build_id", "compiler_options.soc_type", "io_bytes", "soc_model"},
            "B context-newer, B context-arch, A context-arch",
        ),
        (
            "pte tflite",
            {"build_id", "compiler_options.min_arch", "dimensions"},
            "B context-arch, A context-newer, A context-arch",
        ),
        ("dlc tflite", {"build_id", "kind", "graph"}, ""),
    ],
)
def test_pairs_of_public_files(pair: str, fields: set[str], failures: str) -> None:
    a, b = (min(FIELD.glob(FILES[name])) for name in pair.split())
    found, explained = changed(a, b)
    assert fields <= found
    assert bool(fields) == bool(found)
    assert explained == set(filter(None, failures.split(", ")))


def test_what_the_compilers_make(context_for: ContextFor, tmp_path: Path) -> None:
    base = context_for("tiny", "2.51.0")
    assert changed(base.path, base.path) == (set(), set())
    older, newer_htp = context_for("tiny", "2.47.0"), context_for("tiny", "2.51.0", 75)
    fields, failures = changed(base.path, older.path)
    assert "build_id" in fields
    assert failures == {"A context-newer"}
    fields, failures = changed(base.path, newer_htp.path)
    assert {"htp_arch", "compiler_options.min_arch"} <= fields
    assert failures == {"A context-arch", "B context-arch"}
    fields, _ = changed(base.path, context_for("tiny-by-memhandle", "2.51.0").path)
    assert "memory_type" in fields
    text = compared(base.path, newer_htp.path).stdout
    assert "    htp_arch: 73 -> 75\n" in text
    assert "hvx_threads" not in text
    flipped = bytearray(base.path.read_bytes())
    flipped[-5] ^= 1
    (tmp_path / "flipped.bin").write_bytes(flipped)
    assert changed(base.path, tmp_path / "flipped.bin") == ({"sha256"}, set())


def test_models_that_are_not_compiled(tmp_path: Path) -> None:
    tiny, other = tmp_path / "tiny.onnx", tmp_path / "other.onnx"
    tiny.write_bytes(Model("tiny").serialized())
    other.write_bytes(Model("tiny", variant=1).serialized())
    assert changed(tiny, tiny) == (set(), set())
    fields, _ = changed(tiny, other)
    assert "sha256" in fields
    assert "model" in changed(tiny, min(FIELD.glob(FILES["add"])))[0]


@pytest.mark.parametrize("content", [None, b"no model", b"\x08\x07"])
def test_what_cannot_be_compared(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    completed = compared(min(FIELD.glob(FILES["add"])), file)
    assert getattr(completed.exception, "exit_code", 0) == 2
    assert str(file) in str(completed.exception)
