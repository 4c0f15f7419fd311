"""`qnn-harness acceptance run`: tests of every layer of a device, step by step.

The order is that of the layers, so each step needs only what was tested before it. The files of
the steps are in a separate folder on the device, which is removed at the end in any case.

This is not a suite of the plug-in, since most steps test what a case takes for granted: shells,
files, the probe without any library, a cable, a reboot. And a run would hide failures here: it
retries, recovers or quarantines the device, and continues on another one.
"""

from __future__ import annotations

import contextlib
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
from harness.bench.case_placement import Placement
from harness.bench.case_session import CaseSession, NotPassed
from harness.bench.prepared_devices import ProvisionedDevice
from harness.bench.run_preparation import Workbench
from harness.core.deadline import Deadline
from harness.core.errors import DeviceLost, HarnessError, InfraError
from harness.core.files import scratch_folder
from harness.core.matrix_axes import BACKENDS
from harness.core.outgoing_text import log_without_secrets
from harness.deploy.deploy import Deployer, Push
from harness.diagnosis.verdict import Verdict, judge
from harness.doctor.acceptance_archive import lab_words
from harness.doctor.check_results import REACHABLE, Checked, CheckResult
from harness.doctor.device_checks import ANSWER, DspAttempt, ExaminedDevice, dsp_layers
from harness.doctor.device_visit import NO_SMOKE, Options, open_workbench
from harness.doctor.examine import examine
from harness.doctor.smoke import try_backend, verdict_result
from harness.evidence.case_evidence import CaseEvidence
from harness.lab.facts import ask_vitals, query_device
from harness.lab.health import RecoveryRules
from harness.lab.inventory import Lab, load_lab
from harness.lab.lab_device import AttachedDevice, LabDevice
from harness.lab.recovery import Recovery
from harness.models.builtin_models import Model
from harness.probe.build import PROBE_NAME
from harness.probe.events import kept_events
from harness.probe.plan import Plan, Step
from harness.probe.plan_runner import run_plan
from harness.runtimes.runtime import Runtime, read_library
from harness.transport.adb_address import USER_SERVER
from harness.transport.adb_server import AdbServer
from harness.transport.files import PushItem
from harness.transport.shell import ScriptTimeout

FOLDER: Final = "acceptance"
_LEFT_S: Final = 10.0
_REMOVED_S: Final = 60.0


@dataclass
class Trial:
    """A device under acceptance.

    `logs` is a local folder for the logs of the archive; `prompt` tells the user what to do with
    the device. `rules` are the lab's rules for recovery. `probe` is the path of the deployed probe,
    if there is one. `is_doubtful`: after the last step it may not answer. `running` is the thread
    of an abandoned step.
    """

    workbench: Workbench
    name: str
    qnn: str
    logs: Path
    prompt: Callable[[str], None]
    rules: RecoveryRules
    probe: str = ""
    is_doubtful: bool = False
    running: threading.Thread | None = None

    @property
    def lab_device(self) -> LabDevice:
        return self.workbench.lab.device(self.name)

    @property
    def provisioned(self) -> ProvisionedDevice:
        return self.workbench.provisioned(self.lab_device)

    @property
    def device(self) -> AttachedDevice:
        return self.lab_device.attach()

    @property
    def folder(self) -> str:
        return f"{self.device.workdir}/steps"


def with_own_workdir(lab: Lab, name: str) -> Lab:
    """Return the lab with a separate work folder for one device, below the usual one (pure).

    A simulated device keeps its folder, since it is not shared.
    """
    devices = tuple(
        device.model_copy(update={"workdir": f"{device.workdir}/{FOLDER}"})
        if device.name == name and not device.simulated
        else device
        for device in lab.devices
    )
    return lab.model_copy(update={"devices": devices})


