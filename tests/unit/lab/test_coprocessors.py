"""Signs of a DSP and a GPU are read without trust; the script runs on any shell."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, strategies as st

from harness.lab.facts import SCRIPT, Coprocessors, parse_coprocessors, parse_facts


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (None, None),
        ([], None),
        (["dsp /dev/adsprpc-smd"], None),
        (["looked"], Coprocessors()),
        (
            ["gpu_compiler /system/bin/oqclc", "looked"],
            Coprocessors((), (), ("/system/bin/oqclc",)),
        ),
        (
            ["dsp /dev/fastrpc-cdsp", "gpu /vendor/lib64/libOpenCL.so", "noise", "npu x", "looked"],
            Coprocessors(("/dev/fastrpc-cdsp",), ("/vendor/lib64/libOpenCL.so",)),
        ),
        (["dsp " + "x" * 300, "dsp", "dsp  ", "looked"], Coprocessors()),
    ],
)
def test_answers(lines: list[str] | None, expected: Coprocessors | None) -> None:
    sections = {} if lines is None else {"coprocessors": lines}
    assert parse_coprocessors(sections) == expected


@given(st.lists(st.text(max_size=40), max_size=200))
def test_whatever_comes_is_bounded(lines: list[str]) -> None:
    parsed = parse_coprocessors({"coprocessors": [*lines, *["dsp /x"] * 100, "looked"]})
    assert parsed is not None
    assert len(parsed.dsp) == 32


def test_the_script_answers_on_this_computer() -> None:
    completed = subprocess.run(
        ["/bin/sh", "-c", f"set -- /tmp\n{SCRIPT}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert parse_facts(completed.stdout).coprocessors is not None
    assert completed.stdout.rstrip().endswith("@qnn-harness:end")
