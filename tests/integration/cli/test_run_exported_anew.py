"""A file that was exported anew under its name: which one a case was of, however it ended."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import onnx
import pytest

from tests.hostile_models import relu
from tests.integration.cli.test_run_placement import two_refused
from tests.integration.device_runs import DeviceRuns
from tests.integration.plugin.test_bad_input import OFFLINE


def allowed(path: Path) -> None:
    onnx.save(relu(1, 4), path)


def too_large(path: Path) -> None:
    onnx.save(relu(1, 3_000_000_000), path)


def as_it_is(lab: DeviceRuns) -> None:
    pass


def full(lab: DeviceRuns) -> None:
    lab.file.write_text(lab.file.read_text() + "    storage_limit_mb: 30\n")


def without_runtime(lab: DeviceRuns) -> None:
    lab.environment |= {**OFFLINE, "QNN_HARNESS_CACHE": str(lab.folder / "cache")}


def test_a_refused_model_that_passes_once_it_is_exported_anew_is_no_flake(lab: DeviceRuns) -> None:
    file = lab.folder / "net.onnx"
    ends = []
    for export in (two_refused, allowed, two_refused, allowed):
        export(file)
        (record,) = lab.run("--qnn", "2.51.0", suites=file).cases
        ends.append((record["outcome"], record["files_sha256"]))
    assert [outcome for outcome, _ in ends] == ["failed", "passed"] * 2
    assert ends[:2] == ends[2:]
    assert ends[0][1] != ends[1][1]
    stdout = lab.qnn_harness("history", "--reports", lab.reports).stdout
    assert "F.F." in stdout
    assert "flaky" not in stdout


@pytest.mark.parametrize(
    ("export", "prepare", "words", "end"),
    [
        (two_refused, as_it_is, [], ("failed", "target")),
        (two_refused, as_it_is, ["--engine=ort"], ("failed", "target")),
        (too_large, as_it_is, ["tiny.onnx"], ("error", "config")),
        (allowed, full, [], ("error", "infra")),
        (allowed, without_runtime, [], ("error", "infra")),
    ],
)
def test_a_case_that_never_came_to_its_file_says_which_it_was(
    lab: DeviceRuns,
    export: Callable[[Path], None],
    prepare: Callable[[DeviceRuns], None],
    words: list[str],
    end: tuple[str, str | None],
) -> None:
    export(lab.folder / "net.onnx")
    allowed(lab.folder / "tiny.onnx")
    prepare(lab)
    _, stderr, records = lab.run_files("net.onnx", "--qnn=2.51.0", *words)
    (record,) = (record for record in records if record["case"].startswith("net.onnx::"))
    assert (record["outcome"], record["cause"]) == end, stderr
    content = (lab.folder / "net.onnx").read_bytes()
    assert record["files_sha256"] == sha256(content).hexdigest()
