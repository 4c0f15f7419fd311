"""Contexts of the real compilers: what was asked for, exact, kept, and made again when damaged."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from harness.core.errors import ConfigError, InfraError
from harness.core.files import sha256_of
from harness.models import compile_worker, compiler, context_cache
from harness.models.builtin_models import Model
from harness.models.compiler import CompileError, CompileJob, InputFile, Job, ReferenceJob, run_jobs
from harness.models.context_cache import ContextKey, ContextStore
from harness.models.onnx_model import OnnxModel
from harness.models.session_plan import Context
from harness.probe import plan
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import run_plan_locally
from harness.runtimes.catalog import Catalog
from tests import hostile_models
from tests.integration.conftest import HTP_ARCH, ContextFor, RuntimeFor
from tests.logged import Logged

VERSIONS = ("2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0")
WORKLOADS = (Model("tiny"), Model("weights-heavy", 4), Model("io-heavy", 22))


def executed(context: Context, probe: Path, runtime_for: RuntimeFor) -> list[dict[str, object]]:
    """Runs a context on this host with the runtime of its compiler; its outputs as compared."""
    runtime = runtime_for(context.compiler)
    steps = (
        plan.backend_load(str(runtime.library("libQnnHtp.so"))),
        plan.system_load(str(runtime.library("libQnnSystem.so"))),
        Step("log-create"),
        Step("backend-create"),
        plan.device_create(),
        plan.context_load(0, str(context.path)),
        plan.execute(
            0,
            inputs=map(str, context.inputs),
            expected=map(str, context.expected),
            tolerance=context.tolerance,
        ),
        plan.context_free(0),
    )
    run = run_plan_locally(probe, Plan(steps), env={}, timeout_s=60)
    assert run.transcript.first_failure is None, run.transcript.first_failure
    (step,) = [step for step in run.transcript.steps if step.verb == "execute"]
    outputs = step.data["outputs"]
    assert isinstance(outputs, list)
    return outputs


@pytest.mark.parametrize("version", VERSIONS)
def test_every_compiler_makes_what_its_runtime_runs(
    version: str, context_for: ContextFor, runtime_for: RuntimeFor, probes: ProbeBuilder
) -> None:
    context = context_for("tiny", version)
    assert context.sha256 == sha256_of(context.path)
    assert context.size == context.path.stat().st_size < 100_000
    assert context.metadata["dsp_arch"] == HTP_ARCH
    assert str(context.metadata["build_id"]).startswith(f"v{version}.")
    (output,) = executed(context, probes.build(), runtime_for)
    assert output["beyond"] == 0
    assert output["elements"] == 16


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
@pytest.mark.parametrize("model", WORKLOADS[1:], ids=str)
def test_8_bit_workloads_are_exact(
    model: Model,
    version: str,
    context_for: ContextFor,
    runtime_for: RuntimeFor,
    probes: ProbeBuilder,
) -> None:
    context = context_for(model, version)
    assert context.tolerance == 0
    (output,) = executed(context, probes.build(), runtime_for)
    assert output["beyond"] == 0
    assert output["max_abs"] == 0


def made(store: ContextStore, keys: Sequence[ContextKey]) -> list[Context]:
    """The contexts of keys, made by one compiler process."""
    contexts = store.each(keys)
    return [context for context in contexts if isinstance(context, Context)]


def test_workloads_are_as_large_as_they_say(context_store: ContextStore) -> None:
    tiny, weights, io = made(
        context_store,
        [(model, "2.51.0", HTP_ARCH) for model in (*WORKLOADS[:2], Model("io-heavy", 56))],
    )
    assert tiny.size < 100_000
    assert 4_000_000 < weights.size < 4_100_000
    assert 4_000_000 < weights.memory_bytes < 4_200_000
    assert io.size < 150_000
    assert 56_000_000 <= io.memory_bytes < 56_100_000
    assert sum(path.stat().st_size for path in (*io.inputs, *io.expected)) == 56_000_000
    expected = io.expected[0].read_bytes()
    assert len(set(expected)) > 100
    assert expected != io.inputs[0].read_bytes()


@pytest.fixture
def own_store(tmp_path: Path, catalog: Catalog, probes: ProbeBuilder) -> ContextStore:
    """Contexts in a folder of this test's own; the libraries are the user's."""
    return ContextStore(tmp_path, catalog, probes)


def test_what_is_made_twice_is_the_same(
    own_store: ContextStore, context_for: ContextFor, show_figures: Callable[..., None]
) -> None:
    keys = [(model, "2.51.0", HTP_ARCH) for model in WORKLOADS]
    start = time.monotonic()
    contexts = made(own_store, keys)
    cold_s = time.monotonic() - start
    for model, context in zip(WORKLOADS, contexts, strict=True):
        stored = context_for(model, "2.51.0")
        assert context.path != stored.path
        assert context.sha256 == stored.sha256
        for path, other in zip(context.expected, stored.expected, strict=True):
            assert sha256_of(path) == sha256_of(other)
    start = time.monotonic()
    assert made(own_store, keys) == contexts
    show_figures(
        "three contexts of 2.51.0", cold_s=f"{cold_s:.2f}", again_s=time.monotonic() - start
    )


@pytest.mark.parametrize("damaged", ["binaries", "models"])
def test_a_damaged_context_is_made_again(
    damaged: str, tmp_path: Path, user_cache: Path, probes: ProbeBuilder, logged: Logged
) -> None:
    catalog = Catalog(user_cache)
    key = (Model("tiny"), "2.51.0", HTP_ARCH)
    before = ContextStore(tmp_path, catalog, probes).get(*key)
    path = before.path if damaged == "binaries" else before.expected[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    assert ContextStore(tmp_path, catalog, probes).get(*key) == before
    assert sha256_of(before.path) == before.sha256
    (warning,) = logged.warnings
    assert path.name in warning


def test_an_architecture_the_compiler_does_not_know(
    own_store: ContextStore, tmp_path: Path
) -> None:
    keys = [(Model("tiny"), "2.51.0", arch) for arch in (71, 81)]
    error, context = own_store.each(keys)
    assert isinstance(error, ConfigError)
    assert error.choices == ["68", "69", "73", "75", "79", "81"]
    assert isinstance(context, Context)
    assert context.metadata["dsp_arch"] == 81
    (folder,) = (tmp_path / "contexts/binaries").iterdir()
    assert folder.name.startswith("tiny-v81-by-2.51.0-")


def test_two_processes_want_the_same(tmp_path: Path, context_for: ContextFor) -> None:
    code = (
        "import logging, sys; from pathlib import Path\n"
        "logging.basicConfig(level='INFO', format='%(message)s', stream=sys.stdout)\n"
        "from harness.core.state_folders import cache_root\n"
        "from harness.models.context_cache import ContextStore\n"
        "from harness.models.builtin_models import Model\n"
        "from harness.probe.build import ProbeBuilder\n"
        "from harness.runtimes.catalog import Catalog\n"
        "root = cache_root()\n"
        "store = ContextStore(Path(sys.argv[1]), Catalog(root), ProbeBuilder(root / 'probe'))\n"
        "print(store.get(Model('tiny'), '2.51.0', 73).sha256)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in running]
    digest = context_for("tiny", "2.51.0").sha256
    assert [output.split()[-1] for output in outputs] == [digest, digest]
    # one that waits for what others build says so first
    lines = [line for output in outputs for line in output.splitlines()]
    assert sum(line.startswith("compiling") for line in lines) == 1


def job_for(model: onnx.ModelProto | None, folder: Path, name: str) -> CompileJob:
    """A job for a model, or for a file that is not there."""
    path = folder / f"{name}.onnx"
    if model is not None:
        path.write_bytes(model.SerializeToString())
    (folder / name).mkdir()
    options = {"htp_arch": "73", "soc_model": "43", "enable_htp_fp16_precision": "1"}
    return CompileJob(name, f"QNN does not compile {name}", path, folder / name, options)


def test_a_model_the_compiler_refuses_spoils_no_other(tmp_path: Path, catalog: Catalog) -> None:
    jobs = [
        job_for(
            hostile_models.model([helper.make_node("Acosh", ["x"], ["y"])]), tmp_path, "refused"
        ),
        job_for(None, tmp_path, "absent"),
        job_for(Model("tiny").build(), tmp_path, "good"),
    ]
    results = run_jobs(catalog.compiler_host("2.51.0"), jobs)
    assert results["good"] is None
    assert len(list((tmp_path / "good").glob("*.bin"))) == 1
    refused, absent = results["refused"], results["absent"]
    assert isinstance(refused, CompileError)
    assert "fallback to CPU EP has been explicitly disabled" in str(refused)
    assert "Conflicting session configuration" not in str(refused)
    assert isinstance(absent, CompileError)
    assert "No such file" in str(absent)


def test_a_refusal_is_remembered_and_spoils_no_other(
    tmp_path: Path, catalog: Catalog, probes: ProbeBuilder, logged: Logged
) -> None:
    """QNN 2.47.0 cannot prepare for memory handles where there is no libcdsprpc: it crashes."""
    store = ContextStore(tmp_path, catalog, probes)
    good = (Model("tiny"), "2.47.0", HTP_ARCH)
    refused = (Model("tiny", prepare="memhandle"), "2.47.0", HTP_ARCH)
    first, second = store.each([refused, good])
    assert isinstance(first, CompileError)
    assert second == store.get(*good)
    for _ in range(2):
        with pytest.raises(CompileError, match=r"tiny-by-memhandle .* 11"):
            store.get(*refused)
    assert store.get(*good).max_size is None
    assert len(logged.progress) == 1


@pytest.mark.parametrize("root", ["qnn_root", "ort_root"])
def test_a_compiler_that_is_not_there_is_the_labs_fault(
    root: str, tmp_path: Path, catalog: Catalog
) -> None:
    """An onnxruntime of this computer is not used instead."""
    host = replace(catalog.compiler_host("2.51.0"), **{root: tmp_path})
    with pytest.raises(InfraError, match=r"1\.26\.0 .*2\.51\.0"):
        run_jobs(host, [job_for(Model("tiny").build(), tmp_path, "tiny")])


STAND_IN = """
import json, os, signal, sys, time
request = json.load(open(sys.argv[1]))
with open(request["answers"], "w") as answers:
    for job in request["jobs"][:1]:
        print(json.dumps({"event": "begin", "job": job["id"]}), file=answers, flush=True)
        print("about to misbehave", file=sys.stderr, flush=True)
        time.sleep(60) if "hang" in job["id"] else os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.parametrize(("name", "message"), [("hang", r"1\.5 s"), ("crash", "139")])
