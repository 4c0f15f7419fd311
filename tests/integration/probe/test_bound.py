"""Buffers that stay with a graph: what is checked of them, and what the probe refuses to do."""

from __future__ import annotations

import numpy as np
import pytest

from harness.probe import plan
from harness.probe.ort_plan import (
    context_load_list,
    context_load_shared,
    io_bind,
    io_release,
    io_run,
    memory_sample,
)
from harness.probe.plan import Step
from harness.probe.plan_runner import EXIT_DONE
from tests.integration.probe.conftest import Runner, StandIn

FOUR = np.array([1.5, -2.0, 0.25, 1e6], np.float32)


def bound(stand_in: StandIn, behaviour: str = "plain") -> tuple[Step, Step]:
    copied = stand_in.file("four", FOUR)
    load = plan.context_load(0, stand_in.binary(behaviour))
    return load, io_bind(0, "raw", inputs=[copied], expected=[copied])


def test_buffers_are_used_again_and_given_back(run: Runner, stand_in: StandIn) -> None:
    steps = (*bound(stand_in), io_run(0, repeat=2), io_run(0), memory_sample("now"), io_release(0))
    again = bound(stand_in)[1]
    completed = run(*stand_in.opened(*steps, io_release(0), again, plan.context_free(0)))
    assert completed.exit_code == EXIT_DONE
    _, _, first, second, sample, released, nothing, rebound, freed = completed.transcript.steps[5:]
    assert (first.data["runs"], second.data["runs"]) == (2, 1)
    assert first.data["digests"] == second.data["digests"]
    assert sample.data["label"] == "now"
    assert released.ok
    assert nothing.skipped == "there is nothing to release"
    assert rebound.ok
    assert freed.ok


@pytest.mark.parametrize(
    ("behaviour", "error"), [("overflow", "guard"), ("silent", "mismatch"), ("drift", "mismatch")]
)
def test_every_run_is_checked(run: Runner, stand_in: StandIn, behaviour: str, error: str) -> None:
    completed = run(*stand_in.opened(*bound(stand_in, behaviour), io_run(0, repeat=5)))
    assert completed.transcript.steps[7].error == error


def test_what_a_library_lacks_is_said(run: Runner, stand_in: StandIn) -> None:
    """This stand-in has neither QnnMem, nor profiles, nor the newer entries of the table."""
    load, bind = bound(stand_in)
    profiled = run(*stand_in.opened(load, bind, io_run(0, profile="detailed"))).transcript.steps[7]
    assert profiled.ok
    assert profiled.data["profile_code"] == 1000
    registered = io_bind(0, "memhandle", inputs=[stand_in.file("four", FOUR)])
    step = run(*stand_in.opened(load, registered)).transcript.steps[6]
    assert (step.error, step.message) == ("symbol", "the interface has no memRegister")
    listed = context_load_list(0, [stand_in.binary("plain")])
    step = run(*stand_in.opened(listed)).transcript.steps[5]
    assert step.error == "symbol"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["LOAD", "BIND", "BIND"], "this context has buffers already"),
        (["LOAD", io_run(0)], "this context has no buffers"),
        (["BIND"], "this context is not loaded"),
        ([context_load_shared(0, "/x", max_spill_fill_bytes=1, group=3)], "is not loaded"),
        (["LOAD", context_load_list(0, ["/x"])], "this context is loaded already"),
        ([context_load_list(8191, ["/x", "/x"])], "the last context must be below 8192"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Runner, stand_in: StandIn, steps: list[Step | str], message: str
) -> None:
    load, bind = bound(stand_in)
    named = {"LOAD": load, "BIND": bind}
    filled = [named[step] if isinstance(step, str) else step for step in steps]
    step = run(*stand_in.opened(*filled)).transcript.first_failure
    assert step is not None
    assert (step.step, step.error) == (4 + len(steps), "plan")
    assert message in (step.message or "")
