"""Writes docs/error-codes.md from the results of the atlas.

It is run as `python suites/error_codes_page.py RUN PAGE`: RUN is the folder of a run over all
versions, PAGE the file to write (`make atlas` does both).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.codes import GPU_ERRORS, describe
from harness.core.versions import QnnVersion

HEAD = """# Error codes that the real libraries give

For whoever has the number of an error and wants to know in which other cases QNN gives it.

The table has each code that libQnnHtp.so, libQnnGpu.so and libQnnSystem.so for x86-64 give without
a phone, and the shortest series of calls found that leads to it. A device with a DSP or a GPU may
answer the same calls differently. The symbol is `none` where no name for the number is known.

The last column is the first line that the library logs meanwhile. If it says "nothing", the code is
all there is. Codes through ONNX Runtime (ORT) are those that its message names.

`make atlas` writes this page in a checkout (`pytest -m "device and atlas" --qnn all`): do not edit
it. `suites/error_codes.py` lists the calls, `suites/test_error_codes.py` makes them. To have a log
explained, use [`qnn-harness explain`](results.md#any-log).

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
    """The page for the cases of a run."""
    found: dict[tuple[int, str], dict[str, dict[str, Mapping[str, Any]]]] = {}
    for case in cases:
        figures = case["measurements"]
        if case["suite"] != "error_codes" or "how" not in figures:
            continue
        through = "ORT on " if case["axes"]["ort"] else ""
        backend = f"{through}{case['axes']['backend'].upper()}"
        by_version = found.setdefault((figures["code"], figures["how"]), {}).setdefault(backend, {})
        by_version[case["axes"]["qnn"]] = figures
    versions = sorted(
        {one for rows in found.values() for seen in rows.values() for one in seen},
        key=QnnVersion.parse,
    )
    rows = [_row(code, how, found[code, how], versions) for code, how in sorted(found)]
    codes = {code for code, _ in found}
    count = f"{len(codes)} codes, {sum(map(len, found.values()))} ways to get them"
    over = f"{count}, with QNN {', '.join(versions)}.\n\n"
    lines = (COLUMNS, ["---"] * len(COLUMNS), *rows)
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    named = "".join(f"| {number} | `{name}` |\n" for number, name in GPU_ERRORS.items())
    return HEAD + over + table + GPU_HEAD + named


def _row(
    code: int,
    how: str,
    backends: Mapping[str, Mapping[str, Mapping[str, Any]]],
    versions: Sequence[str],
) -> tuple[str, ...]:
    newest = [_newest(code, seen) for seen in backends.values()]
    calls = dict.fromkeys((one["error"] or {}).get("api") or "none" for one in newest)
    logged = [_logged(one["error"]) for one in newest]
    if len(set(logged)) > 1:
        named = zip(backends, logged, strict=True)
        logged = [f"{backend}: {line or 'nothing'}" for backend, line in named]
    said = "<br>".join(dict.fromkeys(logged)) or "nothing"
    answers = [
        f"{backend} {version}: {seen[version]['answered'] or _instead(seen[version])}"
        for backend, seen in backends.items()
        for version in versions
        if version in seen and seen[version]["answered"] != code
    ]
    differs = f"**changed:** {'; '.join(answers)}" if answers else "all"
    symbol = describe(code, api=next(iter(calls))).symbol or "none"
    return (
        str(code),
        f"`{symbol}`",
        ", ".join(backends),
        how,
        ", ".join(f"`{name}`" for name in calls),
        differs,
        said,
    )


def _newest(code: int, seen: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """What the newest version that gave the code answered, else the newest."""
    giving = [version for version, figures in seen.items() if figures["answered"] == code]
    return seen[max(giving or seen, key=QnnVersion.parse)]


def _instead(figures: Mapping[str, Any]) -> str:
    return "no error" if figures["ended"] == "passed" else str(figures["ended"])


def _logged(error: Mapping[str, Any] | None) -> str:
    links = (error or {}).get("chain", [])
    first = next((link["message"] for link in links if link["source"] == "log"), "")
    text = re.sub(r"(?:/[\w.+-]+)+/", ".../", first.partition("\n")[0])
    text = re.sub(r"0x[0-9a-f]{5,}", "0x...", text).replace("|", "\\|")
    return f"`{text[:MAX_LOGGED]}`" if text else ""


def main(run: str, target: str) -> None:
    """Reads a run's journal and writes the page."""
    journal = (Path(run) / "results.jsonl").read_text("utf-8").splitlines()
    rows = (json.loads(line) for line in journal)
    Path(target).write_text(page(row for row in rows if row["kind"] == "case"), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
