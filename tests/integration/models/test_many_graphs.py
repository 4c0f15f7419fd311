"""A binary with several graphs: each is known, is executed, and takes what it would take alone."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from harness.containers.open import open_artefact
from harness.models.builtin_models import Model
from harness.models.capacity_forecast import Size, reserved, room
from harness.models.context_cache import compile_together, prefix_of
from harness.models.context_metadata import read_each
from harness.models.inspection_report import context_report
from harness.models.onnx_model import OnnxModel
from harness.probe import plan
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import run_plan_locally
from harness.runtimes.catalog import Catalog
from tests.integration.conftest import HTP_ARCH, ContextFor, RuntimeFor
from tests.integration.device_runs import ROOT, DeviceRuns

VERSION = "2.51.0"
OPSET = {"opset_imports": [helper.make_opsetid("", 17)], "ir_version": 9}
MODELS = ("io-heavy-22mb", "tiny", "spill-heavy-2mb")
TOTALS_ROUND_TO = 2 << 20  # the library rounds the weights of a context


@pytest.fixture(scope="module")
def binary(
    catalog: Catalog, probes: ProbeBuilder, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The graphs of three models in one context, as ONNX Runtime makes it to share weights."""
    host, folder = catalog.compiler_host(VERSION), tmp_path_factory.mktemp("shared")
    models = [Model.parse(name) for name in MODELS]
    return compile_together(models, host, HTP_ARCH, probes, folder)[0]


@pytest.mark.slow
def test_graphs_share_the_weights_that_they_have_in_common(
    catalog: Catalog, probes: ProbeBuilder, tmp_path: Path
) -> None:
    weights = numpy_helper.from_array(np.ones((512, 512), np.float32), "w")
    sizes = []
    for name, operators in (("one", ["Relu"]), ("two", ["Relu", "Sigmoid"])):
        models = []
        for operator in operators:
            path, folder = tmp_path / f"{operator}.onnx", tmp_path / name
            text = (
                f"g (float[1, 512] x) => (float[1, 512] y) {{ r = MatMul(x, w) y = {operator}(r) }}"
            )
            graph = onnx.parser.parse_graph(text)
            graph.initializer.append(weights)
            onnx.save(helper.make_model(graph, **OPSET), path)
            models.append(OnnxModel.of(path))
        folder.mkdir()
        host = catalog.compiler_host(VERSION)
        binary, metadata = compile_together(models, host, HTP_ARCH, probes, folder)
        inputs = [graph["inputs"][0]["name"] for graph in metadata["graphs"]]
        assert inputs == ["x", f"{prefix_of(1)}x"][: len(models)]
        sizes.append(binary.stat().st_size)
    assert sizes[1] < 1.2 * sizes[0]


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
    compared = ("--inputs=in", "--expected=out", "--limit=tolerance=0.01")
    code, output, (case,) = lab.run_files("many.bin", *compared)
    figures = case["measurements"]
    assert (code, case["outcome"], case["outputs"]) == (0, "passed", "reference"), output
    assert (figures["loaded"], figures["executed"]) == (1, len(MODELS))
    assert figures["context_files"]["many.bin"]["graphs"] == graph_names
    stored = [output["name"] for output in figures["kept_outputs"]["many.bin"]["outputs"]]
    assert [name.partition("/")[0] for name in stored] == graph_names
    # each is executed twice where nothing is known of its outputs, and twice where it is loaded
    code, output, (case,) = lab.run_files("many.bin", "--copies=2")
    figures = case["measurements"]
    assert (code, case["outputs"], figures["loaded"]) == (0, "agreement", 2), output
    assert figures["executed"] == 2 * 2 * len(MODELS)
    name = graph_names[1]
    alone = (f"--inputs=in/{name}", f"--expected=out/{name}", "--limit=tolerance=0.01")
    code, output, (case,) = lab.run_files("many.bin", f"--graph={name}", *alone)
    assert (code, case["outputs"]) == (0, "reference"), output
    assert case["measurements"]["context_files"]["many.bin"]["graphs"] == [name]
    assert case["measurements"]["executed"] == 1


def test_what_executes_a_single_graph_says_which_there_are(
    lab: DeviceRuns, graph_names: list[str]
) -> None:
    arguments = ("--model", lab.folder / "many.bin", "--qnn", VERSION)
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
