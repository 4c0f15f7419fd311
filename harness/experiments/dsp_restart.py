"""A DSP that restarts during a run: the errors, what survives, the time until a context loads.

First come the plans and measurements, then the judgement, which is pure.
"""

from __future__ import annotations

from typing import Final

from harness.bench.bench import Bench
from harness.bench.case_session import TargetFailure
from harness.core.error_codes import same_code
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.experiments.latency import bind
from harness.models.contexts import Source
from harness.models.session_plan import DeployedContext, Libraries, within_session
from harness.probe.ort_plan import io_release, io_run
from harness.probe.plan import Plan, Settings, Step, context_free, context_load
from harness.probe.transcript import StepResult, Transcript
from harness.results.record import Check, held, undecided

_OLD, _NEW = 0, 1
_CALLS: Final = (17, 18, 16, 19, 15, 20, 14)
"""Candidates for the call that is the second execution: the 17th with QNN 2.51.0."""
_RESTART_CODES: Final = (1003, 1007)
"""QNN_COMMON_ERROR_SYSTEM of the interrupted call, _SYSTEM_COMMUNICATION of later ones."""


def restart_plan(libraries: Libraries, deployed: DeployedContext) -> Plan:
    """Return a plan that executes a context three times, frees it, and does so with a new one.

    The steps after the second execution come after `cleanup`, so that they run even if it fails.
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
    """Restart the DSP between two executions of a context, and check what follows.

    Raises TargetFailure: `unsupported` if the device's DSP cannot be restarted on demand, else if a
    check does not hold or a later process fails.
    """
    (deployed,) = bench.contexts(source)
    libraries = bench.libraries()
    if bench.device.simulated_dsp is None:
        reason = "only the DSP of a simulated board can be restarted on demand"
        raise TargetFailure(Verdict("unsupported", None, ErrorRecord.of(message=reason)))
    plan = restart_plan(libraries, deployed)
    for call in _CALLS:
        environment = {"QNN_SCRIPTED_RPC": f"invoke@{call}=die;"}
        transcript = bench.attempt(plan, environment=environment).run.transcript
        if is_between_executions(transcript):
            break
    checks = judge_restart(transcript)
    bench.measure(restart=restart_figures(transcript))
    bench.run(plan).check()
    bench.expect(*checks, held("next_process_runs", True, "the next process ran the whole plan"))


def is_between_executions(transcript: Transcript) -> bool:
    """Return whether the first execution succeeded and the second was interrupted."""
    executed = [step for step in transcript.steps if step.verb == "io-run"]
    return len(executed) > 1 and executed[0].ok and executed[1] is transcript.first_failure


def restart_figures(transcript: Transcript) -> dict[str, int | None]:
    """Return the codes of the calls from the restart on, and the times of a new context (us).

    `until_loaded_us` is the time of all calls from the interrupted one until a new context was
    loaded.
    """
    after = _from_the_failure(transcript)
    figures: dict[str, int | None] = {"told_code": after[0].code if after else None}
    loads = [i for i, step in enumerate(after) if step.verb == "context-load" and step.ok]
    if loads:
        spent = (step.duration_us or 0 for step in after[: loads[0] + 1])
        figures["until_loaded_us"] = sum(spent)
    names = {("io-run", _OLD): "old_execute", ("context-free", _OLD): "old_free"}
    names |= {("context-load", _NEW): "new_load", ("io-run", _NEW): "new_execute"}
    for step in after[1:]:
        if name := names.get((step.verb, step.context or 0)):
            figures[f"{name}_code"] = step.code
            if name.startswith("new"):
                figures[f"{name}_us"] = step.duration_us
    return figures


def judge_restart(transcript: Transcript) -> list[Check]:
    """Return the checks of a process during which the DSP restarted."""
    after = _from_the_failure(transcript)
    if not after:
        return [undecided("restart_reported", "nothing failed: the DSP did not restart")]
    failure = after[0]
    message = f"{failure.verb} of context {failure.context} returned {failure.code}"
    steps = {(step.verb, step.context): step for step in after[1:]}
    reported = any(same_code(failure.code, code) for code in _RESTART_CODES)
    return [
        held("restart_reported", reported, message),
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
    outcome = "succeeded" if step.ok else f"returned {step.code}"
    return held(name, step.ok or step.code not in (None, 0), f"its next execution {outcome}")


def _succeeds(name: str, step: StepResult | None) -> Check:
    if step is None:
        return held(name, False, "the process ended before this step")
    return held(name, step.ok, f"{step.verb} of context {step.context} returned {step.code}")