def clean_up(trial: Trial) -> CheckResult:
    """Terminate our processes on the device and remove our files."""
    device = trial.device
    ended = device.transport.end_leftovers(timeout_s=_LEFT_S)
    if trial.running is not None:
        # it may still be writing files
        trial.running.join(_LEFT_S)
        ended = device.transport.end_leftovers(timeout_s=_LEFT_S)
    folder = trial.folder if device.config.simulated else device.workdir
    quoted = shlex.quote(folder)
    script = f"rm -rf {quoted}; [ ! -e {quoted} ]"
    removed = device.transport.shell(
        script, timeout_s=_REMOVED_S, max_output_bytes=1 << 16, doing="remove the test files"
    )
    if not ended:
        return CheckResult("fail", "processes of the harness could not be killed", "reboot it")
    if not removed.ok:
        stderr = removed.stderr.decode("utf-8", "replace").strip()[:200]
        return CheckResult("fail", f"{folder} could not be removed: {stderr}", "remove it manually")
    if trial.running is not None and trial.running.is_alive():
        return CheckResult("warn", "an abandoned step may still write files", f"remove {folder}")
    return CheckResult("ok", "no process or file of the harness is left")


_SHELL_S: Final = 20.0
_PUSH_S: Final = 120.0
_MB: Final = 1_000_000
_INPUT_BYTES: Final = 300_000
_PUSHED_BYTES: Final = 8 * _MB
_FILE_BYTES: Final = 3 * _MB
_NAME: Final = "a file's name, \u00e4.bin"


def shells(trial: Trial) -> CheckResult:
    """Check exit codes, a signal, input, output and its limit, a deadline."""
    way = trial.device.transport
    problems = []
    expected = {f"exit {code}": (code, None) for code in (0, 1, 7, 126)}
    for script, ends in {**expected, "sh -c 'kill -9 $$'": (None, 9)}.items():
        reply = way.shell(script, timeout_s=_SHELL_S)
        if (reply.exit_code, reply.signal) != ends:
            problems.append(f"`{script}`: exit code {reply.exit_code}, signal {reply.signal}")
    data = os.urandom(_INPUT_BYTES)
    if way.shell("cat", stdin=data, timeout_s=_SHELL_S).stdout != data:
        problems.append(f"{len(data)} bytes of standard input arrived changed")
    output = way.shell("echo out; echo err >&2", timeout_s=_SHELL_S)
    if (output.stdout, output.stderr) != (b"out\n", b"err\n"):
        problems.append(f"stdout {output.stdout[:40]!r}, stderr {output.stderr[:40]!r}")
    endless = "while :; do echo endless; done"
    if not way.shell(endless, timeout_s=_SHELL_S, max_output_bytes=1 << 16).truncated:
        problems.append("endless output ended")
    try:
        way.shell("sleep 60", timeout_s=2.0)
        problems.append("`sleep 60` ended within 2 s")
    except ScriptTimeout as timeout:
        if not timeout.processes.ended:
            problems.append("a process past its deadline could not be killed")
    if problems:
        return CheckResult(
            "fail", "; ".join(problems), "the shell or the transport of the device misbehaves"
        )
    text = "exit codes, a signal, stdin, separate stdout and stderr, a deadline, endless output"
    return CheckResult("ok", text)


def push(trial: Trial) -> CheckResult:
    """Push a file and pull it back."""
    way, content = trial.device.transport, os.urandom(_PUSHED_BYTES)
    remote = f"{trial.folder}/{_NAME}"
    start = time.monotonic()
    way.push([PushItem(content, remote)], timeout_s=_PUSH_S)
    pushed = time.monotonic()
    with scratch_folder() as folder:
        way.pull(remote, folder / "back", timeout_s=_PUSH_S, max_bytes=len(content))
        returned = (folder / "back").read_bytes()
    if returned != content:
        return CheckResult(
            "fail", f"{len(content)} bytes came back as {len(returned)} different bytes", _CABLE
        )
    durations = (pushed - start, time.monotonic() - pushed)
    to, fro = (f"{len(content) / _MB / max(seconds, 0.001):.0f} MB/s" for seconds in durations)
    return CheckResult("ok", f"{len(content) // _MB} MB unchanged, {to} there and {fro} back")


