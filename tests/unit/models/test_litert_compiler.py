"""Options and log of LiteRT's compiler."""

from pathlib import Path

import pytest

from harness.core.socs import HTP_ARCHS, SOCS
from harness.models import compiler
from harness.models.litert_compiler import LitertHost, RefusedByCpu, refusal_in, run_on_cpu, soc_for
from tests.snapshots import Snapshot

OLD_QNN = """\
INFO: [qnn_manager.cc:176] Loading qnn shared library from "libQnnSystem.so"
ERROR: [qnn_manager.cc:359] Qnn System library version 1.13.0 is mismatched. The minimum is 1.14.0.
ERROR: [qnn_compiler_plugin.cc:372] Failed to set up QNN manager
"""


@pytest.mark.parametrize(
    ("soc", "arch", "name"),
    [
        ("SM8550", 73, "SM8550"),
        ("QCS8550", 73, "SM8550"),  # one number for both
        ("QCS6490", 68, "QCM6490"),
        ("QCS9100", 73, "QCS9100"),
        (None, 75, "SM8650"),
        ("SM8650", 79, "SM8750"),  # the arch is what the device was configured for
    ],
)
def test_what_a_soc_is_called(soc: str | None, arch: int, name: str) -> None:
    assert soc_for(soc, arch) == name


def test_there_is_a_soc_for_each_htp() -> None:
    assert all(SOCS[soc_for(None, arch)].htp_arch == arch for arch in HTP_ARCHS)


@pytest.mark.parametrize(
    "log", [OLD_QNN, "INFO: [a.cc:1] ERROR: [b.cc:2] not at the start\n"], ids=["old", "none"]
)
def test_why_nothing_was_written(log: str, snapshot: Snapshot) -> None:
    assert refusal_in(log) == snapshot


def test_a_model_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "ai_edge_litert"
    stand_in.mkdir()
    (stand_in / "interpreter.py").write_text("while True: pass")
    model = tmp_path / "model.tflite"
    model.write_bytes(b"")
    monkeypatch.setattr(compiler, "JOB_S", 1.0)
    host = LitertHost("2.51.0", tmp_path, tmp_path, tmp_path)
    with pytest.raises(RefusedByCpu):
        run_on_cpu(host, model, {}, [], tmp_path)
