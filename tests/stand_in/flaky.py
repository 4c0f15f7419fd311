"""A pytest plug-in for tests: the stand-in fails from one QNN version on, and not always.

Loaded after tests.stand_in.as_backend. FLAKY_FROM is the first bad version, FLAKY_RATE the share of
runs in which it works, FLAKY_SEED a number. FLAKY_BAD is what a bad version is told instead of
failing, FLAKY_GOOD what a good one is. A file beside the stand-in counts the runs.
"""

import os
import random
from pathlib import Path

import pytest

from harness.core.versions import QnnVersion


def pytest_configure(config: pytest.Config) -> None:
    folder = Path(os.environ["STAND_IN_FOLDER"])
    count = folder / "runs"
    number = int(count.read_text()) + 1 if count.exists() else 1
    count.write_text(str(number))
    dice = random.Random(f"{os.environ['FLAKY_SEED']}-{number}")
    wrong = dice.random() < float(os.environ["FLAKY_RATE"])
    (version,) = config.getoption("--qnn-version")
    bad = QnnVersion.parse(version) >= QnnVersion.parse(os.environ["FLAKY_FROM"])
    fails = bad and not wrong
    fields = (
        os.environ.get("FLAKY_BAD", "execute_code=1100")
        if fails
        else os.environ.get("FLAKY_GOOD", "quick=1")
    )
    (folder / "stand_in.conf").write_text(f"{fields}\n")