def store(trial: Trial) -> CheckResult:
    """Check that the store evicts old files, does not push files again, and detects damage."""
    way, workdir = trial.device.transport, f"{trial.folder}/store"
    cap, problems = 2 * _FILE_BYTES - 1, []
    with scratch_folder() as folder:
        first, second = _files(folder, 2).items()
        before = Deployer(way, workdir, cap_bytes=cap)
        evicted = before.deploy_files("first", dict([first]))
        before.release()
        stored = Deployer(way, workdir, cap_bytes=cap).deploy_files("second", dict([second]))
        if way.stat(f"{evicted}/{first[0]}") is not None:
            problems.append("unused files were not evicted")
        pushes: list[Push] = []
        again = Deployer(way, workdir, on_push=pushes.append)
        if again.deploy_files("second", dict([second])) != stored:
            problems.append("stored files were deployed to another folder")
        if pushes:
            problems.append(f"{sum(each.size for each in pushes)} stored bytes were pushed again")
        file = shlex.quote(f"{stored}/{second[0]}")
        way.shell(f"chmod u+w {file}; echo damage >>{file}", timeout_s=_SHELL_S)
        repaired = Deployer(way, workdir).deploy_files("second", dict([second]))
        stat = way.stat(f"{repaired}/{second[0]}")
        if stat is None or stat.size != second[1].stat().st_size:
            problems.append("a changed file was not detected")
    if problems:
        return CheckResult("fail", "; ".join(problems), _STORE)
    return CheckResult(
        "ok", "space is freed, nothing is pushed twice, damage is detected and repaired"
    )


_CABLE: Final = "try another cable or port; if that does not help, the flash may be defective"
_STORE: Final = "the shell or the file system of the device misbehaves"


def _files(folder: Path, number: int) -> dict[str, Path]:
    files = {f"{i}.bin": folder / f"{i}.bin" for i in range(number)}
    for path in files.values():
        path.write_bytes(os.urandom(_FILE_BYTES))
    return files


PERSON_S: Final = 120.0
"""The time for the user to pull a cable out or to plug it in."""

_RUN_S: Final = 30.0
_HANG_S: Final = 6.0
_EVIDENCE_S: Final = 20.0
_POLL_S: Final = 0.5
_CONTEXTS: Final = 66
_SMALL, _LARGE = Model("tiny"), Model("io-heavy", 56)
_NO_PROBE: Final = CheckResult("unknown", "not tested: the probe is not deployed")


def probe(trial: Trial) -> CheckResult:
    """Build, deploy and run the probe for this device."""
    target, programs = trial.provisioned, [PROBE_NAME]
    folder = target.deployer.deploy_files("probe", {PROBE_NAME: target.probe}, programs=programs)
    trial.probe = f"{folder}/{PROBE_NAME}"
    start = time.monotonic()
    verdict, _ = _run(trial, "probe", Plan((Step("noop"),)), _RUN_S)
    if verdict.outcome != "passed":
        trial.probe = ""
        return CheckResult(
            "fail", verdict.explanation(), "see the output of the probe in the archive"
        )
    seconds = time.monotonic() - start
    return CheckResult("ok", f"for {target.target}: started, ran and ended in {seconds:.2f} s")


def crash(trial: Trial) -> CheckResult:
    """Run a process that raises SIGSEGV, and collect the device's evidence."""
    return _provoke(trial, "crash", Step("crash", {"signal": "11"}), "crashed", _RUN_S)


def hang(trial: Trial) -> CheckResult:
    """Run a process that hangs, and collect the device's evidence."""
    return _provoke(trial, "hang", Step("hang"), "hung", _HANG_S)


def _provoke(trial: Trial, name: str, step: Step, outcome: str, timeout_s: float) -> CheckResult:
    if not trial.probe:
        return _NO_PROBE
    verdict, evidence = _run(trial, name, Plan((Step("noop"), step)), timeout_s)
    collected = evidence.collect(trial.logs / name / "evidence", deadline=Deadline(_EVIDENCE_S))
    missing = f"; missing: {'; '.join(collected.notes)}" if collected.notes else ""
    text = f"evidence: {', '.join(collected.files)}{missing}"
    if verdict.outcome != outcome or verdict.cause != "target":
        advice = "verdicts about this device cannot be trusted; please send the archive"
        return CheckResult("fail", f"not {outcome}, but {verdict.explanation()}; {text}", advice)
    if collected.lost:
        return CheckResult(
            "fail", collected.lost, "the connection to the device was lost; check the cable"
        )
    return CheckResult("ok", f"{outcome}, as expected; {text}")


