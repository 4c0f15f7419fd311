"""A case of a user's file made small and packed: with the real libraries, in fresh processes."""

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import helper

from harness.core.state_folders import cache_root
from harness.lab.inventory import SIMULATED_LAB, load_lab
from harness.models.builtin_models import Model
from harness.runtimes.catalog import Catalog
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.in_process import qnn_harness
from tests.processes import run_to_end
from tests.unit.containers.made import Pte, wrapped

FIELD = ROOT / "tests/field"
(OLD,) = FIELD.glob("add_add_1_quant*.bin")
TIMEOUT_S = 550
WRONG = "64 of 64 elements beyond 0.01\n"
LIMITS = ("--inputs=in", "--expected=out", "--limit=tolerance=0.01")
SCHEMA = json.loads((ROOT / "docs/schema/reduce.schema.json").read_text())


def told_nothing_of_here(bundle: Path, lab: DeviceRuns) -> None:
    """No host, no path, no serial: in none of its files, nor in what the zip says of them."""
    secrets = [platform.node(), str(lab.folder), str(Path.home()), "emulator-", "127.0.0.1"]
    whole = bundle.read_bytes()
    with zipfile.ZipFile(bundle) as opened:
        texts = [opened.read(name) for name in ("manifest.json", "README.txt")]
    assert b'"qnn": "2.' in texts[0]
    for secret in secrets:
        assert all(secret.encode() not in text for text in texts), secret
    assert str(lab.folder).encode() not in whole


