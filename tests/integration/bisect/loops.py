"""A bisection beside what people do without one: a shell loop over every version."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence

from tests.integration.bisect.bisections import command, done_of
from tests.integration.device_runs import ROOT, DeviceRuns

_PAIR_S = 300
Versions = Mapping[str, Sequence[str]]


def beside_a_loop(
    lab: DeviceRuns, case: str, chosen: str, axes: Versions, held_versions: Mapping[str, str]
) -> dict[str, object]:
    """Return how long both take from start to end, what they found, and the ratio of the times.

    `chosen` is what -k selects the same case by. Whatever is missing in the cache is fetched and
    compiled before; that the answers are the same is required.
    """
    places = list(itertools.product(*axes.values()))
    every = [word for axis, names in axes.items() for word in (f"--{axis}", ",".join(names))]
    held_options = [word for axis, name in held_versions.items() for word in (f"--{axis}", name)]
    lab.run("-k", chosen, *every, *held_options)
    start = time.monotonic()
    arguments = command(lab, "--case", case, "--axis", ",".join(axes), *every, *held_options)
    # in processes of its own, as the loop's are
    completed = done_of(
        subprocess.run(
            arguments, cwd=ROOT, env=lab.environment, capture_output=True, text=True, check=False
        )
    )
    bisect_s = time.monotonic() - start
    assert completed.code == 0, completed.errors
    codes, loop_s = _loop(lab, chosen, axes, held_versions)
    answers = completed.answers
    truth = {point: "good" if codes[point] == 0 else "bad" for point in places}
    assert {point: answers[point] for point in answers} == {
        point: truth[point] for point in answers
    }
    return {
        "bisect_s": round(bisect_s, 1),
        "of_that_in_runs_s": round(sum(run["seconds"] for run in completed.result["runs"]), 1),
        "loop_s": round(loop_s, 1),
        "ratio": round(bisect_s / loop_s, 2),
        "runs": f"{len(completed.result['runs'])} of {len(places)}",
        "answer": completed.result["answer"]["text"],
    }


def _loop(
    lab: DeviceRuns, chosen: str, axes: Versions, held_versions: Mapping[str, str]
) -> tuple[dict[tuple[str, ...], int], float]:
    """The exit code of each turn of a shell's loop, and how long it took in all."""
    names = [f"V{number}" for number in range(len(axes))]
    options = [f'--{axis} "${name}"' for axis, name in zip(axes, names, strict=True)]
    options += [f"--{axis} {shlex.quote(version)}" for axis, version in held_versions.items()]
    # a known issue is a failure here as for the bisection, which asks for the outcome
    base = lab.command("-k", chosen, "--known-issues", _no_known_issues(lab), ROOT / "suites")
    variables = " ".join(f"${name}" for name in names)
    body = f"{shlex.join(base)} {' '.join(options)} >/dev/null 2>&1; echo {variables} $?"
    for name, versions in reversed(list(zip(names, axes.values(), strict=True))):
        body = f"for {name} in {shlex.join(versions)}; do {body}; done"
    count = len(list(itertools.product(*axes.values())))
    start = time.monotonic()
    completed = subprocess.run(
        ["sh", "-c", body],
        cwd=ROOT,
        env=lab.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_PAIR_S * count,
        check=True,
    )
    seconds = time.monotonic() - start
    rows = [line.split() for line in completed.stdout.splitlines()]
    codes = {tuple(row[:-1]): int(row[-1]) for row in rows}
    assert len(codes) == count
    assert set(codes.values()) <= {0, 1}, codes
    return codes, seconds


def _no_known_issues(lab: DeviceRuns) -> str:
    file = lab.folder / "none.yaml"
    file.write_text("schema: 1\nknown_issues: []\n")
    return str(file)
