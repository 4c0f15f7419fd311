"""The options of a context: what each target and version answers when one is given.

docs/reference/context-options.md is made of the results (`make atlas`). A refusal is a result like
any other; on x86-64 it must be the one that the table of options has.
"""

from __future__ import annotations

import pytest

from harness import Bench, Model, experiments

pytestmark = pytest.mark.atlas

MODEL = Model("io-heavy", 2)


@pytest.mark.device(backend="htp")
@pytest.mark.parametrize("option", experiments.OPTION_NAMES)
def test_option(bench: Bench, option: str) -> None:
    """Load two contexts with an option, and execute them."""
    experiments.try_option(bench, option, MODEL)


@pytest.mark.device(backend="htp", engine="ort")
@pytest.mark.parametrize("option", experiments.ORT_OPTION_NAMES)
def test_ort_option(bench: Bench, option: str) -> None:
    """Create a session with the provider's option, if this version has one."""
    experiments.try_ort_option(bench, option, MODEL)
