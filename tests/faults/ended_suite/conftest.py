"""Stops the run at the phase that QNN_FAULT_PHASE names, and says so by making a file."""

import os
import time
from pathlib import Path

import pytest

PHASE = os.environ.get("QNN_FAULT_PHASE")


def linger(phase: str) -> None:
    if phase == PHASE:
        Path(os.environ["QNN_FAULT_REACHED"]).touch()
        time.sleep(60)


def pytest_collection_modifyitems() -> None:
    linger("collection")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    linger("reporting")
