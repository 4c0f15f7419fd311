"""`qnn-harness doctor --acceptance`: a device taken through every layer, step by step.

The order is that of the layers: what a step needs was tried before it. What the steps put on the
device lies in a folder of its own there, and is gone at the end, however that comes.

It is no suite of the plug-in. Most steps are about what a case takes for granted: shells, files,
the probe without any library, a cable, a reboot. And what a run does for its cases would be wrong
here: to try again, to recover the device or put it into quarantine, and to go on with the next.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from harness.device.adb.address import USER_SERVER
from harness.device.adb.server import AdbServer
from harness.device.lab.inventory import load_lab
from harness.ground.errors import HarnessError, InfraError
from harness.ground.facts.backends import BACKENDS
from harness.run.bench.case_session import NotPassed
from harness.tools.doctor import device_steps, transport_steps
from harness.tools.doctor.archive import lab_words
from harness.tools.doctor.check import REACHABLE, Answer, Checked
from harness.tools.doctor.device_visit import NO_SMOKE, Order, open_workbench
from harness.tools.doctor.examine import examine
from harness.tools.doctor.ground import FOLDER, Ground, nothing_left, own_folder
from harness.tools.doctor.smoke import what_it_means

_log = logging.getLogger(__name__)
_BACK_S: Final = 20.0
_CLEAN_S: Final = 90.0


class Stage(NamedTuple):
    """One step: its name, how long it may take (seconds), what it does, and the option it needs."""

    name: str
    seconds: float
    act: Callable[[Ground], Answer]
    option: str | None = None


STEPS: Final = (
    Stage("shells, exit codes", 120, transport_steps.shells),
    Stage("push and pull", 300, transport_steps.push),
    Stage("a push cut, resumed", 300, transport_steps.resume),
    Stage("store, eviction", 300, transport_steps.store),
    Stage("probe", 180, device_steps.probe),
    Stage("crash, its evidence", 120, device_steps.crash),
    Stage("hang, its evidence", 120, device_steps.hang),
    Stage("FastRPC", 300, device_steps.fastrpc),
    *(Stage(f"backend {one}", 600, partial(device_steps.backend, backend=one)) for one in BACKENDS),
    Stage("66 contexts", 1200, device_steps.contexts),
    Stage("unplug, plug in", 300, device_steps.unplug, "--unplug"),
    Stage("reboot", 400, device_steps.reboot, "--reboot"),
)
"""What is done, in this order."""


def accept(
    order: Order,
    name: str,
    options: Collection[str],
    logs: Path,
    ask: Callable[[str], None],
    words: dict[str, str],
) -> Iterator[Checked]:
    """What the doctor finds, and then each step on the device of that name.

    `options` are those of the steps that were asked for. What tells whose device and lab it is goes
    into `words`, with what is to stand there instead. Raises as `examine`.
    """
    with contextlib.suppress(HarnessError):
        lab = load_lab(order.lab_file)
        words |= lab_words(lab)
        (config,) = lab.select([name])
        own = (lab.server_of(config),) if config.transport == "adb" else ()
        for address in {USER_SERVER, *own}:
            if (server := AdbServer(address)).is_running():
                # also who else hangs there
                words |= {one.serial: "<serial>" for one in server.devices()}
    seen = False
    for check in examine(replace(order, names=(name,), smoke=False)):
        seen = seen or (check.name == REACHABLE and check.status == "ok")
        if check.found != NO_SMOKE:  # there is a step for that
            yield check
    if not seen:
        found = "not tried: it does not answer, or is not to be used now"
        yield Checked("acceptance", name, "steps", "unknown", found)
        return
    lab = load_lab(order.lab_file)
    bench = open_workbench(own_folder(lab, name), order)
    try:
        ground = Ground(bench, name, order.qnn, logs, ask, lab.recovery_of(config))
        device = ground.device
        serial, said = device.transport.serial, device.facts.serial_number
        words |= dict.fromkeys((serial, serial.rpartition(":")[0], said or ""), "<serial>")
        yield from take(ground, STEPS, options)
    except HarnessError as error:
        yield Checked("acceptance", name, "steps", "fail", str(error))
    finally:
        with contextlib.suppress(HarnessError):
            bench.close()


def take(ground: Ground, steps: Sequence[Stage], options: Collection[str]) -> Iterator[Checked]:
    """The steps, one after the other; nothing of them is left on the device afterwards."""
    clean = Stage("nothing left behind", _CLEAN_S, nothing_left)
    late: str | None = None
    try:
        for step in steps:
            _log.info(f"{ground.name}: {step.name}")
            if step.option is not None and step.option not in options:
                answer = Answer("not-applicable", f"not asked for ({step.option})")
            elif late is not None:
                answer = Answer("unknown", f"not tried: {late}")
            else:
                ended = within(step, ground)
                late = f"{step.name} did not come to an end" if ended is None else gone(ground)
                answer = ended or _given_up(step)
                # they go into the archive
                answer = answer._replace(advice=answer.advice.replace(str(ground.logs), "logs"))
            yield Checked("acceptance", ground.name, step.name, *answer)
    except BaseException:
        within(clean, ground)
        raise
    left = within(clean, ground) or _given_up(clean)
    if ground.doubtful:
        left = left._replace(
            advice=f"the next acceptance removes it: below {FOLDER} of its workdir"
        )
    yield Checked("acceptance", ground.name, clean.name, *left)


def within(step: Stage, ground: Ground) -> Answer | None:
    """What came of a step; None if its time was over first."""
    done: queue.SimpleQueue[Answer] = queue.SimpleQueue()

    def act() -> None:
        try:
            done.put(step.act(ground))
        except HarnessError as error:
            ground.doubtful = isinstance(error, InfraError)
            done.put(Answer("fail", str(error), "the lines above may tell why"))
        except NotPassed as failure:
            ground.doubtful = failure.verdict.cause == "infra"
            done.put(what_it_means(failure.verdict, ground.name, "", ground.logs))
        except Exception as error:  # a thread has nobody else to tell
            text = f"{type(error).__name__}: {error}"
            done.put(Answer("fail", text, "a bug of the harness: please send the archive"))

    thread = threading.Thread(target=act, name=step.name, daemon=True)
    thread.start()
    try:
        return done.get(timeout=step.seconds)
    except queue.Empty:
        return None
    finally:
        if done.empty() and thread.is_alive():
            ground.going_on = thread


def gone(ground: Ground) -> str | None:
    """What is to be said of a device that does not come back after a step that the lab failed."""
    if not ground.doubtful:
        return None
    ground.doubtful = False
    try:
        ground.device.transport.shell("exit 0", timeout_s=_BACK_S)
    except HarnessError:
        return "the device went away"
    return None


def _given_up(step: Stage) -> Answer:
    found = f"it did not come to an end within {step.seconds:g} s and was given up"
    return Answer("fail", found, "reboot the device, and try again")
