"""The suite that breaks its own lab: each case injects one fault, and the next one must pass.

Run by test_cases.py in a process of its own; the lab around it is a BreakableLab.
"""

import contextlib
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.bench.bench import Bench
from harness.models.builtin_models import Model
from harness.models.session_plan import schedule
from harness.probe.events import MARK
from harness.probe.plan import Plan, Settings, Step, backend_load
from harness.transport.adb_device import AdbDevice
from harness.transport.files import PushItem
from tests.faults.control import ask
from tests.faults.table import CASES, Fault
from tests.stand_in.events import event_lines

DAEMON = os.environ.get("QNN_FAULT_DAEMON", "")
CHOSEN = os.environ.get("QNN_FAULT_NAMES", "").split()
HERE = [fault for fault in CASES if DAEMON in fault.daemons and fault.name in CHOSEN]
ON = {"storage_full_at_push": "small", "storage_full_at_run": "brim", "storage_read_only": "frozen"}
TINY = Model.parse("tiny")
NOTHING = Plan((Step("noop"),))
ENOUGH_S = 60
"""For what ends by itself, on a machine under load too; whoever waits for a deadline sets less."""

WAITING = """set -- {folder}
while :;do for p in /proc/[0-9]*;do read c _ <"$p/syscall"||continue
case $c in 34|130);;*)continue;;esac
case $(readlink "$p/exe") in "$1"/*);;
*/ld-linux*)case $(tr '\\0' ' ' <"$p/cmdline") in *" $1/"*);;*)continue;;esac;;*)continue;;esac
echo "${{p#/proc/}}";exit;done
sleep 0.1;done 2>/dev/null
"""
"""Prints the pid of the probe once it waits in pause(2), or rt_sigsuspend(2), as on Android.

A simulated device shows all processes of its host, those of other tests included.
"""

LEFT_BEHIND = """set -- {folder}
for p in /proc/[0-9]*;do
[ -r "$p/environ" ]&&e=$(tr '\\0' '\\n' <"$p/environ")||continue
case $e in *QNN_HARNESS_CALL="$QNN_HARNESS_CALL"*)continue;;*QNN_HARNESS_CALL=*);;*)continue;;esac
case $HOME in *storage-*) case $e in *HOME="$HOME"*);;*)continue;;esac;;esac
echo "process ${{p#/proc/}}: $(tr '\\0' ' ' <"$p/cmdline")"
done 2>/dev/null
find "$1/store/.incoming" "$1"/sets/.new-* -type f 2>/dev/null
for d in "$TMPDIR" /data/local/tmp /tmp;do ls -d "$d"/.qnn-harness-* 2>/dev/null;done
true
"""
"""Names processes and files of earlier calls; a simulated device shows all of its host's."""


def plan(*steps: Step) -> Plan:
    return Plan(steps, Settings())


def use_probe(bench: Bench, path: str) -> None:
    """Has the case run another program in place of the probe."""
    bench.case.prepared = replace(bench.case.prepared)  # others share the one that it was given
    vars(bench.case.prepared)["probe"] = path


@contextlib.contextmanager
def preloaded(bench: Bench, library: str) -> Iterator[None]:
    """Probes run with a library in front of all others."""
    environment = bench.case.runtime.environment
    environment["LD_PRELOAD"] = library
    try:
        yield
    finally:
        del environment["LD_PRELOAD"]


def while_it_waits(
    bench: Bench, act: Callable[[str], object], *, timeout_s: float = ENOUGH_S
) -> None:
    """Runs a plan that waits, and acts with the probe's pid once it does."""

    def watch() -> None:
        script = WAITING.format(folder=shlex.quote(bench.device.workdir))
        output = bench.device.transport.shell(script, timeout_s=timeout_s)
        act(output.stdout.decode().strip())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        bench.run(plan(Step("noop"), Step("hang")), timeout_s=timeout_s).check()
    finally:
        watcher.join(2 * ENOUGH_S)  # it looks for the process, then acts


