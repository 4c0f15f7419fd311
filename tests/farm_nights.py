"""Nights of a farm whose truth is known: run folders, whose journals are written directly.

A thousand nights take a minute or two.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from harness.diagnosis.error import ErrorRecord
from harness.nightly.night import STATE, STEPS, Night
from harness.plugin.collection import selection
from harness.results.coverage import Coverage
from harness.results.run_folder import (
    INFO,
    JOURNAL,
    new_run_id,
    number_folder,
    take_number,
)

BEGIN: Final = datetime(2026, 11, 1, 22, tzinfo=UTC)
COMMAND: Final = ("pytest", "-m", "device")
BROKE = {"api": "QnnContext_createFromBinary", "code": 5005, "message": "Unsupported op version"}
CRASHED = {"api": "QnnGraph_execute", "code": 6031, "message": "Graph execution aborted"}
WRONG = {"api": "QnnGraph_execute", "code": None, "message": "Outputs differ beyond tolerance"}


def _night(number: int, start: datetime, reports: Path, *, hours: int, **more: Any) -> Night:
    """A night whose run is whole."""
    return Night(
        night=f"{start:%Y%m%dT%H%M%SZ}-{number:04x}-nightly",
        started=start.isoformat(),
        arguments=(),
        selection=selection(COMMAND),
        lab="devices.yaml",
        folder=str(reports),
        budget_s=hours * 3600,
        run_is_whole=True,
        **more,
    )


def many_nights(
    reports: Path, nights: int = 1000, cases: int = 2000, devices: int = 20, seed: int = 7
) -> list[Path]:
    """The folders of the runs of so many nights, each with its nightly.json beside it.

    Each night has `cases` cases on all devices together. A new version comes every 25 nights; the
    8th brings what fails on one SoC, `phone-03` is sick from the middle on, some cases are flaky.
    """
    draw, made_nights = random.Random(seed), []
    reports.mkdir(parents=True, exist_ok=True)
    for number in range(nights):
        start = BEGIN - timedelta(days=nights - number)
        run = reports / new_run_id(start, f"{number:016x}")
        run.mkdir()
        failed = 0
        with (run / JOURNAL).open("w") as journal:
            for line, bad in _lines(run.name, number, nights, cases, devices, start, draw):
                journal.write(line)
                failed += bad
        info = {"schema": 1, "kind": "run", "run": run.name, "selected": cases}
        info |= take_number(reports)
        info |= {"started": start.isoformat(), "finished": (start + timedelta(hours=6)).isoformat()}
        info |= {"exit_code": int(failed > 0), "problem": None, "command": list(COMMAND)}
        info |= {"selection": list(selection(COMMAND))}
        named = [{"name": _phone(number_), "host": _host(number_)} for number_ in range(devices)]
        info |= {"lab": {"devices": named}}
        (run / INFO).write_text(json.dumps(info))
        night = _night(
            number,
            start,
            reports,
            hours=6,
            until=0,
            done=STEPS,
            run=run.name,
            run_exit_code=int(failed > 0),
            coverage=Coverage(selected=cases, passed=cases - failed, failed=failed),
        )
        (reports / night.night).mkdir()
        number_folder(reports / night.night, "nightly")
        text = night.model_dump_json(indent=1)
        (reports / night.night / STATE).write_text(text)
        made_nights.append(run)
    return made_nights


_SOCS: Final = ("SM8750", "SM8650", "SM8550")


def _phone(number: int) -> str:
    return f"phone-{number:02}"


def _host(number: int) -> str:
    return f"rack-{number % 2}"


def _lines(
    run: str,
    night: int,
    nights: int,
    cases: int,
    devices: int,
    start: datetime,
    draw: random.Random,
) -> Iterator[tuple[str, bool]]:
    version = f"2.{40 + night // 25}.0"
    for number in range(cases):
        device, case_number = number % devices, number // devices
        name, soc = _phone(device), _SOCS[device % len(_SOCS)]
        sick = name == "phone-03" and night >= nights // 2 and draw.random() < 0.5
        broken = soc == _SOCS[0] and case_number % 10 == 3 and night // 25 >= 8
        flaky = number % 97 == 5 and draw.random() < 0.2
        bad = sick or broken or flaky
        failure = CRASHED if sick else BROKE if broken else WRONG
        load, peak = round(900 * draw.lognormvariate(0, 0.03)), 180_000_000 + number
        case = {
            "schema": 2,
            "kind": "case",
            "run": run,
            "case": f"suites/test_models.py::test_load[{name}-htp-{version}-m{case_number}]",
            "test": f"suites/test_models.py::test_load[m{case_number}]",
            "placement": {"device": name, "backend": "htp", "qnn": version, **_USUAL},
            "engine": "qnn",
            "suite": "models",
            "axes": {"backend": "htp", "qnn": version, "ort": None, "model": f"m{case_number}"},
            "device": {"name": name, "serial": name, "soc": soc, **_ANDROID},
            "outcome": "failed" if bad else "passed",
            "cause": "target" if bad else None,
            "error": _ERRORS[str(failure["message"])] if bad else None,
            "measurements": {"load_us": [load, load + 7], "rss_bytes": {"peak": peak}},
            "started": (start + timedelta(seconds=10 * number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "duration_s": load / 500,
        }
        yield f"{json.dumps(case, separators=(',', ':'))}\n", bad


_USUAL: Final = {"engine": "qnn", "ort": None, "compiler": None}
_ANDROID: Final = {"target": "android-arm64", "simulated": False}
_ERRORS: Final = {
    str(failure["message"]): ErrorRecord.of(**failure).model_dump(mode="json")
    for failure in (BROKE, CRASHED, WRONG)
}
