"""Write docs/reference/error-codes.md from the results of the atlas.

Usage: `python suites/error_codes_page.py RUN PAGE`. RUN is the folder of a run over all versions,
PAGE the file to write (`make atlas` does both).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.error_codes import GPU_ERRORS, describe
from harness.core.versions import QnnVersion

HEAD = """# Error codes that the real libraries give

The table has each code that libQnnHtp.so, libQnnGpu.so and libQnnSystem.so for x86-64 give without
a phone, and the shortest series of calls found that leads to it. A device with a DSP or a GPU may
answer the same calls differently. The symbol is `none` where no name for the number is known.

The last column is the first line that the library logs meanwhile. If it says "nothing", the code is
all there is. Codes through ONNX Runtime (ORT) are those that its message names.

`make atlas` writes this page in a checkout (`pytest -m "device and atlas" --qnn all`): do not edit
it. `suites/error_codes.py` lists the calls, `suites/test_error_codes.py` makes them. To have a log
explained, use [`qnn-harness explain`](../howto/troubleshoot.md).

"""
GPU_HEAD = """
## Numbers of the GPU library

libQnnGpu.so writes numbers of its own into its log. A record has these lines in its `chain`.

| number | name |
| --- | --- |
"""
COLUMNS = ("code", "symbol", "backend", "given when", "call", "versions", "first line of the log")
MAX_LOGGED = 160


def page(cases: Iterable[Mapping[str, Any]]) -> str:
    """Return the page for the cases of a run."""
    table: dict[tuple[int, str], dict[str, dict[str, Mapping[str, Any]]]] = {}
    for case in cases:
        figures = case["measurements"]
        if case["suite"] != "error_codes" or "how" not in figures:
            continue
        through = "ORT on " if case["axes"]["ort"] else ""
        backend = f"{through}{case['axes']['backend'].upper()}"
        backends = table.setdefault((figures["code"], figures["how"]), {})
        by_version = backends.setdefault(backend, {})
        by_version[case["axes"]["qnn"]] = figures
    versions = sorted(
        {version for rows in table.values() for answers in rows.values() for version in answers},
        key=QnnVersion.parse,
    )
    rows = [_row(code, trigger, table[code, trigger], versions) for code, trigger in sorted(table)]
    codes = {code for code, _ in table}
    count = f"{len(codes)} codes, {sum(map(len, table.values()))} ways to get them"
    summary = f"{count}, with QNN {', '.join(versions)}.\n\n"
    lines = (COLUMNS, ["---"] * len(COLUMNS), *rows)
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    named = "".join(f"| {number} | `{name}` |\n" for number, name in GPU_ERRORS.items())
    return HEAD + summary + text + GPU_HEAD + named


def _row(
    code: int,
    trigger: str,
    backends: Mapping[str, Mapping[str, Mapping[str, Any]]],
    versions: Sequence[str],
) -> tuple[str, ...]:
    newest = [_newest(code, by_version) for by_version in backends.values()]
    calls = dict.fromkeys((figures["error"] or {}).get("api") or "none" for figures in newest)
    logged = [_logged(figures["error"]) for figures in newest]
    if len(set(logged)) > 1:
        named = zip(backends, logged, strict=True)
        logged = [f"{backend}: {line or 'nothing'}" for backend, line in named]
    log_line = "<br>".join(dict.fromkeys(logged)) or "nothing"
    answers = [
        f"{backend} {version}: {by_version[version]['answered'] or _instead(by_version[version])}"
        for backend, by_version in backends.items()
        for version in versions
        if version in by_version and by_version[version]["answered"] != code
    ]
    differs = f"**changed:** {'; '.join(answers)}" if answers else "all"
    symbol = describe(code, api=next(iter(calls))).symbol or "none"
    return (
        str(code),
        f"`{symbol}`",
        ", ".join(backends),
        trigger,
        ", ".join(f"`{name}`" for name in calls),
        differs,
        log_line,
    )


def _newest(code: int, by_version: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the answer of the newest version that gave the code, else of the newest."""
    giving = [version for version, figures in by_version.items() if figures["answered"] == code]
    return by_version[max(giving or by_version, key=QnnVersion.parse)]


def _instead(figures: Mapping[str, Any]) -> str:
    return "no error" if figures["ended"] == "passed" else str(figures["ended"])


def _logged(error: Mapping[str, Any] | None) -> str:
    links = (error or {}).get("chain", [])
    first = next((link["message"] for link in links if link["source"] == "log"), "")
    text = re.sub(r"(?:/[\w.+-]+)+/", ".../", first.partition("\n")[0])
    text = re.sub(r"0x[0-9a-f]{5,}", "0x...", text).replace("|", "\\|")
    return f"`{text[:MAX_LOGGED]}`" if text else ""


def main(run: str, target: str) -> None:
    """Read a run's journal and write the page."""
    journal = (Path(run) / "results.jsonl").read_text("utf-8").splitlines()
    rows = (json.loads(line) for line in journal)
    Path(target).write_text(page(row for row in rows if row["kind"] == "case"), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