def test_a_stand_in_worker_that_breaks_off(
    name: str, message: str, tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "stand_in_worker.py"
    stand_in.write_text(STAND_IN)
    monkeypatch.setattr(compiler, "WORKER", stand_in)
    jobs = [job_for(Model("tiny").build(), tmp_path, job_name) for job_name in (name, "other")]
    monkeypatch.setattr(compiler, "START_TIMEOUT_S", 0.5)
    monkeypatch.setattr(compiler, "WAIT_S", 0.4)
    monkeypatch.setattr(compiler, "JOB_S", 0.1)
    monkeypatch.setattr(compiler, "BYTES_A_SECOND", 1 << 60)
    with pytest.raises(InfraError, match=f"{message}.*about to misbehave"):
        run_jobs(catalog.compiler_host("2.51.0"), jobs)


def test_a_model_without_end_is_ended_once(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "JOB_S", 1.0)
    (tmp_path / "x.raw").write_bytes(bytes(16))
    model, x = tmp_path / "endless.onnx", InputFile("x", tmp_path / "x.raw", "<f4", (1, 4))
    onnx.save(hostile_models.loop(10**12), model)
    jobs: list[Job] = [
        ReferenceJob(f"number {number}", "not computed", model, (x,), {"y": tmp_path / "y"})
        for number in range(20)
    ]
    jobs.append(job_for(Model("tiny").build(), tmp_path, "tiny"))
    start = time.monotonic()
    *endless, tiny = run_jobs(catalog.compiler_host("2.51.0"), jobs).values()
    assert tiny is None
    (problem,) = {str(context) for context in endless}
    assert "1 s" in problem
    assert time.monotonic() - start < len(jobs), "only the first of them was computed"


@pytest.mark.slow
def test_a_model_that_came_to_no_end_is_computed_for_one_case_only(
    tmp_path: Path, catalog: Catalog, probes: ProbeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def run(*jobs: Any) -> dict[str, CompileError | None]:
        calls.append(jobs)
        return run_jobs(*jobs)

    monkeypatch.setattr(compiler, "JOB_S", 1.0)
    monkeypatch.setattr(context_cache, "run_jobs", run)
    onnx.save(hostile_models.loop(10**12), tmp_path / "loop.onnx")
    model = OnnxModel.of(tmp_path / "loop.onnx")
    store = ContextStore(tmp_path / "cache", catalog, probes)
    keys: list[ContextKey] = [(model, "2.51.0", 73), (model, "2.51.0", 75), (model, "2.49.40", 73)]
    for _ in range(2):
        (problem,) = {str(context) for context in store.each(keys)}
        assert problem.startswith(f"{model.path}: ")
        with pytest.raises(ConfigError, match=r"loop\.onnx"):
            store.references([model], "2.51.0")
    assert len(calls) == 1


def test_a_large_model_has_more_time(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"")
    large.touch()
    os.truncate(large, 512 << 20)
    assert [compiler.seconds_for(path) for path in (small, large)] == [40, 552]


def test_many_threads_take_no_longer_than_the_busiest() -> None:
    computes = 'hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)'
    threads = f"for _ in range(4): threading.Thread(target=lambda: {computes}).start()"
    program = f"import hashlib, threading\n{threads}\n"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        stat, total = Path(f"/proc/{process.pid}/stat"), 0.0
        while total < 1:
            time.sleep(0.1)
            times = stat.read_text().rpartition(")")[2].split()[11:13]
            total = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
        assert 0 < compile_worker.busiest_s(process.pid) < 0.8 * total
        process.kill()
