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
    "test_wrong_arch": "v75",
    "test_compiler_and_runtime": "",
    "test_mem_type_pairing": "memhandle-memhandle",
    "test_context_count": r"(tiny|weights-heavy-4mb)-\w+-\d$",
    "test_operator": "8bit",
}
# What it is never asked for: the test, which of its cases, and why.
NOT_ON_AN_EMULATED_DSP: Final = {
    "test_context_count": (
        r"io-heavy-56mb-\w+-(?![18]$)",
        "each execution of these takes a second; test_until_refused loads more",
    ),
    "test_many_sessions": (r"-(?!8$)\d+$", "it takes minutes to execute so many"),
    "test_create_and_destroy": ("", "the board takes many seconds to compile the model each time"),
}


@pytest.fixture(autouse=True)
def what_an_emulated_dsp_is_asked_for(request: pytest.FixtureRequest) -> None:
    """Leaves out what takes too long on one; what takes minutes is run where devices are named."""
    if "bench" not in request.fixturenames:
        return
    name, case = request.function.__name__, request.node.name.rstrip("]")
    named = request.config.getoption("--device")
    never, why = NOT_ON_AN_EMULATED_DSP.get(name, ("$.", ""))
    if not re.search(never, case):
        wanted = BESIDE_OTHER_DEVICES.get(name)
        if named or (wanted is not None and re.search(wanted, case)):
            return
        why = "an emulated DSP runs it when it is named: --device NAME"
    if request.getfixturevalue("bench").device.simulated_dsp is not None:
        pytest.skip(why)


def pytest_configure(config: pytest.Config) -> None:
    says = "atlas: what makes the real libraries give each error code"
    config.addinivalue_line("markers", says)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = "atlas" in (config.option.markexpr or "")
    named = any("test_error_codes" in str(argument) for argument in config.args)
    if asked or named:
        return
    left_out = [item for item in items if item.get_closest_marker("atlas")]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
