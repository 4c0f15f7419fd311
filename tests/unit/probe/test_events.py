"""The probe's events: understood however they arrive, and nothing else ever raises."""

import itertools
import json
import re
import time
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harness.probe.events import MAX_EVENT_BYTES, TranscriptParser
from harness.probe.transcript import EARLIER_FAILED, MAX_KEPT, Accepted, Done, Transcript
from tests.snapshots import Snapshot
from tests.stand_in.events import event_line, event_lines, parse_transcript

START = {"event": "start", "probe": 1, "source": "ab", "pid": 7, "target": "linux-x64"}
PLAN = {"event": "plan", "steps": 1, "plan_crc": 5, "boot_us": 77}
LOAD = {"event": "begin", "step": 0, "verb": "context-load", "api": "Load", "context": 3}
REFUSED = {"event": "end", "step": 0, "code": 1002, "symbol": "QNN_X", "message": "m"}
DONE = {"event": "done", "steps": 1, "failed": 0, "elapsed_us": 99}
FIGURES = {"duration_us": 5, "rss_before_bytes": 1, "rss_after_bytes": 2, "pss_after_bytes": 3}


def line(*events: dict[str, Any], first: int = 0) -> bytes:
    return event_lines(events, first)


def log(step: int | None, text: str = "text") -> dict[str, object]:
    return {"event": "log", "step": step, "level": "error", "t_us": 4, "text": text}


WHOLE = line(
    START,
    PLAN,
    {"event": "begin", "step": 0, "verb": "context-load", "context": 0, "file": "/a", "api": "A"},
    log(0, "<E> \u00fc"),
    {"event": "end", "step": 0, "code": 0, "data": {"size": 3}} | FIGURES,
    {"event": "begin", "step": 1, "verb": "execute", "context": 0, "api": "B"},
    {"event": "call", "step": 1, "api": "C"},
    log(None),
    {"event": "answer", "step": 1, "code": 6004},
    {"event": "end", "step": 1, "code": 6004, "symbol": "S", "message": "M", "log_dropped": 2},
    {"event": "skip", "step": 2, "verb": "noop", "reason": EARLIER_FAILED},
    {"event": "done", "steps": 3, "failed": 1, "log_dropped": 2, "elapsed_us": 77},
)


def test_a_whole_transcript() -> None:
    transcript = parse_transcript(WHOLE)
    first, second, third = transcript.steps
    assert transcript.start is not None
    assert (transcript.start.pid, transcript.start.target) == (7, "linux-x64")
    assert transcript.accepted == Accepted(checksum=5, steps=1, boot_us=77)
    assert transcript.finished == Done(steps=3, failed=1)
    assert (first.verb, first.context, first.file, first.ok) == ("context-load", 0, "/a", True)
    assert (first.duration_us, first.rss_after_bytes, first.pss_before_bytes) == (5, 2, None)
    assert [entry.text for entry in first.logs] == ["<E> \u00fc"]
    assert (second.api, second.code, second.symbol, second.message) == ("C", 6004, "S", "M")
    assert third.skipped == EARLIER_FAILED
    assert not third.failed
    assert (transcript.done, transcript.elapsed_us) == (True, 77)
    assert transcript.first_failure is second
    assert transcript.last_begun is second
    assert transcript.malformed_count == 0
    assert not transcript.cut_off
    assert not transcript.unread


def test_a_crash_names_the_step_and_the_call_under_way() -> None:
    transcript = parse_transcript(WHOLE[: WHOLE.index(b'\x1e{"event": "answer"')])
    step = transcript.first_failure
    assert step is not None
    assert (step.step, step.api, step.unfinished, step.code) == (1, "C", True, None)
    assert not transcript.done


def test_a_step_that_had_nothing_to_do_began_and_was_skipped() -> None:
    skip = {"event": "skip", "step": 0, "verb": "context-load", "reason": "nothing to free"}
    (step,) = parse_transcript(line(START, LOAD, skip)).steps
    assert (step.begun, step.unfinished, step.failed) == (True, False, False)


