"""What a target and a version answer when a context is loaded with an option."""

from __future__ import annotations

from typing import Final

from harness.bench.bench import Bench
from harness.bench.case_session import Observation, TargetFailure
from harness.core.context_options import CONTEXT_OPTIONS, OptionValue, checked_options
from harness.engines.ort import provider_options
from harness.models.builtin_models import Model
from harness.models.contexts import Source
from harness.models.session_plan import schedule
from harness.results.record import held

OPTION_NAMES: Final = tuple(CONTEXT_OPTIONS)
ORT_OPTION_NAMES: Final = tuple(name for name in OPTION_NAMES if CONTEXT_OPTIONS[name].ort)
_VALUES: Final = {"flag": 1, "MB": 64, "bytes": 1 << 20}
_GAVE_NONE: Final = ("crashed", "hung")


def tried_values(name: str) -> dict[str, OptionValue]:
    """Return an option with a value, and the one that it needs."""
    option = CONTEXT_OPTIONS[name]
    value = option.words[-1] if option.words else _VALUES[option.value]
    return checked_options({name: value, **({option.needs: 1} if option.needs else {})})


def try_option(bench: Bench, name: str, source: Source) -> None:
    """Load two contexts with an option, execute them, and record the answer.

    A refusal is an answer. Raises TargetFailure if there is none, because the process crashed or
    hung, and on linux-x64 if it differs from that of the table.
    """
    options = tried_values(name)
    (deployed,) = bench.contexts(source)
    plan = bench.context_plan([deployed], schedule(2, "resident"), options=options)
    bench.measure(option=name, context_options=options)
    result = _record(bench, bench.attempt(plan))
    if bench.device.target == "linux-x64":
        error, expected = result.verdict.error, CONTEXT_OPTIONS[name].x86
        code = 0 if error is None else error.code
        reason = f"{expected} was measured, now it is {result.verdict.explanation()}"
        bench.expect(held("as_measured", code == expected, reason, code=code))


def try_ort_option(bench: Bench, name: str, model: Model) -> None:
    """Create a session with the provider's option for this, and record the answer.

    Raises TargetFailure, with the outcome `unsupported` if this version of the provider has none.
    """
    bench.measure(option=name, provider_option=CONTEXT_OPTIONS[name].ort, ended="no option")
    ort, deployed = bench.ort(), bench.model(model)
    provider = ort.provider(provider_options(ort, tried_values(name)))
    session = ort.session(0, deployed.file, provider=provider)
    _record(bench, bench.attempt(ort.plan((*session, ort.run(0, deployed)), sessions=1)))


def _record(bench: Bench, result: Observation) -> Observation:
    error, outcome = result.verdict.error, result.verdict.outcome
    answer = None if error is None else error.model_dump(mode="json")
    bench.measure(ended=outcome, error=answer)
    if outcome in _GAVE_NONE:
        raise TargetFailure(result.verdict)
    return result
