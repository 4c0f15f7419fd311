"""What comes with the package for a folder that has none of its own: a lab, known issues."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from harness.ground.errors import ConfigError

_SUITES: Final = "harness.suites"
_KNOWN_ISSUES: Final = Path(__file__).parents[2] / "suites/known_issues.yaml"


def shipped(
    config: pytest.Config, lab: Path, devices: Sequence[str], known_issues: Path | None
) -> dict[str, Any]:
    """What to take instead of options of these names, where nothing was named and none is there.

    Simulated devices are had by their names; the suites of the package (`--pyargs harness.suites`)
    bring their known issues.
    """
    found: dict[str, Any] = {}
    packaged = any(str(one).startswith(_SUITES) for one in config.invocation_params.args)
    if packaged and known_issues is None and _KNOWN_ISSUES.exists():
        found["known_issues"] = _KNOWN_ISSUES
    if devices and config.getoption("--qnn-lab") is None and not lab.exists():
        from harness.device.lab.inventory import shipped_lab

        try:
            instead = shipped_lab(devices)
        except ConfigError as error:
            raise pytest.UsageError(str(error)) from None
        if instead is not None:
            found["lab"] = instead
    return found
