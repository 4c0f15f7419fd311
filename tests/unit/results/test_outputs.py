"""Comparisons of outputs, by the plan and the answers to it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from harness.probe.plan import Plan, Step, context_free, context_load, execute
from harness.probe.transcript import StepResult, Transcript
from harness.results.record import Execution, disagreement, executions, outputs_of
from tests.snapshots import Snapshot

Given = tuple[str, str, bool, tuple[int, ...]]  # binary, input, compared, digests


def executions_of(*completed: Given) -> list[Execution]:
    """Each in a context of its own, which is loaded, executed and freed."""
    steps: list[Step] = []
    answers = []
    for binary, file, compared, digests in completed:
        steps += [context_load(0, binary), execute(0, inputs=[file]), context_free(0)]
        outputs = [{"index": 0, "max_abs": 0.0} if compared else {"index": 0}]
        data = {"outputs": outputs} | ({"digests": list(digests)} if digests else {})
        for number in range(len(steps) - 3, len(steps)):
            verb = steps[number].verb
            data_of_step = data if verb == "execute" else {}
            answers.append(
                StepResult(number, verb, begun=True, ended=True, code=0, data=data_of_step)
            )
    transcript = Transcript()
    transcript.steps.extend(answers)
    return list(executions(Plan(tuple(steps)), transcript))


ONCE: Given = ("/a", "x", False, (1, 2))


@pytest.mark.parametrize(
    ("completed", "expected"),
    [
        ((), None),
        ((("/a", "x", True, ()),), "reference"),
        ((("/a", "x", True, ()), ONCE), "unverified"),
        ((ONCE,), "unverified"),
        ((ONCE, ONCE), "agreement"),
        ((ONCE, ONCE, ("/a", "x", True, ())), "agreement"),
        ((ONCE, ONCE, ("/b", "x", False, (1, 2))), "unverified"),
        ((ONCE, ("/a", "y", False, (1, 2))), "unverified"),
        ((("/a", "x", False, ()), ("/a", "x", False, ())), "unverified"),
        ((ONCE, ("/a", "x", False, (1, 3))), "unverified"),
    ],
)
def test_what_outputs_were_compared_with(completed: Sequence[Given], expected: str | None) -> None:
    assert outputs_of(executions_of(*completed)) == expected


@pytest.mark.parametrize(
    ("option", "second", "expected"),
    [("a", 5, "agreement"), ("a", 6, "unverified"), ("b", 6, "unverified")],
)
def test_sessions_of_one_model_are_compared_unless_their_options_differ(
    option: str, second: int, expected: str
) -> None:
    steps = []
    transcript = Transcript()
    for session, (provider, digest) in enumerate((("a", 5), (option, second))):
        fields = {"context": str(session)}
        steps += [Step("ort-session", {**fields, "file": "/m.onnx", "provider.0": provider})]
        steps += [Step("ort-run", fields)]
        data = {"digests": [digest], "outputs": []}
        ended = StepResult(len(steps) - 1, "ort-run", begun=True, ended=True, code=0, data=data)
        transcript.steps.append(ended)
    executed = list(executions(Plan(tuple(steps)), transcript))
    assert outputs_of(executed) == expected
    assert (disagreement(executed) is None) == (option == "b" or second == 5)


def test_what_failed_gave_no_outputs() -> None:
    transcript = Transcript()
    transcript.steps.append(StepResult(1, "execute", begun=True, ended=True, code=6001))
    assert list(executions(Plan((context_load(0, "/a"), execute(0))), transcript)) == []


@pytest.mark.parametrize(
    ("verb", "outputs", "expected"),
    [
        ("execute", [{"index": 0, "max_abs": 2.5}], "reference"),
        # a run differed from the first: that those before agreed says nothing
        ("executorch-run", [], "unverified"),
    ],
)
def test_outputs_that_are_wrong_were_compared(
    verb: str, outputs: list[dict[str, object]], expected: str
) -> None:
    load = (
        context_load(0, "/p") if verb == "execute" else Step("executorch-program", {"file": "/p"})
    )
    transcript = Transcript()
    for number in (1, 2):
        data = {"digests": [5], "outputs": outputs}
        result = StepResult(number, verb, begun=True, ended=True, code=0, data=data)
        transcript.steps.append(result if number == 1 else replace(result, error="mismatch"))
    run = execute(0) if verb == "execute" else Step(verb)
    executed = list(executions(Plan((load, run, run)), transcript))
    assert outputs_of(executed) == expected
    assert disagreement(executed) is None


def test_the_first_output_that_differs_is_named(snapshot: Snapshot) -> None:
    assert disagreement(executions_of(ONCE, ONCE)) is None
    texts = []
    for outputs in (((1, 2, 3), (1, 9, 4)), ((1, 2, 3), (1, 9), (1, 2))):
        runs = [("/s/a.bin", "x", False, digests) for digests in outputs]
        texts.append(disagreement(executions_of(ONCE, *runs)))
    assert texts == snapshot
    executed = [Execution("io-run", ("/a", "0"), False, (digest,)) for digest in (1, 2)]
    assert disagreement(executed) is None
    assert outputs_of(executed) == "unverified"


def planned(*steps: Step, **data: object) -> list[Execution]:
    """Return the executions of a plan that succeeded with these data."""
    transcript = Transcript()
    for number, step in enumerate(steps):
        answer = StepResult(number, step.verb, begun=True, ended=True, code=0, data=dict(data))
        transcript.steps.append(answer)
    return list(executions(Plan(steps), transcript))


def test_the_work_of_an_execution_is_its_binary_its_graph_and_its_inputs() -> None:
    bound = Step("io-bind", {"context": "1", "graph": "2", "input.0": "/x", "memory": "raw"})
    executed = planned(
        context_load(1, "/a"),
        context_load(2, "/b"),
        bound,
        Step("io-run", {"context": "1"}),
        Step("io-run", {"context": "2"}),
        execute(2, graph=3, inputs=["/y"], expected=["/z"]),
        execute(7, inputs=["/y"]),
        Step("executorch-program", {"file": "/p"}),
        Step("executorch-run"),
        digests=[5],
    )
    assert [entry.work for entry in executed] == [
        ("/a", "2", "/x"),
        None,  # its buffers were never bound
        ("/b", "3", "/y"),
        None,  # its context was never loaded
        ("/p", "0"),
    ]
    assert [entry.verb for entry in executed] == [
        "io-run",
        "io-run",
        "execute",
        "execute",
        "executorch-run",
    ]
    # what was done is not known, so equal outputs bear out nothing
    assert outputs_of([executed[3], executed[3]]) == "unverified"
    assert disagreement([executed[3], replace(executed[3], digests=(6,))]) is None


@pytest.mark.parametrize(
    ("outputs", "compared"),
    [
        ([{"max_abs": 0}], True),
        ([{"max_abs": 0}, {"index": 1}], False),
        ([7], False),
        ({"max_abs": 0}, False),
        (None, False),
    ],
)
def test_outputs_were_compared_if_each_of_them_was(outputs: object, compared: bool) -> None:
    (execution,) = planned(context_load(0, "/a"), execute(0), outputs=outputs, digests="no list")
    assert (execution.compared, execution.digests) == (compared, ())


def test_of_digests_only_numbers_count_and_none_of_a_step_that_was_wrong() -> None:
    (execution,) = planned(context_load(0, "/a"), execute(0), digests=[1, True, "2", 3.0, 4])
    assert execution.digests == (1, 4)
    transcript = Transcript()
    data = {"digests": [1, 2]}
    answer = StepResult(1, "execute", begun=True, ended=True, code=0, error="mismatch", data=data)
    transcript.steps.append(answer)
    (wrong,) = executions(Plan((context_load(0, "/a"), execute(0))), transcript)
    assert wrong.digests == ()
