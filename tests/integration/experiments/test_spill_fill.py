"""Every promise of shared spill-fill both ways, and what the simulator says of sharing."""

from collections.abc import Callable, Sequence

import pytest

from harness.diagnosis.verdict import Verdict, judge
from harness.experiments.spill_fill_sharing import (
    SharingFigures,
    SharingPlan,
    Strategy,
    judge_sharing,
    judge_undersized,
    release_orders,
    sharing_figures,
    sharing_plan,
    sharing_session,
    spill_fill_bytes,
)
from harness.models.session_plan import DeployedContext
from harness.results.record import broken
from tests.integration.experiments.conftest import Target

Deployed = Callable[[str], DeployedContext]
MODELS = ("spill-heavy-2mb", "spill-heavy-3mb", "spill-heavy-2mb-variant1")
RIGHT = "group=right,list=1,quick=1"


def session(
    target: Target,
    deployed: Deployed,
    strategy: Strategy,
    settings: str,
    release: Sequence[int] = (0, 1, 2),
) -> tuple[SharingPlan, Verdict, SharingFigures]:
    contexts = [deployed(model) for model in MODELS]
    needs = [spill_fill_bytes(context.context.metadata) for context in contexts]
    assert needs[1] > max(needs[0], needs[2]) > 0
    sharing = sharing_plan(needs, strategy)
    run = target.run(
        sharing_session(target.libraries, contexts, sharing, release), settings=settings
    )
    return sharing, judge(run), sharing_figures(run.transcript)


@pytest.fixture(scope="module")
def reference(stand_in: Target, deployed: Deployed) -> SharingFigures:
    _, verdict, figures = session(stand_in, deployed, "none", RIGHT)
    assert verdict.outcome == "passed", verdict.explanation()
    return figures


@pytest.mark.parametrize(
    ("strategy", "settings", "release", "wrong"),
    [
        ("list-async", RIGHT, (0, 1, 2), []),
        pytest.param("max", RIGHT, (0, 1, 2), [], marks=pytest.mark.slow),
        pytest.param("max", RIGHT, release_orders(3)[-1], [], marks=pytest.mark.slow),
        pytest.param(
            *("max", f"group=private,{RIGHT}", (0, 1, 2), ["memory_saved"]), marks=pytest.mark.slow
        ),
    ],
)
def test_right_sharing_keeps_every_promise_and_one_wrong_behaviour_breaks_its_check_alone(
    stand_in: Target,
    deployed: Deployed,
    reference: SharingFigures,
    strategy: Strategy,
    settings: str,
    release: Sequence[int],
    wrong: list[str],
) -> None:
    sharing, verdict, figures = session(stand_in, deployed, strategy, settings, release)
    assert verdict.outcome == "passed", verdict.explanation()
    checks = judge_sharing(sharing, figures, reference, memory_part=0.1)
    assert [check.name for check in checks] == [
        *("memory_saved", "memory_given_back", "outputs_equal")
    ]
    assert {check.verdict for check in checks} <= {"held", "broken"}
    assert [check.name for check in broken(checks)] == wrong, checks


def test_outputs_that_another_context_spoils_are_named(
    stand_in: Target, deployed: Deployed
) -> None:
    _, verdict, _ = session(stand_in, deployed, "max", f"group=clobber,{RIGHT}")
    assert verdict.outcome == "failed"
    assert verdict.error is not None
    assert verdict.error.api == "QnnGraph_execute"
    assert "output 0 has 1 of" in verdict.error.message


def test_the_naive_order_must_be_refused(stand_in: Target, deployed: Deployed) -> None:
    sharing, verdict, figures = session(stand_in, deployed, "naive", RIGHT)
    assert sharing.undersized == (1,)
    assert judge_undersized(sharing, figures, verdict.error).verdict == "broken"


@pytest.mark.parametrize(
    ("strategy", "api", "code", "message"),
    [
        ("naive", "QnnContext_createFromBinary", 5010, "HTP Config option: 2 not supported"),
        ("max", "QnnContext_createFromBinary", 5010, "HTP Config option: 2 not supported"),
        ("list-async", "QnnContext_createFromBinaryListAsync", 1000, "Backend does not support"),
    ],
)
def test_the_simulator_says_that_it_cannot_share(
    real: Target, deployed: Deployed, strategy: Strategy, api: str, code: int, message: str
) -> None:
    _, verdict, _ = session(real, deployed, strategy, "")
    assert verdict.outcome == "unsupported"
    assert verdict.error is not None
    assert (verdict.error.api, verdict.error.code) == (api, code)
    assert message in verdict.error.message
