"""The steps of an acceptance as a table: deadlines, errors, what was not asked for, the end."""

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.bench.case_session import NoVerdict
from harness.core.errors import DeviceLost, InfraError
from harness.diagnosis.error_record import ErrorRecord
from harness.diagnosis.verdict import Verdict
from harness.doctor.acceptance import (
    FOLDER,
    STEPS,
    Stage,
    Trial,
    clean_up,
    run_step,
    run_steps,
    with_own_workdir,
)
from harness.doctor.check_results import CheckResult
from harness.lab.device_config import DEFAULT_WORKDIR
from harness.lab.health import RecoveryRules
from harness.lab.inventory import Lab
from tests.snapshots import Snapshot
from tests.unit.doctor.test_device_checks import shown

OK = CheckResult("ok", "fine")


class MockDevice:
    """Answers what the end of an acceptance asks; nothing is behind it."""

    def __init__(self, left_over: int = 0) -> None:
        self.config = SimpleNamespace(simulated=False)
        self.workdir = "/w"
        self.scripts: list[str] = []
        self.left = left_over
        self.transport = self

    def end_leftovers(self, *, timeout_s: float) -> bool:
        return True

    def shell(self, script: str, **_: object) -> SimpleNamespace:
        self.scripts.append(script)
        return SimpleNamespace(ok=self.left == 0, stderr=b"Permission denied")


def trial(device: MockDevice, logs: Path = Path("/logs")) -> Trial:
    lab = SimpleNamespace(device=lambda name: SimpleNamespace(attach=lambda: device))
    bench = SimpleNamespace(lab=lab)
    return Trial(bench, "desk", "latest", logs, print, RecoveryRules())  # type: ignore[arg-type]


def step(
    act: Callable[[Trial], CheckResult], seconds: float = 30, option: str | None = None
) -> Stage:
    return Stage("a step", seconds, act, option)


def raising(error: BaseException) -> Callable[..., CheckResult]:
    def act(*_: object, **__: object) -> CheckResult:
        raise error

    return act


def test_the_page_has_every_step_in_its_place() -> None:
    page = (Path(__file__).parents[3] / "docs/tutorial/phone.md").read_text()
    rows = re.findall(r"^\| (.+?) \|", page.partition("| step |")[2], re.M)
    listed = ", ".join(rows).replace(
        "backend htp, gpu, cpu", "backend htp, backend gpu, backend cpu"
    )
    assert listed.startswith(", ".join([*(each.name for each in STEPS), "nothing left behind"]))


def test_what_comes_of_steps_and_nothing_is_left(snapshot: Snapshot) -> None:
    device = MockDevice()
    refused = ErrorRecord.of(message="the link broke")
    steps = [
        step(lambda _: OK._replace(advice="see /logs/x")),
        step(raising(InfraError("gone"))),
        step(raising(NoVerdict(Verdict("error", "infra", refused)))),
        step(raising(ZeroDivisionError("x"))),
        step(lambda _: OK, option="--reboot"),
        step(lambda _: OK, option="--unplug"),
    ]
    checks = list(run_steps(trial(device), steps, ["--unplug"]))
    assert [check.status for check in checks] == ["ok", *3 * ["fail"], "not-applicable", "ok", "ok"]
    assert list(map(shown, checks)) == snapshot
    assert device.scripts[-1] == "rm -rf /w; [ ! -e /w ]"


def test_a_step_that_hangs_is_given_up_and_the_rest_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    monkeypatch.setattr("harness.doctor.acceptance._LEFT_S", 0.1)
    device, event = MockDevice(), threading.Event()

    def hang(_: Trial) -> CheckResult:
        event.wait(60)
        return OK

    checks = list(run_steps(trial(device), [step(hang, seconds=0.1), step(lambda _: OK)], []))
    event.set()
    assert [check.status for check in checks] == ["fail", "unknown", "warn"]
    assert list(map(shown, checks)) == snapshot
    assert device.scripts


def test_a_step_that_goes_on_puts_nothing_back() -> None:
    """An abandoned step has ended before its files are removed."""
    device, event = MockDevice(), threading.Event()
    device.end_leftovers = lambda *, timeout_s: not event.set()  # type: ignore[method-assign]

    def go_on(_: Trial) -> CheckResult:
        event.wait(60)
        threading.Event().wait(0.2)
        device.scripts.append("put back")
        return OK

    checks = list(run_steps(trial(device), [step(go_on, seconds=0.1)], []))
    assert [check.status for check in checks] == ["fail", "ok"]
    assert [script.split()[0] for script in device.scripts] == ["put", "rm"]


def test_of_a_device_that_went_away_no_further_step_is_tried() -> None:
    device = MockDevice()

    def lose(_: Trial) -> CheckResult:
        device.shell = raising(DeviceLost("gone", serial="1"))  # type: ignore[assignment]
        raise DeviceLost("gone", serial="1")

    refused = step(raising(InfraError("refused")))
    checks = list(run_steps(trial(device), [refused, step(lose), step(lambda _: OK)], []))
    assert [check.status for check in checks[:3]] == ["fail", "fail", "unknown"]
    assert "workdir" in checks[3].advice


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit])
def test_whoever_interrupts_leaves_nothing_behind(error: type[BaseException]) -> None:
    device = MockDevice()
    going: Iterator[object] = run_steps(trial(device), 2 * [step(lambda _: OK)], [])
    next(going)
    with pytest.raises(error):
        going.throw(error)  # type: ignore[attr-defined]
    assert device.scripts


def test_what_cannot_be_removed_is_told() -> None:
    answer = run_step(Stage("end", 30, clean_up), trial(MockDevice(left_over=1)))
    assert answer.status == "fail"
    assert "Permission denied" in answer.found


def test_a_real_device_gets_a_folder_of_its_own() -> None:
    desk = {"name": "desk", "serial": "1", "workdir": "/opt/x"}
    simulated = {"name": "sim", "simulated": True, "soc": "QCS8550"}
    devices = [desk, {"name": "other", "serial": "2"}, simulated]
    lab = Lab.model_validate({"schema": 1, "devices": devices})
    assert [device.workdir for device in with_own_workdir(lab, "desk").devices] == [
        f"/opt/x/{FOLDER}",
        *(2 * [DEFAULT_WORKDIR]),
    ]
    assert with_own_workdir(lab, "sim").devices == lab.devices
