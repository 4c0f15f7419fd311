"""Files by their content: each way in which a kind keeps its contexts, or can be wrong."""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
import pytest

from harness.containers.artefact import Artefact, ArtefactError, Piece
from harness.containers.extract import extract
from harness.containers.open import SUFFIXES, UnknownFileError, open_artefact, open_artefacts
from tests.logged import Logged
from tests.snapshots import Snapshot
from tests.unit.containers.made import (
    CONTEXT,
    FIELD,
    OTHER,
    Pte,
    bytes_of,
    dispatch,
    epcontext,
    tflite,
    wrapped,
)

FILE = min(FIELD.glob("add_add_1*.bin"))
QNN = "QnnBackend"
ONE = {"forward": [(QNN, 0)]}
EMBEDDED = {"main_context": 1, "embed_mode": 1, "ep_cache_context": CONTEXT}
DLC = b"PK\x03\x04 and more"


def opened(folder: Path, content: bytes) -> Artefact:
    (folder / "artefact").write_bytes(content)
    return open_artefact(folder / "artefact")


def contents(artefact: Artefact) -> list[tuple[str, bytes]]:
    return [(piece.origin, bytes_of(piece)) for piece in artefact.pieces]


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "segments"])
def test_methods_and_delegates_of_a_pte(tmp_path: Path, inline: bool) -> None:
    methods = {"prefill": [(QNN, 0), ("XnnpackBackend", 2)], "decode": [(QNN, 1), (QNN, 0)]}
    blobs = [wrapped(CONTEXT), wrapped(OTHER, header=20), b"others"]
    artefact = opened(tmp_path, Pte(methods, blobs, inline=inline).content())
    # a context of two methods is loaded once, as its signature is one
    assert contents(artefact) == [("prefill/0", CONTEXT), ("decode/0", OTHER)]
    assert artefact.pieces[0].facts == {"signature": 7, "also": ["decode/1"]}
    assert artefact.facts == {"methods": ["prefill", "decode"], "other_nodes": 0}


def test_a_pte_without_header_without_wrapping_or_with_what_is_prepared_on_the_device(
    tmp_path: Path,
) -> None:
    for pte, kind, content in (
        (Pte(ONE, [wrapped(CONTEXT)], inline=True, header=False), "context", CONTEXT),
        (Pte(ONE, [CONTEXT]), "context", CONTEXT),
        (Pte(ONE, [DLC]), "dlc", DLC),
        (Pte(ONE, [wrapped(DLC)]), "dlc", DLC),
    ):
        (piece,) = opened(tmp_path, pte.content()).pieces
        assert (piece.origin, piece.kind, bytes_of(piece)) == ("forward/0", kind, content)


WRONG_PTES = (
    Pte(ONE, [wrapped(CONTEXT, size=9)]),
    Pte(ONE, [b"\xcd\xab\x34\x12"]),
    Pte(ONE, [b"\xcd\xab\x78\x56"]),
    Pte(ONE, [b"hello"]),
    Pte(ONE, [b""]),
    Pte(ONE, [wrapped(b"")]),
    Pte({"forward": [(QNN, 4)]}, [CONTEXT]),
    Pte(ONE, [CONTEXT], base_shift=-4096),
    Pte(ONE, [CONTEXT], base_shift=16),
)


def refusals(folder: Path, contents: Iterable[bytes]) -> list[str]:
    texts = []
    for content in contents:
        with pytest.raises(ArtefactError) as refused:
            opened(folder, content)
        texts.append(str(refused.value))
    return texts


def test_a_pte_that_is_wrong(tmp_path: Path, snapshot: Snapshot) -> None:
    assert refusals(tmp_path, [pte.content() for pte in WRONG_PTES]) == snapshot


def test_partitions_of_a_tflite_share_their_byte_code(tmp_path: Path) -> None:
    offset, size = 4096, len(CONTEXT)
    operators = [
        ("Other", None),
        ("DISPATCH_OP", dispatch(offset, size, "g0")),
        ("DISPATCH_OP", dispatch(offset, size, "g1")),
        ("DISPATCH_OP", dispatch(offset + size, size, "g2")),
    ]
    artefact = opened(tmp_path, tflite(operators).ljust(offset, b"\0") + CONTEXT + OTHER)
    assert contents(artefact) == [("g0", CONTEXT), ("g2", OTHER)]
    assert artefact.pieces[0].facts == {"partitions": ["g0", "g1"]}
    assert artefact.facts == {"other_nodes": 1}
    assert opened(tmp_path, tflite([("Other", None)])).pieces == ()


