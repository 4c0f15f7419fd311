"""One probe against the real libraries of every QNN version: the ABI it declares is theirs."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.diagnosis.verdict import judge
from harness.models.session_plan import Context
from harness.probe import plan
from harness.probe.plan import Settings, Step
from harness.probe.plan_runner import EXIT_DONE, EXIT_STEP_FAILED, ProbeRun
from harness.probe.transcript import StepResult
from harness.runtimes.runtime import Runtime
from tests.integration.probe.conftest import PLAIN_ONLY, PLAIN_TOO, Runner, opening

VERSIONS = ("2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0")
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
WITH_PD_LIMIT = VERSIONS[2:]
PD_BUDGET_BYTES = 3_650_722_201  # 3.4 GiB; constant 0xd9999999 in libQnnHtp.so

RuntimeFor = Callable[[str], Runtime]
ContextFor = Callable[[str, str], Context]
Session = Callable[..., ProbeRun]


def test_a_backend_without_devices_works_without_one(session: Session) -> None:
    """That of the CPU answers 1000, as the API permits; asked for a SoC it is an error."""
    completed = session(OLDEST, backend="libQnnCpu.so")
    assert completed.exit_code == EXIT_DONE, completed.stderr
    (created,) = (step for step in completed.transcript.steps if step.verb == "device-create")
    assert "1000" in (created.skipped or "")
    (freed,) = (step for step in completed.transcript.steps if step.verb == "device-free")
    assert freed.skipped
    refused = session(OLDEST, backend="libQnnCpu.so", device=plan.device_create(soc=43))
    assert refused.exit_code == EXIT_STEP_FAILED
    failure = refused.transcript.first_failure
    assert failure is not None
    assert (failure.api, failure.code) == ("QnnDevice_create", 1000)


@pytest.fixture
def session(run: Runner, runtime_for: RuntimeFor) -> Session:
    """Runs steps behind those that open the backend of a version."""

    def run_session(
        version: str,
        *steps: Step,
        device: Step | None = None,
        backend: str = "libQnnHtp.so",
        settings: Settings = Settings(memory="rss"),  # noqa: B008
    ) -> ProbeRun:
        opened, env = opening(runtime_for(version), backend, device)
        frees = map(Step, ("device-free", "backend-free", "log-free"))
        return run(*opened, Step("cleanup"), *steps, *frees, env=env, settings=settings)

    return run_session


def executed(context: Context, number: int = 0, repeat: int = 1) -> Step:
    return plan.execute(
        number,
        inputs=map(str, context.inputs),
        expected=map(str, context.expected),
        tolerance=context.tolerance,
        repeat=repeat,
    )


def errors(step: StepResult) -> list[str]:
    return [line.text for line in step.logs if line.level == "error"]


@PLAIN_TOO
@pytest.mark.parametrize("version", VERSIONS)
def test_a_context_loads_runs_and_is_freed(
    session: Session, context_for: ContextFor, version: str
) -> None:
    context = context_for("tiny", version)
    load = plan.context_load(0, str(context.path))
    completed = session(
        version,
        plan.context_inspect(str(context.path)),
        load,
        executed(context, repeat=3),
        plan.context_free(0),
        load,
        executed(context),
        plan.context_free(0),
        settings=Settings(memory="pss"),
    )
    steps = completed.transcript.steps
    assert [step.verb for step in steps if step.failed] == []
    assert completed.transcript.done
    assert (completed.exit_code, completed.signal) == (EXIT_DONE, None)

    backend, system = steps[0].data, steps[1].data
    assert backend["provider"] == "HTP_QTI_AISW"
    assert backend["build_id"].startswith(f"v{version}.")
    assert backend["providers"][0]["backend_api"][1] == int(version.split(".")[1])
    assert system["provider"] == "SYSTEM_QTI_AISW"
    assert steps[0].rss_after_bytes > steps[0].rss_before_bytes > 0  # type: ignore[operator]
    assert steps[0].pss_after_bytes

    metadata = steps[6].data
    assert metadata["build_id"] == backend["build_id"]
    assert (metadata["dsp_arch"], metadata["soc_model"]) == (73, 43)
    (graph,) = metadata["graphs"]
    (tensor,) = graph["inputs"]
    assert (tensor["data_type"], tensor["dimensions"], tensor["bytes"]) == ("float32", [1, 16], 64)
    assert graph["vtcm_bytes"] in (4 << 20, 8 << 20)
    assert graph["io_bytes"] == 16384
    assert graph["const_bytes"] == 8192
    assert graph["spill_fill_bytes"] == graph["shared_weights_bytes"] == 0

    ran = steps[8]
    assert ran.data["runs"] == len(ran.data["run_us"]) == 3
    assert ran.data["outputs"][0]["max_abs"] <= context.tolerance
    assert any("Initializing HtpProvider" in line.text for line in steps[2].logs)


@PLAIN_ONLY
@pytest.mark.parametrize("version", VERSIONS)
def test_soc_and_arch_are_understood(session: Session, version: str) -> None:
    """The place of these words differs between versions; see native/backend.c."""
    assert session(version, device=plan.device_create(soc=43)).exit_code == EXIT_DONE
    unknown = session(version, device=plan.device_create(soc=9999)).transcript.steps[4]
    assert unknown.code == 14001
    assert unknown.symbol == "QNN_DEVICE_ERROR_INVALID_CONFIG"
    known = session(version, device=plan.device_create(arch=73)).transcript.steps[4]
    assert (known.code, errors(known)) == (0, [])
    (complaint,) = errors(session(version, device=plan.device_create(arch=11)).transcript.steps[4])
    assert re.search(r"Unsupported HTP Arch \d+ 11\b", complaint)


@pytest.mark.parametrize("version", VERSIONS)
def test_broken_binaries_are_refused_with_a_code(
    session: Session, context_for: ContextFor, tmp_path: Path, version: str
) -> None:
    good = context_for("tiny", version).path.read_bytes()
    broken = {
        "empty": (b"", 30001, 5000),
        "half": (good[: len(good) // 2], 30010, 30010),
        "padded": (good + bytes(4096), 30010, 30010),
        "text": (b"no context binary at all" * 1000, 30010, 30001),
    }
    steps = []
    for number, (name, (content, _, _)) in enumerate(broken.items()):
        path = tmp_path / name
        path.write_bytes(content)
        steps += [plan.context_inspect(str(path)), plan.context_load(number, str(path))]
    completed = session(version, *steps)
    results = completed.transcript.steps[6:14]
    codes = [(read.code, load.code) for read, load in zip(*[iter(results)] * 2, strict=True)]
    assert codes == [(read, load) for _, read, load in broken.values()]
    for load in results[1::2]:
        assert load.api == "QnnContext_createFromBinary"
        assert errors(load)
    assert results[1].symbol == "QNN_CONTEXT_ERROR_INVALID_ARGUMENT"


def test_a_binary_of_a_newer_compiler(session: Session, context_for: ContextFor) -> None:
    context = context_for("tiny", NEWEST)
    completed = session(OLDEST, plan.context_load(0, str(context.path)), executed(context))
    load, execution = completed.transcript.steps[6:8]
    assert load.code == 5000
    assert any("Using newer context binary on old SDK" in text for text in errors(load))
    assert execution.error == "plan"


@PLAIN_ONLY
@pytest.mark.parametrize("version", VERSIONS)
def test_the_budget_of_the_process_is_where_it_was_measured(
    session: Session, context_for: ContextFor, version: str
) -> None:
    """Contexts fit until their estimates add up to the budget; older versions count nothing."""
    path = str(context_for("tiny", version).path)
    loads = [plan.context_load(number, path) for number in range(350)]
    frees = [plan.context_free(7), plan.context_load(7, path)]
    completed = session(version, *loads, *frees, settings=Settings(memory="off"))
    assert completed.transcript.done
    results = completed.transcript.steps[6:-3]
    fits = sum(step.code == 0 for step in results[:350])
    if version not in WITH_PD_LIMIT:
        assert fits == 350
        return
    refused = results[fits]
    assert (refused.code, refused.symbol) == (1002, "QNN_COMMON_ERROR_MEM_ALLOC")
    estimate = re.search(r"available PD for contextId.*estimate (\d+)", errors(refused)[0])
    assert estimate is not None
    assert fits == PD_BUDGET_BYTES // int(estimate[1])
    assert [step.code for step in results[350:]] == [0, 0], "what is freed can be used again"


@PLAIN_TOO
def test_whose_libraries_were_taken_is_told_of_what_failed(
    run: Runner, runtime_for: RuntimeFor, context_for: ContextFor
) -> None:
    """An older QNN stands first in LD_LIBRARY_PATH, and refuses what the newer one has made."""
    old, new = (runtime_for(version) for version in (OLDEST, NEWEST))
    context = context_for("tiny", NEWEST)

    def taken(first: Runtime, then: Runtime) -> ProbeRun:
        folders = (str(runtime.library("libQnnHtp.so").parent) for runtime in (first, then))
        return run(
            plan.system_load(str(new.library("libQnnSystem.so"))),
            plan.backend_load("libQnnHtp.so"),
            Step("log-create"),
            Step("backend-create"),
            plan.device_create(),
            plan.context_load(0, str(context.path)),
            env={"LD_LIBRARY_PATH": ":".join(folders)},
        )

    verdict = judge(taken(old, new))
    assert verdict.outcome == "failed"
    assert verdict.error is not None
    (htp,) = (item for item in verdict.error.libraries if item.name == "libQnnHtp.so")
    assert htp.path == str(old.library("libQnnHtp.so"))
    assert htp.hides == str(new.library("libQnnHtp.so"))
    assert (htp.version or "").startswith(f"{OLDEST}.")
    known = verdict.error.diagnosis
    assert known is not None
    assert (known.id, known.confidence) == ("older-libraries", "known")
    fine = taken(new, old)
    assert judge(fine).outcome == "passed", fine.transcript
    assert fine.transcript.libraries == []
