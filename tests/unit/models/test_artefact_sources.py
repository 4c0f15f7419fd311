"""From the pieces of an artefact to sources of contexts."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.containers.artefact import Artefact, ArtefactKind, Piece, PieceKind
from harness.core.errors import ConfigError, InfraError
from harness.models.artefact_sources import ModelOptions, artefacts_with_contexts, contexts_of
from harness.models.builtin_models import Model
from harness.models.context_file import ContextFile
from harness.models.onnx_model import OnnxModel
from tests.logged import Logged
from tests.snapshots import Snapshot
from tests.unit.containers.made import CONTEXT, Pte

CONTENT = b"head" + b"first" + b"second!" + b"tail"


def artefact(folder: Path, *kinds: PieceKind, kind: ArtefactKind = "pte") -> Artefact:
    """A file with three pieces: two with content, and one without."""
    path = folder / "model.pte"
    path.write_bytes(CONTENT)
    places = [(4, 5), (9, 7), (9, 0)]
    pieces = [
        Piece(path, offset, size, f"forward/{index}", kind)
        for index, ((offset, size), kind) in enumerate(zip(places, kinds, strict=False))
    ]
    return Artefact(path, kind, tuple(pieces))


def files(sources: object) -> list[ContextFile]:
    assert isinstance(sources, tuple)
    return list(sources)


def test_each_piece_is_a_file_of_its_own_in_their_order(tmp_path: Path) -> None:
    model = artefact(tmp_path, "context", "context")
    cache = tmp_path / "cache"
    sources = contexts_of(model, cache)
    first, second = files(sources)
    assert str(sources) == "model.pte"
    assert [str(first), str(second)] == ["model.pte#0", "model.pte#1"]
    assert (first.path.read_bytes(), second.path.read_bytes()) == (b"first", b"second!")
    assert first.path.is_relative_to(cache)
    assert contexts_of(model, cache) == sources
    with pytest.raises(InfraError):  # a folder that is a file
        contexts_of(model, model.path)


def test_what_of_a_file_is_not_run_is_told_with_what_runs_it(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    lines = []
    cases: list[tuple[ArtefactKind, int, int | None]] = [
        ("context", 1, None),
        ("manifest", 2, None),
        ("pte", 1, 0),
        ("pte", 2, 0),
        ("pte", 1, 1),
        ("epcontext", 1, 2),
        ("tflite", 2, 4),
    ]
    for kind, contexts, others in cases:
        model = artefact(tmp_path, *(["context"] * contexts), kind=kind)
        model = replace(model, facts={} if others is None else {"other_nodes": others})
        lines.append(f"{kind}: {contexts_of(model, tmp_path / 'cache').not_run}")
    assert lines == snapshot


def test_a_file_that_is_one_context_is_taken_as_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(CONTENT)
    whole = Artefact(path, "context", (Piece(path, 0, len(CONTENT), "", "context"),))
    (only,) = files(contexts_of(whole, tmp_path / "cache", ModelOptions(tolerance=0.5, graph="g")))
    assert (only.path, str(only), only.tolerance, only.graph) == (path, "model.bin", 0.5, "g")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("kinds", "has_own_folders", "expected"),
    [
        (("context",), False, [""]),
        (("context",), True, ["model.pte"]),
        (("context", "context"), False, ["0", "1"]),
        (("context", "context"), True, ["model.pte/0", "model.pte/1"]),
    ],
)
def test_where_the_inputs_of_each_context_are(
    tmp_path: Path, kinds: tuple[PieceKind, ...], has_own_folders: bool, expected: list[str]
) -> None:
    inputs = tmp_path / "in"
    (inputs / ("model.pte" if has_own_folders else "other") / "1").mkdir(parents=True)
    (inputs / "1").mkdir()
    sources = files(
        contexts_of(artefact(tmp_path, *kinds), tmp_path / "cache", ModelOptions(inputs=inputs))
    )
    assert [source.inputs for source in sources] == [inputs / name for name in expected]
    assert all(source.expected is None for source in sources)


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [
        (("context", "dlc"), "pte"),
        (("dlc",), "manifest"),
        (("context", "context", "empty"), "epcontext"),
        ((), "onnx"),
    ],
    ids=["dlc", "extracted dlc", "empty", "no model"],
)
def test_what_holds_no_contexts(
    tmp_path: Path, kinds: tuple[PieceKind, ...], kind: ArtefactKind, snapshot: Snapshot
) -> None:
    with snapshot.raises(ConfigError):
        contexts_of(artefact(tmp_path, *kinds, kind=kind), tmp_path / "cache")


def test_a_folder_is_run_without_what_holds_no_contexts(tmp_path: Path, logged: Logged) -> None:
    (tmp_path / "a.bin").write_bytes(CONTEXT)
    (tmp_path / "other.pte").write_bytes(Pte({"forward": []}, []).content())
    (artefact,) = artefacts_with_contexts([tmp_path])
    assert artefact.path == tmp_path / "a.bin"
    (warning,) = logged.warnings
    assert str(tmp_path / "other.pte") in warning


def test_a_folder_without_contexts_is_run_with_its_onnx_models(
    tmp_path: Path, logged: Logged
) -> None:
    (tmp_path / "model.onnx").write_bytes(Model("tiny").serialized())
    (tmp_path / "other.pte").write_bytes(Pte({"forward": []}, []).content())
    (artefact,) = artefacts_with_contexts([tmp_path])
    assert artefact.path == tmp_path / "model.onnx"
    (warning,) = logged.warnings
    assert str(tmp_path / "other.pte") in warning


def test_an_onnx_model_is_compiled_with_inputs_that_fit_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QNN_HARNESS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.pte").write_bytes(Model("tiny").serialized())
    artefact = Artefact(tmp_path / "model.pte", "onnx", ())
    with pytest.raises(ConfigError, match="graph"):  # it is compiled whole
        contexts_of(artefact, tmp_path / "cache", ModelOptions(graph="nope"))
    (source,) = sources = contexts_of(artefact, tmp_path / "cache", ModelOptions(tolerance=0.5))
    assert (str(sources), source.compiled, source.tolerance) == ("model.pte", True, 0.5)
    for option in ("inputs", "expected"):
        folder = tmp_path / option / "model.pte"
        folder.mkdir(parents=True)
        (folder / "0.raw").write_bytes(bytes(60))
        with pytest.raises(ConfigError, match=rf"model.pte: {option}: .*60 .*64"):
            contexts_of(artefact, tmp_path / "cache", ModelOptions(**{option: tmp_path / option}))
        (folder / "0.raw").write_bytes(bytes(64))
    options = ModelOptions(inputs=tmp_path / "inputs", expected=tmp_path / "expected")
    (source,) = contexts_of(artefact, tmp_path / "cache", options)
    assert isinstance(source, OnnxModel)
    assert not source.inputs()["x"].any()
    assert source.expected() == {"y": tmp_path / "expected/model.pte/0.raw"}
    assert source.compared
