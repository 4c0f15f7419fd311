"""`qnn-harness doctor --acceptance`: a device taken through every layer, step by step.

The order is that of the layers: what a step needs was tried before it. What the steps put on the
device lies in a folder of its own there, and is gone at the end, however that comes.

It is no suite of the plug-in. Most steps are about what a case takes for granted: shells, files,
the probe without any library, a cable, a reboot. And what a run does for its cases would be wrong
here: to try again, to recover the device or put it into quarantine, and to go on with the next.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import posixpath
import queue
import shlex
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from harness.bench.bench import Bench
from harness.bench.case_session import CaseSession, NotPassed
from harness.bench.placement import Placement
from harness.bench.target import HeldDevice
from harness.bench.workbench import Workbench
from harness.core.axes import BACKENDS
from harness.core.deadline import Deadline
from harness.core.errors import DeviceLost, HarnessError, InfraError
from harness.core.outgoing_text import log_without_secrets
from harness.core.whole_file import scratch_folder
from harness.deploy.deploy import Deployer
from harness.deploy.layout import own_claim
from harness.diagnosis.verdict import Verdict, judge
from harness.doctor.archive import lab_words
from harness.doctor.check import REACHABLE, Answer, Checked
from harness.doctor.device_checks import ANSWER, DspTry, Patient, ladder
from harness.doctor.device_visit import NO_SMOKE, Order, open_workbench
from harness.doctor.examine import examine
from harness.doctor.smoke import try_backend, what_it_means
from harness.evidence.case_evidence import CaseEvidence
from harness.lab.attach import AttachedDevice, LabDevice
from harness.lab.device_answers import ask
from harness.lab.health import RecoveryRules
from harness.lab.inventory import Lab, load_lab
from harness.lab.recovery import Recovery, ask_vitals
from harness.models.models import Model
from harness.probe.build import PROBE_NAME
from harness.probe.events import kept_events
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import run_plan
from harness.runtimes.runtime import Runtime, read_library
from harness.transport.adb_address import USER_SERVER
from harness.transport.adb_server import AdbServer
from harness.transport.device import Transport
from harness.transport.files import Progress, PushItem
from harness.transport.shell import ScriptTimeout

FOLDER: Final = "acceptance"
_LEFT_S: Final = 10.0
_REMOVED_S: Final = 60.0


@dataclass
class Ground:
    """A device under acceptance.

    `logs` is a folder of this computer for what the archive is to have; `ask` tells the person at
    the device what to do now. `rules` are the lab's own for recovery. `probe` is where the probe
    lies on the device, once it does. `doubtful`: after the last step it may not answer. `going_on`
    is a step that nobody waits for any more.
    """

    workbench: Workbench
    name: str
    qnn: str
    logs: Path
    ask: Callable[[str], None]
    rules: RecoveryRules
    probe: str = ""
    doubtful: bool = False
    going_on: threading.Thread | None = None

    @property
    def lab_device(self) -> LabDevice:
        return self.workbench.lab.device(self.name)

    @property
    def held(self) -> HeldDevice:
        return self.workbench.held(self.lab_device)

    @property
    def device(self) -> AttachedDevice:
        return self.lab_device.attach()

    @property
    def folder(self) -> str:
        return f"{self.device.workdir}/steps"


def own_folder(lab: Lab, name: str) -> Lab:
    """The lab with a work folder of its own for one device, below the usual one (pure).

    A simulated device is one of our own, with all that it stores.
    """
    devices = tuple(
        one.model_copy(update={"workdir": f"{one.workdir}/{FOLDER}"})
        if one.name == name and not one.simulated
        else one
        for one in lab.devices
    )
    return lab.model_copy(update={"devices": devices})


def nothing_left(ground: Ground) -> Answer:
    """Ends what still runs on the device and removes what was put there."""
    device = ground.device
    ended = device.transport.end_leftovers(timeout_s=_LEFT_S)
    if ground.going_on is not None:
        # what it is about to put there would come back
        ground.going_on.join(_LEFT_S)
        ended = device.transport.end_leftovers(timeout_s=_LEFT_S)
    folder = ground.folder if device.config.simulated else device.workdir
    quoted = shlex.quote(folder)
    script = f"rm -rf {quoted}; [ ! -e {quoted} ]"
    removed = device.transport.shell(
        script, timeout_s=_REMOVED_S, max_output_bytes=1 << 16, doing="remove what was left"
    )
    if not ended:
        return Answer("fail", "processes of ours could not be ended", "reboot it")
    if not removed.ok:
        said = removed.stderr.decode("utf-8", "replace").strip()[:200]
        return Answer("fail", f"{folder} could not be removed: {said}", "remove it by hand")
    if ground.going_on is not None and ground.going_on.is_alive():
        return Answer("warn", "a step that was given up may put files back", f"remove {folder}")
    return Answer("ok", "no process and no file of ours")


class CountingDevice:
    """A way to a device that counts the bytes pushed, and ends behind `lost_after` files.

    The link is not really cut: what was pushed by then has arrived, as when a cable is pulled out.
    """

    def __init__(self, way: Transport, lost_after: int | None = None) -> None:
        self.pushed_bytes = 0
        self.way = copy.copy(way)
        """The device's way, with a `push` of ours."""
        self.way.push = self._push  # type: ignore[method-assign]
        self._push_really = way.push
        self._lost_after = lost_after

    def _push(
        self, files: Sequence[PushItem], *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        taken = files[: self._lost_after]
        self._push_really(taken, timeout_s=timeout_s, progress=progress)
        for item in taken:
            source = item.source
            self.pushed_bytes += len(source) if isinstance(source, bytes) else source.stat().st_size
        if len(taken) < len(files):
            raise DeviceLost("the link ends here, as it was told to", serial=self.way.serial)


_SHELL_S: Final = 20.0
_PUSH_S: Final = 120.0
_MB: Final = 1_000_000
_INPUT_BYTES: Final = 300_000
_PUSHED_BYTES: Final = 8 * _MB
_FILE_BYTES: Final = 3 * _MB
_FILES: Final = 3
_NAME: Final = "a file's name, \u00e4.bin"


def shells(ground: Ground) -> Answer:
    """Exit codes, a signal, input, output and its end, a deadline."""
    way = ground.device.transport
    wrong = []
    told = {f"exit {code}": (code, None) for code in (0, 1, 7, 126)}
    for script, ends in {**told, "sh -c 'kill -9 $$'": (None, 9)}.items():
        done = way.shell(script, timeout_s=_SHELL_S)
        if (done.exit_code, done.signal) != ends:
            wrong.append(f"`{script}`: exit code {done.exit_code}, signal {done.signal}")
    data = os.urandom(_INPUT_BYTES)
    if way.shell("cat", stdin=data, timeout_s=_SHELL_S).stdout != data:
        wrong.append(f"{len(data)} bytes of input did not come back as they were")
    said = way.shell("echo out; echo err >&2", timeout_s=_SHELL_S)
    if (said.stdout, said.stderr) != (b"out\n", b"err\n"):
        wrong.append(f"stdout {said.stdout[:40]!r}, stderr {said.stderr[:40]!r}")
    endless = "while :; do echo endless; done"
    if not way.shell(endless, timeout_s=_SHELL_S, max_output_bytes=1 << 16).truncated:
        wrong.append("endless output came to an end")
    try:
        way.shell("sleep 60", timeout_s=2.0)
        wrong.append("`sleep 60` ended within 2 s")
    except ScriptTimeout as late:
        if not late.found.ended:
            wrong.append("what ran past its deadline could not be ended")
    if wrong:
        return Answer(
            "fail", "; ".join(wrong), "its shell, or what leads to it, does what no other does"
        )
    tried = "exit codes, a signal, input, stdout and stderr apart, a deadline, endless output"
    return Answer("ok", tried)


def push(ground: Ground) -> Answer:
    """A file there and back."""
    way, content = ground.device.transport, os.urandom(_PUSHED_BYTES)
    remote = f"{ground.folder}/{_NAME}"
    began = time.monotonic()
    way.push([PushItem(content, remote)], timeout_s=_PUSH_S)
    there = time.monotonic()
    with scratch_folder() as folder:
        way.pull(remote, folder / "back", timeout_s=_PUSH_S, max_bytes=len(content))
        back = (folder / "back").read_bytes()
    if back != content:
        return Answer("fail", f"{len(content)} bytes came back as {len(back)} others", _CABLE)
    rates = (there - began, time.monotonic() - there)
    to, fro = (f"{len(content) / _MB / max(took, 0.001):.0f} MB/s" for took in rates)
    return Answer("ok", f"{len(content) // _MB} MB as they were, {to} there and {fro} back")


def resume(ground: Ground) -> Answer:
    """A push that is cut, and goes on where it ended."""
    workdir, claim = f"{ground.folder}/resume", own_claim()
    with scratch_folder() as folder:
        files = _files(folder, _FILES)
        total = sum(path.stat().st_size for path in files.values())
        cut = Deployer(CountingDevice(ground.device.transport, 1).way, workdir, claim=claim)
        try:
            cut.deploy_files("cut", files)
            return Answer("fail", "what was cut off arrived all the same")
        except DeviceLost:
            pass
        counting = CountingDevice(ground.device.transport)
        Deployer(counting.way, workdir, claim=claim).deploy_files("cut", files)
    left = counting.pushed_bytes
    if left >= total:
        return Answer("fail", f"after the cut all {total} bytes travelled again", _STORE)
    return Answer("ok", f"after the cut {left // _MB} of {total // _MB} MB travelled, not all")


def store(ground: Ground) -> Answer:
    """What was used longest ago goes, what is there does not travel again, damage is noticed."""
    way, workdir = ground.device.transport, f"{ground.folder}/store"
    cap, wrong = 2 * _FILE_BYTES - 1, []
    with scratch_folder() as folder:
        first, second = _files(folder, 2).items()
        before = Deployer(way, workdir, cap_bytes=cap)
        gone = before.deploy_files("first", dict([first]))
        before.release()
        kept = Deployer(way, workdir, cap_bytes=cap).deploy_files("second", dict([second]))
        if way.stat(f"{gone}/{first[0]}") is not None:
            wrong.append("what nobody uses did not make room")
        counting = CountingDevice(way)
        if Deployer(counting.way, workdir).deploy_files("second", dict([second])) != kept:
            wrong.append("what is there went to another folder")
        if counting.pushed_bytes:
            wrong.append(f"{counting.pushed_bytes} bytes that are there travelled again")
        file = shlex.quote(f"{kept}/{second[0]}")
        way.shell(f"chmod u+w {file}; echo damage >>{file}", timeout_s=_SHELL_S)
        mended = Deployer(way, workdir).deploy_files("second", dict([second]))
        found = way.stat(f"{mended}/{second[0]}")
        if found is None or found.size != second[1].stat().st_size:
            wrong.append("a file that was written to was taken for the one it had been")
    if wrong:
        return Answer("fail", "; ".join(wrong), _STORE)
    return Answer("ok", "room is made, nothing travels twice, damage is noticed and mended")


_CABLE: Final = "another cable or port; if that does not help, its flash"
_STORE: Final = "its shell or file system does what no other does"


def _files(folder: Path, number: int) -> dict[str, Path]:
    made = {f"{at}.bin": folder / f"{at}.bin" for at in range(number)}
    for path in made.values():
        path.write_bytes(os.urandom(_FILE_BYTES))
    return made


PERSON_S: Final = 120.0
"""How long a person may take to pull a cable out or to plug it in."""

_RUN_S: Final = 30.0
_HANG_S: Final = 6.0
_EVIDENCE_S: Final = 20.0
_POLL_S: Final = 0.5
_CONTEXTS: Final = 66
_SMALL, _LARGE = Model("tiny"), Model("io-heavy", 56)
_NO_PROBE: Final = Answer("unknown", "not tried: the probe is not there")


def probe(ground: Ground) -> Answer:
    """The probe for this device is built, put there and run."""
    held = ground.held
    folder = held.deployer.deploy_files("probe", {PROBE_NAME: held.probe}, programs=[PROBE_NAME])
    ground.probe = f"{folder}/{PROBE_NAME}"
    began = time.monotonic()
    verdict, _ = _ran(ground, "probe", Plan((Step("noop"),)), _RUN_S)
    if verdict.outcome != "passed":
        ground.probe = ""
        return Answer("fail", verdict.explanation(), "what it said is in the archive")
    took = time.monotonic() - began
    return Answer("ok", f"for {held.target}: started, ran and ended in {took:.2f} s")


def crash(ground: Ground) -> Answer:
    """A process that ends itself with SIGSEGV, and what the device tells of it."""
    return _provoked(ground, "crash", Step("crash", {"signal": "11"}), "crashed", _RUN_S)


def hang(ground: Ground) -> Answer:
    """A process that hangs, and what the device tells of it."""
    return _provoked(ground, "hang", Step("hang"), "hung", _HANG_S)


def _provoked(ground: Ground, name: str, step: Step, outcome: str, timeout_s: float) -> Answer:
    if not ground.probe:
        return _NO_PROBE
    verdict, evidence = _ran(ground, name, Plan((Step("noop"), step)), timeout_s)
    collected = evidence.collect(ground.logs / name / "evidence", deadline=Deadline(_EVIDENCE_S))
    missing = f"; not had: {'; '.join(collected.notes)}" if collected.notes else ""
    told = f"evidence: {', '.join(collected.files)}{missing}"
    if verdict.outcome != outcome or verdict.cause != "target":
        advice = "verdicts about this device cannot be trusted: please send the archive"
        return Answer("fail", f"not {outcome}, but {verdict.explanation()}; {told}", advice)
    if collected.lost:
        return Answer("fail", collected.lost, "its link is lost while it is asked: see its cable")
    return Answer("ok", f"{outcome}, as it was to; {told}")


def _ran(ground: Ground, name: str, plan: Plan, timeout_s: float) -> tuple[Verdict, CaseEvidence]:
    """Runs a plan without any library; what was said goes to the logs."""
    device, logs = ground.device, ground.logs / name
    evidence = CaseEvidence(device.transport, ground.held.baseline)
    run = run_plan(
        device.transport,
        ground.probe,
        plan,
        env={},
        cwd=posixpath.dirname(ground.probe),
        timeout_s=timeout_s,
        on_hang=evidence.look,
    )
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "probe.plan").write_text(run.plan.text())
    (logs / "probe.jsonl").write_bytes(kept_events(run.raw_events))
    (logs / "probe.stderr").write_bytes(log_without_secrets(run.stderr))
    return judge(run, device.facts.coprocessors), evidence


