"""Parser of the probe's output: events in a byte stream, collected in a transcript.

Pure, and never raises: the stream comes from a device and may hold anything. An event is one line
that starts with the byte 0x1e; it is numbered and ends with the CRC-32 of the text before that.
Other output is noise and ignored. An event that was lost, repeated or changed on its way is counted
as malformed.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final
from zlib import crc32

from harness.core.bounded_json import JsonError, parse_json, without_depths
from harness.core.outgoing_text import (
    UnfinishedKey,
    log_without_secrets,
    may_have_secrets,
    without_secrets_in,
)
from harness.probe.plan import LIMITS
from harness.probe.transcript import (
    MAX_KEPT,
    Accepted,
    Done,
    LoadedLibrary,
    LogLine,
    Malformed,
    Start,
    StepResult,
    Transcript,
)

MARK: Final = b"\x1e"
SEAL: Final = b',"crc":"%08x"}'
"""End of an event: the checksum of all before it, without the mark."""

_SEALED: Final = re.compile(rb',"crc":"([0-9a-f]{8})"\}')
_SEAL_BYTES: Final = len(SEAL % 0)
MAX_EVENT_BYTES: Final = 4 << 20
MAX_LIBRARIES: Final = 32
MAX_LIBRARY_CHARS: Final = 1000
MAX_LOG_LINES: Final = 50_000
MAX_EXCERPT_BYTES: Final = 400
_UNREAD_PART: Final = 8
"""If the output was unread for more than this part of the time, that may have blocked the probe."""

Event = dict[str, Any]


class _WrongError(Exception):
    """An event does not have the form that its kind demands."""


def kept_events(stream: bytes) -> bytes:
    """Return a stream without secrets. An event that had one gets a new checksum (pure)."""
    if not may_have_secrets(stream):
        return stream
    of_events, of_noise = UnfinishedKey(), UnfinishedKey()
    return b"\n".join(
        _safe_line(line, of_events, of_noise)
        if MARK in line
        else log_without_secrets(line, of_noise)
        for line in stream.split(b"\n")
    )


def _safe_line(line: bytes, of_events: UnfinishedKey, of_noise: UnfinishedKey) -> bytes:
    before, mark, event = line.rpartition(MARK)
    content, seal = event[:-_SEAL_BYTES], event[-_SEAL_BYTES:]
    match = _SEALED.fullmatch(seal)
    if len(event) > MAX_EVENT_BYTES or match is None or int(match[1], 16) != crc32(content):
        return log_without_secrets(line, of_noise)
    try:
        parsed = _parsed(content)
    except ValueError:
        return log_without_secrets(line, of_noise)
    safe = _safe(parsed, of_events)
    if safe != parsed or log_without_secrets(content) != content:
        content = json.dumps(safe, separators=(",", ":")).encode()[:-1]
    return log_without_secrets(before, of_noise) + mark + content + SEAL % crc32(content)


def _safe(event: Event, key: UnfinishedKey) -> Event:
    safe: Event = without_secrets_in(event)
    for name in ("text", "message"):
        if isinstance(line := safe.get(name), str):
            safe[name] = key.without(line)
    return safe


class TranscriptParser:
    """Reads a stream in pieces, cut anywhere; `transcript` is up to date after each."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self._pending = bytearray()
        self._searched = 0
        self._in_event = False
        self._steps: dict[int | None, StepResult] = {}
        self._log_lines = 0
        self._next = 0
        self._key = UnfinishedKey()

    def feed(self, data: bytes) -> None:
        """Parse the next piece of the stream."""
        if not self._in_event and MARK not in data and MARK not in self._pending:
            data = self._take_noise(data)
        self._pending += data
        if self._in_event or MARK in data or b"\n" in data:
            position = 0
            while (end := self._pending.find(b"\n", max(position, self._searched))) >= 0:
                self._take_line(bytes(self._pending[position:end]))
                position = end + 1
            del self._pending[:position]
            self._in_event = MARK in self._pending
        self._searched = len(self._pending)
        if self._searched > MAX_EVENT_BYTES:
            mark, event = self._drop_pending()
            if mark:
                self._refuse("too long", event)

    def close(self) -> Transcript:
        """Parse the rest, as noise or as an unfinished event, and return the transcript."""
        mark, event = self._drop_pending()
        if _SEALED.search(event):
            self._refuse("its line does not end", event)
        self.transcript.cut_off = bool(mark)
        return self.transcript

    def _drop_pending(self) -> tuple[bytes, bytes]:
        """Drop the line that was begun; return its mark, if it has one, and what follows that."""
        noise, mark, event = bytes(self._pending).partition(MARK)
        self._look_for_events(noise)
        self._pending.clear()
        self._searched = 0
        self._in_event = False
        return mark, event

    def _take_noise(self, data: bytes) -> bytes:
        """Search whole lines at once; return the text after them.

        So parsing endless short lines takes no longer than writing them.
        """
        whole, end, rest = data.rpartition(b"\n")
        if end:
            self._look_for_events(bytes(self._pending) + whole)
            self._pending.clear()
            self._searched = 0
        return rest

    def _take_line(self, line: bytes) -> None:
        noise, *events = line.split(MARK)
        self._look_for_events(noise)
        for event in events[:-1]:
            self._refuse("cut off", event)
        if events:
            self._take_event(events[-1])

    def _look_for_events(self, noise: bytes) -> None:
        """Refuse lines that are events without their mark."""
        line = 0
        while line >= 0 and (match := _SEALED.search(noise, line)):
            start = noise.rfind(b"\n", line, match.start()) + 1 or line
            self._refuse("an event without its mark", noise[start : match.end()])
            line = noise.find(b"\n", match.end())

    def _refuse(self, reason: str, text: bytes) -> None:
        self.transcript.malformed_count += 1
        if len(self.transcript.malformed) < MAX_KEPT:
            self.transcript.malformed.append(Malformed(reason, text[:MAX_EXCERPT_BYTES]))

    def _take_event(self, text: bytes) -> None:
        content, seal = text[:-_SEAL_BYTES], text[-_SEAL_BYTES:]
        match = _SEALED.fullmatch(seal)
        if match is None or int(match[1], 16) != crc32(content):
            self._refuse("damaged", text)
            return
        try:
            event = _parsed(content)
            if self._key.is_open or may_have_secrets(content):
                event = _safe(event, self._key)
        except ValueError:
            self._refuse("not JSON", text)
            return
        try:
            number, expected = _count(event, "n"), self._next
            if number < expected:
                raise _WrongError(f"event {number} is repeated")
            if number > expected:
                self._refuse(f"event {number} instead of event {expected}", text)
            self._next = number + 1
            self._take_content(event)
        except _WrongError as error:
            self._refuse(str(error), text)

    def _take_content(self, event: Event) -> None:
        transcript = self.transcript
        match event.get("event"):
            case "start":
                if transcript.start is not None:
                    raise _WrongError("a second start")
                transcript.start = Start(
                    source=_maybe_text(event, "source"),
                    pid=_maybe_count(event, "pid"),
                    target=_maybe_text(event, "target"),
                )
            case "plan":
                if transcript.accepted is not None:
                    raise _WrongError("a second plan")
                transcript.accepted = Accepted(
                    checksum=_maybe_count(event, "plan_crc"),
                    steps=_maybe_count(event, "steps"),
                    boot_us=_count(event, "boot_us"),
                )
            case "begin":
                api, file = _maybe_text(event, "api"), _maybe_text(event, "file")
                step = self._add_step(event)
                step.begun, step.api, step.file = True, api, file
            case "call":
                self._step(event).api = _text(event, "api")
            case "answer":
                self._step(event).code = _count(event, "code")
            case "log":
                level, text = _text(event, "level"), _text(event, "text")
                logged = LogLine(level, text, _maybe_count(event, "t_us"))
                owner = self._steps.get(_maybe_count(event, "step"))
                if owner is not None and self._log_lines < MAX_LOG_LINES:
                    self._log_lines += 1
                    owner.logs.append(logged)
            case "end":
                self._take_end(event)
            case "skip":
                reason = _text(event, "reason")
                known = _count(event, "step") in self._steps
                (self._step(event) if known else self._add_step(event)).skipped = reason
            case "done":
                if transcript.done:
                    raise _WrongError("a second end of the plan")
                elapsed = _maybe_count(event, "elapsed_us")
                finished = Done(_maybe_count(event, "steps"), _maybe_count(event, "failed"))
                transcript.finished, transcript.elapsed_us = finished, elapsed
            case "deadline":
                elapsed, checks = _maybe_count(event, "t_us"), _maybe_count(event, "looks") or 0
                unread = _maybe_count(event, "unread") or 0
                transcript.deadline, transcript.elapsed_us = True, elapsed
                transcript.unread = unread * _UNREAD_PART > checks
            case "library":
                texts = {key: _text(event, key) for key in ("name", "path")}
                more = {key: _maybe_text(event, key) for key in ("build_id", "version", "hides")}
                if len(transcript.libraries) < MAX_LIBRARIES:
                    facts = {
                        key: text[:MAX_LIBRARY_CHARS]
                        for key, text in (texts | more).items()
                        if text
                    }
                    transcript.libraries.append(LoadedLibrary.model_validate(facts))
            case "plan-error":
                line, message = _maybe_count(event, "line"), _text(event, "message")
                transcript.plan_error = f"line {line}: {message}"
                transcript.plan_damaged = event.get("damaged") is True
            case "threads":
                pass  # for readers of the stored stream
            case _:
                raise _WrongError("unknown event")

    def _step(self, event: Event) -> StepResult:
        step = self._steps.get(_count(event, "step"))
        if step is None:
            raise _WrongError("a step that was not started")
        if step.ended or step.skipped is not None:
            raise _WrongError("a step that has ended")
        return step

    def _add_step(self, event: Event) -> StepResult:
        number, verb = _count(event, "step"), _text(event, "verb")
        if number in self._steps:
            raise _WrongError("a step that was already started")
        if self.transcript.steps and self.transcript.steps[-1].unfinished:
            raise _WrongError("a step that started during another step")
        if len(self._steps) >= LIMITS["PLAN_STEPS_MAX"]:
            raise _WrongError("too many steps")
        step = StepResult(number, verb, context=_maybe_count(event, "context"))
        self._steps[number] = step
        self.transcript.steps.append(step)
        return step

    def _take_end(self, event: Event) -> None:
        step = self._step(event)
        data = event.get("data", {})
        if not isinstance(data, dict):
            raise _WrongError("data is not an object")
        code, error = _maybe_count(event, "code"), _maybe_text(event, "error")
        if code is None and error is None:
            raise _WrongError("neither code nor error")
        texts = [_maybe_text(event, key) for key in ("symbol", "message")]
        counts = [_maybe_count(event, key) for key in _MEASURES]
        step.code, step.error, step.data, step.ended = code, error, data, True
        step.symbol, step.message = texts
        for key, count in zip(_MEASURES, counts, strict=True):
            setattr(step, key, count)


_MEASURES: Final = (
    "duration_us",
    "rss_before_bytes",
    "rss_after_bytes",
    "pss_before_bytes",
    "pss_after_bytes",
)


def _parsed(content: bytes) -> Event:
    """Parse an event without unpaired surrogates and too deep values. Raises ValueError."""
    try:
        event: Event = parse_json(content + b"}")
    except JsonError:
        text = content.decode("utf-8", "surrogatepass").encode("utf-8", "replace")
        text = _ESCAPE.sub(lambda match: b"?" if match[1] else match[0], text)
        event = parse_json(without_depths(text + b"}"))
    return event


_ESCAPE: Final = re.compile(rb"(?s)\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)")
"""An escape of JSON; an unpaired surrogate has a group."""


def _count(event: Event, key: str) -> int:
    value = event.get(key)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise _WrongError(f"{key} is not a number")
    return value


def _maybe_count(event: Event, key: str) -> int | None:
    return None if event.get(key) is None else _count(event, key)


def _text(event: Event, key: str) -> str:
    value = event.get(key)
    if type(value) is not str:
        raise _WrongError(f"{key} is not text")
    return value


def _maybe_text(event: Event, key: str) -> str | None:
    return None if event.get(key) is None else _text(event, key)
