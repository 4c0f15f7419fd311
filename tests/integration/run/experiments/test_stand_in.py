"""What else the stand-in does on demand, and that it is the real library otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.contexts.context.schedule import schedule
from harness.contexts.context.session_plan import DeployedContext, session_plan
from harness.probe.plan import Settings
from harness.run.experiments.pairing import pairing_plan
from harness.verdict.failure.verdict import Verdict, judge
from tests.integration.run.experiments.conftest import Target

Deployed = Callable[[str], DeployedContext]
QUICK = Settings(memory="off", deadline_ms=3000)


def verdict_of(target: Target, deployed: Deployed, told: str, contexts: int = 4) -> Verdict:
    steps = schedule(contexts, "resident")
    return judge(
        target.run(session_plan(target.libraries, [deployed("tiny")], steps, QUICK), told=told)
    )


def test_told_nothing_it_is_the_real_library(stand_in: Target, deployed: Deployed) -> None:
    assert verdict_of(stand_in, deployed, "").outcome == "passed"


@pytest.mark.parametrize(
    ("told", "code", "context", "diagnosis"),
    [
        ("execute_code=6999", 6999, 0, "failed-without-cause"),
        ("execute_code=1007,execute_after=2", 1007, 2, "dsp-restarted"),
        # the low 16 bits of 0x100003ef
        ("execute_code=268436463,execute_after=1", 1007, 1, "dsp-restarted"),
    ],
)
def test_codes_at_execute(
    stand_in: Target, deployed: Deployed, told: str, code: int, context: int, diagnosis: str
) -> None:
    verdict = verdict_of(stand_in, deployed, told)
    assert (verdict.outcome, verdict.cause) == ("failed", "target")
    assert verdict.error is not None
    assert (verdict.error.api, verdict.error.code) == ("QnnGraph_execute", code)
    assert verdict.error.context == context
    assert verdict.error.diagnosis is not None
    assert verdict.error.diagnosis.id == diagnosis


def crash_and_hang(*calls: tuple[str, str]) -> list[Any]:
    """Each call both ways; of the hangs, which last until their deadline, one is met by day."""
    return [
        pytest.param(
            how, *call, marks=pytest.mark.nightly if (how, call[0]) in HANGS_BY_NIGHT else []
        )
        for how in ("crash", "hang")
        for call in calls
    ]


HANGS_BY_NIGHT = [("hang", call) for call in ("load", "retrieve", "free", "register", "deregister")]


@pytest.mark.parametrize(
    ("how", "call", "api"),
    crash_and_hang(
        ("load", "QnnContext_createFromBinary"),
        ("retrieve", "QnnGraph_retrieve"),
        ("execute", "QnnGraph_execute"),
        ("free", "QnnContext_free"),
    ),
)
def test_a_crash_or_hang_is_where_it_was(
    stand_in: Target, deployed: Deployed, how: str, call: str, api: str
) -> None:
    verdict = verdict_of(stand_in, deployed, f"{how}={call},call_after=1", contexts=3)
    assert verdict.outcome == {"crash": "crashed", "hang": "hung"}[how]
    assert verdict.error is not None
    assert (verdict.error.api, verdict.error.context) == (api, 1)


@pytest.mark.parametrize(
    ("how", "call", "api"),
    crash_and_hang(("register", "QnnMem_register"), ("deregister", "QnnMem_deRegister")),
)
def test_a_crash_or_hang_with_registered_memory(
    stand_in: Target, deployed: Deployed, how: str, call: str, api: str
) -> None:
    context = deployed("io-heavy-4mb")
    plan = pairing_plan(stand_in.libraries, context, "memhandle", QUICK)
    verdict = judge(stand_in.run(plan, told=f"memory=1,quick=1,{how}={call}"))
    assert verdict.outcome == {"crash": "crashed", "hang": "hung"}[how]
    assert verdict.error is not None
    assert verdict.error.api == api
