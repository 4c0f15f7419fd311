"""Times that options say."""

from __future__ import annotations

import pytest

from harness.cli.lab_options import seconds_of
from harness.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4h", 14400), ("90m", 5400), ("1h30m", 5400), ("1s", 1), (" 2m ", 120), ("168h", 604800)],
)
def test_a_budget_is_read(text: str, seconds: float) -> None:
    assert seconds_of(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["", "4", "h", "0h", "1m1h", "-1h", "168h1s", "4 h", "nan", "１h"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--budget.*4h"):
        seconds_of(text, "--budget")
