"""An hour of mutants of the pure files: 95 of 100 are killed by the unit tests of their rooms."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.nightly.mutants import ROOT

SECONDS = os.environ.get("QNN_MUTANTS_SECONDS", "3600")
SEED = os.environ.get("QNN_MUTANTS_SEED", str(random.randrange(10**6)))

pytestmark = pytest.mark.nightly


def test_few_mutants_survive(show_figures: Callable[..., None]) -> None:
    """Who survives is printed: a test kills it, or `equivalent_mutants.tsv` says why none can.

    A process of its own: what its tests import must not be imported yet.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.nightly.mutation_run", "--seconds", SECONDS, "--seed", SEED],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        check=False,
    )
    show_figures(f"mutants\n{done.stdout}")
    assert done.returncode == 0, done.stdout
