"""Nights of a farm whose truth is known: real run folders, as the harness writes them.

12 devices of 3 SoCs on 2 hosts: what a page of a lab should tell.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from harness.core.whole_file import read_json
from harness.diagnosis.error import ErrorRecord
from harness.lab.facts import Vitals
from harness.lab.health import LabEvent
from harness.lab.inventory import Lab
from harness.nightly.chain import AGAIN, Chain
from harness.nightly.night import STEPS, DeviceSeen, Night
from harness.plugin.collection import selection
from harness.report.projections import finish
from harness.results.record import CaseRecord, DeviceEvent
from harness.results.run_folder import (
    RunFolder,
    new_run_id,
)

BEGIN: Final = datetime(2026, 11, 1, 22, tzinfo=UTC)
COMMAND: Final = ("pytest", "-m", "device")
REGRESSION_NIGHT, SICK_NIGHT, LOST_NIGHT = 4, 6, 8
OLD, NEW, STEADY = "2.50.0", "2.50.40", "2.49.40"
"""The version until the regression, the one that brings it, and that of the tests of the GPU."""
BROKEN_ON: Final = "SM8750"
BROKEN_MODELS: Final = ("llm-prefill", "llm-decode")
MODELS: Final = ("mobilenet", "resnet50", "yolo11", "whisper", *BROKEN_MODELS)
SICK: Final = "phone-09"
FLAKY: Final = ("phone-11", "test_gpu", "yolo11")
AWAY_HOST: Final = "rack-2"


@dataclass(frozen=True)
class Phone:
    """A phone of the farm."""

    name: str
    soc: str
    host: str


PHONES: Final = tuple(
    Phone(f"phone-{number:02}", soc, f"rack-{1 + number % 2}")
    for number, soc in enumerate(("SM8750",) * 6 + ("SM8650",) * 4 + ("SM8550",) * 2, 1)
)
LAB: Final = Lab.model_validate(
    {
        "schema": 1,
        "hosts": [{"name": f"rack-{number}", "host": f"192.0.2.{number}"} for number in (1, 2)],
        "devices": [
            {
                "name": phone.name,
                "serial": f"serial-{phone.name}",
                "soc": phone.soc,
                "host": phone.host,
            }
            for phone in PHONES
        ],
    }
)


@dataclass(frozen=True)
class Planned:
    """A case of a night."""

    phone: Phone
    test: str
    model: str
    qnn: str

    @property
    def name(self) -> str:
        backend = "gpu" if self.test == "test_gpu" else "htp"
        return (
            f"suites/test_models.py::{self.test}"
            f"[{self.phone.name}-{backend}-{self.qnn}-{self.model}]"
        )


BROKE = {"api": "QnnContext_createFromBinary", "code": 5005, "message": "Unsupported op version"}
CRASHED = {"api": "QnnGraph_execute", "code": 6031, "message": "Graph execution aborted"}
WRONG = {"api": "QnnGraph_execute", "code": None, "message": "Outputs differ beyond tolerance"}
AWAY = {
    "api": None,
    "code": None,
    "message": "adb server at rack-2:5037 does not answer within 5 s",
}


def cases_of(night: int) -> list[Planned]:
    """Return the cases of a night; nights are counted from 1."""
    new = NEW if night >= REGRESSION_NIGHT else OLD
    return [
        Planned(phone, test, model, version)
        for phone in PHONES
        for test, version in (("test_load", new), ("test_gpu", STEADY))
        for model in MODELS
    ]


def ended(case: Planned, night: int, draw: random.Random) -> tuple[str, Mapping[str, Any] | None]:
    """The outcome of an attempt, and its error."""
    if case.phone.name == SICK and night >= SICK_NIGHT and draw.random() < 0.7:
        return "crashed", CRASHED
    if (case.phone.name, case.test, case.model) == FLAKY and draw.random() < 0.4:
        return "failed", WRONG
    is_broken = case.phone.soc == BROKEN_ON and case.model in BROKEN_MODELS and case.qnn == NEW
    return ("failed", BROKE) if is_broken else ("passed", None)


def lost(case: Planned, night: int) -> str | None:
    """Return why a case has no verdict: `away` or `not run`."""
    if night != LOST_NIGHT or case.phone.host != AWAY_HOST or case.model == MODELS[0]:
        return None
    return "away" if case.model == MODELS[1] else "not run"


def record_of(
    case: Planned,
    run: str,
    moment: datetime,
    draw: random.Random,
    end: tuple[str, Any],
    attempt: int,
) -> CaseRecord:
    """The record of an attempt, as a phone gives it."""
    outcome, error = end
    backend = "gpu" if case.test == "test_gpu" else "htp"
    slow = 1.6 if case.phone.name == SICK and outcome == "passed" else 1.0
    times = [round(900 * slow * draw.lognormvariate(0, 0.03)) for _ in range(5)]
    measured: dict[str, Any] = {
        "context_files": {f"{case.model}.bin": {"sha256": sha256(case.model.encode()).hexdigest()}}
    }
    if outcome == "passed":
        peak = 180_000_000 + draw.randrange(1_000_000)
        measured |= {"load_us": times, "execute_us": times[:3], "rss_bytes": {"peak": peak}}
    placement = {
        "device": case.phone.name,
        "engine": "qnn",
        "backend": backend,
        "qnn": case.qnn,
        "ort": None,
        "compiler": None,
    }
    return CaseRecord.model_validate(
        {
            "run": run,
            "case": case.name,
            "test": f"suites/test_models.py::{case.test}[{case.model}]",
            "placement": placement,
            "engine": "qnn",
            "suite": "models",
            "axes": {"backend": backend, "qnn": case.qnn, "ort": None, "model": case.model},
            "device": {
                "name": case.phone.name,
                "serial": f"serial-{case.phone.name}",
                "soc": case.phone.soc,
                "target": "android-arm64",
                "simulated": False,
            },
            "outcome": outcome,
            "cause": None if error is None else "infra" if error is AWAY else "target",
            "error": None if error is None else ErrorRecord.of(**error),
            "measurements": measured,
            "started": moment,
            "duration_s": 2 * draw.lognormvariate(0, 0.2),
            "attempt": attempt,
        }
    )


def health_of(phone: Phone, night: int, moment: datetime, draw: random.Random) -> LabEvent:
    """Return the event of a device's check before its first case."""
    sick = phone.name == SICK and night >= SICK_NIGHT
    vitals = Vitals(
        booted=True,
        uptime_s=3600.0 if sick else 86_400.0 * night,
        free_ram_bytes=3_000_000_000 + draw.randrange(1_000_000_000),
        free_storage_bytes=(40 - 2 * night) * 1_000_000_000,
        battery_percent=draw.randint(70, 100),
        battery_charging=True,
        hottest_c=draw.uniform(61, 66) if sick else draw.uniform(29, 36),
        hottest="skin",
    )
    state, codes = ("suspect", ("hot",)) if sick else ("good", ())
    detail = "skin is at 63 degrees" if sick else ""
    return LabEvent(phone.name, "health", state, codes, detail, moment, 1.5, vitals)  # type: ignore[arg-type]


