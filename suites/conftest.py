"""What runs only when it is asked for: the atlas, and most cases on a DSP that is emulated."""

from __future__ import annotations

import re
from typing import Final

import pytest

# An emulated DSP takes minutes for all that the other devices run in one. These are what shows each
# subject on it: the test, and which of its cases.
BESIDE_OTHER_DEVICES: Final = {
    "test_context": "",
    "test_restart": "",
    "test_compiler_and_runtime": "",
    "test_mem_type_pairing": "memhandle-memhandle",
    "test_context_count": "tiny|weights-heavy",
    "test_operator": "8bit",
}


@pytest.fixture(autouse=True)
def whole_suites_on_an_emulated_dsp_by_its_name(request: pytest.FixtureRequest) -> None:
    """Leaves the rest out on an emulated DSP, unless devices are named."""
    if "bench" not in request.fixturenames or request.config.getoption("--device"):
        return
    wanted = BESIDE_OTHER_DEVICES.get(request.function.__name__)
    if wanted is not None and re.search(wanted, request.node.name):
        return
    if request.getfixturevalue("bench").device.simulated_dsp is not None:
        pytest.skip("an emulated DSP runs it when it is named: --device NAME")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = "atlas" in (config.option.markexpr or "")
    named = any("test_error_codes" in str(argument) for argument in config.args)
    if asked or named:
        return
    left_out = [item for item in items if item.get_closest_marker("atlas")]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