def _run(trial: Trial, name: str, plan: Plan, timeout_s: float) -> tuple[Verdict, CaseEvidence]:
    device, logs = trial.device, trial.logs / name
    evidence = CaseEvidence(device.transport, trial.provisioned.baseline)
    run = run_plan(
        device.transport,
        trial.probe,
        plan,
        env={},
        cwd=posixpath.dirname(trial.probe),
        timeout_s=timeout_s,
        on_hang=evidence.look,
    )
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "probe.plan").write_text(run.plan.text())
    (logs / "probe.jsonl").write_bytes(kept_events(run.raw_events))
    (logs / "probe.stderr").write_bytes(log_without_secrets(run.stderr))
    return judge(run, device.facts.coprocessors), evidence


def fastrpc(trial: Trial) -> CheckResult:
    """Check the way to the DSP, and that the backend's first call to it returns."""
    device = trial.device
    answers = query_device(device.transport, device.workdir, device.target)
    examined = ExaminedDevice(device, answers, trial.lab_device.health_rules)
    if examined.no_dsp is not None:
        return CheckResult("not-applicable", examined.no_dsp)
    name, runtime = _runtime(trial)
    logs = trial.logs / ANSWER / "case"
    session = try_backend(trial.workbench, trial.name, "htp", runtime, name, logs, bare=True)
    graph = DspAttempt(CheckResult("not-applicable", "the next step"))
    libraries = [read_library(library.path, library.name) for library in runtime.files]
    *layers, result = dsp_layers(examined, libraries, session, graph)
    details = "; ".join(f"{check.name}: {check.found}" for check in layers)
    return CheckResult(result.status, f"{result.found} ({details})", result.advice)


def backend(trial: Trial, backend: str) -> CheckResult:
    """Run a small context on the HTP, or a small graph on another backend."""
    name, runtime = _runtime(trial)
    logs = trial.logs / backend / "case"
    return try_backend(trial.workbench, trial.name, backend, runtime, name, logs).result


def _runtime(trial: Trial) -> tuple[str, Runtime]:
    catalog, target = trial.workbench.catalog, trial.device.target
    name = catalog.resolve(trial.qnn, target, field="--qnn")[-1]
    return name, catalog.runtime(name, target)


def contexts(trial: Trial) -> CheckResult:
    """Load 66 contexts in one process: small ones must fit; report how many large ones do."""
    (name, _), device = _runtime(trial), trial.name
    compiler = trial.workbench.catalog.compiler_for(name, trial.device.target)
    placement = Placement(device=device, backend="htp", qnn=name, compiler=compiler)
    ready = trial.provisioned.prepare(placement)
    logs = trial.logs / "66-contexts"
    small = Bench(CaseSession(ready, logs / "small")).resident(_SMALL, _CONTEXTS)
    text = f"{small.loaded} of {_CONTEXTS} small contexts loaded, executed and freed"
    result = verdict_result(small.verdict, device, text, logs)
    if result.status != "ok":
        return result
    large = Bench(CaseSession(ready, logs / "large")).resident(_LARGE, _CONTEXTS)
    if large.verdict.outcome == "passed":
        return CheckResult("ok", f"{text}; as many of 56 MB")
    verdict = verdict_result(large.verdict, device, "", logs)
    # the capacity of a process depends on device and version, and is no fault of the lab
    return CheckResult("warn", f"{text}; {large.loaded} of 56 MB: {verdict.found}", verdict.advice)


