"""Makes docs/failures.md of the table of causes and of the rows that show them.

`python -m tests.unit.diagnosis.failure_page` writes it; a test compares.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from harness.diagnosis.any_log import read_log
from harness.diagnosis.explanation import explain
from harness.diagnosis.rule import CONFIDENCES, Rule
from harness.diagnosis.rules import own_rules
from tests.unit.diagnosis.failure_rows import ROWS, Row
from tests.unit.diagnosis.log_rows import LOG_ROWS

RULES = own_rules()

PAGE: Final = Path(__file__).parents[3] / "docs" / "failures.md"
_MOST: Final = 3
_MAX_CHARS: Final = 118
"""So that a terminal, or whoever cuts a log at 120 columns, cuts none of them."""
_CHAPTERS: Final = {
    "dsp-restarted": "On the way to the processor",
    "newer-context": "Loading contexts",
    "opencl-driver": "Preparing and executing graphs",
}
"""The chapters by their first rule."""
_HEAD: Final = """\
# Causes of failures

<!-- Made of the table: `python -m tests.unit.diagnosis.failure_page` -->

For whoever has a failure and wants to know why.

This page lists what is known to go wrong between a program and Qualcomm's NPU (the HTP, a Hexagon
DSP) or GPU: what each cause looks like, what tells it from similar ones, and what helps.
`qnn-harness explain FILE` looks for these causes in any log ([results.md](results.md#any-log)). If
a case fails by one of them, its record, the reports and JUnit name it.

These words come again and again:

- the **backend**, libQnnHtp.so, which a program links; it runs on the CPU;
- the **stub**, which the backend opens (libQnnHtpV73Stub.so for a chip of arch v73). It calls the
  DSP;
- **FastRPC** (libcdsprpc.so, the chip vendor's), which carries these calls;
- a **protection domain** (**PD**): a process on the DSP, which FastRPC starts;
- the **skel** (libQnnHtpV73Skel.so), the DSP's half of the backend, loaded into that domain.
  Backend, stub and skel must come from one SDK build;
- a **context binary**: a compiled model. It is made for an arch, a SoC (chip) and an amount of fast
  memory (**VTCM**).

A diagnosis says how sure it is:

- **known**: a line states the cause, or [preflight](preflight.md) had said that it would fail this
  way;
- **likely**: this is what mostly causes such a line;
- **possible**: one of several causes, as with every code that stands alone.

Codes such as 14001, 4000 and 1008 follow from many things, so the surest cause comes first. Among
equally sure ones the order of this page decides.

## What the library logs on the way

For whoever reads such a log: this is what the real libQnnHtp.so 2.51.0 for arm64 logs when FastRPC
answers with errors. It ran under qemu in two ways. `tests/field/fastrpc-chains.tsv` has its lines
with a libcdsprpc that gives scripted answers (`tests/integration/probe/scripted_fastrpc.py`),
`tests/field/dsp-chains.tsv` with the real skel of v73 in an emulator
(`tests/integration/dsp/chains.py`). Compared with logs from devices:

- The number in `Failed to create transport` and `Failed to load skel` is 1002, whatever failed on
  the DSP's side. Older versions said 1008 there ([pytorch/executorch#2788],
  [microsoft/onnxruntime#23171]), or 4000 ([UbiquitousLearning/mllm#272]). It is still 4000 if the
  stub or libcdsprpc.so is missing. So the number tells the version rather than the cause.
- `Unable to load Skel Library. transportStatus: 9` and `Failed to retrieve skel build id`, which
  older versions log after 0x80000406, are gone.
- `createUnsignedPD unsigned PD or DSPRPC_GET_DSP_INFO not supported by HTP` is only a warning: the
  DSP did not say what it can do, and the library goes on. Only `createUnsignedPD failed` after it
  says that no unsigned domain was given ([qualcomm/ai-hub-apps#130] has both).
- If a skel answers with other data than the stub expects, the log says `QNN_TRANSPORT_CONFIG crc32
  failed`.
- `DspTransport call failed, error 0x00000010` stands for 0x8000040d: the domain died in that call.
  0x00000007 stands for 0x27 and 0x68: the domain, or the whole DSP, was gone before.
- The library takes the death of one domain for a restart of the DSP: it says `SSR detected`,
  invalidates all handles, and opens another domain. If a domain dies during QnnDevice_create, that
  does not always work: the library asks for the skel's state, waits for itself, and never returns.

[UbiquitousLearning/mllm#272]: https://github.com/UbiquitousLearning/mllm/issues/272
[microsoft/onnxruntime#23171]: https://github.com/microsoft/onnxruntime/issues/23171
[pytorch/executorch#2788]: https://github.com/pytorch/executorch/issues/2788
[qualcomm/ai-hub-apps#130]: https://github.com/qualcomm/ai-hub-apps/issues/130
"""


def page() -> str:
    """The whole page."""
    shown = examples()
    parts = [_HEAD]
    for rule in RULES:
        parts += [f"\n## {_CHAPTERS[rule.id]}\n"] if rule.id in _CHAPTERS else []
        parts.append(_entry(rule, shown[rule.id]))
    return "".join(parts)


@cache
def examples() -> dict[str, dict[str, list[str]]]:
    """Return examples of each cause, by id and confidence: logs with that answer, as one line."""
    shown: dict[str, dict[str, list[str]]] = {rule.id: {} for rule in RULES}
    for expected, text in LOG_ROWS:
        if expected is not None:
            _add(shown, expected, text)
    for row in ROWS:
        if row.expected is not None:
            for text in _logs_of(row):
                if _add(shown, row.expected, text):
                    break
    return shown


def answer_to(text: str) -> str | None:
    """Id and confidence of the answer to a log."""
    causes = explain(read_log(io.BytesIO(text.encode())).lines).diagnoses
    return f"{causes[0].id} {causes[0].confidence}" if causes else None


def _logs_of(row: Row) -> Iterator[str]:
    """Yield the lines that a case logs of its failure, less or more of them."""
    message = "\n".join((*row.lines, *row.evidence))
    call = f"{row.api} returned {row.code}" if row.code is not None else f"{row.api} failed"
    yield message or f"{call}\n{row.message or ''}"
    yield "\n".join((call, message))


def _add(shown: dict[str, dict[str, list[str]]], expected: str, text: str) -> bool:
    name, confidence = expected.split()
    lines = shown[name].setdefault(confidence, [])
    if len(lines) >= _MOST:
        return True
    for short in _shorter(text):
        if len(short) <= _MAX_CHARS and answer_to(short) == expected:
            if short not in lines:
                lines.append(short)
            return True
    return False


def _shorter(text: str) -> Iterator[str]:
    """A log in one line: all of it, what shows its cause, and ever less of its beginning."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    yield " / ".join(lines)
    causes = explain(read_log(io.BytesIO(text.encode())).lines).diagnoses
    telling = list(dict.fromkeys(line.text for line in causes[0].lines)) if causes else []
    for some in (telling, lines):
        whole = " / ".join(some)
        for begin in [0, *(space.end() for space in re.finditer(r" ", whole))]:
            for end in (len(whole), begin + _MAX_CHARS - 8):
                yield (
                    ("... " if begin else "")
                    + whole[begin:end]
                    + ("" if end >= len(whole) else " ...")
                )


def _entry(rule: Rule, shown: dict[str, list[str]]) -> str:
    examples_text = "".join(
        f"    {confidence}: {line}\n"
        for confidence in CONFIDENCES
        for line in shown.get(confidence, ())
    )
    threads = ", ".join(
        f"[{thread}]({link})" for thread, link in zip(rule.threads, rule.links, strict=True)
    )
    words = rule.words.replace("{note}", "...")
    text = f"\n- **Threads**: {threads}" if threads else ""
    return (
        f"\n### {rule.id}\n\n{words[0].upper()}{words[1:]}.\n\n{examples_text}\n"
        f"- **What tells it apart**: {rule.apart}.\n- **What helps**: {rule.fix}.{text}\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
