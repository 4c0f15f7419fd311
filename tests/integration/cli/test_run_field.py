"""What people really have is run on every runtime, whole and with a bit changed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from harness.containers.artefact import ArtefactError
from harness.containers.open import open_artefact
from tests.integration.device_runs import DeviceRuns

FIELD = Path(__file__).parents[2] / "field"
VERSIONS = ("2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0")
TIMEOUT_S = 500
FILES = {
    "executorch-3-contexts.pte": 3,
    "qnn_multi_ctx_embed.onnx": 2,
    "qnn_multi_ctx_external.onnx": 2,
    "simple_model_qualcomm_sm8650_precompiled.tflite": 1,
}


def test_what_people_have_runs_on_all_that_are_new_enough(lab: DeviceRuns) -> None:
    code, said, records = lab.run_files(
        *(FIELD / name for name in FILES), "--qnn=2.48.40,2.51.0", timeout_s=TIMEOUT_S
    )
    assert code == 1, said
    found = {(one["axes"]["workload"], one["axes"]["qnn"]): one for one in records}
    assert set(found) == {(name, version) for name in FILES for version in ("2.48.40", "2.51.0")}
    for (name, version), one in found.items():
        # the .pte was made by 2.49.40, and older runtimes refuse what is newer
        if name.endswith(".pte") and version in VERSIONS[:2]:
            assert (one["outcome"], one["error"]["code"]) == ("failed", 5000), said
            assert {entry["code"] for entry in one["preflight"]} == {"context-newer"}
        else:
            assert (one["outcome"], one["outputs"]) == ("passed", "agreement"), said
            assert one["measurements"]["loaded"] == FILES[name]


@pytest.mark.slow
def test_a_changed_bit_is_told_or_changes_no_more_than_numbers(lab: DeviceRuns) -> None:
    """What the reader takes of it is run: no fault of ours, and as many contexts as it says."""
    chance = random.Random(4)
    for side in FIELD.glob("*.bin"):
        shutil.copy(side, lab.folder)
    readable, refused, empty = {}, 0, set()
    for name in (*FILES, min(FIELD.glob("*.bin")).name):
        content = (FIELD / name).read_bytes()
        for at in range(4):
            changed = bytearray(content)
            # every other one in the first bytes, where the containers say what is where
            place = chance.randrange(len(content) if at % 2 else 400)
            changed[place] ^= 1 << chance.randrange(8)
            path = lab.folder / f"{at}-{name}"
            path.write_bytes(changed)
            try:
                pieces = open_artefact(path).pieces
                readable[path.name] = sum(piece.kind == "context" for piece in pieces)
                empty |= {path.name} if readable[path.name] < len(pieces) else set()
            except ArtefactError:
                refused += 1
    code, said, records = lab.run_files(*readable, "--qnn=2.51.0", timeout_s=TIMEOUT_S)
    assert code in (0, 1, 2), said
    assert "Traceback" not in said
    assert {one["axes"]["workload"] for one in records} == set(readable)
    for one in records:
        assert one["cause"] in (None, "target", "config"), one["error"]
        if one["outcome"] == "passed":
            assert one["measurements"]["loaded"] == readable[one["axes"]["workload"]]
            assert one["outputs"] == "agreement"  # never more than that
    assert all(f"{name}: left out, as their caches are empty" in said for name in empty)
    assert refused
    assert "passed" in {one["outcome"] for one in records}