def test_a_deadline_and_a_refused_plan() -> None:
    late = parse_transcript(line(START, LOAD, {"event": "deadline", "step": 0, "t_us": 5}))
    assert (late.deadline, late.elapsed_us, late.done) == (True, 5, False)
    refused = parse_transcript(line(START, {"event": "plan-error", "line": 3, "message": "no x"}))
    assert (refused.plan_error, refused.plan_damaged) == ("line 3: no x", False)
    damaged = {"event": "plan-error", "line": 0, "message": "cut", "damaged": True}
    assert parse_transcript(line(START, damaged)).plan_damaged


def test_a_failure_of_the_probe_itself_has_no_code() -> None:
    end = {"event": "end", "step": 0, "code": None, "error": "file", "message": "cannot open /x"}
    (step,) = parse_transcript(line(START, LOAD, end)).steps
    assert (step.code, step.error, step.failed) == (None, "file", True)
    (step,) = parse_transcript(line(START, LOAD, end | {"code": 0, "error": "mismatch"})).steps
    assert (step.code, step.ok, step.failed) == (0, False, True)


STRAYS: tuple[bytes, ...] = (
    b"\x1e\n",
    b'\x1e{"event":"done","n":2}\n',
    event_line(b'{"event":"done","n":2').replace(b"done", b"dune"),
    b'\x1e{"event":"don' + line(LOAD, first=2),
    line(LOAD, first=2)[:-1] + b"\x1e{\n",
    line(LOAD, first=2).replace(b"\x1e", b"\x1f"),
    event_line(b"{]"),
    event_line(b'{"event":"done"\xff'),
    event_line(b'{"event":"done","elapsed_us":NaN'),
    event_line(b"[" * 100_000),
    event_line(b'{"event":"done","elapsed_us":' + b"9" * 5000),
    event_line(b'{"event":"done"'),
)
"""A line between good ones, as it comes."""
WRONG: tuple[dict[str, Any], ...] = (
    {},
    {"event": ["done"]},
    {"event": "dance"},
    *({"event": "done", "elapsed_us": wrong} for wrong in ("7", 2**63)),
    {"event": "begin", "step": 1},
    {"event": "begin", "verb": "noop"},
    {"event": "begin", "step": 1, "verb": "noop"},
    {"event": "end", "step": 9, "code": 0},
    {"event": "call", "step": 9, "api": "x"},
    START,
    PLAN,
    LOAD,
    {"event": "end", "step": 0},
    {"event": "end", "step": 0, "code": 0, "data": []},
    log(0) | {"text": None},
)


def test_what_only_looks_like_an_event(snapshot: Snapshot) -> None:
    reasons = []
    for place, stray in enumerate([*STRAYS, *(line(event, first=3) for event in WRONG)]):
        before = line(START, PLAN, LOAD)
        after = line(REFUSED, DONE, first=3 + (place >= len(STRAYS)))
        transcript = parse_transcript(before + stray + after)
        assert transcript.malformed_count >= 1
        assert transcript.done
        (step,) = transcript.steps
        assert step.code == 1002
        assert len(transcript.malformed[0].excerpt) <= 400
        reasons.append(transcript.malformed[0].reason.partition(": ")[0])
    assert reasons == snapshot


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_byte_that_changed_is_noticed(place: int, flip: int) -> None:
    changed = bytearray(WHOLE)
    changed[place] ^= flip
    assert parse_transcript(bytes(changed)).malformed_count > 0


def test_a_second_end_changes_nothing() -> None:
    again = {"event": "end", "step": 0, "code": 0}
    transcript = parse_transcript(line(START, LOAD, REFUSED, again))
    assert (transcript.steps[0].code, transcript.malformed_count) == (1002, 1)


def test_text_that_no_file_could_hold_is_made_holdable() -> None:
    transcript = parse_transcript(line(START, LOAD, log(0, "half \ud800")))
    assert transcript.steps[0].logs[0].text == "half ?"


NOISE = st.binary(max_size=40).map(lambda data: data.replace(b"\x1e", b"."))


