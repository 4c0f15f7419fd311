"""Context binaries of the GPU backend: compatible versions, their number, and damaged ones.

ONNX Runtime makes them on the device, like EPContext models. On a simulated device the backend
prepares them without a GPU: everything but the execution is done by the real library.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator

import pytest

from harness import Bench, ConfigError, Model, Plan, Settings, steps

TINY = [Model("tiny")]
GPU = 4  # the id that libQnnSystem gives the backend
COUNTS = [1, 100, 1000]
SHELL_S = 30.0
# The damage to a copy `$2` of a binary `$1`, and whether the backend must detect it.
DAMAGE = {
    "empty": (': > "$2"', True),
    "half": ('head -c $(($(wc -c < "$1") / 2)) "$1" > "$2"', True),
    "without-head": ('{ head -c 64 /dev/zero; tail -c +65 "$1"; } > "$2"', True),
    "longer": ('{ cat "$1"; head -c 64 /dev/zero; } > "$2"', False),
    **{
        f"byte-{offset}": (
            f'{{ head -c {offset} "$1"; printf "\\377"; tail -c +{offset + 2} "$1"; }} > "$2"',
            False,
        )
        for offset in range(100, 4100, 800)
    },
}


@pytest.mark.device(backend="gpu", engine="ort", compilers="all")
@pytest.mark.parametrize("model", TINY, ids=str)
def test_compiler_and_runtime(bench: Bench, model: Model) -> None:
    """Read a context that one QNN made with another, and load it twice."""
    bench.grid("compiler", "qnn")
    with context_binary(bench, model, bench.placement.compiler) as binary:
        loads = (steps.context_load(0, binary), steps.context_load(1, binary))
        result = bench.run(plan(bench, steps.context_inspect(binary), *loads, frees=2))
        result.check()
        (inspected,) = (s for s in result.run.transcript.steps if s.verb == "context-inspect")
        assert inspected.data["backend_id"] == GPU


@pytest.mark.device(backend="gpu", engine="ort")
@pytest.mark.parametrize("model", TINY, ids=str)
def test_execute(bench: Bench, model: Model) -> None:
    """Run a context in another process than the one that made it, with the right outputs."""
    with context_binary(bench, model) as binary:
        deployed = bench.model(model)
        run = steps.execute(
            0,
            inputs=deployed.inputs,
            expected=deployed.expected,
            tolerance=deployed.tolerance,
        )
        bench.run(plan(bench, steps.context_load(0, binary), run, frees=1)).check()


@pytest.mark.device(backend="gpu", engine="ort")
@pytest.mark.parametrize("contexts", COUNTS)
@pytest.mark.parametrize("residency", ["resident", "sequential"])
@pytest.mark.parametrize("model", TINY, ids=str)
def test_count(bench: Bench, model: Model, residency: str, contexts: int) -> None:
    """Load a number of contexts in one process, all at once or one after the other."""
    with context_binary(bench, model) as binary:
        if residency == "resident":
            loads = [steps.context_load(number, binary) for number in range(contexts)]
        else:
            turns = [
                (steps.context_load(0, binary), steps.context_free(0)) for _ in range(contexts)
            ]
            loads = [step for turn in turns for step in turn]
        frees = contexts if residency == "resident" else 0
        bench.run(plan(bench, *loads, frees=frees, settings=Settings(memory="rss"))).check()


@pytest.mark.device(backend="gpu", engine="ort")
@pytest.mark.parametrize("model", TINY, ids=str)
def test_damaged(bench: Bench, model: Model) -> None:
    """Load damaged binaries: they are refused or harmless, and never crash or hang the process."""
    answers: dict[str, object] = {}
    with context_binary(bench, model) as binary:
        copy = f"{binary}.damaged"
        for name, (command, _) in DAMAGE.items():
            script = f"set -- {shlex.quote(binary)} {shlex.quote(copy)}; {command}"
            assert bench.device.transport.shell(script, timeout_s=SHELL_S).exit_code == 0
            verdict = bench.attempt(plan(bench, steps.context_load(0, copy), frees=1)).verdict
            code = verdict.error.code if verdict.error else 0
            answers[name] = code if verdict.outcome in ("passed", "failed") else verdict.outcome
    bench.measure(answers=answers)
    ended = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    assert not ended, f"the process did not outlive {ended}"
    loaded = [name for name, (_, must) in DAMAGE.items() if must and answers[name] == 0]
    assert not loaded, f"loaded without an error: {loaded}"


@contextlib.contextmanager
def context_binary(bench: Bench, model: Model, compiler: str | None = None) -> Iterator[str]:
    """Make a context binary on the device with the case's QNN or another version."""
    maker = bench
    if compiler is not None and not f"{bench.placement.qnn_version}.".startswith(f"{compiler}."):
        try:
            maker = bench.with_qnn(compiler)
        except ConfigError as error:  # a compiler of this computer may not exist for the device
            pytest.skip(f"QNN {compiler} cannot make contexts on this device: {error}")
    ort, deployed = maker.ort(), maker.model(model)
    with bench.scratch() as folder:
        dump = steps.dump_options(f"{folder}/context.onnx", embed=False)
        session = (*ort.session(0, deployed.file, options=dump), steps.ort_session_free(0))
        maker.attempt(ort.plan(session, sessions=1)).check()
        listed = bench.device.transport.shell(f"ls {folder}/*.bin", timeout_s=SHELL_S)
        (binary,) = listed.stdout.decode().split()
        yield binary


def plan(
    bench: Bench,
    *work: steps.Step,
    frees: int,
    settings: Settings = Settings(memory="off"),  # noqa: B008 - it is frozen
) -> Plan:
    """Return a plan that opens the GPU backend, does these steps and frees so many contexts."""
    libraries = bench.libraries()
    assert libraries.system is not None
    return Plan(
        (
            steps.backend_load(libraries.backend),
            steps.system_load(libraries.system),
            steps.Step("log-create"),
            steps.Step("backend-create"),
            steps.device_create(),
            *work,
            steps.Step("cleanup"),
            *(steps.context_free(number) for number in range(frees)),
            steps.Step("device-free"),
            steps.Step("backend-free"),
        ),
        settings,
    )
