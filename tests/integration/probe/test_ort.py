"""The probe against the real ORT of every minor version: the slots it declares are theirs."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from harness.bench.ort_on_device import OrtOnDevice, ort_on_device
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import judge
from harness.models.builtin_models import Model, OnnxFiles
from harness.models.session_plan import Context, DeployedModel
from harness.probe.ort_plan import (
    CPU_EP,
    QNN_EP,
    Provider,
    dump_options,
    ort_placement,
    ort_run,
    ort_session,
    ort_session_free,
)
from harness.probe.plan import Settings, Step
from harness.probe.plan_runner import EXIT_DONE, ProbeRun
from harness.probe.transcript import StepResult
from harness.results.probe_figures import ort_figures, session_growth
from harness.runtimes.catalog import Catalog
from harness.runtimes.runtime import DeployedRuntime
from tests.integration.conftest import HTP_ARCH
from tests.integration.probe.conftest import PLAIN_ONLY, Runner

MINORS = ("1.24.1", "1.25.1", "1.26.0", "1.27.0", "1.28.0", "1.29.0", "1.30.0", "1.31.1")
QNNS = ("2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0")
OLDEST, NEWEST, USUAL = QNNS[0], QNNS[-1], "1.26.0"
MISLEADING = "assigned to the default CPU EP, but fallback to CPU EP has been explicitly disabled"

pytestmark = PLAIN_ONLY

OrtFor = Callable[[str, str], OrtOnDevice]
OnOrt = Callable[..., ProbeRun]


@pytest.fixture(scope="session")
def ort_for(catalog: Catalog) -> OrtFor:
    """ort_for(qnn, ort): both on this host, as if it were a device."""

    def get(qnn: str, ort: str, backend: str = "libQnnHtp.so") -> OrtOnDevice:
        runtime = catalog.with_ort(qnn, ort, "linux-x64")
        # a device has all of them in one folder; here they lie where they were unpacked
        paths = {file.name: file.path for file in runtime.files}
        folders = dict.fromkeys(str(path.parent) for path in paths.values())

        class Here(DeployedRuntime):
            def library(self, name: str) -> str:
                return str(self.runtime.library(name))

        here = Here(runtime, "/", {"LD_LIBRARY_PATH": ":".join(folders)})
        return ort_on_device(here, backend, HTP_ARCH)

    return get


@pytest.fixture
def on_ort(run: Runner, ort_for: OrtFor) -> OnOrt:
    """Runs steps, which `make` makes of an OrtOnDevice, with a QNN and an ORT version."""

    def run_steps(
        qnn: str, ort: str, steps_of: Callable[[OrtOnDevice], tuple[Step, ...]], sessions: int = 1
    ) -> ProbeRun:
        here = ort_for(qnn, ort)
        plan = here.plan(steps_of(here), sessions, Settings(memory="rss"))
        return run(*plan.steps, env=here.runtime.environment, timeout_s=60)

    return run_steps


@pytest.fixture(scope="session")
def tiny(user_cache: Path, context_for: Callable[[Model, str], Context]) -> DeployedModel:
    spec = Model("tiny")
    context = context_for(spec, NEWEST)
    inputs, expected = map(str, context.inputs), map(str, context.expected)
    file = OnnxFiles(user_cache).path(spec)
    return DeployedModel(str(file), tuple(inputs), tuple(expected), spec.tolerance)


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    """A model of which QNN takes three nodes and the CPU must take one."""
    ends = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"]),
            helper.make_node("Reshape", ["m", "shape"], ["square"]),
            helper.make_node("Det", ["square"], ["d"]),
            helper.make_node("Relu", ["m"], ["y"]),
        ],
        "mixed",
        [ends("x", TensorProto.FLOAT, [1, 16])],
        [ends("y", TensorProto.FLOAT, [1, 16]), ends("d", TensorProto.FLOAT, [1])],
        [
            numpy_helper.from_array(np.eye(16, dtype="f4"), "w"),
            numpy_helper.from_array(np.array([1, 4, 4]), "shape"),
        ],
    )
    path = tmp_path / "mixed.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=opset), path)
    return str(path)


def steps_called(completed: ProbeRun, verb: str) -> list[StepResult]:
    return [step for step in completed.transcript.steps if step.verb == verb]


def error_of(completed: ProbeRun) -> ErrorRecord:
    verdict = judge(completed)
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    assert verdict.error is not None
    return verdict.error


@pytest.mark.parametrize("ort", MINORS)
def test_every_slot_is_where_it_is_declared(
    on_ort: OnOrt, tiny: DeployedModel, tmp_path: Path, ort: str
) -> None:
    """All verbs on one version: a wrong slot would crash, or answer something else."""
    dump, output_file = str(tmp_path / "dump.onnx"), tmp_path / "kept"

    def steps(here: OrtOnDevice) -> tuple[Step, ...]:
        return (
            ort_session(0, tiny.file),
            ort_placement(0, whole=CPU_EP),
            ort_run(0, inputs=tiny.inputs, saved=[str(output_file)]),
            ort_session_free(0),
            *here.session(1, tiny.file, options=dump_options(dump, embed=False)),
            OrtOnDevice.run(1, tiny, repeat=2),
            ort_session_free(1),
            *here.session(2, dump),
            OrtOnDevice.run(2, tiny),
            # last, since it is to fail: the built-in kind of provider, which this build has not
            ort_session(3, tiny.file, Provider("QNN", builtin=True)),
        )

    completed = on_ort(NEWEST, ort, steps, sessions=3)
    assert completed.transcript.done
    failed = completed.transcript.first_failure
    assert failed is not None
    assert (failed.api, failed.symbol) == (
        "SessionOptionsAppendExecutionProvider",
        "ORT_INVALID_ARGUMENT",
    )
    (loaded,) = steps_called(completed, "ort-load")
    assert loaded.data == {"version": ort, "api_version": 24}
    (environment,) = steps_called(completed, "ort-env")
    assert CPU_EP in environment.data["providers"]
    (registered,) = steps_called(completed, "ort-register-ep")
    assert {"ep": QNN_EP, "vendor": "Qualcomm", "hardware": "cpu"} in registered.data["devices"]
    operators = [
        step.data["placement"][0]["operators"] for step in steps_called(completed, "ort-placement")
    ]
    assert operators == [["MatMul"], ["MatMul"], ["EPContext"]]
    for session in steps_called(completed, "ort-session")[:3]:
        assert [(item["name"], item["dimensions"]) for item in session.data["inputs"]] == [
            ("x", [1, 16])
        ]
        assert [(item["name"], item["data_type"]) for item in session.data["outputs"]] == [
            ("y", "float32")
        ]
    reference = np.fromfile(tiny.expected[0], "f4")
    assert np.allclose(np.fromfile(output_file, "f4"), reference, atol=1e-6)
    assert all(step.ok for step in steps_called(completed, "ort-session-free")[:2])
    assert all(
        step.ok
        for verb in ("ort-unregister-ep", "ort-env-free")
        for step in steps_called(completed, verb)
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump.onnx", "dump_qnn.bin", "kept"]


@pytest.mark.parametrize(
    ("qnn", "ort"), [*itertools.product(QNNS[1:], [MINORS[0], MINORS[-1]]), (OLDEST, "1.27.0")]
)
def test_pairs_that_work(on_ort: OnOrt, tiny: DeployedModel, qnn: str, ort: str) -> None:
    completed = on_ort(
        qnn, ort, lambda here: (*here.session(0, tiny.file), OrtOnDevice.run(0, tiny))
    )
    assert completed.exit_code == EXIT_DONE, judge(completed).explanation()


@pytest.mark.parametrize("ort", ["1.28.0", "1.31.1"])
def test_the_oldest_plug_in_works_up_to_ort_1_27(
    on_ort: OnOrt, tiny: DeployedModel, ort: str
) -> None:
    error = error_of(on_ort(OLDEST, ort, lambda here: here.session(0, tiny.file)))
    assert (error.api, error.code, error.ort and error.ort.name) == (
        "CreateSession",
        None,
        "ORT_FAIL",
    )
    assert "OrtEp has invalid ort_version_supported=0 (expected at least 22)" in error.message


def test_a_model_that_qnn_takes_in_part(on_ort: OnOrt, mixed: str) -> None:
    completed = on_ort(
        NEWEST,
        USUAL,
        lambda here: (
            ort_session(0, mixed, here.provider(), fallback=True),
            ort_placement(0),
            ort_placement(0, whole=QNN_EP),
        ),
    )
    placed, failed = steps_called(completed, "ort-placement")
    assert {part["ep"]: part["operators"] for part in placed.data["placement"]} == {
        QNN_EP: ["MatMul", "Reshape", "Relu"],
        CPU_EP: ["Det"],
    }
    assert failed.error == "placement"
    assert error_of(completed).message.startswith("1 of 4 nodes")


def test_without_fallback_the_node_is_named_before_the_misleading_end(
    on_ort: OnOrt, mixed: str
) -> None:
    completed = on_ort(NEWEST, USUAL, lambda here: here.session(0, mixed))
    first, *_, last = error_of(completed).message.splitlines()
    assert "type: Det" in first
    assert MISLEADING in last


def test_a_silent_fallback_is_found(on_ort: OnOrt, tiny: DeployedModel) -> None:
    """ORT makes the session all the same, on the CPU, and says so in its log only."""

    def steps(here: OrtOnDevice) -> tuple[Step, ...]:
        provider = here.provider({"backend_path": "/no/lib.so"})
        session_steps = ort_session(0, tiny.file, provider, fallback=True)
        return session_steps, OrtOnDevice.run(0, tiny), ort_placement(0, whole=QNN_EP)

    completed = on_ort(NEWEST, USUAL, steps)
    assert steps_called(completed, "ort-run")[0].ok
    assert "1 of 1 nodes" in error_of(completed).message


def test_a_wrong_soc_keeps_its_whole_chain(on_ort: OnOrt, tiny: DeployedModel) -> None:
    def steps(here: OrtOnDevice) -> tuple[Step, ...]:
        return here.session(0, tiny.file, provider=here.provider({"soc_model": "9999"}))

    error = error_of(on_ort(NEWEST, USUAL, steps))
    assert (error.code, error.symbol) == (14001, "QNN_DEVICE_ERROR_INVALID_CONFIG")
    assert error.message.splitlines()[0] == "Unknown config socModel 0"
    assert MISLEADING in error.message


def test_a_dump_of_a_newer_qnn_is_refused_with_5000(
    on_ort: OnOrt, tiny: DeployedModel, tmp_path: Path
) -> None:
    dump = str(tmp_path / "dump.onnx")
    options = dump_options(dump, embed=True)
    assert (
        on_ort(NEWEST, USUAL, lambda h: h.session(0, tiny.file, options=options)).exit_code
        == EXIT_DONE
    )
    error = error_of(on_ort(OLDEST, USUAL, lambda here: here.session(0, dump)))
    assert (error.code, error.hex) == (5000, "0x1388")
    assert error.message.splitlines()[0] == "Using newer context binary on old SDK"


@pytest.mark.parametrize("content", [b"", b"\0" * 5000])
def test_a_damaged_dump_is_refused(
    on_ort: OnOrt, tiny: DeployedModel, tmp_path: Path, content: bytes
) -> None:
    dump = tmp_path / "dump.onnx"
    options = dump_options(str(dump), embed=False)
    on_ort(NEWEST, USUAL, lambda here: here.session(0, tiny.file, options=options))
    (tmp_path / "dump_qnn.bin").write_bytes(content)
    error = error_of(on_ort(NEWEST, USUAL, lambda here: here.session(0, str(dump))))
    assert (error.api, error.ort and error.ort.name) == ("CreateSession", "ORT_INVALID_GRAPH")
    assert "Failed to load from EpContext model" in error.message


@pytest.mark.slow
def test_sessions_made_and_released_again_and_again(on_ort: OnOrt, tiny: DeployedModel) -> None:
    def steps(here: OrtOnDevice) -> tuple[Step, ...]:
        once = (*here.session(0, tiny.file), OrtOnDevice.run(0, tiny), ort_session_free(0))
        return once * 20

    made = on_ort(NEWEST, USUAL, steps).transcript.steps
    figures, growth = ort_figures(made), session_growth(made)
    assert (figures["sessions"], figures["released"]) == (20, 20)
    assert figures["placement"] == {QNN_EP: 1}
    assert growth is not None
    assert abs(growth.per_round) < 1 << 20
