"""A DSP that restarts in mid-run: what is told, what survives, how long until a context loads.

First what is run, then how it is judged, which is pure.
"""

from __future__ import annotations

from typing import Final

from harness.bench.bench import Bench
from harness.bench.case_session import TargetFailure
from harness.core.codes import same_code
from harness.diagnosis.error import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.experiments.latency import bind
from harness.models.contexts import Source
from harness.models.source import DeployedContext, Libraries, within_session
from harness.probe.ort_plan import io_release, io_run
from harness.probe.plan import Plan, Settings, Step, context_free, context_load
from harness.probe.transcript import StepResult, Transcript
from harness.results.record import Check, held, undecided

_OLD, _NEW = 0, 1
_CALLS: Final = (17, 18, 16, 19, 15, 20, 14)
"""Which call of a process is its second execution: the 17th of QNN 2.51.0, others may differ."""
_TOLD: Final = (1003, 1007)
"""QNN_COMMON_ERROR_SYSTEM of the call that it happens under, and _SYSTEM_COMMUNICATION later."""


def restart_plan(libraries: Libraries, deployed: DeployedContext) -> Plan:
    """Executes a context twice, and once more; then frees it, and the same with a new one.

    What comes behind the second execution is tried even if that fails: it stands behind `cleanup`.
    """

    def begin(number: int) -> tuple[Step, ...]:
        return context_load(number, deployed.binary), bind(number, deployed)

    def run(number: int) -> Step:
        return io_run(number, tolerance=deployed.context.tolerance)

    def end(number: int) -> tuple[Step, ...]:
        return io_release(number), context_free(number)

    behind = (run(_OLD), *end(_OLD), *begin(_NEW), run(_NEW), *end(_NEW))
    return within_session(
        libraries, (*begin(_OLD), run(_OLD), run(_OLD)), behind, Settings(memory="off")
    )


def measure_restart(bench: Bench, source: Source) -> None:
    """Restarts the DSP between two executions of a context, and looks at what comes after.

    Raises TargetFailure: `unsupported` where nothing restarts the device's DSP on demand, else if
    a promise is not kept or a process fails that comes after it.
    """
    (deployed,) = bench.contexts(source)
    libraries = bench.libraries()
    if bench.device.simulated_dsp is None:
        why = "nothing here restarts this device's DSP on demand: only that of a simulated board is"
        raise TargetFailure(Verdict("unsupported", None, ErrorRecord.of(message=why)))
    plan = restart_plan(libraries, deployed)
    for call in _CALLS:
        dies = {"QNN_SCRIPTED_RPC": f"invoke@{call}=die;"}
        met = bench.attempt(plan, environment=dies).run.transcript
        if is_between_executions(met):
            break
    checks = judge_restart(met)
    bench.measure(restart=restart_figures(met))
    bench.run(plan).check()
    bench.expect(*checks, held("next_process_runs", True, "another process ran all of it"))


def is_between_executions(transcript: Transcript) -> bool:
    """Whether the first execution went well and the second met the restart."""
    executed = [step for step in transcript.steps if step.verb == "io-run"]
    return len(executed) > 1 and executed[0].ok and executed[1] is transcript.first_failure


def restart_figures(transcript: Transcript) -> dict[str, int | None]:
    """The codes of each call from the restart on, and how long a new context took (us).

    `until_loaded_us` is the time of all calls from the one that met the restart on, until a new
    context was there.
    """
    after = _from_the_failure(transcript)
    found: dict[str, int | None] = {"told_code": after[0].code if after else None}
    loads = [at for at, step in enumerate(after) if step.verb == "context-load" and step.ok]
    if loads:
        spent = (step.duration_us or 0 for step in after[: loads[0] + 1])
        found["until_loaded_us"] = sum(spent)
    names = {("io-run", _OLD): "old_execute", ("context-free", _OLD): "old_free"}
    names |= {("context-load", _NEW): "new_load", ("io-run", _NEW): "new_execute"}
    for step in after[1:]:
        if name := names.get((step.verb, step.context or 0)):
            found[f"{name}_code"] = step.code
            if name.startswith("new"):
                found[f"{name}_us"] = step.duration_us
    return found


def judge_restart(transcript: Transcript) -> list[Check]:
    """What a process showed in whose middle the DSP restarted."""
    after = _from_the_failure(transcript)
    if not after:
        return [undecided("restart_told", "nothing failed: the DSP did not restart")]
    met = after[0]
    told = f"{met.verb} of context {met.context} gave {met.code}"
    steps = {(step.verb, step.context): step for step in after[1:]}
    return [
        held("restart_told", any(same_code(met.code, code) for code in _TOLD), told),
        _not_silently_wrong(steps.get(("io-run", _OLD))),
        _succeeds("old_context_is_freed", steps.get(("context-free", _OLD))),
        _succeeds("new_context_loads", steps.get(("context-load", _NEW))),
        _succeeds("new_context_executes", steps.get(("io-run", _NEW))),
    ]


def _from_the_failure(transcript: Transcript) -> list[StepResult]:
    failure = transcript.first_failure
    steps = list(transcript.steps)
    return steps[steps.index(failure) :] if failure is not None else []


def _not_silently_wrong(step: StepResult | None) -> Check:
    name = "old_context_is_not_silently_wrong"
    if step is None:
        return undecided(name, "the old context was not executed again")
    how = "is right again" if step.ok else f"gave {step.code}"
    return held(name, step.ok or step.code not in (None, 0), f"its next execution {how}")


def _succeeds(name: str, step: StepResult | None) -> Check:
    if step is None:
        return held(name, False, "the process did not come so far")
    return held(name, step.ok, f"{step.verb} of context {step.context} gave {step.code}")
