"""A pytest plug-in for tests: the stand-in fails from one QNN version on, and not always.

Loaded after tests.stand_in.in_front. FLAKY_FROM is the first bad version, FLAKY_RATE the share of
answers that are wrong (a bad version that works; with FLAKY_BOTH=1 also a good one that fails),
FLAKY_SEED a number. How many runs there were stands in a file beside the stand-in.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from harness.qnn.versions import QnnVersion


def pytest_configure(config: pytest.Config) -> None:
    folder = Path(os.environ["STAND_IN_FOLDER"])
    count = folder / "runs"
    number = int(count.read_text()) + 1 if count.exists() else 1
    count.write_text(str(number))
    dice = random.Random(f"{os.environ['FLAKY_SEED']}-{number}")
    wrong = dice.random() < float(os.environ["FLAKY_RATE"])
    (asked,) = config.getoption("--qnn")
    bad = QnnVersion.parse(asked) >= QnnVersion.parse(os.environ["FLAKY_FROM"])
    fails = bad != wrong if bad or os.environ.get("FLAKY_BOTH") == "1" else False
    (folder / "stand_in.conf").write_text("execute_code=1100\n" if fails else "quick=1\n")
