"""Answers of the simulator library of every version about memory and sharing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.models.source import Context, Libraries, session_start
from harness.probe.build import ProbeBuilder
from harness.probe.ort_plan import (
    context_load_list,
    context_load_shared,
    io_bind,
    io_release,
    io_run,
    memory_sample,
)
from harness.probe.plan import Plan, Step, context_free, context_load
from harness.probe.plan_runner import run_plan_locally
from harness.probe.transcript import StepResult
from harness.runtimes.runtime import Runtime

VERSIONS = ("2.47.0", "2.48.40", "2.49.40", "2.50.40", "2.51.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_refusals_and_profiles(
    builder: ProbeBuilder,
    runtime_for: Callable[..., Runtime],
    context_for: Callable[..., Context],
    version: str,
) -> None:
    runtime, context = runtime_for(version), context_for("tiny", version)
    libraries = Libraries(
        str(runtime.library("libQnnHtp.so")), str(runtime.library("libQnnSystem.so"))
    )
    binary, inputs = str(context.path), tuple(map(str, context.inputs))
    expected = tuple(map(str, context.expected))
    steps = (
        context_load(0, binary),
        Step("cleanup"),  # from here on nothing is skipped because of what failed
        io_bind(0, "memhandle", inputs=inputs),
        context_load_shared(1, binary, max_spill_fill_bytes=1 << 20),
        context_load_list(2, [binary, binary]),
        context_load_list(2, [binary, binary], share=False),
        io_bind(0, "raw", inputs=inputs, expected=expected),
        io_run(0, tolerance=context.tolerance, repeat=3, profile="basic"),
        io_run(0, tolerance=context.tolerance, profile="detailed"),
        memory_sample("now"),
        io_release(0),
        context_free(0),
    )
    folders = ":".join(str(runtime.root / folder) for folder in runtime.library_dirs)
    plan = Plan((*session_start(libraries), *steps, Step("device-free"), Step("backend-free")))
    env = {"LD_LIBRARY_PATH": folders}
    completed = run_plan_locally(builder.build(), plan, env=env, timeout_s=60)
    assert completed.transcript.done
    _, _, register, group, shared, unshared, bound, basic, detailed, sample, *_ = (
        completed.transcript.steps[5:]
    )
    assert answer(register) == ("QnnMem_register", 1000)
    assert "QnnMem API is not supported" in log_text(register)
    assert answer(group) == ("QnnContext_createFromBinary", 5010)
    assert "HTP Config option: 2 not supported" in log_text(group)
    for listed in (shared, unshared):
        assert answer(listed) == ("QnnContext_createFromBinaryListAsync", 1000)
        assert "Backend does not support QnnContext_createFromBinaryListAsync" in log_text(listed)
    assert bound.ok
    assert basic.ok
    assert basic.data["runs"] == 3
    assert {event["type"] for event in basic.data["profile_events"]} >= {400}
    names = [event.get("name", "") for event in detailed.data["profile_events"]]
    assert any("MatMul" in name for name in names)
    assert len(detailed.data["profile_events"]) > len(basic.data["profile_events"])
    assert basic.data["digests"] == detailed.data["digests"]
    assert sample.data["rss_bytes"] > 1 << 20
    assert (sample.data["shared_bytes"], sample.data["dma_buf_bytes"]) == (0, 0)


def answer(step: StepResult) -> tuple[str | None, int | None]:
    return step.api, step.code


def log_text(step: StepResult) -> str:
    return "\n".join(line.text for line in step.logs)
