"""`runtimes fit` against the real libraries: what it predicts is what they do."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.containers.extract import piece_file
from harness.containers.open import open_artefacts
from harness.core.socs import SOCS
from harness.core.versions import QNN_WHEELS, QnnVersion
from harness.models.builtin_models import Model
from harness.models.capacity_forecast import Unsized, reserved
from harness.models.compiler import CompileError
from harness.models.context_cache import compile_to_file
from harness.models.onnx_model import OnnxModel
from harness.probe.build import ProbeBuilder
from harness.runtimes.catalog import Catalog
from harness.runtimes.engine_versions import ENGINE_RELEASES
from harness.runtimes.pypi import CompilerHost
from tests.integration.conftest import ContextFor, RuntimeFor
from tests.integration.device_runs import DeviceRuns
from tests.integration.in_process import qnn_harness
from tests.needed import DSP, need

FIELD = Path(__file__).parents[2] / "field"
CODES = {"context-newer": 5000, "context-arch": 5005}
DSP_LAB = """schema: 1
devices:
  - {name: dsp, simulated: true, soc: QCS8550, target: linux-arm64, dsp: true}
"""


def fits(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    completed = qnn_harness("runtimes", "fit", *arguments, "--json", code=code)
    files: list[dict[str, Any]] = json.loads(completed.stdout)["files"]
    return files


def test_without_a_runtime_for_phones_the_compilers_own_sdk_is_judged(tmp_path: Path) -> None:
    (lab := tmp_path / "devices.yaml").write_text(
        "schema: 1\ndevices:\n  - {name: new, serial: a, soc: SM8750, target: android-arm64}\n"
        "  - {name: old, serial: b, soc: SM8550, target: android-arm64}\n"
    )
    model = FIELD / "simple_add_op.sm8750.tflite"
    for device, loads, code in (("new", "loads", 0), ("old", "refused", 1)):
        (file,) = fits(model, "--lab", lab, "--device", device, code=code)
        (runtime,) = file["runtimes"]
        assert (runtime["runtime"]["name"], runtime["loads"]) == ("qairt:2.40.0.251030", loads)


@pytest.mark.slow
def test_the_simulator_does_as_predicted(
    user_cache: Path, runtime_for: RuntimeFor, context_for: ContextFor, probes: ProbeBuilder
) -> None:
    compiled = [context_for("tiny", each).path for each in QNN_WHEELS]
    compiled += [context_for("tiny", "2.47.0", arch).path for arch in (68, 81)]
    predicted = fits(FIELD, *compiled, "--target", "linux-x64")
    artefacts = list(open_artefacts([FIELD, *compiled]))
    assert [file["file"] for file in predicted] == [str(each.path) for each in artefacts]
    pieces = [piece for each in artefacts for piece in each.pieces if piece.kind == "context"]
    paths, probe = [piece_file(piece, user_cache) for piece in pieces], probes.build("linux-x64")
    for version in QNN_WHEELS:
        sizes = reserved(probe, runtime_for(version).library("libQnnHtp.so"), paths)
        tried = [f"refused {size.code}" if type(size) is Unsized else "loads" for size in sizes]
        runtimes = [
            each
            for file in predicted
            for each in file["runtimes"]
            if each["runtime"]["name"] == version
        ]
        loads = [each for runtime in runtimes for each in runtime["contexts"]]
        assert [each.replace("refused", "refused 5000") for each in loads] == tried
        assert len(loads) == 16
        for runtime in runtimes:
            codes = {each["code"] for each in runtime["findings"] if each["severity"] == "error"}
            assert codes == ({"context-newer"} if runtime["loads"] == "refused" else set())


@pytest.mark.slow
def test_the_dsp_does_as_predicted(tmp_path: Path, context_for: ContextFor) -> None:
    need(DSP)
    lab = DeviceRuns(tmp_path)
    lab.file.write_text(DSP_LAB)
    files = [FIELD, tmp_path / "new.bin", tmp_path / "v81.bin"]
    shutil.copyfile(context_for("tiny", "2.51.0").path, files[1])
    shutil.copyfile(context_for("tiny", "2.47.0", 81).path, files[2])
    predicted = fits(*files, "--lab", lab.file, "--device", "dsp", code=1)
    _, stderr, records = lab.run_files(*files, "--qnn=2.48.40,2.51.0", "--device=dsp")
    assert len(records) == 14, stderr
    for record in records:
        name, version = record["axes"]["workload"], record["axes"]["qnn"]
        (file,) = (each for each in predicted if Path(each["file"]).name == name)
        (runtime,) = (each for each in file["runtimes"] if each["runtime"]["qnn"] == version)
        if record["outcome"] == "passed":
            assert (runtime["loads"], record["outputs"]) == ("loads", "agreement"), record
            assert record["measurements"]["loaded"] == len(file["contexts"])
        else:
            codes = {CODES[each["code"]] for each in runtime["findings"]}
            assert (runtime["loads"], record["outcome"]) == ("refused", "failed"), record
            assert record["error"]["code"] in codes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plugin", "qnn", "works"),
    [
        ("2.47.0", "2.51.0", True),
        ("2.47.0", "2.49.40", False),
        ("2.48.40", "2.47.0", False),
        ("2.49.40", "2.50.40", False),
        ("2.50.40", "2.51.0", True),
        ("2.51.0", "2.50.40", False),
    ],
)
def test_a_plugin_takes_the_libraries_of_another_qnn_as_the_table_says(
    plugin: str, qnn: str, works: bool, tmp_path: Path, catalog: Catalog, probes: ProbeBuilder
) -> None:
    asked, given = catalog.compiler_host(plugin), catalog.compiler_host(qnn)
    mixed = CompilerHost(qnn, asked.ort_version, asked.ort_root, tmp_path / "mixed")
    for file in given.qnn_root.glob("onnxruntime_qnn*/*"):
        link = mixed.qnn_root / file.relative_to(given.qnn_root)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(asked.plugin if file == given.plugin else file)
    (tmp_path / "m.onnx").write_bytes(Model("tiny").serialized())
    model, output = OnnxModel.of(tmp_path / "m.onnx"), tmp_path / "out.bin"
    release = ENGINE_RELEASES["onnxruntime-qnn", QNN_WHEELS[plugin]]
    verdict = release.fit(QnnVersion.parse(qnn))
    assert (verdict in ("fits", "accepted")) == works
    with contextlib.nullcontext() if works else pytest.raises(CompileError):
        compile_to_file(model, mixed, SOCS["QCS8550"], probes, output)


def test_the_command(tmp_path: Path) -> None:
    lab = DeviceRuns(tmp_path).file
    old = "simple_model_qualcomm_sm8650_precompiled.tflite"
    text = qnn_harness("runtimes", "fit", FIELD / old, code=0).stdout
    assert "made by QNN 2.34.0.250424201103_119471 for HTP v75" in text
    assert "SoCs: SM8650\n" in text
    assert "fits     litert 1.3.0 (QNN 2.34.0)" in text
    plain = tmp_path / "m.onnx"
    plain.write_bytes(Model("tiny").serialized())
    (file,) = fits(plain, "--lab", lab, "--device", "sim-v73")
    assert (file["kind"], file["runtimes"], file["engines"]) == ("onnx", [], [])
    assert file["compiled_by"] == ["ONNX Runtime"]
    (tmp_path / "notes").write_text("no model")
    for words in (["notes"], ["m.onnx", "--device", "nobody"], ["absent"]):
        paths = [tmp_path / words[0], *words[1:]]
        assert qnn_harness("runtimes", "fit", *paths, "--lab", lab, code=2).stderr
