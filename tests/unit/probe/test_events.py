"""The probe's events: understood however they arrive, and nothing else ever raises."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.probe.events import (
    MAX_EVENT_BYTES,
    Transcript,
    TranscriptParser,
    parse_transcript,
)
from harness.probe.transcript import MAX_KEPT

START = {"event": "start", "probe": 1, "source": "ab", "pid": 7, "target": "linux-x64"}
LOAD = {"event": "begin", "step": 0, "verb": "context-load", "api": "Load", "context": 3}
REFUSED = {"event": "end", "step": 0, "code": 1002, "symbol": "QNN_X", "message": "m"}
DONE = {"event": "done", "steps": 1, "failed": 0, "elapsed_us": 99}
FIGURES = {"duration_us": 5, "rss_before_bytes": 1, "rss_after_bytes": 2, "pss_after_bytes": 3}


def line(*events: object) -> bytes:
    return b"".join(b"\x1e" + json.dumps(event).encode() + b"\n" for event in events)


def log(step: int | None, text: str = "text") -> dict[str, object]:
    return {"event": "log", "step": step, "level": "error", "t_us": 4, "text": text}


WHOLE = line(
    START,
    {"event": "begin", "step": 0, "verb": "context-load", "context": 0, "file": "/a", "api": "A"},
    log(0, "<E> \u00fc"),
    {"event": "end", "step": 0, "code": 0, "data": {"size": 3}} | FIGURES,
    {"event": "begin", "step": 1, "verb": "execute", "context": 0, "api": "B"},
    {"event": "call", "step": 1, "api": "C"},
    log(None),
    {"event": "answer", "step": 1, "code": 6004},
    {"event": "end", "step": 1, "code": 6004, "symbol": "S", "message": "M", "log_dropped": 2},
    {"event": "skip", "step": 2, "verb": "noop", "reason": "an earlier step failed"},
    {"event": "done", "steps": 3, "failed": 1, "log_dropped": 2, "elapsed_us": 77},
)


def test_a_whole_transcript() -> None:
    transcript = parse_transcript(WHOLE)
    first, second, third = transcript.steps
    assert transcript.start is not None
    assert (transcript.start.pid, transcript.start.target) == (7, "linux-x64")
    assert (first.verb, first.context, first.file, first.ok) == ("context-load", 0, "/a", True)
    assert (first.duration_us, first.rss_after_bytes, first.pss_before_bytes) == (5, 2, None)
    assert [entry.text for entry in first.logs] == ["<E> \u00fc"]
    assert (second.api, second.code, second.symbol, second.message) == ("C", 6004, "S", "M")
    assert second.log_dropped == 2
    assert third.skipped == "an earlier step failed"
    assert not third.failed
    assert len(transcript.logs) == 1
    assert (transcript.done, transcript.elapsed_us, transcript.log_dropped) == (True, 77, 2)
    assert transcript.first_failure is second
    assert transcript.last_begun is second
    assert transcript.malformed_count == transcript.noise.byte_count == 0


def test_a_crash_names_the_step_and_the_call_under_way() -> None:
    transcript = parse_transcript(WHOLE[: WHOLE.index(b'\x1e{"event": "answer"')])
    step = transcript.first_failure
    assert step is not None
    assert (step.step, step.api, step.unfinished, step.code) == (1, "C", True, None)
    assert not transcript.done


def test_a_crash_while_asking_what_a_code_means_keeps_the_code() -> None:
    transcript = parse_transcript(line(START, LOAD, {"event": "answer", "step": 0, "code": 1002}))
    step = transcript.first_failure
    assert step is not None
    assert (step.unfinished, step.code) == (True, 1002)


def test_a_step_that_had_nothing_to_do_began_and_was_skipped() -> None:
    skip = {"event": "skip", "step": 0, "verb": "context-load", "reason": "nothing to free"}
    (step,) = parse_transcript(line(START, LOAD, skip)).steps
    assert (step.begun, step.unfinished, step.failed) == (True, False, False)


def test_a_deadline_and_a_refused_plan() -> None:
    late = parse_transcript(line(START, LOAD, {"event": "deadline", "step": 0, "t_us": 5}))
    assert (late.deadline, late.elapsed_us, late.done) == (True, 5, False)
    refused = parse_transcript(line(START, {"event": "plan-error", "line": 3, "message": "no x"}))
    assert refused.plan_error == "line 3: no x"


def test_a_failure_of_the_probe_itself_has_no_code() -> None:
    end = {"event": "end", "step": 0, "code": None, "error": "file", "message": "cannot open /x"}
    (step,) = parse_transcript(line(START, LOAD, end)).steps
    assert (step.code, step.error, step.failed) == (None, "file", True)


@pytest.mark.parametrize(
    ("stray", "reason"),
    [
        (b"\x1e\n", "not JSON"),
        (b"\x1e{]\n", "not JSON"),
        (b'\x1e{"event":"done"}\xff\n', "not JSON"),
        (b'\x1e{"event":"done","elapsed_us":NaN}\n', "not JSON"),
        (b"\x1e" + b"[" * 100_000 + b"\n", "not JSON"),
        (b'\x1e{"event":"done","elapsed_us":' + b"9" * 5000 + b"}\n", "not JSON"),
        (b"\x1e[]\n", "not an object"),
        (b"\x1e7\n", "not an object"),
        (b"\x1e{}\n", "unknown event"),
        (b'\x1e{"event":["done"]}\n', "unknown event"),
        (b'\x1e{"event":"dance"}\n', "unknown event"),
        (line({"event": "done", "elapsed_us": "7"}), "elapsed_us is not a number"),
        (line({"event": "done", "elapsed_us": -1}), "elapsed_us is not a number"),
        (line({"event": "done", "elapsed_us": 1.5}), "elapsed_us is not a number"),
        (line({"event": "done", "elapsed_us": 2**70}), "elapsed_us is not a number"),
        (line({"event": "done", "elapsed_us": True}), "elapsed_us is not a number"),
        (line({"event": "begin", "step": 1}), "verb is not text"),
        (line({"event": "begin", "verb": "noop"}), "step is not a number"),
        (line({"event": "end", "step": 9, "code": 0}), "a step that did not begin"),
        (line({"event": "call", "step": 9, "api": "x"}), "a step that did not begin"),
        (line(START), "a second start"),
        (line(LOAD), "a step that began already"),
        (line({"event": "end", "step": 0}), "neither code nor error"),
        (line({"event": "end", "step": 0, "code": 0, "data": []}), "data is not an object"),
        (line(log(0) | {"text": None}), "text is not text"),
        (b'\x1e{"event":"don' + line({"event": "call", "step": 0, "api": "x"}), "cut off"),
    ],
)
def test_what_only_looks_like_an_event(stray: bytes, reason: str) -> None:
    transcript = parse_transcript(line(START, LOAD) + stray + line(REFUSED, DONE))
    assert [entry.reason for entry in transcript.malformed] == [reason]
    assert transcript.malformed_count == 1
    assert transcript.done
    (step,) = transcript.steps
    assert step.code == 1002
    assert len(transcript.malformed[0].excerpt) <= 400


def test_a_second_end_changes_nothing() -> None:
    again = {"event": "end", "step": 0, "code": 0}
    transcript = parse_transcript(line(START, LOAD, REFUSED, again))
    assert transcript.steps[0].code == 1002
    assert [entry.reason for entry in transcript.malformed] == ["a step that is over"]


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


@given(st.lists(NOISE, min_size=11, max_size=11), st.booleans())
def test_noise_between_events_changes_nothing(noise: list[bytes], own_line: bool) -> None:
    pieces = [piece + b"\n" * own_line for piece in noise]
    events = WHOLE.splitlines(keepends=True)
    stream = b"".join(part for pair in zip(pieces, events, strict=True) for part in pair)
    transcript, quiet = parse_transcript(stream), parse_transcript(WHOLE)
    assert transcript.noise.byte_count == sum(map(len, pieces))
    assert without_noise(transcript) == without_noise(quiet)


@given(st.integers(0, len(WHOLE)))
def test_a_stream_cut_off_gives_what_came_before(length: int) -> None:
    transcript, whole = parse_transcript(WHOLE[:length]), parse_transcript(WHOLE)
    assert [step.verb for step in whole.steps][: len(transcript.steps)] == [
        step.verb for step in transcript.steps
    ]
    assert transcript.malformed_count <= 1


@given(st.lists(st.one_of(st.binary(), st.just(b"\x1e"), st.just(b"\n"), st.just(WHOLE[:90]))))
def test_anything_at_all_is_taken(pieces: list[bytes]) -> None:
    parser = TranscriptParser()
    for piece in pieces:
        parser.feed(piece)
    assert isinstance(parser.close(), Transcript)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
KEYS = ("step", "verb", "api", "context", "code", "error", "text", "level", "data", "reason")


@given(
    st.lists(
        st.fixed_dictionaries(
            {"event": st.sampled_from(["begin", "call", "answer", "log", "end", "skip", "start"])},
            optional={key: JSON | st.integers(0, 3) for key in KEYS},
        ),
        max_size=8,
    )
)
def test_events_with_any_values_are_taken_or_malformed(events: list[dict[str, object]]) -> None:
    transcript = parse_transcript(b"".join(map(line, events)))
    for step in transcript.steps:
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
    assert len(transcript.malformed) == len(transcript.noise.lines) == MAX_KEPT
    assert transcript.noise.byte_count > 200 << 16
    assert transcript.done
    assert len(transcript.steps) == 3


def test_a_large_case_is_parsed_in_no_time() -> None:
    stream = line(START)
    for number in range(66 * 4):
        begin = {"event": "begin", "step": number, "verb": "execute", "context": 1, "api": "E"}
        end = {"event": "end", "step": number, "code": 0, "data": {"run_us": [1]}} | FIGURES
        stream += line(begin, log(number), end)
    began = time.perf_counter()
    transcript = parse_transcript(stream)
    elapsed = time.perf_counter() - began
    assert len(transcript.steps) == 66 * 4
    assert elapsed < 0.1, f"{elapsed * 1000:.1f} ms"


def test_short_lines_without_end_cost_little() -> None:
    parser = TranscriptParser()
    parser.feed(b"\x1e" + b'{"event":"nonsense"}\nbegun')
    began = time.monotonic()
    for _ in range(1024):
        parser.feed(b"y\n" * (32 << 10))
    parser.feed(b"almost\nthe end")
    assert time.monotonic() - began < 5
    noise = parser.close().noise
    assert noise.byte_count == (64 << 20) + len("begunalmost\nthe end")
    assert list(noise.lines)[-3:] == [b"y", b"almost", b"the end"]
    assert len(noise.lines) == MAX_KEPT


def without_noise(transcript: Transcript) -> dict[str, object]:
    return {key: value for key, value in asdict(transcript).items() if key != "noise"}


def test_threads_of_a_hang() -> None:
    threads = [{"tid": 7, "name": "x", "state": "R", "cpu_ticks": 3}, {"tid": 8, "wchan": "0"}]
    text = json.dumps({"event": "threads", "threads": threads, "count": 2})
    transcript = parse_transcript(b"\x1e" + text.encode() + b"\n")
    assert [(t.tid, t.name, t.cpu_ticks, t.wchan) for t in transcript.threads] == [
        (7, "x", 3, None),
        (8, None, None, "0"),
    ]
    for wrong in (None, {}, [1], [{"tid": "7"}], [{"tid": 7, "name": 8}]):
        text = json.dumps({"event": "threads", "threads": wrong})
        transcript = parse_transcript(b"\x1e" + text.encode() + b"\n")
        assert (transcript.threads, transcript.malformed_count) == ([], 1)