def on_the_device(bench: Bench, name: str, content: bytes | Path, mode: int = 0o755) -> str:
    remote = f"{bench.device.workdir}/{name}"
    bench.device.transport.push([PushItem(content, remote, mode)], timeout_s=ENOUGH_S)
    return remote


def probe_is(
    bench: Bench, content: bytes, mode: int = 0o755, *, timeout_s: float = ENOUGH_S
) -> None:
    """Runs a stand-in in place of the probe."""
    use_probe(bench, on_the_device(bench, "stand_in_probe", content, mode))
    bench.run(NOTHING, timeout_s=timeout_s).check()


def stand_in(then: str) -> bytes:
    """A shell script that says what the probe says when it begins its first step."""
    boot_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    events = event_lines(
        [
            {"event": "start", "probe": 2, "source": "stand-in", "target": "linux-x64"},
            {"event": "plan", "steps": 1, "boot_us": boot_us},
            {"event": "begin", "step": 0, "verb": "noop", "t_us": 1},
        ]
    )
    printed = " ".join(f"'{event.decode()}'" for event in events.replace(MARK, b"").splitlines())
    return f"#!/bin/sh\nprintf '\\036%s\\n' {printed}\n{then}\n".encode()


def answer_lost(bench: Bench) -> None:
    use_probe(bench, on_the_device(bench, "stand_in_probe", stand_in("exit 125")))
    run = bench.attempt(NOTHING, timeout_s=ENOUGH_S)
    assert run.verdict.outcome == "failed", "the target did not refuse"


def foreign_elf() -> bytes:
    """The header of a program for a CPU that no host of these tests has (SPARC V9)."""
    head = bytearray(64)
    head[:7] = b"\x7fELF\x02\x02\x01"
    head[16:24] = b"\x00\x02\x00\x2b\x00\x00\x00\x01"
    return bytes(head) + bytes(4096)


def signal_to_probe(bench: Bench, name: str, *, timeout_s: float = ENOUGH_S) -> None:
    adb = bench.device.transport

    def send(pid: str) -> None:
        adb.shell(f"kill -{name} {int(pid)}", timeout_s=timeout_s)

    while_it_waits(bench, send, timeout_s=timeout_s)


def full_at_run(bench: Bench) -> None:
    (deployed,) = bench.contexts(TINY)
    plan_ = bench.context_plan([deployed], schedule(1, "sequential"))
    folder = bench.device.workdir
    saved = {"save.0": f"{folder}/saved"}
    steps = [
        Step(step.verb, {**step.fields, **saved}) if step.verb == "execute" else step
        for step in plan_.steps
    ]
    bench.device.transport.shell(f"cat /dev/zero >{shlex.quote(folder)}/filler", timeout_s=ENOUGH_S)
    bench.run(Plan(tuple(steps), plan_.settings)).check()


def clock_jump(bench: Bench) -> None:
    library = Path(os.environ["QNN_FAULT_CLOCK"])
    with preloaded(bench, on_the_device(bench, "stand_in_clock.so", library)):
        run = bench.run(plan(Step("noop"), Step("sleep", {"ms": "300"}), Step("noop")))
    run.check()
    assert 0.3 <= run.run.duration_s < ENOUGH_S
    assert all(0 <= (step.duration_us or 0) < ENOUGH_S * 1e6 for step in run.run.transcript.steps)


def work_folder_removed(bench: Bench) -> None:
    bench.device.transport.shell(f"rm -rf {shlex.quote(bench.device.workdir)}", timeout_s=ENOUGH_S)
    bench.run(NOTHING, timeout_s=ENOUGH_S).check()


def foreign_library(bench: Bench) -> None:
    library = on_the_device(bench, "stand_in_library.so", foreign_elf())
    bench.run(plan(backend_load(library)), timeout_s=ENOUGH_S).check()


def slow(bench: Bench) -> None:
    ask("slow")
    bench.run(NOTHING, timeout_s=ENOUGH_S).check()


def lab(command: str, *, timeout_s: float = ENOUGH_S) -> Callable[[Bench], None]:
    return lambda bench: while_it_waits(bench, lambda _: ask(command), timeout_s=timeout_s)


