"""`qnn-harness run` and `pytest --model`: contexts of the user's own, and no test written."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from harness.models.builtin_models import Model
from tests.hostile_models import made_within, nested, recursive, relu
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import LAB, ROOT, DeviceRuns, Finished
from tests.integration.in_process import qnn_harness
from tests.unit.containers.made import epcontext

PLAN_SCHEMA = json.loads((ROOT / "docs/schema/plan.schema.json").read_text())
(FOREIGN,) = (Path(__file__).parents[2] / "field").glob("add_add_1_quant*.bin")


@pytest.fixture
def tiny(context_for: ContextFor, tmp_path: Path) -> Path:
    """A context binary elsewhere than where it is run, with its inputs and outputs."""
    context = context_for("tiny", "2.51.0")
    folder = tmp_path / "elsewhere"
    for name, files in (("in", context.inputs), ("out", context.expected)):
        (folder / name).mkdir(parents=True)
        for file in files:
            shutil.copyfile(file, folder / name / file.name)
    shutil.copyfile(context.path, folder / "tiny.ctx")
    return folder / "tiny.ctx"


@pytest.mark.slow
def test_files_are_run_compared_and_gone_on_with(lab: DeviceRuns, tiny: Path) -> None:
    shutil.copyfile(FOREIGN, lab.folder / "foreign.bin")
    file = Path("elsewhere") / tiny.name
    arguments = ("--inputs=elsewhere/in", "--expected=elsewhere/out", "--limit=tolerance=0.01")
    versions = "--qnn=2.47.0,2.51.0"
    code, stderr, records = lab.run_files(
        file, *arguments, versions, "--copies=2,5,2", "--residency=window=2"
    )
    assert code == 1, stderr
    by_axes = {(record["axes"]["qnn"], record["axes"]["contexts"]): record for record in records}
    assert list(by_axes) == [("2.47.0", 2), ("2.47.0", 5), ("2.51.0", 2), ("2.51.0", 5)]
    newer, fine = by_axes["2.47.0", 5], by_axes["2.51.0", 5]
    assert (newer["outcome"], newer["error"]["code"]) == ("failed", 5000)
    assert [record["code"] for record in newer["preflight"]] == ["context-newer"]
    assert (fine["outcome"], fine["measurements"]["loaded"]) == ("passed", 5)
    plan = next(name for name in fine["logs"] if name.endswith("probe.plan"))
    steps = (lab.reports / fine["run"] / plan).read_text()
    assert fine["asked"]["window"] == 2
    assert steps.index("context-free context=0") < steps.index("context-load context=2")
    assert fine["case"] == "elsewhere/tiny.ctx::test_contexts[sim-v73-htp-2.51.0-tiny.ctx-window-5]"
    assert (fine["suite"], fine["axes"]["workload"]) == ("run_contexts", "tiny.ctx")
    assert fine["measurements"]["context_files"]["tiny.ctx"]["outputs"] == "compared"
    assert (fine["outputs"], fine["measurements"]["executed"]) == ("reference", 5)
    assert newer["outputs"] is None
    # what it should give is what it was given: no output is equal to that
    wrong = ("--inputs=elsewhere/in", "--expected=elsewhere/in")
    code, stderr, (differs,) = lab.run_files(file, *wrong)
    assert (code, differs["outcome"]) == (1, "failed"), stderr
    assert differs["error"]["api"] == "QnnGraph_execute"
    # a run that broke off goes on
    code, stderr, (before,) = lab.run_files(file, "--qnn=2.51.0")
    assert (code, before["outcome"]) == (0, "passed"), stderr
    code, stderr, again = lab.run_files(file, "foreign.bin", "--qnn=2.51.0", "--resume=latest")
    assert (code, len(again)) == (0, 2), stderr
    assert {record["run"] for record in again} == {before["run"]}
    assert again[0]["attempt"] == 1
    assert before["files_sha256"] != differs["files_sha256"]
    alone = again[1]
    assert (alone["outputs"], alone["measurements"]["executed"]) == ("agreement", 2)
    (output,) = alone["measurements"]["kept_outputs"]["foreign.bin"]["outputs"]
    file = lab.reports / "latest/outputs" / f"{output['digest']}.raw"
    assert file.stat().st_size == 48
    junit = (lab.reports / "latest/junit.xml").read_text()
    assert '<property name="outputs" value="agreement"' in junit
    # what another file came to is no answer for this one
    shutil.copyfile(max(FOREIGN.parent.glob("*.bin")), lab.folder / "foreign.bin")
    code, stderr, again = lab.run_files("foreign.bin", "--qnn=2.51.0", "--resume=latest")
    (other,) = again[-1]["measurements"]["context_files"].values()
    assert other["sha256"] != alone["measurements"]["context_files"]["foreign.bin"]["sha256"]


@pytest.mark.slow
def test_outputs_that_are_nan_are_wrong(lab: DeviceRuns) -> None:
    (lab.folder / "ctx.onnx").write_bytes(
        epcontext([{"embed_mode": 1, "ep_cache_context": FOREIGN.read_bytes()}])
    )
    (lab.folder / "out").mkdir()
    (lab.folder / "out/0.raw").write_bytes(b"\xff" * 48)
    code, stderr, (record,) = lab.run_files("ctx.onnx", "--expected=out")
    assert (code, record["outcome"]) == (1, "failed"), stderr
    assert record["measurements"]["conclusion"] == "checks failed: nan[add_1]"
    lab.qnn_harness("model", "bundle", record["case"], "-o", "case.zip", code=0)
    code, stderr, (packed,) = lab.run_files("case.zip")
    assert (code, packed["measurements"]["came_again"]) == (1, True), stderr
    run, phone = lab.reports / record["run"], record["case"].replace("sim-v73", "phone")
    for file, old, new in (
        ("results.jsonl", "sim-v73", "phone"),
        ("run.json", "--expected", "--x"),
    ):
        (run / file).write_text((run / file).read_text().replace(old, new))
        words = ("model", "bundle", phone, f"--run={run}", "-o", f"{file}.zip")
        refused = lab.qnn_harness(*words, code=0 if old == "sim-v73" else 2).stderr
    assert "failed because of NaN, " in refused, "its reference is in no context"


@pytest.mark.slow
def test_an_onnx_model_takes_inputs_and_expected_outputs(lab: DeviceRuns) -> None:
    (lab.folder / "model.onnx").write_bytes(Model("tiny").serialized())
    # half a step of half precision is what HTP and CPU may differ by, a millionth is not
    versions = ("--qnn=2.47.0,2.51.0", "--limit=tolerance=0.05")
    code, stderr, records = lab.run_files("model.onnx", *versions)
    ends = [
        (record["axes"]["compiler"], record["outcome"], record["outputs"]) for record in records
    ]
    assert ends == [(version, "passed", "reference") for version in ("2.47.0", "2.51.0")], stderr
    code, stderr, (record,) = lab.run_files("model.onnx", "--limit=tolerance=1e-6")
    assert (code, record["outcome"], record["outputs"]) == (1, "failed", "reference"), stderr
    (lab.folder / "in").mkdir()
    (lab.folder / "out").mkdir()
    np.save(lab.folder / "in/x.npy", np.zeros((1, 16), np.float32))
    np.save(lab.folder / "out/y.npy", np.zeros((1, 16), np.float32))
    code, stderr, (record,) = lab.run_files("model.onnx", "--inputs=in", "--expected=out")
    assert (code, record["outcome"], record["outputs"]) == (0, "passed", "reference"), stderr
    code, stderr, (record,) = lab.run_files("model.onnx", "--expected=out")
    assert (code, record["outcome"], record["outputs"]) == (1, "failed", "reference"), stderr
    assert "--inputs DIR" in stderr
    # a condition takes the place of equality
    code, stderr, (record,) = lab.run_files("model.onnx", "--expected=out", "--limit=max-error=100")
    assert (code, record["outcome"], record["outputs"]) == (0, "passed", "reference"), stderr


def test_wrong_input(lab: DeviceRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("nothing of that kind")
    for file in (other, tmp_path / "nowhere.pte"):
        completed = qnn_harness("run", file)
        assert (completed.returncode, f"{file}: " in completed.stderr) == (2, True)
    monkeypatch.chdir(lab.folder)
    for option, words in (
        ("--limit=tolerance=0.1", f"{FOREIGN}: tolerance: "),
        ("--qnn=1.0", "--qnn: "),
        ("--resume=nowhere", "nowhere: "),
        ("--inputs=nowhere", f"{FOREIGN}: inputs: "),
    ):
        completed = qnn_harness("run", "--json", FOREIGN, option, environment=lab.environment)
        assert (completed.returncode, completed.stderr.count(words)) == (2, 1), completed.stderr
        assert completed.stdout == ""
    assert not lab.reports.exists()


@pytest.mark.slow
def test_wrong_input_that_is_known_once_a_file_is_read(lab: DeviceRuns, tmp_path: Path) -> None:
    program = FOREIGN.parent / "executorch-3-contexts.pte"
    (lab.folder / "empty").mkdir()
    wrong = lab.folder / "wrong.onnx"
    weights = numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="c1")
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 4, 8, 8)), ("y", (1, 8, 6, 6)))
    ]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [weights])
    newer, opset = lab.folder / "newer.onnx", lab.folder / "opset.onnx"
    for file, ir, version in ((wrong, 8, 17), (newer, 99, 17), (opset, 8, 99)):
        opsets = [helper.make_opsetid("", version)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir)
        file.write_bytes(model.SerializeToString())
    unknown = lab.folder / "unknown.onnx"
    unknown.write_bytes(wrong.read_bytes().replace(b"Conv", b"Nope"))
    for file, option, words in (
        (wrong, "--rounds=1", "Non-zero status code returned while running Conv node. Name:'c1'"),
        (newer, "--rounds=1", "; export it with an older opset and `ir_version`"),
        (opset, "--rounds=1", "; export it with an older opset and `ir_version`"),
        (unknown, "--rounds=1", "cannot run it on the CPU: This is an invalid model"),
        (FOREIGN, "--graph=decode", "graph: has no graph 'decode'"),
        # what lies inside another file is called as users know it, not as its copy in the cache
        (program, "--graph=nix", "error: executorch-3-contexts.pte#0: graph: "),
        (program, "--expected=empty", "empty/0 "),
        (FOREIGN, "--inputs=empty", "inputs: "),
    ):
        code, stderr, records = lab.run_files(file, option)
        assert (code, records, words in stderr) == (2, [], True), stderr
        assert "qnn-harness ==" not in stderr
        assert not re.search("!!!", stderr)
        assert not [*lab.reports.glob("*/results.jsonl")]
    # where one of several can be run, the other has a record
    code, stderr, records = lab.run_files(FOREIGN, program, "--graph=forward")
    assert code == 2, stderr
    assert [record["cause"] for record in records] == ["config", None]
    assert lab.reports.exists()
    # so is one that is cut off: the others of its folder are run
    (lab.folder / "some").mkdir()
    (lab.folder / "some" / "whole.bin").write_bytes(FOREIGN.read_bytes())
    (lab.folder / "some" / "cut.pte").write_bytes(program.read_bytes()[:3000])
    code, stderr, records = lab.run_files("some", "--rounds=1")
    assert (code, [record["outcome"] for record in records]) == (2, ["passed"]), stderr
    assert "error: not run: some/cut.pte: at byte " in stderr
    # pytest itself takes what is called like an artefact, and nothing else by its name alone
    (tmp_path / "half.pte").write_bytes(b"no")
    completed = lab.run(suites=tmp_path / "half.pte")
    assert (completed.code, "half.pte: " in completed.output) == (2, True)


def test_the_plan_is_there_for_programs_too(lab: DeviceRuns) -> None:
    completed = lab.qnn_harness(
        "run", FOREIGN, "--qnn=2.51.0", "--copies=1,2", "--dry-run", "--json", code=0
    )
    plan = json.loads(completed.stdout)
    jsonschema.validate(plan, PLAN_SCHEMA)
    assert [case["case"] in completed.stderr for case in plan["cases"]] == [True, True]
    first, second = plan["cases"]
    assert first["files"] == second["files"], "a context twice is one file"
    assert {"libQnnHtp.so", FOREIGN.name} <= {
        file["name"].rpartition("/")[2] for file in first["files"]
    } | {file["origin"].rpartition("/")[2] for file in first["files"]}
    assert plan["files"] == len(first["files"])
    assert plan["bytes"] == sum(file["size"] for file in first["files"])
    assert not list(lab.reports.glob("*")), "nothing was run"
    completed = lab.qnn_harness(
        "run", FOREIGN, "--qnn=2.51.0", "--graph=decode", "--dry-run", "--json", code=2
    )
    (wrong,) = json.loads(completed.stdout)["cases"]
    assert (bool(wrong["error"]), wrong["files"]) == (True, [])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["qnn", "ort"])
def test_a_model_that_asks_for_too_much_costs_no_other(lab: DeviceRuns, engine: str) -> None:
    models = {
        "good.onnx": relu(1, 4),
        "endless.onnx": nested(40),
        "again.onnx": recursive(),
        "huge.onnx": relu(1, 3_000_000_000),
        "deep.onnx": relu(*[1] * 70),
        # more than half of the memory, in 4 bytes each
        "made.onnx": made_within(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 11 // 80
        ),
    }
    for name, model in models.items():
        onnx.save(model, lab.folder / name)
    code, stderr, records = lab.run_files(*models, f"--engine={engine}")
    assert code == 2, stderr
    ends = {
        record["case"].partition("::")[0]: (record["outcome"], record["cause"])
        for record in records
    }
    assert ends == dict.fromkeys(models, ("error", "config")) | {"good.onnx": ("passed", None)}


@pytest.mark.nightly
def test_outputs_that_drift_are_told_and_can_fail_the_run(
    lab: DeviceRuns, context_for: ContextFor
) -> None:
    """MobileNet-v2 in half precision gives other outputs from QNN 2.48 on."""
    file = lab.folder / "net.bin"
    shutil.copyfile(context_for("mobilenet-v2", "2.47.0").path, file)
    code, stderr, records = lab.run_files(file, "--qnn=2.47.0,2.51.0", "--limit=drift=0")
    assert code == 1, stderr
    *cases, drift = records
    assert {(case["outcome"], case["outputs"]) for case in cases} == {("passed", "agreement")}
    printed = json.loads((ROOT / "docs/schema/printed.schema.json").read_text())
    jsonschema.validate(drift, printed | {"anyOf": [{"$ref": "#/$defs/OutputDrifted"}]})
    assert (drift["kind"], drift["context"], drift["output"]) == ("drift", "net.bin", "y")
    assert [point["variants"] for point in drift["points"]] == [[0], [1]]
    assert drift["differences"][1]["elements"] == 535
    for steps, expected in ((1, 0), (0, 1)):
        again = ("--resume=latest", "--qnn=2.47.0,2.51.0", f"--limit=drift={steps}")
        code, stderr, records = lab.run_files(file, *again)
        assert (code, len(records)) == (expected, 3), stderr


IN_A_MOMENT = """
import dataclasses, harness.cli.main, harness.plugin.options as options
options.FULL = dataclasses.replace(options.FULL, least_ms=1)
harness.cli.main.main()
"""


@pytest.mark.slow
def test_a_full_profile_run_makes_as_many_rounds_as_mlperf(lab: DeviceRuns, tiny: Path) -> None:
    lab.file.write_text(f"{LAB}    gate: {{max_temperature_c: 150, max_busy_percent: 100}}\n")
    words = [sys.executable, "-c", IN_A_MOMENT, "run", f"elsewhere/{tiny.name}", "--qnn=2.51.0"]
    words += ["--inputs=elsewhere/in", "--expected=elsewhere/out", "--limit=tolerance=0.01"]
    completed = subprocess.run(
        [*words, "--profile-run=full"],
        cwd=lab.folder,
        env=lab.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    (case,) = Finished(0, "", lab.reports).cases
    (graph,) = case["measurements"]["graphs"]
    assert graph["rounds"] + graph["warmup_count"] == 1024 + 2
    low, high = graph["p50_interval_us"]
    assert low <= graph["p50_us"] <= high
    assert graph["p50_us"] <= graph["p90_us"] <= graph["p99_us"]
    assert case["measurements"]["surroundings"]["profile_run"] == "full"
    assert case["measurements"]["execute_us"] == [graph["p50_us"]]
    row = rf"Warm-up +Throttled\n.* {graph['warmup_count']} +unknown"
    assert re.search(row, completed.stdout)
    assert case["measurements"]["gate"]["waited_s"] >= 0


@pytest.mark.slow
def test_contexts_load_with_options(lab: DeviceRuns, tiny: Path) -> None:
    file = Path("elsewhere") / tiny.name
    taken = ("--context-option=weight_sharing=1", "--context-option=file_read_memory_budget_mb=1")
    code, stderr, (fine,) = lab.run_files(file, "--qnn=2.51.0", *taken)
    assert (code, fine["outcome"]) == (0, "passed"), stderr
    options = {"weight_sharing": 1, "file_read_memory_budget_mb": 1}
    assert fine["measurements"]["context_options"] == options
    limit = "--context-option=reused_io_limit_mb=64"
    code, stderr, (refused,) = lab.run_files(file, "--qnn=2.51.0", limit)
    error = refused["error"]
    assert (code, refused["outcome"], refused["cause"]) == (0, "unsupported", None), stderr
    assert (error["api"], error["code"]) == ("QnnContext_createFromBinary", 5010)
    assert "HTP Config option: 17 not supported" in error["message"]
    assert refused["measurements"]["context_options"] == {"reused_io_limit_mb": 64}
    assert refused["asked"]["context_option"] == "reused_io_limit_mb=64"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--context-option=a=1"], "--context-option: unknown context option 'a' (valid: weight_"),
        (["--context-option=init_acceleration=2"], "'2' is not a value of init_acceleration"),
        (
            ["--context-option=init_acceleration=1", "--engine=executorch"],
            "ExecuTorch sets the options of contexts when it compiles a file (valid: --engine qnn",
        ),
        (
            ["--context-option=spill_fill_group=9", "--residency=window"],
            "contexts of a group must be resident, not window",
        ),
        (
            ["--profile-run=full", "--rounds=1"],
            "--rounds: --profile-run full sets the number of rounds itself",
        ),
        (["--profile-run=half"], "Invalid value for '--profile-run': 'half' is not 'full'."),
    ],
)
def test_a_wrong_option_of_contexts_is_an_error_of_the_command(
    lab: DeviceRuns, tiny: Path, arguments: list[str], problem: str
) -> None:
    file = Path("elsewhere") / tiny.name
    code, stderr, _ = lab.run_files(file, "--qnn=2.51.0", *arguments)
    assert code == 2
    assert problem in stderr
