"""How the lab was at the beginning and the end of a night (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from harness.answers.history.nights import DeviceTold
from harness.answers.report.document import as_code
from harness.ground.errors.outgoing_text import counted
from harness.verdict.results.record import CaseRecord

_NAMED: Final = 3


class DeviceSeen(DeviceTold):
    """How a device was when it was asked: `good`, `suspect`, `bad`, in `quarantine`, `away`, or
    `in use` by others; why, and since when it is so, as far as that is known. `hands` is what only
    a person can do for it. `host` is the other computer that it hangs on.
    """

    device: str
    host: str = ""
    host_lost: bool = False
    simulated: bool = False


def devices_seen(said: object, before: Iterable[DeviceSeen], now: str) -> tuple[DeviceSeen, ...]:
    """What `devices --json` said of devices that are to be used; `before` is the last that is
    known of them."""
    earlier = {one.device: one for one in before}
    found = []
    for row in said.get("devices", ()) if isinstance(said, dict) else ():
        if row.get("enabled"):
            held = row.get("quarantine") or {}
            leased = "in use" if row.get("state") == "leased" else "away"
            state = leased if row.get("health") is None or row.get("problem") else row["health"]
            why = row.get("problem") or "; ".join([*row.get("findings", ()), held.get("why", "")])
            was = earlier.get(row["name"])
            since = held.get("since") or (was.since if was and was.state == state else now)
            text = "" if state == "good" else why.strip("; ")
            found.append(
                DeviceSeen(
                    device=row["name"],
                    state=state,
                    since=since,
                    why=text[:500],
                    hands=_hands(row, text),
                    host=row.get("host") or "",
                    host_lost=bool(row.get("host_lost")),
                    simulated=bool(row.get("simulated")),
                )
            )
    return tuple(found)


def _hands(row: Mapping[str, Any], told: str) -> str:
    if (hands := row.get("hands")) is None:
        return ""
    why = "" if hands["why"] in told else f" ({hands['why']})"
    return f"{hands['do']}{why}"[:500]


def lost_on(records: Iterable[CaseRecord]) -> Counter[str]:
    """Return how many cases the lab kept each device from testing; most first."""
    lost = (record for record in records if record.device and record.standing == "lab")
    counts = Counter(record.device.name for record in lost if record.device)
    return Counter(dict(counts.most_common()))


def lab_lines(
    begin: Iterable[DeviceSeen], end: Iterable[DeviceSeen], lost: Mapping[str, int]
) -> Iterator[str]:
    """The lab in Markdown: how many devices and hosts were there, then which were not well."""
    first, last = ({one.device: one for one in found} for found in (begin, end))
    there, still_there = (_there(seen.values()) for seen in (first, last))
    hosts = sorted({one.host for one in (*first.values(), *last.values()) if one.host})
    away, at_end = _lost_hosts(first.values()), _lost_hosts(last.values())
    if first:
        far = f", {len(hosts) - len(away)} of {counted(len(hosts), 'other host')}" if hosts else ""
        changed = last and still_there != there
        when = f" at the beginning, {still_there} at the end" if changed else ""
        short = f"; {counted(len(lost), 'device')} did not test all cases" if lost else ""
        kind = _simulated(first.values())
        yield f"Lab: {there} of {counted(len(first), 'device')} there{when}{far}{short}.{kind}"
    for host in (one for one in hosts if one in away or one in at_end):
        told = [f"out of reach since {away[host][:16]}"] if host in away else []
        if (host in away) != (host in at_end) and last:
            back = f"out of reach since {at_end[host][:16]}" if host in at_end else "there"
            told.append(f"at the end {back}")
        yield f"- host {as_code(host)}: {'; '.join(told)}"
    for name in dict.fromkeys((*first, *last, *lost)):
        told = [_said(one) for one in (first.get(name),) if one and one.state != "good"]
        then, now = first.get(name), last.get(name)
        if now and (now.state != then.state if then else now.state != "good"):
            told.append(f"at the end {_said(now)}")
        if (seen := now or then) and seen.hands:
            told.append(f"needs hands: {as_code(seen.hands, 300)}")
        if name in lost:
            told.append(f"{counted(lost[name], 'case')} not tested there")
        if told:
            yield f"- {as_code(name)}: {'; '.join(told)}"


def _there(seen: Iterable[DeviceSeen]) -> int:
    return sum(device.state in ("good", "suspect") for device in seen)


def lost_devices(lost: Mapping[str, int]) -> str:
    """The devices on which most was not tested, for the end of a headline."""
    shown = [f"{as_code(device)} ({count})" for device, count in lost.items()]
    more = [f"{len(shown) - _NAMED} more"] if len(shown) > _NAMED else []
    return f": {', '.join([*shown[:_NAMED], *more])}" if shown else ""


def _simulated(seen: Collection[DeviceSeen]) -> str:
    number = sum(one.simulated for one in seen)
    if not number:
        return ""
    if number < len(seen):
        return f" {number} of them simulated."
    return " All are simulated." if number > 1 else " It is simulated."


def _lost_hosts(seen: Iterable[DeviceSeen]) -> dict[str, str]:
    return {one.host: one.since for one in seen if one.host_lost}


def _said(one: DeviceSeen) -> str:
    why = f" ({as_code(one.why, 300)})" if one.why else ""
    return "good" if one.state == "good" else f"{one.state} since {one.since[:16]}{why}"
