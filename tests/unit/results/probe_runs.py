"""Builders of probe processes out of events, for the tests of this folder."""

from __future__ import annotations

import json
from typing import Any

from harness.probe.events import parse_transcript
from harness.probe.run import ProbeRun

LOAD = "QnnContext_createFromBinary"
START = {"event": "start", "probe": 1, "source": "x", "pid": 1, "target": "linux-x64"}
DONE = {"event": "done", "steps": 2, "failed": 1, "elapsed_us": 9}


def begin(step: int = 3, api: str | None = LOAD, verb: str = "context-load") -> dict[str, Any]:
    return {"event": "begin", "step": step, "verb": verb, "api": api, "context": 56}


def end(step: int = 3, **more: Any) -> dict[str, Any]:
    return {"event": "end", "step": step, "code": 0, "duration_us": 1} | more


def log(text: str, level: str = "error", step: int = 3) -> dict[str, Any]:
    return {"event": "log", "step": step, "level": level, "t_us": 1, "text": text}


def run(*events: dict[str, Any], **how: Any) -> ProbeRun:
    raw = b"".join(b"\x1e" + json.dumps(event).encode() + b"\n" for event in events)
    given: dict[str, Any] = {
        "transcript": parse_transcript(raw),
        "exit_code": 0,
        "signal": None,
        "timed_out": False,
        "truncated": False,
        "raw_events": raw,
        "stderr": b"",
        "duration_s": 1.25,
    }
    return ProbeRun(**(given | how))
