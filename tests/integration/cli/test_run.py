"""`qnn-harness run` and `pytest --contexts`: contexts of the user's own, and no test written."""

from __future__ import annotations

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

from harness.containers.artefact import ArtefactError
from harness.containers.open import open_artefact
from harness.models.models import Model
from harness.runtimes.pypi import ORT_HOST_VERSION
from tests.hostile_models import made_within, nested, recursive, relu
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.in_process import qnn_harness
from tests.unit.containers.made import epcontext

PLAN_SCHEMA = json.loads((ROOT / "docs/schema/plan.schema.json").read_text())
(FOREIGN,) = (Path(__file__).parents[2] / "field").glob("add_add_1_quant*.bin")
TIMEOUT_S = 400


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


def test_files_are_run_compared_and_gone_on_with(lab: DeviceRuns, tiny: Path) -> None:
    shutil.copyfile(FOREIGN, lab.folder / "foreign.bin")
    file = Path("elsewhere") / tiny.name
    arguments = ("--inputs=elsewhere/in", "--expected=elsewhere/out", "--tolerance=0.01")
    versions = "--qnn=2.47.0,2.51.0"
    code, stderr, records = lab.run_files(
        file, *arguments, versions, "--contexts=2,5,2", "--residency=window"
    )
    assert code == 1, stderr
    by_axes = {(record["axes"]["qnn"], record["axes"]["contexts"]): record for record in records}
    assert list(by_axes) == [("2.47.0", 2), ("2.47.0", 5), ("2.51.0", 2), ("2.51.0", 5)]
    newer, fine = by_axes["2.47.0", 5], by_axes["2.51.0", 5]
    assert (newer["outcome"], newer["error"]["code"]) == ("failed", 5000)
    assert [record["code"] for record in newer["preflight"]] == ["context-newer"]
    assert (fine["outcome"], fine["measurements"]["loaded"]) == ("passed", 5)
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
    assert "2 of 2 cases have a verdict: 2 passed\n" in stderr
    assert {record["run"] for record in again} == {before["run"]}
    assert again[0]["attempt"] == 1
    assert before["files_sha256"] != differs["files_sha256"]
    alone = again[1]
    assert (alone["outputs"], alone["measurements"]["executed"]) == ("agreement", 2)
    assert "outputs of what passed: 2 the same each time" in stderr
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


def test_a_model_with_empty_caches_is_refused(lab: DeviceRuns) -> None:
    nodes = [{"embed_mode": 1, "ep_cache_context": FOREIGN.read_bytes()}, {"embed_mode": 1}]
    (lab.folder / "ctx.onnx").write_bytes(epcontext(nodes))
    code, stderr, records = lab.run_files("ctx.onnx")
    assert (code, records) == (2, [])
    assert "ctx.onnx: node n1 holds no context, and ONNX Runtime does not load such" in stderr


def test_outputs_that_are_nan_are_wrong(lab: DeviceRuns) -> None:
    (lab.folder / "ctx.onnx").write_bytes(
        epcontext([{"embed_mode": 1, "ep_cache_context": FOREIGN.read_bytes()}])
    )
    (lab.folder / "out").mkdir()
    (lab.folder / "out/0.raw").write_bytes(b"\xff" * 48)
    code, stderr, (one,) = lab.run_files("ctx.onnx", "--expected=out")
    assert (code, one["outcome"]) == (1, "failed"), stderr
    assert one["measurements"]["conclusion"] == "broken: nan[add_1]"


