"""The proof that a plan was carried out, and transcripts that are none."""

from typing import Any
from zlib import crc32

from harness.probe.plan import Plan, Step
from harness.probe.transcript import misfit
from tests.snapshots import Snapshot
from tests.stand_in.events import event_lines, parse_transcript

PLAN = Plan((Step("noop"), Step("sleep", {"ms": "1"}), Step("cleanup"), Step("log-free")))
BODY = PLAN.text().partition("\n")[2]
Event = dict[str, Any]


def begin(step: int, verb: str) -> Event:
    return {"event": "begin", "step": step, "verb": verb}


def end(step: int, code: int = 0) -> Event:
    return {"event": "end", "step": step, "code": code}


def skip(step: int, verb: str, reason: str) -> Event:
    return {"event": "skip", "step": step, "verb": verb, "reason": reason}


START: Event = {"event": "start", "source": "x", "pid": 1, "target": "linux-x64"}
HAD: Event = {"event": "plan", "steps": 4, "plan_crc": crc32(BODY.encode()), "boot_us": 1}
DONE: Event = {"event": "done", "steps": 4, "failed": 0}
FIRST, SECOND = [begin(0, "noop"), end(0)], [begin(1, "sleep"), end(1)]
CLEANUP = skip(2, "cleanup", "marker")
FREE = [begin(3, "log-free"), skip(3, "log-free", "there is nothing to free")]
EARLIER = "an earlier step failed"


def find_misfit(*events: Event) -> str | None:
    return misfit(parse_transcript(event_lines(events)), PLAN)


def test_a_plan_that_was_carried_out_or_failed() -> None:
    assert find_misfit(START, HAD, *FIRST, *SECOND, CLEANUP, *FREE, DONE) is None
    failed = begin(0, "noop"), end(0, 1002), skip(1, "sleep", EARLIER)
    assert find_misfit(START, HAD, *failed, CLEANUP, *FREE, DONE | {"failed": 1}) is None


END = (CLEANUP, *FREE, DONE)
UNFIT: tuple[tuple[Event, ...], ...] = (
    (),
    (HAD, *FIRST, *SECOND, *END),
    (START, *FIRST, *SECOND, *END),
    (START, HAD, *FIRST, *SECOND, CLEANUP, *FREE),
    (START, HAD, DONE),
    (START, HAD, *FIRST, *END),
    (START, HAD | {"plan_crc": 1}, *FIRST, DONE),
    (START, HAD | {"steps": 5}, *FIRST, DONE),
    (START, HAD, *SECOND, *FIRST, *END),
    (START, HAD, begin(0, "hang"), end(0), *SECOND, *END),
    (START, HAD, *FIRST, *SECOND, CLEANUP, begin(3, "log-free"), DONE),
    (START, HAD, *FIRST, skip(1, "sleep", EARLIER), *END),
    (START, HAD, *FIRST, *SECOND, CLEANUP, *FREE, DONE | {"failed": 1}),
    (START, HAD, *FIRST, *SECOND, CLEANUP, *FREE, DONE | {"steps": 9}),
    (START, HAD, *FIRST, *FIRST, *SECOND, *END),
    (START, HAD, begin(0, "noop"), *SECOND, *END),
    (START, HAD, begin(0, "noop"), end(0, 7), *SECOND, *END),
)


def test_what_does_not_bear_it_out(snapshot: Snapshot) -> None:
    problems = [find_misfit(*events) for events in UNFIT]
    assert all(problems)
    assert problems == snapshot


def test_more_steps_than_the_plan_has() -> None:
    many = [event for number in range(700) for event in (begin(number, "noop"), end(number))]
    short = Plan((Step("noop"),))
    body = short.text().partition("\n")[2]
    header = HAD | {"steps": 1, "plan_crc": crc32(body.encode())}
    transcript = parse_transcript(event_lines([START, header, *many, DONE | {"steps": 1}]))
    assert "700 of 1" in (misfit(transcript, short) or "")