def fastrpc(ground: Ground) -> Answer:
    """What leads to the DSP is there, and the backend's first call to it comes back."""
    device = ground.device
    patient = Patient(device, ask(device), ground.lab_device.health_rules)
    if patient.no_dsp is not None:
        return Answer("not-applicable", patient.no_dsp)
    name, runtime = _runtime(ground)
    logs = ground.logs / ANSWER / "case"
    session = try_backend(ground.workbench, ground.name, "htp", runtime, name, logs, bare=True)
    graph = DspTry(Answer("not-applicable", "the next step"))
    libraries = [read_library(one.path, one.name) for one in runtime.files]
    *layers, answer = ladder(patient, libraries, session, graph)
    told = "; ".join(f"{check.name}: {check.found}" for check in layers)
    return Answer(answer.status, f"{answer.found} ({told})", answer.advice)


def backend(ground: Ground, backend: str) -> Answer:
    """A small context on the HTP, a small graph on the others."""
    name, runtime = _runtime(ground)
    logs = ground.logs / backend / "case"
    return try_backend(ground.workbench, ground.name, backend, runtime, name, logs).answer


def _runtime(ground: Ground) -> tuple[str, Runtime]:
    catalog, target = ground.workbench.catalog, ground.device.target
    name = catalog.resolve(ground.qnn, target, field="--qnn")[-1]
    return name, catalog.runtime(name, target)


