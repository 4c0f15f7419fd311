"""Cases that run only on request: the atlases, and most cases on an emulated DSP."""

from __future__ import annotations

import re
from typing import Final

import pytest

# An emulated DSP is slow: by default it runs only these cases, which cover each subject: the test,
# and a pattern of its cases.
EMULATED_BY_DEFAULT: Final = {
    "test_context": "",
    "test_restart": "",
    "test_wrong_arch": "v75",
    "test_compiler_and_runtime": "",
    "test_mem_type_pairing": "memhandle-memhandle",
    "test_context_count": r"(tiny|weights-heavy-4mb)-\w+-\d$",
    "test_context_remedies": "reused-io-limit",
    "test_operator": "8bit",
}
# Cases that run only on devices that are named: the test, and a pattern of its cases.
SLOW_EVERYWHERE: Final = {"test_context_remedies": r"-230$|weight-sharing"}
# Cases that an emulated DSP never runs: the test, a pattern of its cases, and the reason.
NEVER_EMULATED: Final = {
    "test_context_count": (
        r"io-heavy-56mb-\w+-(?![18]$)",
        "each execution takes a second; test_until_refused loads more",
    ),
    "test_many_sessions": (r"-(?!8$)\d+$", "executing so many takes minutes"),
    "test_create_and_destroy": ("", "compiling the model takes many seconds each time"),
}


@pytest.fixture(autouse=True)
def skip_slow_cases(request: pytest.FixtureRequest) -> None:
    """Skip cases that take too long; those that take minutes run if devices are named."""
    if "bench" not in request.fixturenames:
        return
    name, case = request.function.__name__, request.node.name.rstrip("]")
    is_named = request.config.getoption("--device")
    if not is_named and re.search(SLOW_EVERYWHERE.get(name, "$."), case):
        pytest.skip("takes minutes; runs only on devices named with --device")
    never, reason = NEVER_EMULATED.get(name, ("$.", ""))
    if not re.search(never, case):
        selected = EMULATED_BY_DEFAULT.get(name)
        if is_named or (selected is not None and re.search(selected, case)):
            return
        reason = "takes long on an emulated DSP; runs there only if it is named with --device"
    if request.getfixturevalue("bench").device.simulated_dsp is not None:
        pytest.skip(reason)


def pytest_configure(config: pytest.Config) -> None:
    marker = "atlas: calls that make the real libraries return each error code or take each option"
    config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    by_marker = "atlas" in (config.option.markexpr or "")
    by_path = any(
        name in str(argument)
        for argument in config.args
        for name in ("test_error_codes", "test_context_options")
    )
    if by_marker or by_path:
        return
    deselected = [item for item in items if item.get_closest_marker("atlas")]
    if deselected:
        items[:] = [item for item in items if item not in deselected]
        config.hook.pytest_deselected(items=deselected)
