"""Further behaviour of the stand-in on demand; it is the real library otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.diagnosis.verdict import Verdict, judge
from harness.models.source import DeployedContext, schedule, session_plan
from harness.probe.plan import Settings
from tests.integration.experiments.conftest import Target

Deployed = Callable[[str], DeployedContext]
QUICK = Settings(memory="off")


def verdict_of(target: Target, deployed: Deployed, settings: str, contexts: int = 4) -> Verdict:
    steps = schedule(contexts, "resident")
    return judge(
        target.run(
            session_plan(target.libraries, [deployed("tiny")], steps, QUICK), settings=settings
        )
    )


def test_told_nothing_it_is_the_real_library(stand_in: Target, deployed: Deployed) -> None:
    assert verdict_of(stand_in, deployed, "").outcome == "passed"


@pytest.mark.parametrize(
    ("settings", "code", "context", "diagnosis"),
    [
        ("execute_code=6999", 6999, 0, "failed-without-cause"),
        ("execute_code=1007,execute_after=2", 1007, 2, "dsp-restarted"),
        # the low 16 bits of 0x100003ef
        ("execute_code=268436463,execute_after=1", 1007, 1, "dsp-restarted"),
    ],
)
def test_codes_at_execute(
    stand_in: Target, deployed: Deployed, settings: str, code: int, context: int, diagnosis: str
) -> None:
    verdict = verdict_of(stand_in, deployed, settings)
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    assert verdict.error is not None
    assert (verdict.error.api, verdict.error.code) == ("QnnGraph_execute", code)
    assert verdict.error.context == context
    assert verdict.error.diagnosis is not None
    assert verdict.error.diagnosis.id == diagnosis
