"""A binary with several graphs: each is known, is executed, and takes what it would take alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.containers.open import open_artefact
from harness.models.builtin_models import Model
from harness.models.capacity_forecast import Size, reserved, room
from harness.models.context_metadata import read_each
from harness.models.inspection_report import context_report
from harness.probe import plan
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import run_plan_locally
from harness.runtimes.catalog import Catalog
from tests.integration.conftest import ContextFor, RuntimeFor
from tests.integration.device_runs import ROOT, DeviceRuns

SHARE = Path(__file__).with_name("share_contexts.py")
VERSION = "2.51.0"
MODELS = ("io-heavy-22mb", "tiny", "spill-heavy-2mb")
TOTALS_ROUND_TO = 2 << 20  # the library rounds the weights of a context


@pytest.fixture(scope="module")
def binary(catalog: Catalog, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graphs of three models in one context, as ONNX Runtime makes it to share weights."""
    host, folder = catalog.compiler_host(VERSION), tmp_path_factory.mktemp("shared")
    paths = [folder / f"{name}.model" for name in MODELS]
    for path in paths:
        path.write_bytes(Model.parse(path.stem).serialized())
    subprocess.run(
        [sys.executable, "-P", SHARE, host.plugin, host.backend, folder, *paths],
        env=os.environ | {"PYTHONPATH": f"{host.ort_root}:{host.qnn_root}"},
        capture_output=True,
        timeout=200,
        check=True,
    )
    (binary,) = folder.glob("*.bin")
    return binary


def test_each_graph_is_known_and_right(
    binary: Path, probes: ProbeBuilder, context_for: ContextFor, runtime_for: RuntimeFor
) -> None:
    runtime = runtime_for(VERSION)
    library = runtime.library("libQnnSystem.so")
    artefact = open_artefact(binary)
    (metadata,) = read_each(probes, library, artefact.pieces)
    report = context_report(artefact, artefact.pieces[0], "", metadata)
    assert len(report.graphs) == len(MODELS)
    alone = [context_for(name, VERSION) for name in MODELS]
    assert report.io_bytes == sum(context.metadata["graphs"][0]["io_bytes"] for context in alone)
    steps = [
        plan.backend_load(str(runtime.library("libQnnHtp.so"))),
        plan.system_load(str(library)),
        Step("backend-create"),
        plan.device_create(),
        plan.context_load(0, str(binary)),
    ]
    for graph, context in enumerate(alone):
        inputs, expected = map(str, context.inputs), map(str, context.expected)
        tolerance = context.tolerance
        steps.append(
            plan.execute(0, graph=graph, inputs=inputs, expected=expected, tolerance=tolerance)
        )
    run = run_plan_locally(probes.build(), Plan(tuple(steps)), env={}, timeout_s=60)
    assert run.transcript.first_failure is None, run.transcript.first_failure
    assert [step.data["outputs"][0]["beyond"] for step in run.transcript.steps[5:]] == [0, 0, 0]


@pytest.fixture
def graph_names(
    binary: Path, context_for: ContextFor, lab: DeviceRuns, user_cache: Path
) -> list[str]:
    """The binary in the folder of a lab, with inputs and outputs of each graph; their names."""
    shutil.copyfile(binary, lab.folder / "many.bin")
    alone = [context_for(name, VERSION) for name in MODELS]
    names = [str(context.metadata["graphs"][0]["name"]) for context in alone]
    assert len(set(names)) == len(names)
    for name, context in zip(names, alone, strict=True):
        for kind, files in (("in", context.inputs), ("out", context.expected)):
            (lab.folder / kind / name).mkdir(parents=True)
            for file in files:
                shutil.copyfile(file, lab.folder / kind / name / file.name)
    return names


@pytest.mark.slow
def test_run_executes_each_graph_or_the_one_that_is_named(
    lab: DeviceRuns, graph_names: list[str]
) -> None:
    compared = ("--inputs=in", "--expected=out", "--tolerance=0.01")
    code, output, (case,) = lab.run_files("many.bin", *compared)
    figures = case["measurements"]
    assert (code, case["outcome"], case["outputs"]) == (0, "passed", "reference"), output
    assert (figures["loaded"], figures["executed"]) == (1, len(MODELS))
    assert figures["context_files"]["many.bin"]["graphs"] == graph_names
    stored = [output["name"] for output in figures["kept_outputs"]["many.bin"]["outputs"]]
    assert [name.partition("/")[0] for name in stored] == graph_names
    # each is executed twice where nothing is known of its outputs, and twice where it is loaded
    code, output, (case,) = lab.run_files("many.bin", "--contexts=2")
    figures = case["measurements"]
    assert (code, case["outputs"], figures["loaded"]) == (0, "agreement", 2), output
    assert figures["executed"] == 2 * 2 * len(MODELS)
    name = graph_names[1]
    alone = (f"--inputs=in/{name}", f"--expected=out/{name}", "--tolerance=0.01")
    code, output, (case,) = lab.run_files("many.bin", f"--graph={name}", *alone)
    assert (code, case["outputs"]) == (0, "reference"), output
    assert case["measurements"]["context_files"]["many.bin"]["graphs"] == [name]
    assert case["measurements"]["executed"] == 1


def test_what_executes_a_single_graph_says_which_there_are(
    lab: DeviceRuns, graph_names: list[str]
) -> None:
    arguments = ("--contexts", lab.folder / "many.bin", "--qnn", VERSION)
    finished = lab.run(*arguments, suites=ROOT / "suites/test_mem_type_pairing.py")
    assert finished.code == 2, finished.output
    assert "graph: many.bin " in finished.output, finished.output


def test_it_takes_what_its_graphs_take_alone(
    binary: Path, probes: ProbeBuilder, context_for: ContextFor, runtime_for: RuntimeFor
) -> None:
    probe = probes.build()
    library = runtime_for(VERSION).library("libQnnHtp.so")
    alone = [context_for(name, VERSION).path for name in MODELS]
    merged, *each = [
        size for size in reserved(probe, library, [binary, *alone]) if isinstance(size, Size)
    ]
    total = sum(size.total for size in each)
    assert total - len(MODELS) * TOTALS_ROUND_TO <= merged.total <= total
    # what it takes is exact: the library's budget comes out the same with it
    assert room(probe, library, binary) == room(probe, library, alone[1])
