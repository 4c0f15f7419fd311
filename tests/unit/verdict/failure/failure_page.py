"""Makes docs/failures.md of the table of causes and of the rows that show them.

`python -m tests.unit.verdict.failure.failure_page` writes it; a test compares.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.verdict.failure.rule import CONFIDENCES, Rule
from harness.verdict.failure.rules import RULES
from harness.verdict.failure.rules_context import CONTEXT_RULES
from harness.verdict.failure.rules_graph import GRAPH_RULES
from harness.verdict.failure.rules_reach import REACH_RULES
from harness.verdict.failure.rules_session import SESSION_RULES
from tests.unit.verdict.failure.failure_rows import ROWS
from tests.unit.verdict.failure.log_rows import LOG_ROWS

PAGE: Final = Path(__file__).parents[4] / "docs" / "failures.md"
_MOST: Final = 3
_MAX_CHARS: Final = 150
_CHAPTERS: Final = (
    ("On the way to the processor", (*REACH_RULES, *SESSION_RULES)),
    ("Loading contexts", CONTEXT_RULES),
    ("Preparing and executing graphs", GRAPH_RULES),
)
_HEAD: Final = """\
# Causes of failures

<!-- Made of the table: `python -m tests.unit.verdict.failure.failure_page` -->

What is known to go wrong between a program and Qualcomm's NPU (the HTP, a Hexagon DSP) or GPU: how
each cause looks, what tells it from its neighbours, and what helps. `qnn-harness explain FILE`
looks for them in any log ([results.md](results.md#any-log)); records, reports and JUnit name the
one that a case failed by.

A program links **libQnnHtp.so**, the *backend*, on the CPU. That opens the **stub**
(libQnnHtpV73Stub.so for a chip of arch v73), which calls the DSP through FastRPC
(**libcdsprpc.so**, the vendor's). FastRPC starts a *protection domain* (**PD**), a process on the
DSP, and loads into it the **skel** (libQnnHtpV73Skel.so), the DSP's half of the backend. Backend,
stub and skel come of one SDK build. A **context binary** is a compiled model; it is made for an
arch, a SoC and an amount of fast memory (**VTCM**).

How sure a diagnosis is: **known**, a line states the cause; **likely**, that is what mostly stands
behind such a line; **possible**, one of several, as with every code that stands alone. Where
[preflight](preflight.md) had said why it must fail, and it fails so, that is **known**, too. A
surer cause stands before a less sure one, since codes such as 14001, 4000 and 1008 follow from many
things; among equals the order of this page decides.

## What the library logs on the way

`tests/field/fastrpc-chains.tsv` has what the real libQnnHtp.so 2.51.0 for arm64 logs when FastRPC
answers errors: it runs under qemu over a libcdsprpc that answers as it is told
(`tests/integration/probe/scripted_fastrpc.py`). `tests/field/dsp-chains.tsv` has the same with the
real skel of v73 behind it, in an emulator (`tests/integration/device/dsp/chains.py`). Compared with
logs from devices:

- The number in `Failed to create transport` and `Failed to load skel` is 1002 whatever failed on
  the DSP's side. Older versions said 1008 there (pytorch/executorch#2788,
  microsoft/onnxruntime#23171), or 4000 (UbiquitousLearning/mllm#272). 4000 is still said where
  the stub or libcdsprpc.so is missing. So the number tells the version rather than the cause.
- `Unable to load Skel Library. transportStatus: 9` and `Failed to retrieve skel build id`, which
  older versions add to 0x80000406, are gone.
- `createUnsignedPD unsigned PD or DSPRPC_GET_DSP_INFO not supported by HTP` is a warning: the DSP
  did not tell what it can do, and the library goes on. Only `createUnsignedPD failed` behind it
  says that no unsigned domain was given (qualcomm/ai-hub-apps#130 has both).
- A skel that answers with other data than the stub expects gives `QNN_TRANSPORT_CONFIG crc32
  failed`.
- `DspTransport call failed, error 0x00000010` stands for 0x8000040d: the domain died in that call;
  0x00000007 for 0x27 and 0x68: it, or the whole DSP, was gone before.
- The library takes the death of one domain for a restart of the DSP: it says `SSR detected`, makes
  all handles invalid, and opens another. One that dies while QnnDevice_create goes on is not
  always survived: asked for the skel's state, the library waits for itself, and never returns.
"""


def page() -> str:
    """The whole page."""
    shown = examples()
    parts = [_HEAD]
    for title, rules in _CHAPTERS:
        parts.append(f"\n## {title}\n")
        parts += [_entry(rule, shown[rule.id]) for rule in rules]
    return "".join(parts)


def examples() -> dict[str, dict[str, list[str]]]:
    """How each cause looks, by id and confidence."""
    found: dict[str, dict[str, list[str]]] = {rule.id: {} for rule in RULES}
    for expected, text in LOG_ROWS:
        if expected is not None:
            _add(found, expected, text)
    for row in ROWS:
        code = "" if row.code is None else f" {row.code}"
        if row.expected is not None:
            text = "\n".join((*row.lines, *row.evidence)) or row.said or f"{row.api}{code}"
            text += f" (preflight: {', '.join(row.foreseen)})" if row.foreseen else ""
            _add(found, row.expected, text)
    return found


def _add(found: dict[str, dict[str, list[str]]], expected: str, text: str) -> None:
    name, confidence = expected.split()
    lines = found[name].setdefault(confidence, [])
    told = " / ".join(line.strip() for line in text.splitlines() if line.strip())
    short = told if len(told) <= _MAX_CHARS else told[: _MAX_CHARS - 3] + "..."
    if len(lines) < _MOST and short not in lines:
        lines.append(short)


def _entry(rule: Rule, shown: dict[str, list[str]]) -> str:
    looks = "".join(
        f"    {confidence}: {line}\n"
        for confidence in CONFIDENCES
        for line in shown.get(confidence, ())
    )
    threads = ", ".join(
        f"[{thread}]({link})" for thread, link in zip(rule.threads, rule.links, strict=True)
    )
    words = rule.words.replace("{note}", "...")
    told = f"\n- **Threads**: {threads}" if threads else ""
    return (
        f"\n### {rule.id}\n\n{words[0].upper()}{words[1:]}.\n\n{looks}\n"
        f"- **What tells it apart**: {rule.apart}.\n- **What helps**: {rule.fix}.{told}\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