def contexts(ground: Ground) -> Answer:
    """66 contexts in one process: small ones must fit, and how many large ones do is told."""
    (name, _), device = _runtime(ground), ground.name
    compiler = ground.workbench.catalog.compiler_for(name, ground.device.target)
    ready = ground.held.place(Placement(device, "htp", name, compiler))
    logs = ground.logs / "66-contexts"
    small = Bench(CaseSession(ready, logs / "small")).resident(_SMALL, _CONTEXTS)
    done = f"{small.loaded} of {_CONTEXTS} small ones loaded, executed and freed"
    answer = what_it_means(small.verdict, device, done, logs)
    if answer.status != "ok":
        return answer
    large = Bench(CaseSession(ready, logs / "large")).resident(_LARGE, _CONTEXTS)
    if large.verdict.outcome == "passed":
        return Answer("ok", f"{done}; of 56 MB as many")
    meant = what_it_means(large.verdict, device, "", logs)
    # how much a process can hold is a property of device and version, not a fault of the lab
    return Answer("warn", f"{done}; of 56 MB {large.loaded}: {meant.found}", meant.advice)


def unplug(ground: Ground) -> Answer:
    """A cable pulled out in the middle of a command, and plugged in again."""
    device = ground.device
    ground.ask(f"pull the cable of {ground.name} out now, or take its network away")
    try:
        device.transport.shell("while :; do echo; sleep 1; done", timeout_s=PERSON_S)
    except DeviceLost:
        pass
    except InfraError:
        return Answer("unknown", f"nobody pulled it out within {PERSON_S:.0f} s")
    ground.ask(f"plug {ground.name} in again")
    deadline = Deadline(PERSON_S)
    why = "it did not come back"
    while not deadline.expired:
        try:
            ground.lab_device.reconnect(within_s=min(5.0, deadline.remaining()))
            back = ground.device
        except InfraError as error:
            why = str(error)
            time.sleep(min(_POLL_S, deadline.remaining()))
            continue
        if not device.transport.end_leftovers(timeout_s=_EVIDENCE_S):
            return Answer("fail", "what ran there could not be ended", "reboot it")
        took = PERSON_S - deadline.remaining()
        return Answer(
            "ok", f"the loss was noticed, {back.transport.serial} was back after {took:.0f} s"
        )
    return Answer("fail", f"not back after {PERSON_S:.0f} s: {why}", "see `qnn-harness devices`")