@pytest.mark.slow
def test_one_context_that_is_too_new_is_found_among_others(
    lab: DeviceRuns, context_for: ContextFor
) -> None:
    new, old = context_for("tiny", "2.49.40").path.read_bytes(), OLD.read_bytes()
    forward = [("QnnBackend", number) for number in range(3)]
    program = Pte({"forward": forward}, [*map(wrapped, (old, new, old))])
    (lab.folder / "model.pte").write_bytes(program.content())
    code, output, (record,) = lab.run_files("model.pte", "--qnn=2.47.0")
    assert (code, record["error"]["code"]) == (1, 5000), output
    case, signature = record["case"], record["error"]["signature"]
    words = ("model.pte::test_contexts", "--output=small.zip", "--json")
    completed = lab.qnn_harness("model", "reduce", *words, timeout_s=TIMEOUT_S, code=0)
    document = json.loads(completed.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert (document["schema"], document["kind"]) == (1, "reduce")
    assert (document["case"], document["expects"]["signature"]) == (case, signature)
    assert (document["contexts"], document["before"], document["residency"]) == (
        ["model.pte#1"],
        3,
        "resident",
    )
    assert (document["minimal"], document["shown"], document["confirmed"]) == (True, 3, 3)
    assert completed.stderr.count(" fails ") == sum(
        1
        for line in (Path(document["folder"]) / "log.jsonl").read_text().splitlines()
        if json.loads(line).get("answer") == "bad"
    )
    told_nothing_of_here(lab.folder / "small.zip", lab)
    # one that was killed when its second run had ended goes on with what that run says
    log = Path(document["folder"]) / "log.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:4]) + '{"kind":"ans')
    for later in sorted((log.parent / "runs").iterdir())[2:]:
        shutil.rmtree(later)
    resumed = lab.qnn_harness("model", "reduce", f"--resume={log.parent}", "--json", code=0)
    changed = ("seconds", "bundle")
    assert json.loads(resumed.stdout) | {key: document[key] for key in changed} == document
    # in an empty folder, with nothing but the bundle
    empty = lab.folder / "empty"
    empty.mkdir()
    shutil.move(lab.folder / "small.zip", empty)
    (lab.folder / "model.pte").unlink()
    code, output, records = lab.run_files("empty/small.zip", "--qnn=2.47.0,2.49.40")
    assert code == 1, output
    again = {record["axes"]["qnn"]: record for record in records}
    assert again["2.47.0"]["error"]["signature"] == signature
    assert again["2.47.0"]["measurements"]["came_again"] is True
    assert again["2.47.0"]["axes"]["residency"] == "resident"
    assert again["2.49.40"]["outcome"] == "passed"
    assert again["2.49.40"]["measurements"]["came_again"] is False
    assert "packed with QNN 2.47.0; try --qnn 2.47.0" in output
    for words in (("inspect",), ("fit",), ("extract", f"--output={lab.folder}/copied")):
        bundle = (words[0], empty / "small.zip", *words[1:])
        qnn_harness("model", *bundle, environment=lab.environment, code=0)
    lab.run("--model", empty / "small.zip", "--qnn=2.49.40", "-k", "context_count", code=0)


@pytest.mark.slow
def test_inputs_and_expected_outputs_go_along(lab: DeviceRuns, context_for: ContextFor) -> None:
    context = context_for("tiny", "2.51.0")
    shutil.copyfile(context.path, lab.folder / "tiny.bin")
    for name, files in (("in", context.inputs), ("out", context.inputs)):
        (lab.folder / name).mkdir()
        for file in files:
            shutil.copyfile(file, lab.folder / name / file.name)
    tensors = ("--inputs=in", "--expected=out")
    way = ("--copies=3", "--residency=window")
    code, output, (record,) = lab.run_files("tiny.bin", "--qnn=2.51.0", *way, *tensors)
    assert (code, record["outcome"], record["outputs"]) == (1, "failed", "reference"), output
    (command,) = re.findall(
        r"(?<=^to share the first failing case:\n    qnn-harness ).*", output, re.MULTILINE
    )
    packed = lab.qnn_harness(*shlex.split(command), code=0)
    assert "    wrong-outputs (known): " in packed.stdout
    for name in ("in", "out"):
        (lab.folder / name).rename(lab.folder / f"{name} elsewhere")
    code, output, (again,) = lab.run_files("case.zip", "--qnn=2.51.0")
    assert again["error"]["signature"] == record["error"]["signature"], output
    assert again["measurements"]["came_again"] is True
    assert "to share the first failing case" not in output
    assert (again["axes"]["contexts"], again["axes"]["residency"]) == (3, "window")
    # a run that cannot be read hides no other; a name that no run has, a case that no run failed
    later = lab.reports / "29990101T000000Z-0000000000000000"
    later.mkdir()
    (later / "results.jsonl").write_text("")
    (later / "run.json").write_text('{"schema": 99}')
    words = ("model", "bundle", record["case"], "--output=again.zip")
    missing = lab.qnn_harness(*words)
    assert (missing.returncode, "does not exist" in missing.stderr) == (2, True), missing.stderr
    for name in ("in", "out"):
        (lab.folder / f"{name} elsewhere").rename(lab.folder / name)
    packed = lab.qnn_harness(*words, code=0)
    for words, message in (
        (("reduce", record["case"], "--output=none/x.zip"), "none: --output: "),
        (("reduce", "tiny.bin::test_contexts[typo]"), f"(valid: {record['case']})"),
        (("bundle", record["case"], "--output=again.zip"), "again.zip: --output: "),
    ):
        wrong = lab.qnn_harness("model", *words)
        assert (wrong.returncode, message in wrong.stderr) == (2, True), wrong.stderr
    assert not (lab.folder / "x.zip").exists()


@pytest.mark.slow
def test_a_case_of_a_model_is_packed_as_the_context_that_was_made_of_it(lab: DeviceRuns) -> None:
    (lab.folder / "model.onnx").write_bytes(Model("tiny").serialized())
    code, output, (record,) = lab.run_files("model.onnx", "--qnn=2.51.0", "--limit=tolerance=0.01")
    assert (code, record["outcome"]) == (0, "passed"), output
    lab.qnn_harness("model", "bundle", record["case"], "--output=case.zip", code=0)
    passed = lab.qnn_harness("model", "reduce", record["case"], code=2)
    assert f"passed in {record['run']}" in passed.stderr
    (lab.folder / "model.onnx").unlink()
    code, output, (again,) = lab.run_files("case.zip", "--qnn=2.51.0")
    assert (code, again["outcome"], again["outputs"]) == (0, "passed", "reference"), output
    assert again["measurements"]["came_again"] is True


def plain_onnx(bundle: Path, lab: DeviceRuns) -> subprocess.CompletedProcess[str]:
    """Run what is in a bundle by ONNX Runtime's and QNN's wheels alone.

    What stands for the package onnxruntime_qnn names the libraries of that wheel.
    """
    folder = lab.folder / f"{bundle.stem} unpacked"
    with zipfile.ZipFile(bundle) as opened:
        opened.extractall(folder)
    host = Catalog.of(load_lab(SIMULATED_LAB), os.environ, cache_root()).compiler_host("2.51.0")
    stand_in = lab.folder / "stand-in" / "onnxruntime_qnn.py"
    stand_in.parent.mkdir(exist_ok=True)
    stand_in.write_text(
        f"__version__ = 'of {host.qnn_version}'\n"
        f"get_library_path = lambda: {str(host.plugin)!r}\n"
        f"get_qnn_htp_path = lambda: {str(host.backend)!r}\n"
    )
    environment = {"PYTHONPATH": f"{stand_in.parent}:{host.ort_root}", "PATH": os.environ["PATH"]}
    program = (sys.executable, "reproduce.py")
    return run_to_end(*program, cwd=folder, env=environment, timeout=TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "arguments", "message"),
    [
        ("refused.onnx", (), "fallback to CPU EP"),
        ("model.onnx", LIMITS, WRONG),
        ("model.onnx", (*LIMITS[:2], "--limit=min-sqnr=3"), "y: SQNR -inf"),
        *(
            pytest.param(file, ("--engine=ort", *LIMITS), WRONG, marks=pytest.mark.slow)
            for file in ("model.onnx", "packed.onnx")
        ),
    ],
)
def test_a_bundle_fails_again_with_the_harness_and_without(
    lab: DeviceRuns, file: str, arguments: tuple[str, ...], message: str
) -> None:
    write_models(lab.folder)
    if file == "packed.onnx":
        write_packed(lab)
    code, output, (record,) = lab.run_files(file, "--qnn=2.51.0", *arguments)
    assert code == 1, output
    (command,) = re.findall(r"to share the first failing case:\n    qnn-harness (.+)", output)
    lab.qnn_harness(*shlex.split(command), code=0)
    bundle = lab.folder / "case.zip"
    told_nothing_of_here(bundle, lab)
    with zipfile.ZipFile(bundle) as opened:
        readme = opened.read("README.txt").decode()
    assert "<n>" not in readme
    assert record["error"]["message"].splitlines()[0] in readme
    for removed in (file, "in", "out"):
        (lab.folder / removed).rename(lab.folder / f"{removed} elsewhere")
    code, output, (again,) = lab.run_files("case.zip", "--qnn=2.51.0")
    assert again["engine"] == record["engine"], output
    assert again["error"]["message"] == record["error"]["message"], output
    assert again["measurements"]["came_again"] is True
    plain = plain_onnx(bundle, lab)
    assert (plain.returncode, message in plain.stdout) == (1, True), plain.stdout