def unplug(trial: Trial) -> CheckResult:
    """Have the cable pulled out in the middle of a command, and plugged in again."""
    device = trial.device
    trial.prompt(f"unplug the cable of {trial.name} now, or disconnect its network")
    try:
        device.transport.shell("while :; do echo; sleep 1; done", timeout_s=PERSON_S)
    except DeviceLost:
        pass
    except InfraError:
        return CheckResult("unknown", f"the device was not unplugged within {PERSON_S:.0f} s")
    trial.prompt(f"plug {trial.name} in again")
    deadline = Deadline(PERSON_S)
    problem = "no answer"
    while not deadline.expired:
        try:
            trial.lab_device.reconnect(within_s=min(5.0, deadline.remaining()))
            returned = trial.device
        except InfraError as error:
            problem = str(error)
            time.sleep(min(_POLL_S, deadline.remaining()))
            continue
        if not device.transport.end_leftovers(timeout_s=_EVIDENCE_S):
            return CheckResult("fail", "processes of the harness could not be killed", "reboot it")
        seconds = PERSON_S - deadline.remaining()
        serial = returned.transport.serial
        return CheckResult("ok", f"the loss was detected; {serial} was back after {seconds:.0f} s")
    text = f"it did not come back within {PERSON_S:.0f} s: {problem}"
    return CheckResult("fail", text, "see `qnn-harness devices list`")


def reboot(trial: Trial) -> CheckResult:
    """Reboot the device, and check whether deployed files survive."""
    if not trial.lab_device.config.can_reboot:
        return CheckResult("not-applicable", "it is this computer")
    if not trial.rules.reboot:
        return CheckResult("not-applicable", "devices.yaml forbids it: `recovery: {reboot: false}`")
    device, start = trial.device, time.monotonic()
    before = ask_vitals(device.transport, device.workdir).boot_id
    Recovery(trial.lab_device, Deadline(0)).run("reboot")
    seconds, device = time.monotonic() - start, trial.device
    if before is not None and ask_vitals(device.transport, device.workdir).boot_id == before:
        return CheckResult("fail", "the device did not reboot", "reboot it manually")
    if not trial.probe:
        return CheckResult("ok", f"back after {seconds:.0f} s")
    pushes, target = list[Push](), trial.provisioned
    after = Deployer(device.transport, device.workdir, on_push=pushes.append)
    after.deploy_files("probe", {PROBE_NAME: target.probe}, programs=[PROBE_NAME])
    after.release()
    if pushes:
        return CheckResult("warn", f"back after {seconds:.0f} s; the deployed files were gone")
    return CheckResult("ok", f"back after {seconds:.0f} s, with all deployed files")


_log = logging.getLogger(__name__)
_BACK_S: Final = 20.0
_CLEAN_S: Final = 90.0


class Stage(NamedTuple):
    """One step: its name, its timeout, its function, and the option that it needs."""

    name: str
    seconds: float
    act: Callable[[Trial], CheckResult]
    option: str | None = None


STEPS: Final = (
    Stage("shells, exit codes", 120, shells),
    Stage("push and pull", 300, push),
    Stage("store, eviction", 300, store),
    Stage("probe", 180, probe),
    Stage("crash, its evidence", 120, crash),
    Stage("hang, its evidence", 120, hang),
    Stage("FastRPC", 300, fastrpc),
    *(Stage(f"backend {name}", 600, partial(backend, backend=name)) for name in BACKENDS),
    Stage("66 contexts", 1200, contexts),
    Stage("unplug, plug in", 300, unplug, "--unplug"),
    Stage("reboot", 400, reboot, "--reboot"),
)
"""All steps, in order."""


