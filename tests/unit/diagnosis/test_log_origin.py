"""Process and time of a line: prefixes of logs of several kinds."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harness.diagnosis.any_log import KERNEL, Origin, origin_of

MORNING = 4 * 3600 + 15 * 60 + 1.5


def on(month: int, day: int) -> float:
    return (month * 31 + day) * 86_400 + MORNING


@pytest.mark.parametrize(
    ("before", "process", "time"),
    [
        ("12-07 04:15:01.500 17202 17203 E tag : ", 17202, on(12, 7)),
        ("2026-12-07 04:15:01.500 17202 17203 E tag : ", 17202, on(12, 7)),
        ("12-07 04:15:01.500 u0_a12 17202 17203 E tag : ", 17202, on(12, 7)),
        ("12-07 04:15:01.500 10123 17202 17203 E tag : ", 17202, on(12, 7)),
        ("2026-12-07 04:15:01.500 17202-17203 com.x  E  ", 17202, on(12, 7)),
        ("2026-12-07 04:15:01.500 17202-17203/com.x E/tag: ", 17202, on(12, 7)),
        ("E/tag     (17202): ", 17202, None),
        ("Dec  7 04:15:01.5 board app[4711]: ", 4711, on(12, 7)),
        ("2026-12-07T04:15:01.5+0000 board app[4711]: ", 4711, on(12, 7)),
        ("Dec 07 04:15:01 board kernel: ", KERNEL, on(12, 7) - 0.5),
        ("[Thu Dec  7 04:15:01 2026] ", None, on(12, 7) - 0.5),
        ("04:15:01,500 ", None, MORNING),
        ("[   26.079757] ", KERNEL, None),
        ("<6>[    0.000000] ", KERNEL, None),
        ("     0.0ms [ ERROR ] ", None, None),
        ("2026-12-07 04:15:01.500 [E:onnxruntime:, x.cc:249 F] ", None, on(12, 7)),
        ("", None, None),
    ],
)
def test_what_stands_before_a_text(before: str, process: int | None, time: float | None) -> None:
    assert origin_of(f"{before}QnnDsp <E> Failed to load skel, error: 1002") == Origin(
        process, time
    )


@given(st.text(max_size=300))
def test_any_line_has_an_origin(line: str) -> None:
    origin = origin_of(line)
    assert origin.process is None or origin.process >= 0
    assert origin.time is None or origin.time >= 0
