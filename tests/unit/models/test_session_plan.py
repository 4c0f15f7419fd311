"""Orders of moves, and the plans of sessions that carry them out."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from harness.core.errors import ConfigError
from harness.models.builtin_models import Model
from harness.models.session_plan import (
    RESIDENCIES,
    Context,
    DeployedContext,
    Libraries,
    Move,
    Residency,
    Schedule,
    graph_of,
    schedule,
    session_plan,
)
from harness.probe.plan import Settings, Step


def test_sequential_frees_one_before_the_next_is_loaded() -> None:
    assert schedule(2, "sequential").moves == (
        Move("load", 0),
        Move("execute", 0),
        Move("free", 0),
        Move("load", 1),
        Move("execute", 1),
    )


@given(st.integers(1, 80), st.sampled_from(RESIDENCIES), st.integers(1, 9))
def test_every_context_is_used_while_it_is_loaded(
    contexts: int, residency: Residency, window: int
) -> None:
    plan = schedule(contexts, residency, window)
    loaded: set[int] = set()
    peak = 0
    executed: list[int] = []
    for move in plan.moves:
        if move.verb == "load":
            assert move.context not in loaded
            loaded.add(move.context)
            peak = max(peak, len(loaded))
        elif move.verb == "execute":
            assert move.context in loaded
            executed.append(move.context)
        else:
            loaded.remove(move.context)
    assert executed == list(range(contexts))
    assert plan.frees == tuple(Move("free", number) for number in range(contexts))
    expected_peak = {"resident": contexts, "sequential": 1, "window": min(window, contexts)}
    assert peak == expected_peak[residency]


@pytest.mark.parametrize(("contexts", "window"), [(0, 4), (3, 0)])
def test_nonsense_is_refused(contexts: int, window: int) -> None:
    with pytest.raises(ConfigError):
        schedule(contexts, "window", window)


GRAPHS = {"graphs": [{"name": "prefill", "outputs": [{}, {}]}, {"name": "decode", "outputs": [{}]}]}
CONTEXT = Context(
    path=Path("x"),
    sha256="",
    size=1,
    source=Model("tiny"),
    compiler=None,
    htp_arch=73,
    inputs=(),
    expected=(),
    tolerance=0.5,
    metadata=GRAPHS,
    memory_bytes=0,
)
DECODE = DeployedContext(replace(CONTEXT, graph=1), "/two.bin", ("/d.raw",), ())
TWO = DeployedContext(CONTEXT, "/two.bin", ("/p.raw",), ("/p.expected",), others=(DECODE,))
ONE = DeployedContext(replace(CONTEXT, graph=1), "/one.bin", ("/i.raw",), ("/o.raw",))
LIBRARIES = Libraries("/lib.so", None)
ALL = Schedule((Move("load", 0), Move("execute", 0), Move("free", 0)), (Move("free", 0),))


def verbs(steps: tuple[Step, ...]) -> list[str]:
    return [step.verb for step in steps]


def test_the_backend_is_open_around_the_moves_and_closed_after_the_frees() -> None:
    plan = session_plan(LIBRARIES, [ONE], ALL, Settings(linger_ms=7))
    assert verbs(plan.steps) == [
        *("backend-load", "log-create", "backend-create", "device-create"),
        *("context-load", "execute", "context-free"),
        *("cleanup", "context-free", "device-free", "backend-free"),
    ]
    assert plan.steps[0].fields == {"lib": "/lib.so"}
    assert plan.settings == Settings(linger_ms=7)
    with_system = session_plan(Libraries("/lib.so", "/system.so"), [ONE], ALL).steps
    assert verbs(with_system)[:3] == ["backend-load", "system-load", "log-create"]
    assert with_system[1].fields == {"lib": "/system.so"}


def test_contexts_load_with_options() -> None:
    plan = session_plan(LIBRARIES, [ONE], ALL, options={"reused_io_limit_mb": 64})
    (load,) = (step for step in plan.steps if step.verb == "context-load")
    assert load.fields == {"context": "0", "file": "/one.bin", "custom.17": "64"}


def test_contexts_that_load_one_after_another_load_as_lists() -> None:
    options = {"share_resources": 1, "init_acceleration": 1}
    steps = schedule(50, "resident")
    plan = session_plan(LIBRARIES, [ONE, TWO], steps, options=options)
    lists = [dict(step.fields) for step in plan.steps if step.verb == "context-load-list"]
    assert [(each.pop("first"), each.pop("custom.5"), each.pop("custom.8")) for each in lists] == [
        ("0", "1", "1"),
        ("48", "1", "1"),
    ]
    assert lists[1] == {"file.0": "/one.bin", "file.1": "/two.bin"}
    assert (len(lists[0]), verbs(plan.steps).count("context-load")) == (48, 0)
    in_turn = session_plan(LIBRARIES, [ONE], schedule(2, "sequential"), options=options)
    moves = [verb for verb in verbs(in_turn.steps) if verb in ("context-load-list", "execute")]
    assert moves == ["context-load-list", "execute"] * 2


def executed(contexts: list[DeployedContext], numbers: int, saved: str | None) -> list[Step]:
    moves = tuple(Move("execute", number) for number in range(numbers))
    plan = session_plan(LIBRARIES, contexts, Schedule(moves, ()), save_below=saved)
    return [step for step in plan.steps if step.verb == "execute"]


def test_contexts_come_again_and_again_and_outputs_of_the_first_ones_are_saved() -> None:
    contexts = [TWO, ONE]
    loads = Schedule(tuple(Move("load", number) for number in range(4)), ())
    plan = session_plan(LIBRARIES, contexts, loads)
    binaries = [step.fields["file"] for step in plan.steps if step.verb == "context-load"]
    assert binaries == ["/two.bin", "/one.bin", "/two.bin", "/one.bin"]
    steps = executed(contexts, 3, "/out")
    pairs = [(step.fields["context"], step.fields["graph"]) for step in steps]
    # what has no expected outputs is executed twice: they are compared with each other
    assert pairs == [("0", "0"), *[("0", "1")] * 2, ("1", "1"), ("2", "0"), *[("2", "1")] * 2]
    saved = [[path for path in map(str, step.fields.values()) if "/out/" in path] for step in steps]
    assert saved == [
        ["/out/0.0.0.raw", "/out/0.0.1.raw"],
        ["/out/0.1.0.raw"],
        ["/out/0.1.0.raw"],
        ["/out/1.1.0.raw"],
        *([],) * 3,
    ]
    assert not any("/out" in str(step.fields) for step in executed(contexts, 3, None))


def test_which_graph_a_step_executes() -> None:
    steps = executed([TWO, ONE], 3, None)
    named = ["prefill", "decode", "decode", "decode", "prefill", "decode", "decode"]
    assert [graph_of([TWO, ONE], step) for step in steps] == named
    assert graph_of([TWO], Step("context-load", {"context": "0", "file": "x"})) is None
    assert graph_of([TWO], Step("execute", {"context": "0", "graph": "7"})) is None


def test_where_one_graph_is_executed_a_context_has_no_others() -> None:
    assert (ONE.only_graph(), DECODE.only_graph()) == (1, 1)
    with pytest.raises(ConfigError) as error:
        TWO.only_graph()
    assert error.value.choices == ["prefill", "decode"]
