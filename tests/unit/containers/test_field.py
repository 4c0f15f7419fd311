"""Files from the field are read right; a damaged one is an error, or read as it is."""

import random
import shutil
from pathlib import Path

import pytest

from harness.containers.artefact import Artefact, ArtefactError, ArtefactKind
from harness.containers.open import open_artefact, open_artefacts
from tests.logged import Logged
from tests.unit.containers.made import FIELD

# of each piece: origin, offset, size, and how its sha256 begins
ADD = ("node QNNExecutionProvider_QNN_13756297062807309455_1_0", 0, 17776, "18dce2")
OUTPUT = ("node QNNExecutionProvider_QNN_14402433416346871126_1_0", 0, 17776, "70f792")
KNOWN: dict[str, tuple[ArtefactKind, list[tuple[str, int, int, str]]]] = {
    "executorch-3-contexts.pte": (
        "pte",
        [
            ("forward/0", 2688, 54016, "a56e2e"),
            ("forward/1", 56960, 49960, "3e7ab2"),
            ("forward/2", 107264, 49960, "53d5ab"),
        ],
    ),
    "qnn_multi_ctx_embed.onnx": (
        "epcontext",
        [
            ("node QNNExecutionProvider_QNN_13547385946405838957_1_0", 120, 17776, "eaf948"),
            ("node QNNExecutionProvider_QNN_16204887825977696646_1_0", 18319, 17776, "e6526d"),
        ],
    ),
    "qnn_multi_ctx_external.onnx": ("epcontext", [ADD, OUTPUT]),
    "simple_add_op.sm8750.tflite": ("tflite", [("qnn_partition_0", 1184, 45056, "d02c46")]),
    "simple_model_qualcomm_sm8650_precompiled.tflite": (
        "tflite",
        [("qnn_partition_0", 1168, 29528, "6b88b1")],
    ),
    "test_abs.dlc": ("dlc", [("", 0, 2312, "d1c8af")]),
}


def pieces(artefact: Artefact) -> list[tuple[str, int, int, str]]:
    parts = artefact.pieces
    return [(part.origin, part.offset, part.size, part.sha256()[:6]) for part in parts]


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_inside(name: str) -> None:
    artefact = open_artefact(FIELD / name)
    assert (artefact.kind, pieces(artefact)) == KNOWN[name]


def test_what_they_say_of_themselves() -> None:
    artefacts = {name: open_artefact(FIELD / name) for name in KNOWN}
    pte = artefacts["executorch-3-contexts.pte"]
    assert pte.facts == {"methods": ["forward"], "other_nodes": 3}
    assert all(piece.facts["signature"] > 1.7e18 for piece in pte.pieces)  # nanoseconds since 1970
    node = artefacts["qnn_multi_ctx_external.onnx"].pieces[0]
    assert node.facts["sdk_version"] == "v2.22.0.240425235059_92863"


def test_a_folder_has_each_context_once(logged: Logged) -> None:
    artefacts = open_artefacts([FIELD])
    # the two .bin are those that a model beside them names
    assert [artefact.path.name for artefact in artefacts] == sorted(KNOWN)
    assert (logged.warnings, "README.md" in logged.progress[0]) == ([], True)


@pytest.mark.parametrize("name", KNOWN)
def test_each_is_needed_to_its_last_byte(name: str, tmp_path: Path) -> None:
    for side in FIELD.glob("*.bin"):
        shutil.copy(side, tmp_path)
    content = (FIELD / name).read_bytes()
    damaged = tmp_path / "damaged"
    cuts = random.Random(name).sample(range(len(content)), 50)
    for cut in (*cuts, *range(50), len(content) - 1):
        damaged.write_bytes(content[:cut])
        with pytest.raises(ArtefactError, match=str(damaged)):
            open_artefact(damaged)
