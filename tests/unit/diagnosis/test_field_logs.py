"""Failures that people reported in public threads: right, near, no answer, or wrong.

Those of the second table came after the table of causes, or were kept from it. `near`: the area,
not the cause.
"""

import csv
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from hypothesis import assume, given, strategies as st

from harness.diagnosis.explain_log import explain
from tests.unit.diagnosis.failure_rows import LOG_ROWS, answer_to, lines_of

FOLDER: Final = Path(__file__).parents[2] / "field"
NOTHING_WRONG: Final = "-"
_BARE: Final = "(only the code"
NOISE: Final = (
    "I ActivityManager: Start proc 4711:com.x/u0a1 for top-activity",
    "E WifiHAL: error 1002 while scanning",
    'W libc    : Access denied finding property "persist.vendor.fastrpc.process.attrs"',
    "I adsprpc : fastrpc_apps_user_init done. default domain:3 and &fastrpc_trace:0xffff8e6867d0",
    "D OpenGLRenderer: eglCreateContext = 0x7a1b2c3d4e",
    "[INFO] [Qnn ExecuTorch]: create QNN Logger with log_level 2",
    "[WARNING] [Qnn ExecuTorch]: QnnDsp <W> Initializing HtpProvider",
    "QnnDsp <W> Function not called, PrepareLib isn't loaded!",
    "QnnContextCustomProtocol expected magic number: 0x5678abcd but get: 0x2000000",
    'W linker: "libQnnHtpV68Skel.so" is 32-bit instead of 64-bit',
    "GET /index.html HTTP/1.1 404 not found",
    "E SurfaceFlinger: Permission denied",
    "",
)
PREFIXES: Final = (
    "",
    "12-07 04:15:01.332 17202 17203 E ",
    "2025-09-25 11:36:36.9508615 [E:onnxruntime:, qnn_backend_manager.cc:249 QnnLogging] ",
    "    12: ",
    "> ",
    "     0.0ms [ ERROR ] ",
    "[2022-06-15 22:54:47.876] [trace] ",
)
ANSWERED: Final = [(expected, text) for expected, text in LOG_ROWS if expected is not None]
# Whether something is absent can only be said of a log of one failure.
STATED: Final = [answer for answer in ANSWERED if answer[0].endswith(" known")]
LEADS_TO: Final = (
    {"page-size known", "backend-not-loaded known"},
    {"dsp-library-missing known", "skel-not-found known"},
)
"""Of these two in one log the first is why the second came, and the only cause."""


def reports(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def judged(report: dict[str, str]) -> str:
    """The worth of the answer to a reported failure."""
    text, settled = report["excerpt"], report["settled"].split()
    if _BARE in text:
        text = f"{report['api']} returned {report['code']} / {text}"
    ids = [cause.id for cause in explain(lines_of(text)).diagnoses]
    if settled == [NOTHING_WRONG]:
        return "wrong" if ids else "right"
    if not ids:
        return "none"
    if ids[0] in settled:
        return "right"
    return "near" if ids[0] in report["near"].split() or set(ids[:3]) & set(settled) else "wrong"


@pytest.mark.parametrize("report", reports("failure-logs.tsv"), ids=lambda report: report["link"])
def test_a_reported_failure_is_explained_by_what_settled_it(report: dict[str, str]) -> None:
    assert judged(report | {"near": ""}) == "right"


def test_further_reports_are_explained_rightly_or_nearly() -> None:
    rows = reports("failure-logs-2.tsv")
    worth = {row["thread"]: judged(row) for row in rows}
    # of one nothing but XNNPACK is told, as of any run on the CPU
    assert Counter(worth.values()) == {"right": 39, "near": 3, "none": 1}, worth


@given(st.data())
def test_other_lines_around_an_excerpt_change_nothing(data: st.DataObject) -> None:
    expected, text = data.draw(st.sampled_from(ANSWERED))
    noise = st.lists(st.sampled_from(NOISE), max_size=4)
    lines = list(data.draw(noise))
    for line in text.splitlines():
        lines += [line, *data.draw(noise)]
    prefix = data.draw(st.sampled_from(PREFIXES))
    assert answer_to("\n".join(prefix + line for line in lines)) == expected


@given(st.sampled_from(STATED), st.sampled_from(STATED))
def test_two_failures_in_one_log_are_both_found(
    first: tuple[str, str], other: tuple[str, str]
) -> None:
    assume({first[0], other[0]} not in LEADS_TO)
    causes = explain(lines_of(f"{first[1]}\n...\n{other[1]}")).diagnoses
    answers = {f"{cause.id} {cause.confidence}" for cause in causes}
    assert {first[0], other[0]} <= answers
