"""Hand-made nights, as short as a table wants them."""

from __future__ import annotations

from typing import Any

from harness.search.nightly.night import Night


def a_night(**changed: Any) -> Night:
    values = {"night": "n", "started": "s", "arguments": (), "selection": (), "lab": "l"}
    return Night(**values | {"folder": "f", "budget_s": 60, "until": 1060} | changed)