def accept(
    options: Options,
    name: str,
    enabled: Collection[str],
    logs: Path,
    prompt: Callable[[str], None],
    words: dict[str, str],
) -> Iterator[Checked]:
    """Yield the checks of the doctor, and then each step on the device of that name.

    `enabled` are the options of steps that were given. Words that identify the owner of device and
    lab are added to `words`, with their replacements. Raises as `load_lab` and `Lab.select`.
    """
    lab = load_lab(options.lab_file, names=[name])
    (config,) = lab.select([name])
    words |= lab_words(lab)
    with contextlib.suppress(HarnessError):
        for address in {USER_SERVER, config.server(lab) or USER_SERVER}:
            if (server := AdbServer(address)).is_running():
                # also the other devices of that server
                words |= {known.serial: "<serial>" for known in server.devices()}
    reachable = False
    for check in examine(replace(options, names=(name,), smoke=False)):
        reachable = reachable or (check.name == REACHABLE and check.status == "ok")
        if check.found != NO_SMOKE:  # there is a step for that
            yield check
    if not reachable:
        text = "not tested: see the failed checks above"
        yield Checked("acceptance", name, "steps", "unknown", text)
        return
    bench = open_workbench(with_own_workdir(lab, name), options)
    try:
        trial = Trial(bench, name, options.qnn, logs, prompt, config.recovery or lab.recovery)
        device = trial.device
        serial, facts_serial = device.transport.serial, device.facts.serial_number
        words |= dict.fromkeys((serial, serial.rpartition(":")[0], facts_serial or ""), "<serial>")
        yield from run_steps(trial, STEPS, enabled)
    except HarnessError as error:
        yield Checked("acceptance", name, "steps", "fail", str(error))
    finally:
        with contextlib.suppress(HarnessError):
            bench.close()


def run_steps(trial: Trial, steps: Sequence[Stage], enabled: Collection[str]) -> Iterator[Checked]:
    """Run the steps one after the other, and clean up the device afterwards."""
    clean = Stage("nothing left behind", _CLEAN_S, clean_up)
    blocked: str | None = None
    try:
        for step in steps:
            _log.info(f"{trial.name}: {step.name}")
            if step.option is not None and step.option not in enabled:
                result = CheckResult("not-applicable", f"only with {step.option}")
            elif blocked is not None:
                result = CheckResult("unknown", f"not tested: {blocked}")
            else:
                finished = run_step(step, trial)
                blocked = lost_reason(trial) if finished else f"{step.name} did not end"
                result = finished or _given_up(step)
                # the logs go into the archive
                result = result._replace(advice=result.advice.replace(str(trial.logs), "logs"))
            yield Checked("acceptance", trial.name, step.name, *result)
    except BaseException:
        run_step(clean, trial)
        raise
    cleaned = run_step(clean, trial) or _given_up(clean)
    if trial.is_doubtful:
        cleaned = cleaned._replace(
            advice=f"the next acceptance run removes what is left in {FOLDER} of the workdir"
        )
    yield Checked("acceptance", trial.name, clean.name, *cleaned)


def run_step(step: Stage, trial: Trial) -> CheckResult | None:
    """Run a step in a thread and return its result; None after its timeout."""
    answers: queue.SimpleQueue[CheckResult] = queue.SimpleQueue()

    def act() -> None:
        try:
            answers.put(step.act(trial))
        except HarnessError as error:
            trial.is_doubtful = isinstance(error, InfraError)
            answers.put(CheckResult("fail", str(error), "see the lines above for the reason"))
        except NotPassed as failure:
            trial.is_doubtful = failure.verdict.cause == "infra"
            answers.put(verdict_result(failure.verdict, trial.name, "", trial.logs))
        except Exception as error:  # nothing else would report it
            text = f"{type(error).__name__}: {error}"
            answers.put(CheckResult("fail", text, "a bug of the harness; please send the archive"))

    thread = threading.Thread(target=act, name=step.name, daemon=True)
    thread.start()
    try:
        return answers.get(timeout=step.seconds)
    except queue.Empty:
        return None
    finally:
        if answers.empty() and thread.is_alive():
            trial.running = thread


def lost_reason(trial: Trial) -> str | None:
    """Return why no further step can run after a failure of the lab; None if the device answers."""
    if not trial.is_doubtful:
        return None
    trial.is_doubtful = False
    try:
        trial.device.transport.shell("exit 0", timeout_s=_BACK_S)
    except HarnessError:
        return "the device no longer answers"
    return None


def _given_up(step: Stage) -> CheckResult:
    text = f"the step did not end within {step.seconds:g} s and was abandoned"
    return CheckResult("fail", text, "reboot the device and try again")
