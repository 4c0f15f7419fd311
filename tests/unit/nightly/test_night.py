"""The next step of a night, its time, its exit code, and the lab that it saw."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from harness.core.errors import ConfigError
from harness.nightly.issues import CauseSearch, Example, Issue, issue_text
from harness.nightly.night import (
    STATE,
    STEPS,
    DeviceSeen,
    Night,
    lab_lines,
    lock_nights,
    lost_by_device,
    lost_devices,
    night_summary,
    nights,
    read_devices,
    summary_lines,
)
from harness.nightly.night_steps import LATEST, PROBLEM, base_of, new_entries
from harness.results.coverage import Coverage
from harness.results.run_folder import RunFolder
from harness.runtimes.catalog import CatalogEntry
from tests.logged import Logged
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, run_folder
from tests.unit.nightly.nights import a_night, an_issue


@given(st.floats(-1e9, 1e9))
def test_a_clock_that_is_set_back_gives_no_more_time(now: float) -> None:
    assert 0 <= a_night().remaining(now) <= 60
    assert [a_night().remaining(now) for now in (0, 1030, 1060, 1061)] == [60, 30, 0, 0]


@pytest.mark.parametrize(
    ("changed", "goes_on"),
    [
        ({}, True),
        ({"night": "other", "started": "before", "done": STEPS[:4]}, True),
        ({"done": STEPS}, False),
        ({"until": 1000.5}, True),
        ({"until": 1000}, False),
        ({"arguments": ("-x",)}, False),
        ({"lab": "other"}, False),
        ({"folder": "other"}, False),
        ({"budget_s": 61}, False),
    ],
)
def test_the_same_command_goes_on_while_the_time_lasts(
    changed: dict[str, Any], goes_on: bool
) -> None:
    assert a_night().can_resume(a_night(**changed), 1000) is goes_on


def test_issues_of_another_night_are_followed_once_it_is_over() -> None:
    finished = {"night": "before", "done": STEPS}
    assert a_night().follows(a_night(**finished))
    assert not a_night().follows(a_night(**finished | {"done": STEPS[:-1]}))
    assert not a_night().follows(a_night(**finished | {"selection": ("other",)}))
    assert not a_night().follows(a_night(done=STEPS)), "itself"


HIDDEN = "postgresql://***@h/db"


@pytest.mark.parametrize(
    ("stored", "renewed", "named", "goes_on"),
    [
        # all as before
        ({}, {}, "", {"budget_s": 60, "until": 1060}),
        ({}, {"budget_s": 9}, "", {"until": 1060}),
        ({}, {"budget_s": 9}, "budget", {"budget_s": 9, "until": 1009}),
        ({"arguments": ("-x",)}, {"arguments": ("-x",)}, "", {"arguments": ("-x",)}),
        ({}, {"arguments": ("-x",)}, "", "--resume"),
        ({"arguments": ("http://***@h",)}, {}, "", "--resume"),
        ({"arguments": ("http://***@h",), "done": STEPS[:2]}, {}, "", {}),
        ({"arguments": ("http://***@h",)}, {"arguments": ("http://***@h",)}, "", {}),
    ],
)
def test_what_was_asked_for_holds_when_it_is_resumed(
    stored: dict[str, Any], renewed: dict[str, Any], named: str, goes_on: dict[str, Any] | str
) -> None:
    last, now = a_night(**stored), a_night(**renewed)

    def resumed() -> Night:
        return last.resumed(now, 1000, budget=named == "budget")

    if isinstance(goes_on, str):
        with pytest.raises(ConfigError) as error:
            resumed()
        assert error.value.field == goes_on
        return
    night = resumed()
    assert {name: getattr(night, name) for name in goes_on} == goes_on


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"run_exit_code": 0}, 0),
        ({"run_exit_code": 1}, 0),  # what fails, failed before
        ({"run_exit_code": 1, "failed_on": ("new",)}, 1),
        ({"run_exit_code": 3}, 3),
        ({"run_exit_code": 2}, 2),
        ({"run_exit_code": None}, 3),
        ({"run_exit_code": 3, "coverage": Coverage(selected=1, passed=1)}, 3),
        # an old failure hides no verdict that is missing
        ({"run_exit_code": 1, "coverage": Coverage(selected=2, failed=1, input=1)}, 2),
        ({"run_exit_code": 1, "coverage": Coverage(selected=2, failed=1, lab=1)}, 3),
        ({"run_exit_code": 1, "coverage": Coverage(selected=2, failed=1, not_run=1)}, 3),
        ({"run_exit_code": 0, "coverage": Coverage(selected=None, passed=1)}, 3),
        ({"run_exit_code": 1, "coverage": Coverage(selected=1, failed=1)}, 0),
        ({"failed_on": ("new",), "coverage": Coverage(selected=2, failed=1, input=1)}, 1),
    ],
)
def test_it_ends_with_what_is_new(changed: dict[str, Any], code: int) -> None:
    night = a_night(**changed)
    assert (night.exit_code, night.is_worth_a_message) == (code, code != 0)
    assert night.ending.startswith(f"exit code {code}: ") == bool(code)
    lost = night.coverage is not None and night.coverage.lost_code
    assert bool(night.headline) == bool(code and not (night.failed_on or lost))


@pytest.mark.parametrize(
    ("issue", "is_worth_a_message"),
    [
        (an_issue(), False),
        (an_issue(state="closed", closed="s"), True),
        (an_issue(state="closed", closed="s", known_issues=("k",)), False),
        (an_issue(state="closed", closed="a night before"), False),
    ],
)
def test_a_night_in_which_something_was_fixed_is_told(
    issue: Issue, is_worth_a_message: bool
) -> None:
    night = a_night(run_exit_code=0, issues=(issue,))
    assert night.is_worth_a_message is is_worth_a_message


@pytest.mark.parametrize(
    ("here", "fetched"), [("", "e"), ("a", "bcde"), ("ac", "de"), ("e", ""), ("abcde", "")]
)
def test_what_is_newer_than_all_that_is_here_is_fetched(here: str, fetched: str) -> None:
    entries = [CatalogEntry(name, "s", name, "linux-x64", name in here) for name in "abcde"]
    assert "".join(entry.name for entry in new_entries(entries)) == fetched
    assert list(new_entries([])) == []


def test_nights_are_read_the_newest_first_and_each_once(tmp_path: Path, logged: Logged) -> None:
    states = {
        "20261120T010000Z-d-nightly": a_night(night="20261119T010000Z-x-nightly").model_dump_json(),
        "20261121T010000Z-b-nightly": a_night(night="20261121T010000Z-b-nightly").model_dump_json(),
        "20261122T010000Z-c-nightly": '{"kind": "nightly"',
        "20261123T010000Z-a-nightly": a_night(night="20261123T010000Z-a-nightly").model_dump_json(),
    }
    for name, state in states.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / STATE).write_text(state)
    (tmp_path / LATEST).symlink_to("20261121T010000Z-b-nightly")
    assert [night.night[:8] for night in nights(tmp_path)] == ["20261123", "20261121"]
    damaged, of_another_folder = logged.warnings
    assert str(tmp_path / "20261122T010000Z-c-nightly" / STATE) in damaged
    assert str(tmp_path / "20261120T010000Z-d-nightly" / STATE) in of_another_folder


@pytest.mark.parametrize("changed", [{"run": "../r"}, {"base": "/r"}, {"night": ".."}])
def test_no_name_in_a_nights_file_leads_out_of_its_reports(changed: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Night.model_validate_json(a_night().model_copy(update=changed).model_dump_json())


@pytest.mark.parametrize("field", ["since", "folder", "id"])
def test_no_name_of_an_issue_leads_out_of_the_nights_folder(field: str) -> None:
    search = CauseSearch(command=(), case="c", cost_s=1, since="n", folder="f-bisect")
    issue = an_issue(search=search)
    content = json.loads(issue.model_dump_json())
    assert Issue.model_validate(content) == issue
    (content if field == "id" else content["search"])[field] = "../x"
    with pytest.raises(ValidationError):
        Issue.model_validate(content)


def test_one_night_at_a_time_uses_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for reports in (tmp_path / "file", tmp_path / "file/below"):  # no folders
        with pytest.raises(ConfigError), lock_nights(reports):
            pass
    with lock_nights(tmp_path), pytest.raises(ConfigError), lock_nights(tmp_path):
        pass
    with lock_nights(tmp_path):
        pass


def test_a_night_is_compared_with_the_last_one_that_is_over(tmp_path: Path) -> None:
    def run(*more: str, problem: str | None = None) -> RunFolder:
        command = ("pytest", "-m", "device", *more)
        return RunFolder(
            run_folder(tmp_path, attempt("a passed"), command=command, problem=problem)
        )

    of_a_night = ("-o", f"qnn_problem_file={tmp_path}/20261123T010000Z-ab-nightly/{PROBLEM}")
    by_hand = run()
    cut_short = run(*of_a_night, problem="interrupted")
    completed = run(*of_a_night)
    run(*of_a_night)  # its night died, and told nobody
    run()
    new = run(*of_a_night)
    runs = [cut_short.run_id, "20261122T010000Z-cd", None, completed.run_id, by_hand.run_id]
    base = base_of(new, [a_night(run=run) for run in runs])
    assert base.path == completed.path, "of the last that has its whole run"


def test_the_first_night_is_compared_with_what_was_run_before_by_hand(tmp_path: Path) -> None:
    first = RunFolder(run_folder(tmp_path, attempt("a passed")))
    assert base_of(first, []) is None
    second = RunFolder(run_folder(tmp_path, attempt("a failed")))
    base = base_of(second, [])
    assert base.path == first.path
    marker = f"qnn_problem_file=reports/20261123T010000Z-ab-nightly/{PROBLEM}"
    run_folder(tmp_path, attempt("a failed"), command=("pytest", "-m", "device", "-o", marker))
    third = RunFolder(run_folder(tmp_path, attempt("a failed")))
    assert base_of(third, []) is None, "what a night saw that died is still new"


MAY_BE_KNOWN: dict[str, Any] = {
    "fault": "lab",
    "diagnosis": "d",
    "message": "m",
    "flaky": "f",
    "again": "a",
    "closed": "2026-11-23T10:50",
    "hindrance": "h",
    "search": CauseSearch(command=("c",), case="c", cost_s=1, since="n"),
    "example": Example(ran=(), log=(), command=("pytest",)),
}


@given(st.sets(st.sampled_from(sorted(MAY_BE_KNOWN))), st.sampled_from(["open", "closed"]))
def test_what_nobody_knows_is_left_out_of_what_is_told(known: set[str], state: str) -> None:
    unknown = {"message": None, "state": state}
    issue = an_issue(**unknown | {name: MAY_BE_KNOWN[name] for name in known})
    night = a_night(started="2026-11-23T10:50", run="r", issues=(issue,))
    summary_told = night_summary(night)
    causes = (f"{cause.known} {cause.folder}" for cause in summary_told.causes.values())
    for text in (issue_text(issue), *summary_lines(night), *causes):
        assert not re.search(r"\bNone\b", text), text


@pytest.mark.parametrize(
    ("lab", "named"),
    [
        ("/farm/devices.yaml", "devices.yaml"),
        ("/farm-2/devices.yaml", "/farm-2/devices.yaml"),
        ("/etc/lab.yaml", "/etc/lab.yaml"),
    ],
)
def test_a_lab_is_named_as_from_the_folder_of_the_night(lab: str, named: str) -> None:
    assert a_night(folder="/farm", lab=lab).place == {"folder": "/farm", "lab": named}


GONE = {"since": "2026-11-20T01:00:00Z", "why": "it does not answer", "until": "answers"}
SICK = {"since": "2026-11-21T01:00:00Z", "why": "three cases in a row", "until": "healed"}


def row(name: str, **text: Any) -> dict[str, Any]:
    row = {"name": name, "enabled": True, "state": "device", "health": "good", "findings": []}
    return row | {"problem": None, "quarantine": None} | text


@pytest.mark.parametrize(
    ("text", "state", "why"),
    [
        ({}, "good", ""),
        (
            {"health": "suspect", "findings": ["hot has 95.0 C", "full"]},
            "suspect",
            "hot has 95.0 C; full",
        ),
        ({"health": "bad", "findings": ["its battery has 9 %"]}, "bad", "its battery has 9 %"),
        ({"health": "quarantine", "quarantine": SICK}, "quarantine", "three cases in a row"),
        ({"health": "bad", "problem": "device offline"}, "away", "device offline"),
        ({"health": None, "state": "leased"}, "in use", ""),
        ({"health": None, "problem": "no folder"}, "away", "no folder"),
    ],
)
def test_how_a_device_was(text: dict[str, Any], state: str, why: str) -> None:
    (devices,) = read_devices({"devices": [row("a", **text), row("b", enabled=False)]}, (), "now")
    assert (devices.device, devices.state, devices.why) == ("a", state, why)
    assert devices.since == (text["quarantine"]["since"] if text.get("quarantine") else "now")


def test_since_when_it_is_so_is_known_from_the_nights_before() -> None:
    was: dict[str, Any] = {"state": "away", "since": "earlier", "simulated": True}
    before = [DeviceSeen(device=name, **was) for name in "abc"]
    now = [row("a", health=None, problem="x"), row("b"), row("c", problem="y", quarantine=GONE)]
    devices = read_devices({"devices": now}, before, "now")
    assert [device.since for device in devices] == ["earlier", "now", GONE["since"]]
    assert [device.simulated for device in devices] == [True, False, True]
    assert read_devices(None, before, "now") == read_devices([], (), "now") == ()


def test_what_the_lab_lost_is_counted_for_each_device() -> None:
    lost = {"phone-2": "abc", "phone-1": "c", "phone-3": "abcd"}
    records = [
        attempt(f"{name} error", device=device) for device, names in lost.items() for name in names
    ]
    records += [attempt("a passed", device="phone-1"), attempt("d error cause=config")]
    assert [*lost_by_device(records).items()] == [("phone-3", 4), ("phone-2", 3), ("phone-1", 1)]


def test_what_is_told_of_the_lab(snapshot: Snapshot) -> None:
    text = [row("a"), row("b", problem="device offline"), row("c"), row("d", health="suspect")]
    text.append(row("e", simulated=True))
    begin = read_devices({"devices": text}, (), "2026-11-26T22:00:00+00:00")
    later = [row("a"), row("b"), row("c", health="bad", findings=["hot"]), *text[3:]]
    end = read_devices({"devices": later}, begin, "2026-11-27T02:00:00+00:00")
    telling = ((begin, {}), (end, {"b": 5, "c": 1}), ((), {}), ((), {"z": 2}))
    assert [line for devices, lost in telling for line in lab_lines(devices, lost)] == snapshot


def test_which_hosts_were_there_and_since_when_not(snapshot: Snapshot) -> None:
    far, near = {"host": "lab-pc"}, {"host": "bench"}
    missing = {"problem": "no route", "host_lost": True}
    text = [row("a", **far, **missing), row("b", **far, **missing), row("c", **near), row("d")]
    begin = read_devices({"devices": text}, (), "2026-11-26T22:00:00+00:00")
    later = [row("a", **far), row("b", **far), row("c", **near, **missing), row("d")]
    end = read_devices({"devices": later}, begin, "2026-11-27T02:00:00+00:00")
    same = read_devices({"devices": text}, begin, "2026-11-27T02:00:00+00:00")
    assert [line for devices in (begin, end, same) for line in lab_lines(devices, {})] == snapshot


def test_what_one_adb_server_lost_is_one_line_that_names_all_its_devices(
    snapshot: Snapshot,
) -> None:
    refused, silent = "no adb server at pc:5037: refused", "adb server at pc:5037 does not answer"
    dead = {"a": refused, "b": f"it does not answer: {refused}", "c": silent}
    rows = [row(name, problem=why) for name, why in dead.items()]
    rows += [row("d", problem="no adb server at pc:5038: refused"), row("e", problem="offline")]
    begin = read_devices({"devices": rows}, (), "2026-11-26T22:00:00+00:00")
    assert list(lab_lines(begin, {"c": 2, "b": 3, "d": 1})) == snapshot
    back = read_devices({"devices": [row("a"), *rows[1:]]}, begin, "2026-11-27T02:00:00+00:00")
    subjects = [line.partition(": ")[0] for line in lab_lines(back, {})]
    assert subjects == ["Lab", "- `b`, `c`", "- `d`", "- `e`"]


def test_a_headline_names_the_devices_on_which_most_was_lost() -> None:
    lost = {"e": 4, "d": 3, "c": 2, "b": 1, "a": 1}
    assert lost_devices(lost) == ": `e` (4), `d` (3), `c` (2), 2 more"
    assert lost_devices({"a": 1}) == ": `a` (1)"
    assert lost_devices({}) == ""
