"""Failures that people reported in public threads: right, no answer, or wrong.

The figures of the table before its causes were told apart stand in BEFORE. `pytest -s` prints them.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, strategies as st

from harness.diagnosis.any_log import LogText, read_log
from harness.diagnosis.explanation import explain, symptoms_in
from harness.diagnosis.rule import Rule, Sign, Symptoms
from harness.diagnosis.rules import own_rules
from tests.unit.diagnosis.log_rows import LOG_ROWS

RULES = own_rules()

LOGS = Path(__file__).parents[2] / "field" / "failure-logs.tsv"
BEFORE: Final = {"right": 6, "none": 8, "wrong": 11}

# The cause that was settled in each thread, as the table names it.
SETTLED: Final = {
    "pytorch/executorch/issues/8454": "stub-missing",
    "microsoft/onnxruntime/issues/23171": "skel-not-found",
    "chraac/llama.cpp/issues/40": "skel-not-found",
    "qualcomm/ai-hub-apps/issues/31": "other-htp-arch",
    "google-ai-edge/LiteRT-LM/issues/773": "older-libraries",
    "pytorch/executorch/issues/1176": "other-htp-arch",
    # 5005 alone: its words name VTCM first
    "qualcomm/ai-hub-models/issues/289": "context-refused",
    "qualcomm/ai-hub-apps/issues/130": "no-unsigned-pd",
    "qualcomm/qai-appbuilder/pull/235": "pd-exhausted",
    "meta-pytorch/executorch-examples/pull/81": "stub-not-loaded",
    "pytorch/executorch/issues/7492": "domain-refused",
    "chraac/llama.cpp/issues/41": "skel-refused",
    "radxa-docs/docs/issues/1303": "no-dsp-session",
    "ggml-org/llama.cpp/issues/16911": "npu-driver",
    "pytorch/executorch/issues/21804": "dlc-fallback",
    "pytorch/executorch/issues/19900": "op-unsupported",
    "pytorch/executorch/issues/16535": "arch-not-set",
    "microsoft/onnxruntime/issues/22821": "op-unsupported",
    "qualcomm/ai-hub-apps/issues/59": "graph-prepare-failed",
    "microsoft/onnxruntime/issues/25334": "op-not-executable",
    "microsoft/onnxruntime/issues/22645": "prepared-on-device",
    "microsoft/onnxruntime/issues/26163": "mixed-libraries",
    "microsoft/onnxruntime/issues/24508": "backend-not-loaded",
    "microsoft/onnxruntime/issues/18351": "float-unsupported",
    "qualcomm/ai-hub-apps/issues/54": "linker-namespace",
}
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


@dataclass(frozen=True)
class Field:
    """A reported failure: what was logged, and the cause that was settled."""

    thread: str
    text: str
    settled: str

    def judged(self, rules: tuple[Rule, ...] = RULES) -> str:
        """The table's judgement of it, right or wrong; `unsure`: wrong, and it said `possible`."""
        causes = explain(lines_of(self.text), rules).diagnoses
        if not causes:
            return "none"
        if causes[0].id == self.settled:
            return "right"
        return "unsure" if causes[0].confidence == "possible" else "wrong"


def lines_of(text: str) -> tuple[LogText, ...]:
    return read_log(io.BytesIO(text.encode())).lines


def fields() -> list[Field]:
    with LOGS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    named = [(row["link"].removeprefix("https://github.com/"), row["excerpt"]) for row in rows]
    return [Field(thread, excerpt, SETTLED[thread]) for thread, excerpt in named]


def score(rows: list[Field], rules: tuple[Rule, ...] = RULES) -> dict[str, int]:
    counted = Counter(row.judged(rules) for row in rows)
    return {verdict: counted[verdict] for verdict in ("right", "none", "unsure", "wrong")}


def told_by(texts: Iterable[str]) -> tuple[Rule, ...]:
    """The table with those signs only that these logs show."""
    symptoms = [symptoms_in(lines_of(text)) for text in texts]
    reduced = (
        replace(
            rule, signs=tuple(sign for sign in rule.signs if any(map(sign_found(sign), symptoms)))
        )
        for rule in RULES
    )
    return tuple(rule for rule in reduced if rule.signs)


def sign_found(sign: Sign) -> Callable[[Symptoms], bool]:
    return lambda symptoms: sign.match(symptoms) is not None


@pytest.mark.parametrize("row", fields(), ids=lambda row: row.thread)
def test_what_a_reported_failure_is_explained_by(row: Field) -> None:
    assert row.judged() == "right"


def test_the_figures_before_and_after() -> None:
    now = score(fields())
    print(f"\n{len(fields())} reported failures: before {BEFORE}, now {now}")
    assert sum(BEFORE.values()) == sum(now.values()) == len(SETTLED)
    assert now["wrong"] == now["unsure"] == 0


def test_what_one_half_teaches_is_not_wrong_about_the_other() -> None:
    """Only the signs that one half of the rows shows, tried on the other half, and back."""
    rows = fields()
    for learned, tried in ((rows[::2], rows[1::2]), (rows[1::2], rows[::2])):
        counts = score(tried, told_by(row.text for row in learned))
        print(f"\nlearned from {len(learned)}, tried on {len(tried)}: {counts}")
        assert counts["right"] >= 1
        assert counts["wrong"] <= 2
        assert counts["unsure"] <= 3


@given(st.data())
def test_other_lines_around_an_excerpt_change_nothing(data: st.DataObject) -> None:
    expected, text = data.draw(st.sampled_from(ANSWERED))
    noise = st.lists(st.sampled_from(NOISE), max_size=4)
    lines = list(data.draw(noise))
    for line in text.splitlines():
        lines += [line, *data.draw(noise)]
    prefix = data.draw(st.sampled_from(PREFIXES))
    causes = explain(lines_of("\n".join(prefix + line for line in lines))).diagnoses
    assert f"{causes[0].id} {causes[0].confidence}" == expected


@given(st.sampled_from(STATED), st.sampled_from(STATED))
def test_two_failures_in_one_log_are_both_found(
    first: tuple[str, str], other: tuple[str, str]
) -> None:
    causes = explain(lines_of(f"{first[1]}\n...\n{other[1]}")).diagnoses
    answers = {f"{cause.id} {cause.confidence}" for cause in causes}
    assert {first[0], other[0]} <= answers
