"""Write docs/reference/context-options.md from the results of suites/test_context_options.py.

Usage: `python suites/context_options_page.py RUN PAGE`. RUN is the folder of a run over all
versions and targets, PAGE the file to write (`make atlas` does both).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.core.context_options import CONTEXT_OPTIONS, ContextOption
from harness.core.versions import QnnVersion

HEAD = """# Options of a context

Options with which an HTP context binary loads: with less memory, faster, or together with others.

Set them with `qnn-harness run model.bin --context-option reused_io_limit_mb=64` (repeatable), in a
test with `bench.resident(contexts, options={"reused_io_limit_mb": 64})`, in a plan with
`steps.context_load(0, file, options={...})`. The record lists them as the measurement
`context_options`. A flag is 0 or 1. If the target does not support an option, the case is
`unsupported`. Some options need others:

- `share_resources` and `share_resources_optimization` are options of a list: contexts that load one
  after another are then loaded in one call, up to 48 of them. If there is such a list,
  `reused_io_limit_mb` is set for it, too.
- `spill_fill_group` puts all contexts into one group. Its value is the size of the largest
  spill-fill buffer that any of them needs. They must be resident.
- `memory_limit_hint_mb` needs `persistent_binary`: the binary then stays in memory until its
  context is freed, and graphs are loaded and unloaded as they execute.
- `reused_io_limit_mb` only changes the estimate by which a protection domain is chosen. Contexts
  that are compiled for raw memory allocate all their I/O when they load, and the domain runs out of
  memory. Compile them for memory handles, and register the same buffers with each of them.

[test_context_remedies.py](../howto/run-models.md#make-them-fit) has measured
which of them help contexts that do not all fit.

With `--engine ort` the same option of ONNX Runtime's QNN provider is set, if it has one. The
provider ignores unknown names, so the harness looks for the name in its library; without it the
case is `unsupported`. ExecuTorch takes no options when it loads a file; when it compiles one,
`generate_htp_compiler_spec` has `use_multi_contexts` (a spill-fill group) and `use_weight_sharing`.

`make atlas` writes this page in a checkout: do not edit it. `harness/core/context-options.tsv` has
the table, `suites/test_context_options.py` tries each option with two contexts, which are also
executed.

"""
COLUMNS = (
    "option",
    "number",
    "value",
    "QNN's name",
    "since",
    "meant for",
    "named by",
    "ONNX Runtime",
)
MAX_LOGGED = 100


def page(cases: Iterable[Mapping[str, Any]]) -> str:
    """Return the page for the cases of a run."""
    answers: dict[str, dict[str, dict[str, str]]] = {}
    taken: dict[str, list[str]] = {}
    targets, versions = set(), set()
    for case in cases:
        figures = case["measurements"]
        if case["suite"] != "context_options" or "option" not in figures:
            continue
        name, version = figures["option"], case["axes"]["qnn"]
        if "provider_option" in figures:
            if figures["ended"] != "no option":
                taken.setdefault(name, []).append(version)
            continue
        target = case["device"]["target"]
        targets.add(target)
        versions.add(version)
        answers.setdefault(name, {}).setdefault(target, {})[version] = _answer(figures)
    ordered = sorted(targets, reverse=True)
    header = (*COLUMNS, *ordered)
    rows = [
        _row(option, [answers.get(option.name, {}).get(target, {}) for target in ordered], taken)
        for option in CONTEXT_OPTIONS.values()
    ]
    lines = (header, ["---"] * len(header), *rows)
    tried = ", ".join(sorted(versions, key=QnnVersion.parse))
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return f"{HEAD}Tried with QNN {tried}; `since` is the oldest of them that knows it.\n\n{text}"


def _row(
    option: ContextOption,
    by_target: Iterable[Mapping[str, str]],
    taken: Mapping[str, Iterable[str]],
) -> tuple[str, ...]:
    value = ", ".join(option.words) or option.value
    versions = sorted(taken.get(option.name, ()), key=QnnVersion.parse)
    since = f"QNN {versions[0]} on" if versions else "none of these versions"
    return (
        f"`{option.name}`",
        f"{option.kind} {option.number}",
        value,
        f"`{option.symbol}`",
        option.since,
        option.targets,
        option.source,
        f"`{option.ort}`, {since}" if option.ort else "none",
        *map(_cell, by_target),
    )


def _answer(figures: Mapping[str, Any]) -> str:
    error = figures["error"]
    if error is None:
        return "accepted"
    text = re.sub(r"\[ERROR\].*?\n", "", error["message"])
    line = re.sub(r"0x[0-9a-f]+", "0x...", text.partition("\n")[0]).replace("|", "\\|")
    return f"{error['code']} `{error['api']}`: `{line[:MAX_LOGGED]}`"


def _cell(by_version: Mapping[str, str]) -> str:
    """Return what the newest version answers, and older ones where they differ."""
    if not by_version:
        return "not tried"
    versions = sorted(by_version, key=QnnVersion.parse)
    newest = by_version[versions[-1]]
    others = [f"{version}: {by_version[version]}" for version in versions]
    return newest if set(by_version.values()) == {newest} else "<br>".join(others)


def main(run: str, target: str) -> None:
    """Read a run's journal and write the page."""
    journal = (Path(run) / "results.jsonl").read_text("utf-8").splitlines()
    rows = (json.loads(line) for line in journal)
    Path(target).write_text(page(row for row in rows if row["kind"] == "case"), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
