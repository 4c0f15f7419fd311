"""Progress is reported to those who follow it, and to nobody else."""

from __future__ import annotations

from collections.abc import Mapping

from harness.core.notices import followed, followed_by, progress_reporter, report_progress


def test_who_follows_hears_it_and_only_as_long() -> None:
    heard: list[tuple[str, Mapping[str, object]]] = []
    before = followed()
    report_progress("phone", case="a")
    with followed_by(lambda device, facts: heard.append((device, facts))):
        assert followed()
        with progress_reporter("phone") as report:
            report("pushing", 1, 2, "MB")
    report_progress("phone", case="b")
    assert followed() == before
    facts = {"doing": "pushing", "done": 1, "total": 2, "unit": "MB"}
    assert heard == [("phone", facts), ("phone", dict.fromkeys(facts))]
