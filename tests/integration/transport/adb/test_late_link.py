"""A link that stands still around a plan's deadline says nothing about who runs the plan."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.core.cache import cache_root
from harness.core.errors import InfraError
from harness.diagnosis.verdict import judge
from harness.probe.build import ProbeBuilder
from harness.probe.plan import Plan, Settings, Step
from harness.probe.plan_runner import ProbeRun, run_plan
from harness.transport.files import PushItem
from tests.integration.transport.adb.conftest import REAL_BY_DAY, Lab, Linked, Place, linked_to
from tests.integration.transport.adb.faulty_link import FaultyLink
from tests.needed import C_COMPILERS, need

pytestmark = REAL_BY_DAY

SHORT = Plan((Step("noop"), Step("sleep", {"ms": "300"}), Step("noop")))
TIMEOUT_S = 2.0
EARLY = b'"start"'
"""The first event; the plan is still on its way."""
RUNNING = b'"begin"'


@pytest.fixture(scope="module")
def probe_folder(lab: Lab, shared_daemon: tuple[str, str]) -> str:
    """A folder on the device with the probe in it."""
    need(*C_COMPILERS)
    probe = ProbeBuilder(cache_root() / "probe").build()
    address, top = shared_daemon
    lab.connect(address).push([PushItem(probe, f"{top}/late/qnn-probe", 0o755)], timeout_s=60)
    return f"{top}/late"


class Struck:
    """A device whose link something happens to at an event, once."""

    def __init__(self, linked: Linked, event: bytes, strike: Callable[[FaultyLink], None]) -> None:
        self._linked = linked
        self._event = event
        self._strike: Callable[[FaultyLink], None] | None = strike
        self._seen = b""

    def run(self, plan: Plan, folder: str, **options: object) -> ProbeRun:
        device = self._linked.device
        shell = device.shell

        def stalling(script: str, *, on_stdout: Callable[[bytes], None], **more: object) -> object:
            def watch(data: bytes) -> None:
                self._seen += data
                if self._event in self._seen and self._strike is not None:
                    strike, self._strike = self._strike, None
                    strike(self._linked.link)
                on_stdout(data)

            return shell(script, on_stdout=watch, **more)  # type: ignore[arg-type]

        device.shell = stalling  # type: ignore[method-assign,assignment]
        arguments = {"env": {}, "cwd": folder, "timeout_s": TIMEOUT_S} | options
        try:
            return run_plan(device, f"{folder}/qnn-probe", plan, **arguments)  # type: ignore[arg-type]
        finally:
            del device.shell  # type: ignore[method-assign]


def stalls(seconds: float) -> Callable[[FaultyLink], None]:
    """The link stands still for so many seconds."""

    def strike(link: FaultyLink) -> None:
        if seconds:
            link.stall()
            threading.Timer(seconds, link.resume).start()

    return strike


def loses_the_stream(link: FaultyLink) -> None:
    """The daemon hears no more that anybody takes what it sends in the stream that is open now."""
    rest, stream = bytearray(), list[bytes]()

    def without_its_okays(data: bytes, *, to_device: bool) -> bytes:
        if not to_device:
            return data
        rest.extend(data)
        passed = b""
        while len(rest) >= 24:
            size = 24 + int.from_bytes(rest[12:16], "little")
            if len(rest) < size:
                break
            message = bytes(rest[:size])
            del rest[:size]
            if message[:4] == b"OKAY":
                stream[:] = stream or [message[4:8]]
            if message[:4] != b"OKAY" or message[4:8] != stream[0]:
                passed += message
        return passed

    link.changed = without_its_okays  # type: ignore[method-assign]


Row = tuple[str, Plan, bytes, float, set[tuple[str, str | None]]]
PASSED, HUNG, NOT_KNOWN = ("passed", None), ("hung", "target"), ("error", "infra")
HANGS = Plan((Step("hang"),))
MUTE = Settings(deadline_ms=60_000)
PRINTS = Plan((Step("noop"), Step("spew", {"bytes": "3000000", "to": "events"}), Step("noop")))
LOGS = Plan((Step("noop"), Step("spew", {"bytes": "3000000", "to": "stderr"}), Step("noop")))

# what, its plan, from which event on the link stands still, how long, and what may be said
ROWS: list[Row] = [
    ("done, heard of within its time", SHORT, RUNNING, 1.0, {PASSED}),
    ("done, heard of late", SHORT, RUNNING, TIMEOUT_S + 0.5, {PASSED}),
    ("done, heard of while it is ended", SHORT, RUNNING, TIMEOUT_S + 2.5, {PASSED, NOT_KNOWN}),
    # on a busy computer the end may have come before the link stands still
    ("done, never heard of", SHORT, RUNNING, TIMEOUT_S + 9, {PASSED, NOT_KNOWN}),
    ("its plan comes late", SHORT, EARLY, TIMEOUT_S + 0.5, {PASSED, NOT_KNOWN}),
    ("its plan comes while it is ended", SHORT, EARLY, TIMEOUT_S + 2.5, {PASSED, NOT_KNOWN}),
    ("waits for a reader", PRINTS, RUNNING, TIMEOUT_S + 0.5, {PASSED, NOT_KNOWN}),
    ("waits for a reader until shortly before", PRINTS, RUNNING, 1.6, {PASSED, NOT_KNOWN}),
    ("its library waits for a reader", LOGS, RUNNING, TIMEOUT_S + 0.5, {PASSED, NOT_KNOWN}),
    ("its library waits until shortly before", LOGS, RUNNING, 1.6, {PASSED, NOT_KNOWN}),
    ("hangs, heard of late", HANGS, RUNNING, TIMEOUT_S + 0.5, {HUNG}),
    ("hangs, without a stall", HANGS, RUNNING, 0, {HUNG}),
    ("hangs and does not say so", Plan(HANGS.steps, MUTE), RUNNING, 0, {HUNG}),
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
            struck = Struck(linked, event, stalls(seconds))
            try:
                ran = struck.run(plan, probe_folder, on_hang=lambda pid, _: checks.append(pid))
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


@pytest.mark.slow
def test_who_waits_for_a_reader_that_a_damaged_link_took_away_has_not_hung(
    lab: Lab, shared: Place, probe_folder: str, folder: str
) -> None:
    """Everything else goes on: other streams, and with them the look at what still runs."""
    with linked_to(lab, shared.device.serial, folder) as linked:
        struck = Struck(linked, RUNNING, loses_the_stream)
        with pytest.raises(InfraError) as lost:
            struck.run(PRINTS, probe_folder, on_hang=lambda *_: None)
        assert lost.value.cause == "infra"