def test_a_tflite_that_is_wrong(tmp_path: Path, snapshot: Snapshot) -> None:
    options = [None, b"", b"\x01\x02\x03"]
    options += [dispatch(0, 0, "g"), dispatch(1, 1 << 40, "g"), dispatch(8, 64, "g")]
    files = [tflite([("DISPATCH_OP", option)], appended=bytes(64)) for option in options]
    texts = refusals(tmp_path, files)
    # behind that stand words of the library
    assert [text.partition(" are damaged")[0] for text in texts] == snapshot


def test_an_onnx_model_that_is_cut_off_or_of_another_provider(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    whole = epcontext([EMBEDDED])
    other = epcontext([{"embed_mode": 1, "ep_cache_context": b"<xml/>"}])
    assert refusals(tmp_path, [whole[:-1], whole[: len(whole) // 2], other]) == snapshot


def test_nodes_of_an_onnx_model(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below/side.bin").write_bytes(OTHER)
    external = {"embed_mode": 0, "ep_cache_context": "below/side.bin", "max_size": 4096}
    nodes = [EMBEDDED, external, {"main_context": 1, "embed_mode": 1}, {"main_context": 0}]
    artefact = opened(tmp_path, epcontext(nodes, others=2))
    assert artefact.kind == "epcontext"
    assert [piece.kind for piece in artefact.pieces] == ["context", "context", "empty"]
    assert contents(artefact) == [("node n0", CONTEXT), ("node n1", OTHER), ("node n2", b"")]
    assert artefact.pieces[1].path == tmp_path / "below/side.bin"
    assert artefact.pieces[1].facts == {"max_size": 4096}
    assert artefact.facts["other_nodes"] == 2
    artefact = opened(tmp_path, epcontext([], others=3))
    assert (artefact.kind, artefact.pieces) == ("onnx", ())
    assert artefact.facts == {"other_nodes": 3, "weight_files": []}


OUTSIDE = (
    *("a/../../side.bin", "..\\side.bin", "/etc/passwd", "C:side.bin"),
    *("side\0.bin", ".", "side.bin\n"),
)
NOTHING = ("nowhere.bin", "text.bin", "x" * 5000, "folder", "link.bin", "linked/side.bin")


def test_a_node_that_names_another_file(tmp_path: Path, snapshot: Snapshot) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "side.bin").write_bytes(OTHER)
    (inside / "text.bin").write_text("hello")
    (inside / "folder").mkdir()
    (inside / "link.bin").symlink_to(tmp_path / "side.bin")
    (inside / "linked").symlink_to(tmp_path)

    def naming(names: Iterable[str]) -> list[str]:
        nodes = [{"embed_mode": 0, "ep_cache_context": name} for name in names]
        texts = refusals(inside, [epcontext([node]) for node in nodes])
        return [text.replace(str(inside), "INSIDE")[:110] for text in texts]

    assert len(naming(NOTHING)) == len(NOTHING)
    assert naming(OUTSIDE) == snapshot


def test_a_context_that_was_cut_within_its_container(tmp_path: Path, snapshot: Snapshot) -> None:
    context = bytes_of(open_artefact(FIELD / "executorch-3-contexts.pte").pieces[0])
    assert refusals(tmp_path, [Pte(ONE, [wrapped(context[:-1])]).content()]) == snapshot
    # of a file that is one, QNN's own library says better what is wrong
    assert opened(tmp_path, context[:-1]).pieces[0].size == 54015


def test_folders(tmp_path: Path, logged: Logged, snapshot: Snapshot) -> None:
    (tmp_path / "b.bin").write_bytes(CONTEXT)
    (tmp_path / "a.any").write_bytes(Pte(ONE, [CONTEXT]).content())
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "below").mkdir()
    (tmp_path / "below/c.bin").write_bytes(OTHER)
    (tmp_path / "[1].bin").write_bytes(OTHER)

    def names(*paths: Path | str) -> list[str]:
        return [artefact.path.name for artefact in open_artefacts(paths)]

    assert names(tmp_path) == ["[1].bin", "a.any", "b.bin"]
    assert logged.progress == snapshot
    assert names(tmp_path / "[1].bin", tmp_path / "below") == ["[1].bin", "c.bin"]
    (tmp_path / "none").mkdir()
    for wrong in ("none", "notes.txt"):
        with snapshot.raises(ArtefactError):
            open_artefacts([tmp_path / wrong])
    (tmp_path / "b.bin").write_bytes(b"\x08\x08")
    with snapshot.raises(ArtefactError):
        open_artefacts([tmp_path])
    # of many files, the others are opened still, if somebody is told
    errors: list[ArtefactError] = []
    artefacts = open_artefacts([tmp_path, tmp_path / "x", tmp_path / "below"], errors.append)
    assert [artefact.path.name for artefact in artefacts] == ["[1].bin", "a.any", "c.bin"]
    assert [Path(str(error.file)).name for error in errors] == ["b.bin", "x"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_called_like_an_artefact_in_a_folder_must_be_one(
    tmp_path: Path, suffix: str
) -> None:
    """Whoever gives a folder wants all of it to run: nothing in it is passed by in silence."""
    (tmp_path / "good.any").write_bytes(CONTEXT)
    file = tmp_path / f"one{suffix}"
    for create in (
        *(Path.touch, lambda path: path.write_text("hello"), os.mkfifo),
        *(lambda path: path.symlink_to("nowhere"), lambda path: path.symlink_to("good.any")),
        Path.mkdir,
    ):
        file.unlink(missing_ok=True)
        create(file)
        errors: list[ArtefactError] = []
        artefacts = open_artefacts([tmp_path], errors.append)
        assert [artefact.path.name for artefact in artefacts] == ["good.any"]
        assert [error.file for error in errors] == [file]
        with pytest.raises(ArtefactError):
            open_artefacts([tmp_path])


def test_weights_beside_a_model_need_be_no_artefact(tmp_path: Path) -> None:
    tensor = onnx.TensorProto(name="w", data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights.bin")
    graph = onnx.helper.make_graph([], "g", [], [], [tensor])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    (tmp_path / "weights.bin").write_text("hello")
    assert [artefact.path.name for artefact in open_artefacts([tmp_path])] == ["model.onnx"]
    (tmp_path / "other.bin").write_text("hello")
    with pytest.raises(UnknownFileError, match=r"other\.bin"):
        open_artefacts([tmp_path])


def test_a_context_binary_is_one_piece_whatever_it_is_called(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    renamed = tmp_path / "model.txt"
    renamed.write_bytes(CONTEXT)
    artefact = open_artefact(renamed)
    assert artefact.kind == "context"
    (piece,) = artefact.pieces
    assert piece == Piece(renamed, 0, 17776, "", "context")
    assert piece.sha256() == hashlib.sha256(CONTEXT).hexdigest()
    os.truncate(renamed, 9000)
    with snapshot.raises(ArtefactError):
        piece.sha256()


def test_what_no_reader_knows(tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "empty.bin").touch()
    (tmp_path / "text.bin").write_text("hello")
    os.mkfifo(tmp_path / "pipe.bin")
    for name in ("empty.bin", "text.bin", "pipe.bin", "."):
        with snapshot.raises(ArtefactError) as error:
            open_artefact(tmp_path / name)
        assert error.value.file == tmp_path / name  # type: ignore[attr-defined]


def test_what_the_system_refuses_is_told_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, entries = Path.stat, Path.iterdir
    locked = tmp_path / "locked"  # a folder without rights: root would read it

    def refused(path: Path, **options: bool) -> os.stat_result:
        if path.parent == locked:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    def listed(path: Path) -> Iterator[Path]:
        if path == locked:
            refused(path / "any")
        return entries(path)

    monkeypatch.setattr(Path, "stat", refused)
    monkeypatch.setattr(Path, "iterdir", listed)
    locked.mkdir()
    long = tmp_path / ("x" * 300)
    paths = [locked, locked / "a.bin", long, FILE]
    messages: list[str] = []
    (artefact,) = open_artefacts(paths, lambda error: messages.append(str(error)))
    assert artefact.path == FILE
    assert [message.partition(": ")[0] for message in messages] == [*map(str, paths[:3])]


def test_what_lies_beside_a_manifest_is_not_skipped(tmp_path: Path) -> None:
    """An empty .bin, or one more context, in the folder of an extraction went unseen."""
    out = tmp_path / "out"
    extract([open_artefact(FILE), open_artefact(FIELD / "test_abs.dlc")], out)
    (listed,) = open_artefacts([out])
    assert (listed.kind, len(listed.pieces)) == ("manifest", 2)
    (out / "more.bin").write_bytes(CONTEXT)
    assert [artefact.path.name for artefact in open_artefacts([out])] == [
        "manifest.json",
        "more.bin",
    ]
    (out / "empty.bin").touch()
    with pytest.raises(ArtefactError, match=r"empty\.bin: "):
        open_artefacts([out])


@pytest.mark.parametrize("content", ['{"architectures": []}', "{", "[" * 1000, ""])
def test_json_about_something_else_is_passed_by(tmp_path: Path, content: str) -> None:
    """JSON of other tools, such as config.json, is no broken manifest."""
    (tmp_path / "model.bin").write_bytes(CONTEXT)
    (tmp_path / "config.json").write_text(content)
    (artefact,) = open_artefacts([tmp_path])
    assert artefact.path == tmp_path / "model.bin"
    (tmp_path / "config.json").rename(tmp_path / "manifest.json")
    with pytest.raises(ArtefactError, match=r"manifest\.json: "):
        open_artefacts([tmp_path])
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "manifest.json").symlink_to("/nowhere")
    with pytest.raises(ArtefactError, match=r"manifest\.json"):
        open_artefacts([tmp_path])