def fine(bench: Bench) -> None:
    bench.run(NOTHING, timeout_s=ENOUGH_S).check()


BEFORE = {"device_gone_before": "cut", "other_device": "other-device"}
AFTER = {"device_gone_after": "cut"}

INJECT: dict[str, Callable[[Bench], None]] = {
    "probe_sigsegv": lambda b: b.run(plan(Step("crash", {"signal": "11"}))).check(),
    "probe_killed": lambda b: signal_to_probe(b, "KILL"),
    "probe_endless_wait": lambda b: b.run(plan(Step("hang")), timeout_s=2).check(),
    "probe_endless_loop": lambda b: probe_is(
        b, stand_in("trap '' TERM INT HUP; while :; do :; done"), timeout_s=1.5
    ),
    "probe_stopped": lambda b: signal_to_probe(b, "STOP", timeout_s=5),
    "probe_endless_output": lambda b: probe_is(
        b, stand_in(f"exec yes {'y' * 1000}"), timeout_s=100
    ),
    "probe_endless_stderr": lambda b: b.run(
        plan(Step("spew", {"bytes": str(10**12), "to": "stderr"})), timeout_s=100
    ).check(),
    "probe_not_json": lambda b: probe_is(b, b"#!/bin/sh\necho Hello\n"),
    "probe_truncated_json": lambda b: probe_is(
        b, stand_in('printf \'\\036%s\' \'{"event":"end","step":0,"co\'')
    ),
    "probe_noise_between_events": lambda b: b.run(
        plan(Step("noop"), Step("spew", {"bytes": "100000", "to": "events"}), Step("noop"))
    ).check(),
    "answer_lost_in_attempt": answer_lost,
    "probe_not_executable": lambda b: probe_is(b, stand_in("exit 0"), 0o644),
    "probe_wrong_architecture": lambda b: probe_is(b, foreign_elf()),
    "library_wrong_architecture": foreign_library,
    "storage_full_at_run": full_at_run,
    "clock_jump": clock_jump,
    "work_folder_removed": work_folder_removed,
    "link_slow": slow,
    "link_stalled": lab("stall", timeout_s=5),
    "device_gone_during": lab("cut"),
    "reboot": lab("reboot"),
    "server_killed": lab("kill-server"),
    "server_of_another_version": lab("old-server"),
}


def left_behind(adb: AdbDevice, folder: str) -> str:
    script = LEFT_BEHIND.format(folder=shlex.quote(folder))
    return adb.shell(script, timeout_s=ENOUGH_S).stdout.decode("utf-8", "replace")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    (marker,) = metafunc.definition.iter_markers("device")
    (tag,) = marker.kwargs["tags"]
    metafunc.parametrize(
        "fault", [f for f in HERE if ON.get(f.name, "main") == tag], ids=lambda fault: fault.name
    )


@pytest.fixture
def broken_before(fault: Fault, part: str) -> Iterator[None]:
    """Break something outside of the case; the next one finds it in order again."""
    if part == "fault" and fault.name in BEFORE:
        ask(BEFORE[fault.name])
    yield
    if part == "fault" and fault.name in AFTER:
        ask(AFTER[fault.name])
    ask("undo" if part == "fault" else "heal")


@pytest.mark.device(tags=["main"])
@pytest.mark.parametrize("part", ["fault", "next"])
def test_main(broken_before: None, bench: Bench, fault: Fault, part: str) -> None:
    if part == "fault":
        INJECT.get(fault.name, fine)(bench)
    else:
        fine(bench)
        bench.measure(left=left_behind(bench.device.transport, bench.device.workdir).splitlines())


@pytest.mark.device(tags=["small"])
def test_small(bench: Bench, fault: Fault) -> None:
    fine(bench)


@pytest.mark.device(tags=["brim"])
def test_brim(bench: Bench, fault: Fault) -> None:
    INJECT[fault.name](bench)


@pytest.mark.device(tags=["frozen"])
def test_frozen(bench: Bench, fault: Fault) -> None:
    fine(bench)
