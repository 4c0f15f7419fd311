"""Artefacts that were damaged at random: what must hold of each, whatever was done to it."""

import io
import random
import struct
import zipfile
from pathlib import Path

from harness.containers.artefact import ArtefactError
from harness.containers.open import open_artefact
from tests.unit.containers.made import (
    CONTEXT,
    FIELD,
    Pte,
    bytes_of,
    dispatch,
    epcontext,
    tflite,
    wrapped,
)

SMALL = CONTEXT[:96]
QNN = "QnnBackend"
METHODS = {"a": [(QNN, 0), ("Other", 1)], "b": [(QNN, 1), (QNN, 0)]}
BLOBS = [wrapped(SMALL), wrapped(SMALL, header=20)]
PARTITIONS = [("DISPATCH_OP", dispatch(1024, len(SMALL), name)) for name in ("g0", "g1")]
EMBEDDED = {"main_context": 1, "embed_mode": 1, "ep_cache_context": SMALL, "partition_name": "p"}
EXTERNAL = {"embed_mode": 0, "ep_cache_context": "side.bin", "max_size": 4096}


def seeds() -> dict[str, bytes]:
    """Whole artefacts of each kind, most of them made small, so that damage meets what matters."""
    contents = {
        "segments.pte": Pte(METHODS, BLOBS).content(),
        "inline.pte": Pte(METHODS, BLOBS, inline=True).content(),
        "headless.pte": Pte(METHODS, BLOBS, inline=True, header=False).content(),
        "made.tflite": tflite([*PARTITIONS, ("Other", None)]).ljust(1024, b"\0") + SMALL,
        "made.onnx": epcontext([EMBEDDED, EXTERNAL, {"main_context": 0}], others=2),
        "manifest.json": b'{"schema": 1, "pieces": [{"file": "side.bin", "size": 96, '
        b'"sha256": null, "kind": "context", "artefact": "a", "origin": "b", "facts": {}}]}',
    }
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
        for name, content in (("manifest.json", contents["manifest.json"]), ("side.bin", SMALL)):
            archive.writestr(zipfile.ZipInfo(name), content)
    contents["bundle.zip"] = packed.getvalue()
    names = {
        "test_abs.dlc": "test_abs.dlc",
        "lite.tflite": "simple_model_qualcomm_sm8650_precompiled.tflite",
        "executorch.pte": "executorch-3-contexts.pte",
        "embed.onnx": "qnn_multi_ctx_embed.onnx",
    }
    for name, file in names.items():
        contents[name] = (FIELD / file).read_bytes()
    return contents


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The same with one to four faults."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(changed) + 1)
        near = chance.randrange(min(len(changed), 600) + 1)
        position = near if chance.random() < 0.5 else position
        match chance.randrange(6):
            case 0 if position < len(changed):
                changed[position] ^= 1 << chance.randrange(8)
            case 1:
                changed[position : position + 1] = bytes(
                    [chance.choice((0, 1, 2, 8, 0x7F, 0x80, 0xFF))]
                )
            case 2:
                form, most = chance.choice((("<H", 1 << 16), ("<I", 1 << 32), ("<Q", 1 << 64)))
                low = chance.choice((0, 1, 4, 16, len(changed), len(changed) - position))
                value = (
                    (low + chance.choice((-1, 0, 1))) % most if chance.random() < 0.7 else most - 1
                )
                changed[position : position + struct.calcsize(form)] = struct.pack(form, value)
            case 3:
                del changed[position : position + chance.choice((1, 4, 64, len(changed)))]
            case 4:
                begin = chance.randrange(len(changed) + 1)
                changed[position:position] = changed[begin : begin + chance.choice((1, 4, 32, 256))]
            case _:
                begin = chance.randrange(len(changed) + 1)
                part = changed[begin : begin + chance.choice((2, 4, 8, 64))]
                changed[position : position + len(part)] = part
        if not changed:
            break
    return bytes(changed)


def require_error_or_truth(path: Path) -> bool:
    """Opens the file; whether it could be read. Anything but an ArtefactError is a fault of ours.

    Pieces lie within their files, which lie beside it, and begin as they are said to.
    """
    message = ""
    try:
        artefact = open_artefact(path)
    except ArtefactError as error:
        message = str(error)
    if message:
        assert str(path.parent) in message
        return False
    for piece in artefact.pieces:
        assert piece.path.resolve().parent == path.parent.resolve()
        content = bytes_of(piece)
        assert len(content) == piece.size
        if artefact.kind not in ("manifest", "bundle"):  # what lies beside or inside is told later
            begins = {"context": b"\0\0\0\2", "dlc": b"PK\3\4", "empty": b""}[piece.kind]
            assert content.startswith(begins)
            assert bool(begins) == bool(content)
    return True
