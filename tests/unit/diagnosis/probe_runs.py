"""Builders of probe processes out of events, for the tests of this folder."""

from typing import Any
from zlib import crc32

from harness.probe.plan import VERBS, Plan, Step
from harness.probe.plan_runner import EXIT_DONE, ProbeRun
from tests.stand_in.events import event_lines, parse_transcript

LOAD = "QnnContext_createFromBinary"
START = {"event": "start", "probe": 2, "source": "x", "pid": 1, "target": "linux-x64"}
DONE = {"event": "done"}
"""What it counted is filled in by `run`, as is the plan it had."""


def begin(step: int = 3, api: str | None = LOAD, verb: str = "context-load") -> dict[str, Any]:
    return {"event": "begin", "step": step, "verb": verb, "api": api, "context": 56}


_OF_AN_END = {"code", "error", "symbol", "message", "data", "duration_us"}


def end(step: int = 3, **more: Any) -> dict[str, Any]:
    """The end of a step; what the parser does not read of it would test nothing."""
    unread = {key for key in more if key not in _OF_AN_END and not key.startswith(("rss_", "pss_"))}
    assert not unread, f"nobody reads {unread} of an end"
    return {"event": "end", "step": step, "code": 0, "duration_us": 1} | more


def log(text: str, level: str = "error", step: int = 3) -> dict[str, Any]:
    return {"event": "log", "step": step, "level": level, "t_us": 1, "text": text}


def accepted(plan: Plan, **more: Any) -> dict[str, Any]:
    body = plan.text().partition("\n")[2]
    accepted_plan = {"steps": len(plan.steps), "plan_crc": crc32(body.encode()), "boot_us": 1}
    return {"event": "plan"} | accepted_plan | more


def step_of(verb: str) -> Step:
    """A step of this verb, with all fields that it may have."""
    rules = {key: rule for key, rule in VERBS[verb].items() if not key.endswith(".")}
    return Step(verb, {key: rule.words[0] if rule.words else "1" for key, rule in rules.items()})


def plan_of(events: tuple[dict[str, Any], ...]) -> Plan:
    """The plan that a process has carried out: steps that nothing is said of do nothing."""
    verbs = {event["step"]: event["verb"] for event in events if "verb" in event}
    return Plan(
        tuple(step_of(verbs.get(index, "noop")) for index in range(max(verbs, default=-1) + 1))
    )


def run(*events: dict[str, Any], stray: bytes = b"", tail: bytes = b"", **options: Any) -> ProbeRun:
    """A process that said this, and of steps that nothing is said of that they went well.

    `stray` is what comes before its last event, `tail` behind it.
    """
    plan = plan_of(events)
    all_events: list[dict[str, Any]] = []
    known: set[int] = set()
    for event in events:
        if "verb" in event:
            for index in range(event["step"]):
                if index not in known:
                    all_events += [{"event": "begin", "step": index, "verb": "noop"}, end(index)]
            known |= set(range(event["step"] + 1))
        all_events.append(dict(event))
        if event["event"] == "start":
            all_events.append(accepted(plan))
        if event == DONE:
            failed = sum(bool(event.get("code") or event.get("error")) for event in events)
            all_events[-1] |= {"steps": len(plan.steps), "failed": failed, "elapsed_us": 9}
    raw = (
        event_lines(all_events[:-1])
        + stray
        + event_lines(all_events[-1:], first=len(all_events) - 1)
        + tail
    )
    fields: dict[str, Any] = {
        "plan": plan,
        "transcript": parse_transcript(raw),
        "exit_code": EXIT_DONE,
        "signal": None,
        "timed_out": False,
        "truncated": False,
        "raw_events": raw,
        "stderr": b"",
        "duration_s": 1.25,
    }
    return ProbeRun(**(fields | options))
