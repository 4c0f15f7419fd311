"""Files of users run on every runtime, whole and with a bit changed."""

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
    code, stderr, records = lab.run_files(
        *(FIELD / name for name in FILES), "--qnn=2.48.40,2.51.0", timeout_s=TIMEOUT_S
    )
    assert code == 1, stderr
    by_axes = {(record["axes"]["workload"], record["axes"]["qnn"]): record for record in records}
    assert set(by_axes) == {(name, version) for name in FILES for version in ("2.48.40", "2.51.0")}
    for (name, version), record in by_axes.items():
        # the .pte was made by 2.49.40, and older runtimes refuse what is newer
        if name.endswith(".pte") and version in VERSIONS[:2]:
            assert (record["outcome"], record["error"]["code"]) == ("failed", 5000), stderr
            assert {entry["code"] for entry in record["preflight"]} == {"context-newer"}
        else:
            assert (record["outcome"], record["outputs"]) == ("passed", "agreement"), stderr
            assert record["measurements"]["loaded"] == FILES[name]


@pytest.mark.slow
def test_a_changed_bit_is_told_or_changes_no_more_than_numbers(lab: DeviceRuns) -> None:
    """Contexts that the reader accepts are run: no fault of ours, and as many as it says."""
    chance = random.Random(4)
    for side in FIELD.glob("*.bin"):
        shutil.copy(side, lab.folder)
    readable, refused, empty = {}, 0, set()
    for name in (*FILES, min(FIELD.glob("*.bin")).name):
        content = (FIELD / name).read_bytes()
        for number in range(4):
            changed = bytearray(content)
            # every other one in the first bytes, where the containers say what is where
            place = chance.randrange(len(content) if number % 2 else 400)
            changed[place] ^= 1 << chance.randrange(8)
            path = lab.folder / f"{number}-{name}"
            path.write_bytes(changed)
            try:
                pieces = open_artefact(path).pieces
                readable[path.name] = sum(piece.kind == "context" for piece in pieces)
                empty |= {path.name} if readable[path.name] < len(pieces) else set()
            except ArtefactError:
                refused += 1
    code, stderr, records = lab.run_files(*readable, "--qnn=2.51.0", timeout_s=TIMEOUT_S)
    assert code in (0, 1, 2), stderr
    assert "Traceback" not in stderr
    assert {record["axes"]["workload"] for record in records} == set(readable)
    for record in records:
        assert record["cause"] in (None, "target", "config"), record["error"]
        if record["outcome"] == "passed":
            assert record["measurements"]["loaded"] == readable[record["axes"]["workload"]]
            assert record["outputs"] == "agreement"  # never more than that
        if record["axes"]["workload"] in empty:
            assert record["cause"] == "config", record["error"]
    assert refused
    assert "passed" in {record["outcome"] for record in records}
