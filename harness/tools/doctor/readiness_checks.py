"""Whether a phone stays usable for months: its charging, its doze, its settings, judged (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.device.lab.health import HealthFinding
from harness.device.lab.readiness import THERMAL
from harness.device.lab.vitals import Vitals
from harness.tools.doctor.check import Answer

_KEEP: Final = "its settings, Developer options"
_FULL: Final = 95


def readiness_answers(
    vitals: Vitals, findings: dict[str, HealthFinding]
) -> Iterator[tuple[str, Answer]]:
    """Name and answer of each check of an Android phone; what it does not say is unknown."""
    ready, percent = vitals.ready, vitals.battery_percent

    def judged(code: str, found: str | None, advice: str) -> Answer:
        if (finding := findings.get(code)) is not None:
            return Answer("fail" if finding.state == "bad" else "warn", finding.text, advice)
        return Answer("unknown", "not told") if found is None else Answer("ok", found)

    if percent is not None:
        full = ready.is_plugged and percent >= _FULL and ready.charge_limit is None
        limit = ready.charge_limit or "no known limit"
        found = f"{limit}, {'plugged in' if ready.is_plugged else 'not plugged in'}"
        advice = "limit its charging (battery settings): one kept full for months swells"
        yield (
            "charging",
            Answer("warn", f"{found}, {percent} %", advice)
            if full
            else Answer("unknown" if ready.is_plugged is None else "ok", found),
        )
    status = None if ready.thermal_status is None else THERMAL[ready.thermal_status]
    yield "thermal status", judged("throttled", status, "let it cool down; mind its fan and case")
    yield (
        "doze",
        judged("doze", ready.doze, "unlock it, or plug it in: a phone that charges does not doze"),
    )
    yield "figures set by hand", judged("overridden", "none", "do what stands there")
    update = None if ready.developer is None else "none is announced"
    yield (
        "system update",
        judged(
            "update-pending",
            update,
            f"install it when nothing runs; {_KEEP}, Automatic system updates: off",
        ),
    )
    on = {True: "on", False: "off", None: None}[ready.developer]
    yield "developer options", judged("developer-off", on, "switch them on, and USB debugging")
    users = ", ".join(map(str, ready.users)) or None
    yield (
        "users",
        judged(
            "other-user",
            users and f"{users} running",
            "switch to its owner; end the others: their apps run beside the cases",
        ),
    )
    if ready.key_days is not None:
        never = "this computer's key is kept"
        days = f"this computer's key is forgotten after {ready.key_days:g} days without adb"
        advice = f"{_KEEP}, Disable adb authorization timeout: on"
        yield "adb keys", Answer("warn", days, advice) if ready.key_days else Answer("ok", never)