def write_models(folder: Path) -> None:
    """Write one that runs and one that the compiler refuses, with inputs and wrong outputs."""
    shape = [1, 64]
    for name, op in (("model.onnx", "Relu"), ("refused.onnx", "Shrink")):
        node = helper.make_node(op, ["x"], ["y"], name="op")
        ends = ([helper.make_tensor_value_info(name, 1, shape)] for name in "xy")
        model = helper.make_model(helper.make_graph([node], "g", *ends), ir_version=8)
        model.opset_import[0].version = 17
        (folder / name).write_bytes(model.SerializeToString())
    for name, number in (("in/x.npy", 1), ("out/y.npy", 0)):
        (folder / name).parent.mkdir()
        np.save(folder / name, np.full(shape, number, np.float32))


def write_packed(lab: DeviceRuns) -> None:
    """Write model.onnx as an EPContext node with its context."""
    options = ("--soc=QCS8550", "--qnn=2.51.0", "-o", "packed.bin")
    compiled = lab.qnn_harness("model", "compile", "model.onnx", *options, code=0)
    (graph,) = re.findall(r"graphs: (.+)", compiled.stdout)
    model = onnx.load(lab.folder / "model.onnx")
    context = {
        "embed_mode": 1,
        "main_context": 1,
        "ep_cache_context": (lab.folder / "packed.bin").read_bytes(),
        "source": "QNN",
        "partition_name": graph,
    }
    node = helper.make_node("EPContext", ["x"], ["y"], graph, domain="com.microsoft", **context)
    model.graph.node[0].CopyFrom(node)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, lab.folder / "packed.onnx")