@given(st.data())
def test_it_does_not_matter_how_the_stream_is_cut(data: st.DataObject) -> None:
    noise = data.draw(NOISE)
    stream = noise + WHOLE + noise
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    parser = TranscriptParser()
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        parser.feed(stream[begin:end])
    assert asdict(parser.close()) == asdict(parse_transcript(stream))


@given(st.integers(0, len(WHOLE)))
def test_a_stream_cut_off_gives_what_came_before(length: int) -> None:
    transcript, whole = parse_transcript(WHOLE[:length]), parse_transcript(WHOLE)
    assert [step.verb for step in whole.steps][: len(transcript.steps)] == [
        step.verb for step in transcript.steps
    ]
    # without its last line end, an event that is whole has lost it
    lost = length < len(WHOLE) and WHOLE[length : length + 1] == b"\n"
    assert transcript.malformed_count == lost
    assert transcript.cut_off == (length > 0 and WHOLE[length - 1 : length] != b"\n")


@given(st.lists(st.one_of(st.binary(), st.just(b"\x1e"), st.just(b"\n"), st.just(WHOLE[:90]))))
def test_anything_at_all_is_taken(pieces: list[bytes]) -> None:
    parser = TranscriptParser()
    for piece in pieces:
        parser.feed(piece)
    assert isinstance(parser.close(), Transcript)


ANY_JSON = (None, True, -1, 1, 1.5, 2**63, "", "text", [], [1], {}, {"step": 0})
KEYS = ("event", "step", "verb", "api", "context", "code", "error", "text", "level", "data")


@pytest.mark.parametrize("key", [*KEYS, "reason", "message", "symbol", "file", "duration_us"])
def test_events_with_any_values_are_taken_or_malformed(key: str) -> None:
    events = [json.loads(text) for text in re.findall(r"\{.*\}", WHOLE.decode())]
    for place, value in itertools.product(range(len(events)), ANY_JSON):
        changed = [*events[:place], events[place] | {key: value}, *events[place + 1 :]]
        for step in parse_transcript(line(*changed)).steps:
            assert type(step.step) is int
            assert type(step.verb) is str
            assert step.code is None or type(step.code) is int
            assert step.context is None or type(step.context) is int


def test_what_is_kept_is_bounded() -> None:
    parser = TranscriptParser()
    parser.feed(b"noise\n\x1ebad\n" * 100_000)
    for _ in range(200):
        parser.feed(b"x" * (1 << 16))
    parser.feed(b"\n")
    parser.feed(b"\x1e" + b"y" * (MAX_EVENT_BYTES + 1))
    parser.feed(b"y" * MAX_EVENT_BYTES + b"\n" + WHOLE)
    transcript = parser.close()
    assert transcript.malformed_count == 100_001
    assert len(transcript.malformed) == MAX_KEPT
    assert transcript.done
    assert len(transcript.steps) == 3


def test_short_lines_without_end_cost_little() -> None:
    parser = TranscriptParser()
    parser.feed(b"\x1e" + b'{"event":"nonsense"}\nbegun')
    start = time.monotonic()
    for _ in range(1024):
        parser.feed(b"y\n" * (32 << 10))
    parser.feed(b"almost\nthe end")
    assert time.monotonic() - start < 60
    assert parser.close().malformed_count == 1


def test_libraries_of_a_failure() -> None:
    event = {"event": "library", "name": "libQnnHtp.so", "path": "/vendor/libQnnHtp.so"}
    more = event | {"build_id": "ab", "version": "2.28.2", "hides": "/ours/" + "x" * 2000}
    transcript = parse_transcript(line(event, more))
    first, second = transcript.libraries
    assert (first.name, first.path, first.hides) == ("libQnnHtp.so", "/vendor/libQnnHtp.so", None)
    assert (second.build_id, second.version) == ("ab", "2.28.2")
    assert len(second.hides or "") == 1000
    for wrong in (event | {"name": None}, event | {"path": 7}, event | {"hides": []}):
        transcript = parse_transcript(line(wrong))
        assert (transcript.libraries, transcript.malformed_count) == ([], 1)
    assert len(parse_transcript(line(*[event] * 40)).libraries) == 32
