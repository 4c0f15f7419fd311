"""Wrong input of commands: an error before anything is done, with exit code 2."""

from pathlib import Path

import pytest

from tests.integration.in_process import qnn_harness
from tests.snapshots import Snapshot
from tests.unit.containers.made import CONTEXT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lab = "schema: 1\ndevices:\n  - {name: phone, serial: R5CX1234, soc: SM8550}\n"
    (tmp_path / "phone.yaml").write_text(lab)
    (tmp_path / "m.bin").write_bytes(CONTEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "bisect",
        "compare --previous a b",
        "compare",
        "model fit m.bin --device phone",
        "model fit --remedies m.bin m.bin",
        "model fit --remedies m.bin -s fone --lab phone.yaml",
        "model reduce",
        "devices clean --lab missing.yaml",
        "--lab missing.yaml devices clean",
        "devices --lab missing.yaml clean",
        "--lab phone.yaml devices --lab phone.yaml clean --lab missing.yaml",
        "--lab= devices clean",
        "--reports missing bisect log",
        "--lab phone.yaml --json bisect --resume",
        "--json model compile m.onnx",
        "explain --lab phone.yaml",
        "acceptance run",
        "acceptance run fone --lab phone.yaml",
        "doctor -s fone --lab phone.yaml",
        "devices clean -s phone,fone --lab phone.yaml",
        "doctor --timeout 30",
        "history list --since soon",
        "history list --since 2026-02-30",
        "nightly --timeout 169h",
        "nightly --resume",
        "report write no-such-run",
        "report site -o m.bin",
        "run",
        "run m.bin --engine=tvm",
        "run m.bin --expected=",
        "run m.bin --copies=0",
        "run m.bin --timeout=3",
        "run m.bin --max-error=3",
        "run m.bin --devices=x",
        "run m.bin --context=x",
        "run m.bin --contexts=3",
        "run m.bin --device=",
        "run m.bin --residency=",
        "model fit m.bin --copies=x",
        "simulator build-dsp --source missing",
        "run m.bin --limit=drift=x",
        "run m.bin --lab phone.yaml --json -- -k nothing",
        "simulator start nobody --lab phone.yaml",
        "simulator start --lab phone.yaml",
    ],
)
def test_wrong_input(words: str, folder: Path, snapshot: Snapshot) -> None:
    """Words that are missing, wrong or do not go together."""
    before = sorted(folder.iterdir())
    completed = qnn_harness(*words.split())
    assert completed.stderr.rstrip().splitlines()[-1] == snapshot
    assert (completed.returncode, completed.stdout, sorted(folder.iterdir())) == (2, "", before)
