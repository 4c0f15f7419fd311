"""Artefacts that were damaged at random: what must hold of each, whatever was done to it."""

from __future__ import annotations

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
    found = {
        "segments.pte": Pte(METHODS, BLOBS).content(),
        "inline.pte": Pte(METHODS, BLOBS, inline=True).content(),
        "headless.pte": Pte(METHODS, BLOBS, inline=True, header=False).content(),
        "made.tflite": tflite([*PARTITIONS, ("Other", None)]).ljust(1024, b"\0") + SMALL,
        "made.onnx": epcontext([EMBEDDED, EXTERNAL, {"main_context": 0}], others=2),
        "manifest.json": b'{"schema": 1, "pieces": [{"file": "side.bin", "size": 96, '
        b'"sha256": null, "kind": "context", "artefact": "a", "origin": "b", "facts": {}}]}',
    }
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
        for name, content in (("manifest.json", found["manifest.json"]), ("side.bin", SMALL)):
            archive.writestr(zipfile.ZipInfo(name), content)
    found["bundle.zip"] = packed.getvalue()
    names = {"lite.tflite": "simple_model_qualcomm_sm8650_precompiled.tflite"}
    for name in ("test_abs.dlc", "lite.tflite"):
        found[name] = (FIELD / names.get(name, name)).read_bytes()
    return found


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The same with one to four faults."""
    made = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made) + 1)
        near = chance.randrange(min(len(made), 600) + 1)
        at = near if chance.random() < 0.5 else at
        match chance.randrange(6):
            case 0 if at < len(made):
                made[at] ^= 1 << chance.randrange(8)
            case 1:
                made[at : at + 1] = bytes([chance.choice((0, 1, 2, 8, 0x7F, 0x80, 0xFF))])
            case 2:
                form, most = chance.choice((("<H", 1 << 16), ("<I", 1 << 32), ("<Q", 1 << 64)))
                low = chance.choice((0, 1, 4, 16, len(made), len(made) - at))
                value = (
                    (low + chance.choice((-1, 0, 1))) % most if chance.random() < 0.7 else most - 1
                )
                made[at : at + struct.calcsize(form)] = struct.pack(form, value)
            case 3:
                del made[at : at + chance.choice((1, 4, 64, len(made)))]
            case 4:
                begin = chance.randrange(len(made) + 1)
                made[at:at] = made[begin : begin + chance.choice((1, 4, 32, 256))]
            case _:
                begin = chance.randrange(len(made) + 1)
                part = made[begin : begin + chance.choice((2, 4, 8, 64))]
                made[at : at + len(part)] = part
        if not made:
            break
    return bytes(made)


def require_error_or_truth(path: Path) -> bool:
    """Opens the file; whether it could be read. Anything but an ArtefactError is a fault of ours.

    Pieces lie within their files, which lie beside it, and begin as they are said to.
    """
    said = ""
    try:
        artefact = open_artefact(path)
    except ArtefactError as error:
        said = str(error)
    if said:
        assert str(path.parent) in said
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
