"""Facts of a cause: devices, since when, and changes, on one line."""

from pathlib import Path
from typing import Any

from harness.history.attempts import Attempt, cause_id
from harness.history.database import Database, open_database
from harness.history.importing import import_run, list_runs
from harness.history.run_changes import facts_lookup, list_causes
from harness.history.timeline import MARKS, CauseFacts, DeviceResult, facts_line
from harness.report.document import Paragraph, Span, as_markdown, as_text, html
from harness.results.record import CaseRecord
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, run_folder

FAILED = "a failed"
SINCE = {"since": "2026-11-02T22:00", "since_run": "r"}


def on(device: str, soc: str | None, words: str, **changed: Any) -> CaseRecord:
    """An attempt at a case of a device of this SoC; cases of all devices are one test."""
    test = f"suites/test_a.py::test_b[{words.split()[0].partition('@')[0]}]"
    record = attempt(words, device=device, test=test, **changed)
    return record.model_copy(update={"device": record.device.model_copy(update={"soc": soc})})


def import_nights(folder: Path, *nights: list[CaseRecord]) -> Database:
    database = open_database(str(folder / "history.sqlite"))
    for day, records in enumerate(nights, start=1):
        run_id = f"202611{day:02}T220000Z-{day:016x}"
        import_run(database, run_folder(folder, *records, run_id=run_id))
    return database


def results(facts: CauseFacts) -> dict[str, str]:
    return {device.device: device.result for device in facts.devices}


def all_facts(database: Database, most_runs: int = MARKS) -> dict[str, CauseFacts]:
    facts_of = facts_lookup(database, most_runs)
    causes = [cause.cause for cause in list_causes(database, list_runs(database))]
    return {cause: facts for cause in causes if (facts := facts_of(cause))}


def facts_after(folder: Path, *nights: list[CaseRecord], words: str = FAILED) -> CauseFacts:
    """The facts of the cause of an attempt."""
    return all_facts(import_nights(folder, *nights))[cause_id(Attempt.of(attempt(words)))]


def test_a_device_that_fails_as_known_or_otherwise_does_not_pass(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    before = [on("p1", "S1", "a@1.0 passed"), on("p2", "S1", "a@1.0 passed")]
    after = [
        on("p1", "S1", "a@2.0 failed"),
        on("p2", "S1", "a@2.0 passed"),
        on("q1", "S2", "a@2.0 failed known=k"),
        on("q2", "S2", "a@2.0 failed message=other"),
        on("r1", "S3", "a@2.0 error"),
        on("r2", "S3", "other@2.0 passed"),
    ]
    facts = facts_after(tmp_path, before, after)
    assert results(facts) == {
        "p1": "affected",
        "p2": "passes",
        "q1": "affected",
        "q2": "fails differently",
    }
    assert (facts.shows, facts.since_run) == ("fails", "20261102T220000Z-0000000000000002")
    assert facts.versions_changed == "qnn 1.0 to 2.0"
    snapshot.hide(facts.since[:10], "DAY")
    assert as_text(facts_line(facts)) == snapshot


def test_only_the_last_run_that_had_it_says_where_and_an_earlier_one_since_when(
    tmp_path: Path,
) -> None:
    passes, fails = [on("p1", "S", "a passed")], [on("p1", "S", "a failed")]
    away = [on("p2", "S", "a passed")]
    facts = facts_after(tmp_path, passes, [*fails, *away], fails, away)
    assert results(facts) == {"p1": "affected"}
    assert facts.since_run == "20261102T220000Z-0000000000000002"
    assert facts.versions_changed == ""


def test_since_when_is_looked_for_before_the_runs_that_are_read(tmp_path: Path) -> None:
    # another cause of a case that failed has a beginning of its own
    nights = ["a@1.0 passed", "a@2.0 failed message=old", *["a@3.0 failed"] * 4]
    database = import_nights(tmp_path, *([on("p", "S", words)] for words in nights))
    cause = cause_id(Attempt.of(attempt(FAILED)))
    for runs in (2, 6):
        facts = all_facts(database, runs)[cause]
        assert facts.since_run == "20261103T220000Z-0000000000000003"
        assert facts.versions_changed == "qnn 2.0 to 3.0"
    assert all_facts(open_database(str(tmp_path / "new.sqlite"))) == {}


def test_nothing_changed_before_the_first_run_of_a_case(tmp_path: Path, snapshot: Snapshot) -> None:
    night = [on("p", None, "a failed")]
    facts = facts_after(tmp_path, night, night)
    assert (facts.since_run, facts.versions_changed) == ("20261101T220000Z-0000000000000001", None)
    snapshot.hide(facts.since[:10], "DAY")
    assert as_text(facts_line(facts)) == snapshot
    (again,) = all_facts(open_database(str(tmp_path / "history.sqlite")), most_runs=1).values()
    assert again == facts


def test_versions_that_run_side_by_side_tell_with_which_it_fails(tmp_path: Path) -> None:
    night = [on("p", "S", "a@1.0 passed"), on("p", "S", "a@2.0 failed")]
    facts = facts_after(tmp_path, night, night)
    assert facts.only_with == ("qnn 2.0",)


def test_what_is_flaky_or_lost_says_so(tmp_path: Path, snapshot: Snapshot) -> None:
    flaky = [[on("p", "S", f"a {end}")] for end in ("passed", "failed", "passed", "failed")]
    assert facts_after(tmp_path, *flaky).shows == "flaky"
    (tmp_path / "lost").mkdir()
    nights = [on("p", "S", "a error"), on("q", "S", "a passed")]
    (lost,) = all_facts(import_nights(tmp_path / "lost", nights)).values()
    assert results(lost) == {"p": "affected", "q": "passes"}
    snapshot.hide(lost.since[:10], "DAY")
    assert as_text(facts_line(lost)) == snapshot


def several(number: int, soc: str, result: Any = "affected") -> tuple[DeviceResult, ...]:
    return tuple(
        DeviceResult(device=f"{soc}-{index}", soc=soc, result=result) for index in range(number)
    )


def test_a_line_names_a_few_of_many_and_never_says_that_there_is_one_more(
    snapshot: Snapshot,
) -> None:
    kinds = tuple(device for soc in "ABCDEF" for device in several(1, soc))
    facts = [
        CauseFacts(shows="fails", devices=devices, **SINCE)
        for devices in (several(6, "S"), several(7, "S"), kinds)
    ]
    assert [as_text(facts_line(shown)).partition(";")[0] for shown in facts] == snapshot


def test_what_others_named_is_code_and_a_page_leads_to_devices_and_nights() -> None:
    devices = (DeviceResult(device="<b>@p", soc="S", result="affected"),)
    facts = CauseFacts(shows="fails", devices=devices, **SINCE)
    changed = facts.model_copy(update={"files_changed": ("models/@a.onnx",)})
    text = as_markdown(facts_line(changed))
    assert all(f"`{name}`" in text for name in ("S", "<b>@p", "models/@a.onnx"))

    def link(kind: str, name: str, text: str = "", style: Any = "plain") -> Span:
        return Span(text or name, link=f"{kind}/{len(name)}", style=style)

    page = html([Paragraph(facts_line(changed, link))])
    assert '<a href="device/5"><code>&lt;b&gt;@p</code></a>' in page
    assert '<a href="night/1">2026-11-02</a>' in page