def reboot(ground: Ground) -> Answer:
    """A reboot, and whether what was put there outlived it."""
    if ground.lab_device.config.transport == "local":
        return Answer("not-applicable", "it is this computer")
    if not ground.rules.reboot:
        return Answer("not-applicable", "devices.yaml forbids it: `recovery: {reboot: false}`")
    device, began = ground.device, time.monotonic()
    before = ask_vitals(device.transport, device.workdir).boot_id
    Recovery(ground.lab_device, ground.rules, come_back=Deadline(0)).take("reboot")
    took, device = time.monotonic() - began, ground.device
    if before is not None and ask_vitals(device.transport, device.workdir).boot_id == before:
        return Answer("fail", "it is the same boot as before", "reboot it by hand")
    if not ground.probe:
        return Answer("ok", f"back after {took:.0f} s")
    counting, held = CountingDevice(device.transport), ground.held
    after = Deployer(counting.way, device.workdir)
    after.deploy_files("probe", {PROBE_NAME: held.probe}, programs=[PROBE_NAME])
    after.release()
    if counting.pushed_bytes:
        return Answer("warn", f"back after {took:.0f} s; what had been put there was gone")
    return Answer("ok", f"back after {took:.0f} s, with all that had been put there")


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
    Stage("shells, exit codes", 120, shells),
    Stage("push and pull", 300, push),
    Stage("a push cut, resumed", 300, resume),
    Stage("store, eviction", 300, store),
    Stage("probe", 180, probe),
    Stage("crash, its evidence", 120, crash),
    Stage("hang, its evidence", 120, hang),
    Stage("FastRPC", 300, fastrpc),
    *(Stage(f"backend {one}", 600, partial(backend, backend=one)) for one in BACKENDS),
    Stage("66 contexts", 1200, contexts),
    Stage("unplug, plug in", 300, unplug, "--unplug"),
    Stage("reboot", 400, reboot, "--reboot"),
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
