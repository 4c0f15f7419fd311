"""Hand-made nights and issues, as short as a table wants them."""

from typing import Any

from harness.nightly.issues import Issue
from harness.nightly.night import Night


def a_night(**changed: Any) -> Night:
    values = {"night": "n", "started": "s", "arguments": (), "selection": (), "lab": "l"}
    return Night(**values | {"folder": "f", "budget_s": 60, "until": 1060} | changed)


def an_issue(**changed: Any) -> Issue:
    values: dict[str, Any] = {"id": "a" * 12, "outcome": "failed", "signature": "-|-|it broke"}
    values |= {"diagnosis": None, "message": "it broke", "first_seen": "s", "first_run": "r"}
    values |= {"last_seen": "s", "last_run": "r", "count": 1, "cases": ("c",)}
    return Issue(**values | changed)
