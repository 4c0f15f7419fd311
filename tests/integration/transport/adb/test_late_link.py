"""A link that stands still around a plan's deadline says nothing about who runs the plan."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.diagnosis.verdict import judge
from harness.probe.plan import Plan, Settings, Step
from harness.probe.plan_runner import ProbeRun, run_plan
from tests.integration.transport.adb.conftest import REAL_BY_DAY, Lab, Linked, Place, linked_to

pytestmark = REAL_BY_DAY

SHORT = Plan((Step("noop"), Step("sleep", {"ms": "300"}), Step("noop")))
TIMEOUT_S = 2.0
EARLY = b'"start"'
"""The first event; the plan is still on its way."""
RUNNING = b'"begin"'


def run_stalled(
    linked: Linked,
    folder: str,
    plan: Plan,
    event: bytes,
    seconds: float,
    on_hang: Callable[[int, Deadline], None],
) -> ProbeRun:
    """Run a plan over a link that stands still for so many seconds once it has carried an event."""
    device, link, seen = linked.device, linked.link, bytearray()
    shell, timers = device.shell, list[threading.Timer]()

    def stalling(script: str, *, on_stdout: Callable[[bytes], None], **more: object) -> object:
        def watch(data: bytes) -> None:
            seen.extend(data)
            if event in seen and not timers:
                link.stall()
                timers.append(threading.Timer(seconds, link.resume))
                timers[0].start()
            on_stdout(data)

        return shell(script, on_stdout=watch, **more)  # type: ignore[arg-type]

    device.shell = stalling  # type: ignore[method-assign,assignment]
    probe = f"{folder}/qnn-probe"
    return run_plan(device, probe, plan, env={}, cwd=folder, timeout_s=TIMEOUT_S, on_hang=on_hang)


Row = tuple[str, Plan, bytes, float, set[tuple[str, str | None]]]
PASSED, HUNG, NOT_KNOWN = ("passed", None), ("hung", "target"), ("error", "infra")
HANGS = Plan((Step("hang"),))
MUTE = Settings(deadline_ms=60_000)
PRINTS = Plan((Step("noop"), Step("spew", {"bytes": "3000000", "to": "events"}), Step("noop")))
LOGS = Plan((Step("noop"), Step("spew", {"bytes": "3000000", "to": "stderr"}), Step("noop")))

# what, its plan, from which event on the link stands still, how long, and what may be said
ROWS: list[Row] = [
    ("done, heard of late", SHORT, RUNNING, TIMEOUT_S + 0.5, {PASSED}),
    ("done, heard of while it is ended", SHORT, RUNNING, TIMEOUT_S + 2.5, {PASSED, NOT_KNOWN}),
    # on a busy computer the end may have come before the link stands still
    ("done, never heard of", SHORT, RUNNING, TIMEOUT_S + 9, {PASSED, NOT_KNOWN}),
    ("its plan comes late", SHORT, EARLY, TIMEOUT_S + 0.5, {PASSED, NOT_KNOWN}),
    ("waits for a reader", PRINTS, RUNNING, TIMEOUT_S + 0.5, {PASSED, NOT_KNOWN}),
    ("its library waits for a reader", LOGS, RUNNING, TIMEOUT_S + 0.5, {PASSED, NOT_KNOWN}),
    ("hangs, heard of late", HANGS, RUNNING, TIMEOUT_S + 0.5, {HUNG}),
    ("hangs, says nothing, late", Plan(HANGS.steps, MUTE), RUNNING, TIMEOUT_S + 0.5, {HUNG}),
    ("hangs, never heard of", HANGS, RUNNING, TIMEOUT_S + 9, {NOT_KNOWN}),
]


@pytest.mark.slow
def test_only_what_was_alive_at_its_deadline_has_hung(
    lab: Lab, shared: Place, probe_folder: str, folder: str
) -> None:
    """Each over a link of its own, all at once, since waiting is all they do."""

    def judged(row: Row) -> str | None:
        name, plan, event, seconds, allowed = row
        checks: list[int] = []
        with linked_to(lab, shared.device.serial, folder) as linked:
            try:
                ran = run_stalled(
                    linked, probe_folder, plan, event, seconds, lambda pid, _: checks.append(pid)
                )
                verdict = judge(ran)
                judgement = verdict.outcome, verdict.cause
            except InfraError as error:
                judgement = "error", error.cause
            linked.link.resume()
        # what may still be alive at its deadline, as on a busy computer, is rightly looked at
        if checks and allowed == {PASSED}:
            return f"{name}: looked at"
        return None if judgement in allowed else f"{name}: {judgement}"

    with ThreadPoolExecutor(len(ROWS)) as pool:
        assert [wrong for wrong in pool.map(judged, ROWS) if wrong] == []