class FarmNight(Chain):
    """A night over a run that is there. Its pytest is a stand-in that draws verdicts again."""

    number: int
    draw: random.Random

    def _pytest_run(self, left_s: float, run: RunFolder | None, *more: str) -> int | None:
        assert run is not None
        named = {planned.name: planned for planned in cases_of(self.number)}
        moment = BEGIN + timedelta(days=self.number - 1, hours=3)
        for case, times in read_json(self.path / AGAIN, 1 << 20).items():
            rerun = named[case]
            for attempt in range(2, 2 + times):
                end = ended(rerun, self.number, self.draw)
                run.journal.append(record_of(rerun, run.run_id, moment, self.draw, end, attempt))
        return 0


def farm_run(reports: Path, number: int, draw: random.Random) -> RunFolder:
    """The run of a night, finished, with its reports."""
    start = BEGIN + timedelta(days=number - 1)
    planned = cases_of(number)
    folder = RunFolder.create(
        reports,
        command=COMMAND,
        lab=LAB.model_dump(mode="json"),
        devices=[phone.name for phone in PHONES],
        more={"selection": list(selection(COMMAND))},
        run_id=new_run_id(start, f"{number:016x}"),
    )
    folder._write_info(folder.info() | {"started": start.isoformat()})
    folder.keep_selected([case.name for case in planned])
    for phone in PHONES:
        event = health_of(phone, number, start, draw)
        folder.journal.append(DeviceEvent.of(event, run=folder.run_id))
        if phone.name == SICK and number >= SICK_NIGHT:
            again = replace(event, event="reboot", detail="rebooted: its DSP had crashed")
            folder.journal.append(DeviceEvent.of(again, run=folder.run_id))
    failed = False
    for index, case in enumerate(planned):
        if (loss := lost(case, number)) == "not run":
            continue
        end = ("error", AWAY) if loss else ended(case, number, draw)
        failed |= end[0] not in ("passed", "error")
        moment = start + timedelta(minutes=5, seconds=3 * index)
        folder.journal.append(record_of(case, folder.run_id, moment, draw, end, 1))
    code = 1 if failed else 3 if number == LOST_NIGHT else 0
    finish(folder, exit_code=code)
    folder.end({"finished": (start + timedelta(hours=2)).isoformat()})
    return folder


