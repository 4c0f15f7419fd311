"""Attribution of exceptions: to the test where it called the harness with something else."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harness
from harness import Bench, ConfigError, Model, Plan, held, steps
from harness.bench.exception_attribution import at_fault, line_at_work, place_of, with_its_place
from harness.containers.artefact import ArtefactError
from harness.containers.open import open_artefact
from harness.models.onnx_model import OnnxSurface
from harness.probe.plan import Step
from tests.snapshots import Snapshot

HERE = Path(__file__).name
BENCH: Any = object.__new__(Bench)  # of no case: whatever it does fails, which is our bug
MODEL: Any = Model
HELD: Any = held
STEPS: Any = steps


def failure_of(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


@pytest.mark.parametrize(
    "call",
    [
        lambda: BENCH.resident(Model("tiny"), "3"),
        lambda: BENCH.resident(["tiny"], 3),
        lambda: BENCH.run([Step("noop")]),
        lambda: BENCH.contexts(5),
        lambda: BENCH.check(None),
    ],
)
def test_an_argument_of_another_type_is_refused(
    call: Callable[[], object], snapshot: Snapshot
) -> None:
    with snapshot.raises(ConfigError):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: BENCH.resident(Model("tiny"), 3),
        lambda: BENCH.resident([Model("tiny")], None),
        lambda: BENCH.run(Plan((Step("noop", {"ms": "3"}),)), timeout_s=5),
        lambda: BENCH.check(),
    ],
)
def test_a_right_call_that_fails_is_a_bug_of_ours(call: Callable[[], object]) -> None:
    assert at_fault(failure_of(call)) == ("harness", None)


@pytest.mark.parametrize(
    "call",
    [
        # in the test itself
        lambda: 1 / 0,
        lambda: json.loads("{"),
        lambda: json.loads(*"ab"),
        # names and arguments that the harness has not got
        lambda: BENCH.resident(),
        lambda: BENCH.resident(Model("tiny"), numbr=3),
        lambda: MODEL(),
        lambda: HELD("a"),
        lambda: STEPS.execute(),
        lambda: getattr(harness, "Modl"),  # noqa: B009 - mypy would see it
        lambda: STEPS.context_laod(),
        lambda: BENCH.residnt(),
    ],
)
def test_what_is_wrong_in_the_test_is_its_own_mistake(call: Callable[[], object]) -> None:
    assert at_fault(failure_of(call)) == ("config", None)


def test_the_line_that_is_at_work_is_that_of_the_test() -> None:
    ours: dict[str, Any] = {"__name__": "harness.anything", "line_at_work": line_at_work}
    exec("def deep():\n    return line_at_work()\ndef run():\n    return deep()", ours)
    line = ours["run"]()
    assert line == f"{HERE}:{sys._getframe().f_lineno - 1}"


def test_what_a_library_raises_is_the_fault_of_who_called_it() -> None:
    def hook() -> object:
        return json.loads("{")

    ours: dict[str, Any] = {"__name__": "harness.probe.anything", "json": json}
    exec("def parse(text: str) -> object:\n    return json.loads(text)", ours)
    assert at_fault(failure_of(lambda: ours["parse"]("{"))) == ("harness", None)
    assert at_fault(failure_of(hook)) == ("config", None)


def test_what_pytest_refuses_is_the_tests_mistake_unless_we_asked_for_it() -> None:
    def failure(*names: str) -> BaseException:
        """Return what is raised under functions of these modules, without frames of this test."""
        scope: dict[str, Any] = {}
        for number, name in enumerate(names):
            scope = {"__name__": name, "inner": scope.get("setup")}
            exec(f"def setup(): return {'inner()' if number else '1 / 0'}", scope)
        error = failure_of(scope["setup"])
        trace = error.__traceback__.tb_next
        while trace is not None and trace.tb_frame.f_globals is not scope:
            trace = trace.tb_next
        return error.with_traceback(trace)

    cause, message = at_fault(failure("_pytest.fixtures", "pluggy._manager", "_pytest.runner"))
    assert (cause, message is None) == ("config", False)
    assert at_fault(failure("_pytest.fixtures", "harness.x", "_pytest.runner"))[0] == "harness"
    assert at_fault(failure("pluggy._manager", "_pytest.runner"))[0] == "harness"


def test_input_that_is_wrong_is_told_with_the_line_that_gives_it() -> None:
    error = failure_of(lambda: Model("tinny"))
    assert isinstance(error, ConfigError)
    placed = with_its_place(error, "")
    assert (placed.file, placed.problem) == (HERE, error.problem)
    assert placed.choices == error.choices
    of_file = failure_of(lambda: OnnxSurface.of(Path("nope.onnx")))
    assert isinstance(of_file, ConfigError)
    placed_file = with_its_place(of_file, "")
    assert str(placed_file) == f"{HERE}:{placed_file.line}: {of_file}"
    # an error that is made of other words than a ConfigError has its line, too
    damaged = failure_of(lambda: open_artefact(Path(__file__).with_name("nope.pte")))
    assert isinstance(damaged, ArtefactError)
    assert str(with_its_place(damaged, "")).startswith(f"{HERE}:")
    # what says where it is, and what nobody's test made, stays as it is
    assert with_its_place(placed, "") is placed
    assert with_its_place(of_none := ConfigError("so"), "") is of_none


def test_the_line_of_the_test_is_told_also_where_helpers_called() -> None:
    def helper() -> None:
        BENCH.resident(Model("tiny"), "3")

    line = helper.__code__.co_firstlineno + 1
    assert place_of(failure_of(helper), "") == f"{HERE}:{line}"
    # not of what the harness did not raise, or no test is in
    assert place_of(failure_of(lambda: int("x")), "") is None
    assert place_of(NotImplementedError(), "") is None
    assert at_fault(None) == at_fault(ValueError("raised nowhere")) == ("harness", None)