@pytest.mark.nightly
def test_a_reader_that_goes_away_is_no_verdict(lab: DeviceRuns) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [
        sys.executable,
        "-m",
        "harness.cli.main",
        "run",
        "--rounds=1",
        "--json",
        str(FOREIGN),
    ]
    with os.fdopen(write, "wb") as pipe:
        completed = subprocess.run(
            command,
            cwd=lab.folder,
            env=lab.environment,
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    passed = "1 of 1 case has a verdict: 1 passed" in completed.stderr
    assert (completed.returncode, passed) == (0, True), completed.stderr
    assert "Broken pipe" not in completed.stderr


@pytest.mark.slow
def test_an_onnx_model_is_compiled_by_each_version(lab: DeviceRuns) -> None:
    (lab.folder / "my model.onnx").write_bytes(Model("tiny").serialized())
    # half a step of half precision is what HTP and CPU may differ by, a millionth is not
    versions = ("--qnn=2.47.0,2.51.0", "--tolerance=0.05")
    code, stderr, records = lab.run_files("my model.onnx", *versions)
    assert code == 0, stderr
    assert [
        (record["axes"]["compiler"], record["outcome"], record["outputs"]) for record in records
    ] == [
        ("2.47.0", "passed", "reference"),
        ("2.51.0", "passed", "reference"),
    ]
    code, stderr, (one,) = lab.run_files("my model.onnx", "--tolerance=1e-6")
    assert (code, one["outcome"], one["outputs"]) == (1, "failed", "reference"), stderr


@pytest.mark.slow
def test_an_onnx_model_takes_inputs_and_expected_outputs(lab: DeviceRuns) -> None:
    (lab.folder / "model.onnx").write_bytes(Model("tiny").serialized())
    (lab.folder / "in").mkdir()
    (lab.folder / "out").mkdir()
    np.save(lab.folder / "in/x.npy", np.zeros((1, 16), np.float32))
    np.save(lab.folder / "out/y.npy", np.zeros((1, 16), np.float32))
    code, stderr, (one,) = lab.run_files("model.onnx", "--inputs=in", "--expected=out")
    assert (code, one["outcome"], one["outputs"]) == (0, "passed", "reference"), stderr
    assert "made up" not in stderr
    code, stderr, (one,) = lab.run_files("model.onnx", "--expected=out")
    assert (code, one["outcome"], one["outputs"]) == (1, "failed", "reference"), stderr
    assert "those of generated inputs; pass your inputs by --inputs DIR" in stderr
    # a condition takes the place of equality
    code, stderr, (one,) = lab.run_files("model.onnx", "--expected=out", "--max-error=100")
    assert (code, one["outcome"], one["outputs"]) == (0, "passed", "reference"), stderr


@pytest.mark.slow
def test_another_model_is_the_reference(lab: DeviceRuns) -> None:
    (lab.folder / "model.onnx").write_bytes(Model("tiny").serialized())
    (lab.folder / "other.onnx").write_bytes(Model("tiny", variant=1).serialized())
    (lab.folder / "in").mkdir()
    np.save(lab.folder / "in/x.npy", np.full((1, 16), 2, np.float32))
    arguments = ("model.onnx", "--inputs=in")
    figures = []
    for engine, options in (("qnn", ()), ("ort", ()), ("qnn", ("--reference=other.onnx",))):
        code, stderr, (one,) = lab.run_files(*arguments, f"--engine={engine}", *options)
        assert (code, one["outcome"], one["outputs"]) == (0, "passed", "reference"), stderr
        figures.append(one["measurements"])
        (figure,) = figures[-1]["accuracy"]
        assert (figure["elements"], figure["inputs"]) == (16, "given")
        assert len(figures[-1]["graphs"]) == 1
    assert figures[0]["accuracy"][0]["cosine"] > 0.9999
    assert figures[2]["accuracy"][0]["against"] == "other.onnx on the CPU"
    assert figures[2]["accuracy"][0]["cosine"] < 0.9999
    # an expected output that is wrong
    (lab.folder / "out").mkdir()
    np.save(lab.folder / "out/y.npy", np.zeros((1, 16), np.float32))
    for engine in ("qnn", "ort"):
        wrong = (f"--engine={engine}", "--expected=out", "--max-error=0.001")
        code, stderr, (one,) = lab.run_files(*arguments, *wrong)
        assert (code, one["outcome"]) == (1, "failed"), stderr
        assert re.search(r"furthest at \[0, \d+\]: ", one["error"]["message"])


@pytest.mark.nightly
def test_the_suites_that_take_contexts_run_on_these(lab: DeviceRuns, tiny: Path) -> None:
    chosen = "window-8 or (test_limit and tiny) or spill or versions or raw-raw or backends"
    completed = lab.run(f"--contexts={tiny}", f"--contexts={FOREIGN}", "-k", chosen)
    assert completed.code == 0, completed.output
    names = {case["axes"].get("workload") or case["suite"] for case in completed.cases}
    assert names >= {"tiny.ctx", FOREIGN.name, "spill_fill", "runtime_versions"}
    assert {case["axes"]["compiler"] for case in completed.cases} == {None}
    (record,) = (
        case
        for case in completed.cases
        if "runtime_versions" in case["case"] and "tiny" in case["case"]
    )
    assert (record["axes"]["model"], record["outcome"]) == ("tiny.ctx", "passed")
    by_test = {case["case"].rpartition("::")[2].partition("[")[0]: case for case in completed.cases}
    limit = by_test["test_limit"]["measurements"]
    assert (limit["limit_kind"], limit["sizes"][0]["fits"]) == ("none", 200)
    pairing = by_test["test_mem_type_pairing"]
    assert (pairing["axes"]["models"], pairing["measurements"]["compared_with"]) == (
        FOREIGN.name,
        {},
    )
    phases = [(check["name"], check["verdict"]) for check in by_test["test_context"]["checks"]]
    assert phases == [("init", "held"), ("load", "held"), ("execute", "held")]
    assert by_test["test_context"]["outputs"] == "agreement"
    assert "can never match" not in completed.output


def test_wrong_input(lab: DeviceRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("nothing of that kind")
    with pytest.raises(ArtefactError):
        open_artefact(other)
    for arguments, words in (
        ((), "FILE is missing"),
        ((other,), f"{other}: is no file of a known kind"),
        ((tmp_path / "nowhere.pte",), f"{tmp_path}/nowhere.pte: cannot be read: No such file"),
        ((FOREIGN, "--fail-on=3"), "error: --fail-on: '3' is not drift:STEPS"),
        ((FOREIGN, "--expected="), "'--expected': it is empty"),
        ((FOREIGN, "--contexts=0"), "--contexts: '0' is no number of contexts: 1 to 999999"),
        ((FOREIGN, "--engine=tvm"), "--engine: no engine 'tvm' (valid: qnn, ort"),
    ):
        completed = qnn_harness("run", *arguments)
        assert (completed.returncode, words in completed.stderr) == (2, True), completed.stderr
    monkeypatch.chdir(lab.folder)
    for option, words in (
        ("--tolerance=0.1", f"{FOREIGN}: tolerance: nothing says what its outputs should be"),
        ("--qnn=1.0", "--qnn: "),
        ("--resume=nowhere", "nowhere: is no run's folder"),
        ("--inputs=nowhere", f"{FOREIGN}: inputs: there is no {lab.folder}/nowhere, "),
        ("--expected=nowhere", f"{FOREIGN}: expected: there is no {lab.folder}/nowhere, "),
    ):
        completed = qnn_harness("run", "--json", FOREIGN, option, environment=lab.environment)
        assert (completed.returncode, completed.stderr.count(words)) == (2, 1), completed.stderr
        assert completed.stdout == ""
    assert not lab.reports.exists()
    # without a lab nothing else is run than what was asked for
    lab.file.rename(lab.folder / "lab.yaml")
    for option, addopts, words in (
        ("--device=phone", "", "/devices.yaml: no such file; --lab FILE names another"),
        ("--device=sim-v77", "", "--device: this computer simulates no 'sim-v77', did you mean"),
        ("--qnn=latest", "--lab=nowhere.yaml", "/nowhere.yaml: no such file; --lab FILE"),
    ):
        environment = lab.environment | {"PYTEST_ADDOPTS": addopts}
        completed = qnn_harness("run", "--json", FOREIGN, option, environment=environment)
        stderr = completed.stderr
        assert (completed.returncode, words in stderr, "simulated device" in stderr) == (
            2,
            True,
            False,
        )
        assert "rootdir" not in stderr


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
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    wrong.write_bytes(model.SerializeToString())
    ours = f"this computer's ONNX Runtime {ORT_HOST_VERSION}"
    newer, opset = lab.folder / "newer.onnx", lab.folder / "opset.onnx"
    for file, ir, version in ((newer, 99, 17), (opset, 8, 99)):
        opsets = [helper.make_opsetid("", version)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir)
        file.write_bytes(model.SerializeToString())
    cpu = f"error: {wrong}: {ours} does not compute it on the CPU: "
    for file, option, words in (
        (
            wrong,
            "--rounds=1",
            f"{cpu}Non-zero status code returned while running Conv node. Name:'c1'",
        ),
        (newer, "--rounds=1", f"error: {newer}: {ours} does not compute it on the CPU: "),
        (opset, "--rounds=1", f"error: {opset}: {ours} does not compute it on the CPU: "),
        (FOREIGN, "--graph=decode", "graph: has no graph 'decode'"),
        # what lies inside another file is called as users know it, not as its copy in the cache
        (program, "--graph=nix", "error: executorch-3-contexts.pte#0: graph: has no graph 'nix'"),
        (program, "--expected=empty", "empty/0, a folder with a raw file or a .npy for each of"),
        (FOREIGN, "--inputs=empty", "0 files, and the graph takes 1"),
    ):
        code, stderr, records = lab.run_files(file, option)
        assert (code, records, stderr.count(words)) == (2, [], 1), stderr
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
    assert (completed.code, "half.pte: is no file of a known kind" in completed.output) == (2, True)


def test_the_plan_is_there_for_programs_too(lab: DeviceRuns) -> None:
    completed = lab.qnn_harness(
        "run", FOREIGN, "--qnn=2.51.0", "--contexts=1,2", "--plan", "--json"
    )
    assert completed.returncode == 0, completed.stderr
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
        "run", FOREIGN, "--qnn=2.51.0", "--graph=decode", "--plan", "--json"
    )
    assert completed.returncode == 2
    (wrong,) = json.loads(completed.stdout)["cases"]
    assert "graph: has no graph 'decode'" in wrong["error"]
    assert wrong["files"] == []


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
    code, stderr, records = lab.run_files(file, "--qnn=2.47.0,2.51.0", "--fail-on=drift:0")
    assert code == 1, stderr
    *cases, drift = records
    assert {(case["outcome"], case["outputs"]) for case in cases} == {("passed", "agreement")}
    printed = json.loads((ROOT / "docs/schema/printed.schema.json").read_text())
    jsonschema.validate(drift, printed | {"anyOf": [{"$ref": "#/$defs/OutputDrifted"}]})
    assert (drift["kind"], drift["context"], drift["output"]) == ("drift", "net.bin", "y")
    assert [point["variants"] for point in drift["points"]] == [[0], [1]]
    assert drift["differences"][1]["elements"] == 535
    assert "net.bin, output y is not the same everywhere:" in stderr
    for steps, expected in ((1, 0), (0, 1)):
        again = ("--resume=latest", "--qnn=2.47.0,2.51.0", f"--fail-on=drift:{steps}")
        code, stderr, records = lab.run_files(file, *again)
        assert (code, len(records)) == (expected, 3), stderr


@pytest.mark.parametrize(
    ("machine", "message"),
    [("mips64", "is no known target"), ("aarch64", "and the device itself that it is linux-arm64")],
)
def test_a_device_that_says_it_is_another_machine_is_no_mistake_of_the_users(
    lab: DeviceRuns, tmp_path: Path, machine: str, message: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "uname").write_text(f"#!/bin/sh\necho {machine}\n")
    (programs / "uname").chmod(0o755)
    completed = lab.run(
        suites=shutil.copy(FOREIGN, tmp_path), PATH=f"{programs}:{os.environ['PATH']}"
    )
    assert completed.code == 3, completed.output
    assert message in completed.output
    assert {case["cause"] for case in completed.cases} <= {"infra"}