def ten_farm_nights(reports: Path, seed: int = 7, nights: int = 10) -> list[Path]:
    """Ten nights of the farm: the folders of the nights, each beside its run, the oldest first.

    `test_load` of the models of LLMs fails on all SM8750 since night 4, with 2.50.40. `phone-09`
    crashes most cases since night 6. `FLAKY` always is. In night 8 a host was away.
    """
    draw, made_nights = random.Random(seed), []
    for number in range(1, nights + 1):
        run = farm_run(reports, number, draw)
        start = BEGIN + timedelta(days=number - 1)
        seen_devices = [_seen(phone, number, start) for phone in PHONES]
        night = Night(
            night=f"{start:%Y%m%dT%H%M%SZ}-{number:04x}-nightly",
            started=start.isoformat(),
            arguments=(),
            selection=selection(COMMAND),
            lab="devices.yaml",
            folder=str(reports),
            budget_s=4 * 3600,
            run_is_whole=True,
            until=datetime.now(UTC).timestamp() + 4 * 3600,
            done=STEPS[:2],
            lab_before=tuple(seen_devices),
            lab_after=tuple(seen_devices),
            run=run.run_id,
            run_exit_code=run.info()["exit_code"],
        )
        chain = FarmNight(night, (), reports, None)
        chain.number, chain.draw = number, draw
        chain._save()
        chain._compare()
        chain._save(done=STEPS)
        info = run.info()  # what was run again ended just now: the night is long over
        run._write_info(info | {"finished": (start + timedelta(hours=4)).isoformat()})
        made_nights.append(chain.path)
    return made_nights


def _seen(phone: Phone, night: int, moment: datetime) -> DeviceSeen:
    state, since, why = "good", BEGIN, ""
    if phone.name == SICK and night >= SICK_NIGHT:
        state, why = "suspect", "hot: skin is at 63 degrees"
        since = BEGIN + timedelta(days=SICK_NIGHT - 1)
    if night == LOST_NIGHT and phone.host == AWAY_HOST:
        state, since, why = "away", moment, str(AWAY["message"])
    return DeviceSeen(device=phone.name, state=state, since=since.isoformat(), why=why)
