"""A table: what a run can come to, by real runs, and what every place says that sums a run up.

Nothing is green above a missing verdict. A new place that reads whole runs has to be in the table.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import signal
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.nightly.chain import Chain
from harness.nightly.issues import issue_text
from harness.nightly.night import Night, summary_lines
from harness.report.ci import code_quality, github_lines, step_summary
from harness.results.coverage import Coverage
from harness.results.run_folder import RunFolder
from tests.integration.conftest import ContextFor
from tests.integration.device_runs import DeviceRuns
from tests.integration.forked import ROOT
from tests.integration.in_process import qnn_harness

SUITE = """
import contextlib, os, signal
from pathlib import Path

import pytest

from harness import ContextFile
from harness.core.errors import InfraError
from harness.probe.plan import Plan, Step

MODE = Path(__file__).with_name("mode").read_text()
NOOP = Plan((Step("noop"),))


@pytest.mark.device
def test_good(bench):
    bench.run(NOOP).check()


@pytest.mark.device
@pytest.mark.parametrize("context", [ContextFile("model.bin")], ids=str)
def test_file(bench, context):
    bench.resident(context, 1)


@pytest.mark.device
def test_case(bench):
    assert MODE not in ("failed", "known"), "it broke"
    if MODE == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if MODE == "skipped":
        pytest.skip("not today")
    if MODE == "lab":
        (simulated,) = bench._case.target.provisioned.lab_device.lab.simulation.devices.values()
        os.kill(simulated.pid, signal.SIGKILL)
        with contextlib.suppress(InfraError):
            while True:
                bench.device.transport.shell("true", timeout_s=60)
    bench.run(NOOP).check()


if MODE != "vanished":
    @pytest.mark.device
    def test_going(bench):
        bench.run(NOOP).check()


if MODE == "new":
    @pytest.mark.device
    def test_coming(bench):
        bench.run(NOOP).check()
"""
KNOWN = """schema: 1
known_issues:
  - id: old-bug
    link: https://example.com/1
    until: 2099-01-31
    signature: {api: null, code: null, message: it broke}
    conditions: {test: test_case}
"""
EXITS: Mapping[str, tuple[int, int, int]] = {
    "passed": (0, 0, 0),
    "failed": (1, 1, 1),
    "known": (0, 0, 0),
    "lab": (3, 3, 3),
    "input": (2, 2, 2),
    "killed": (-signal.SIGKILL, 3, 3),
    "unknown": (-signal.SIGKILL, 3, 3),
    "vanished": (0, 1, 1),
    "new": (0, 0, 0),
    "skipped": (0, 1, 1),
}
"""Of each kind how the run ends, its comparison with one that passed, and a night of it."""
LOST = ("lab", "input", "killed", "unknown")
SAID = {
    "passed": "4 of 4 cases have a verdict",
    "failed": "4 of 4 cases have a verdict",
    "known": "4 of 4 cases have a verdict",
    "lab": "3 of 4 cases have a verdict, 1 lost to the lab",
    "input": "3 of 4 cases have a verdict, 1 lost to a wrong test or input",
    "killed": "1 of 4 cases has a verdict, 3 not run",
    "unknown": "1 case with a verdict, of how many is unknown",
    "vanished": "3 of 3 cases have a verdict",
    "new": "5 of 5 cases have a verdict",
    "skipped": "3 of 4 cases have a verdict, 1 skipped",
}
GREEN = re.compile(
    r"(?<!\d )\bpassed\b(?! before)|nothing (new )?fails|no difference",
    re.I,
)
"""What claims that all is well; how many passed is a figure, and claims nothing."""


@dataclass(frozen=True)
class Made:
    """A real run of a kind, beside one that passed."""

    kind: str
    code: int
    output: str
    folder: RunFolder
    base: RunFolder
    lab: Path

    @property
    def coverage(self) -> Coverage:
        return self.folder.coverage()


MadeOf = Callable[[str], Made]


@pytest.fixture(scope="module")
def made_of(module_lab: DeviceRuns, context_for: ContextFor) -> MadeOf:
    """made_of(kind): the run of that kind, of which every place is asked."""
    mine = module_lab.folder / "mine"
    mine.mkdir()
    (mine / "test_mine.py").write_text(SUITE)
    (mine / "known.yaml").write_text(KNOWN)
    whole = context_for("tiny", "2.51.0").path.read_bytes()

    @functools.cache
    def get(kind: str) -> Made:
        if kind == "unknown":
            return of_an_older_harness(get("killed"))
        base = get("passed").folder if kind != "passed" else None
        (mine / "mode").write_text(kind)
        (mine / "model.bin").write_bytes(whole[: len(whole) // 2] if kind == "input" else whole)
        asked = ["--qnn", "2.51.0", "--retries", "0"]
        asked += ["--known-issues", str(mine / "known.yaml")] if kind == "known" else []
        done = module_lab.run(*asked, suites=mine)
        folder = RunFolder.open(module_lab.reports / "latest")
        return Made(kind, done.code, done.output, folder, base or folder, module_lab.file)

    return get


def of_an_older_harness(killed: Made) -> Made:
    """The run that was killed, as one has left it that did not say how many cases there were."""
    path = killed.folder.path.with_name(f"{killed.folder.path.name}0")
    shutil.copytree(killed.folder.path, path)
    info = json.loads((path / "run.json").read_text())
    del info["selected"]
    (path / "run.json").write_text(json.dumps(info | {"run": path.name}))
    return Made("unknown", killed.code, killed.output, RunFolder(path), killed.base, killed.lab)


def terminal(one: Made) -> str:
    if one.kind in ("killed", "unknown"):
        return report(one)  # it was killed before it could say anything
    assert "= qnn-harness =" in one.output, one.output
    _, _, told = one.output.partition("= qnn-harness =")
    return next(line for line in told.splitlines()[1:] if line)


def report(one: Made) -> str:
    return qnn_harness("report", "write", one.folder.path).stdout.partition("\n")[0]


def html_page(one: Made) -> str:
    report(one)
    text = (one.folder.path / "report.html").read_text()
    title = re.search("<title>(.*?)</title>", text, re.S)
    verdict = re.search('class="verdict">(.*?)</p>', text)
    since = re.search(r"</a>:</span>(.*?)</div>", text, re.S)
    assert title is not None
    assert verdict is not None
    assert verdict[1] in title[1]
    told = re.sub("<[^>]*>", "", since[1]) if since and one.kind in LOST else ""
    return verdict[1] + told.replace("no difference among what has a verdict", "")


def comparison(one: Made, form: str = "") -> str:
    words = [form] if form else []
    done = qnn_harness("compare", *words, one.base.path, one.folder.path)
    assert done.returncode == EXITS[one.kind][1], done.stdout + done.stderr
    if form == "--json":
        told = json.loads(done.stdout)
        assert told["exit_code"] == done.returncode
        assert Coverage.model_validate(told["coverage"]) == one.coverage
        return str(told["verdict"])
    if form == "--markdown":
        return "\n".join(done.stdout.splitlines()[:3])
    if form == "--html":
        (shown,) = re.findall('class="verdict (?:good|bad)">.*?</p>', done.stdout)
        title = re.search("<title>(.*?)</title>", done.stdout)
        assert title is not None
        assert ('"verdict good"' in shown) == (done.returncode == 0), shown
        return title[1] + shown
    return done.stdout


def history(one: Made, form: str = "") -> str:
    """Of both runs: of the newer one how many cases left no record, too."""
    where = one.folder.path / "history.sqlite"
    words = ["--database", where]
    taken = qnn_harness("history", "import", *words, one.base.path, one.folder.path)
    assert taken.returncode == 0, taken.stderr
    done = qnn_harness("history", *([form] if form else []), *words)
    assert done.returncode == 0, done.stderr
    if form == "--json":
        found = json.loads(done.stdout)
        assert found["lost"] == (one.kind in ("lab", "input"))
        lacks = [(of["run"], of["not_run"]) for of in found["lacking"]]
        missing = {"killed": 3, "unknown": None}
        wanted = [(one.folder.run_id, missing[one.kind])] if one.kind in missing else []
        assert lacks == wanted
        return ""
    return done.stdout


def site(one: Made) -> str:
    """The front page of both runs."""
    where, out = one.folder.path / "site.sqlite", one.folder.path / "site"
    words = ["--database", where]
    qnn_harness("history", "import", *words, one.base.path, one.folder.path)
    done = qnn_harness("report", "site", "--output", out, *words)
    assert done.returncode == 0, done.stderr
    text = (out / "index.html").read_text()
    (shown,) = re.findall('class="(verdict[ a-z]*)">(.*?)</p>', text)
    assert ("bad" in shown[0]) == (one.kind in LOST or one.kind == "failed"), one.kind
    return str(shown[1])


def night(one: Made) -> str:
    """A night whose run is over, and was compared before with the one that passed."""
    reports = one.folder.path / "night"
    reports.mkdir(exist_ok=True)
    for folder in (one.base, one.folder):
        if not (reports / folder.run_id).exists():
            shutil.copytree(folder.path, reports / folder.run_id, ignore=lambda *_: ["night"])
    values: dict[str, object] = {
        "arguments": (),
        "selection": ("x",),
        "lab": str(one.lab),
        "folder": str(ROOT),
    }
    values |= {"budget_s": 60.0, "until": time.time() + 60}
    code, text = 0, ""
    for number, folder in enumerate((one.base, one.folder)):
        name = f"2026112{number}T000000Z-00-nightly"
        begun = Night.model_validate(
            values
            | {
                "night": name,
                "started": f"2026-11-2{number}",
                "done": ("fetch", "run"),
                "run": folder.run_id,
                "run_exit_code": EXITS[one.kind][0] if number else 0,
            }
        )
        chain = Chain(begun, (), reports, None)
        chain._save()
        over = chain.go_on()
        code = over.exit_code
        shown = (reports / name / "summary.md").read_text().splitlines()[:3]
        issues = [issue_text(issue) for issue in over.issues]
        text = "\n".join([*shown, str(over.verdict), *summary_lines(over), *issues])
    assert code == EXITS[one.kind][2], text
    assert any(f"# `{words}" in text for words in ("lost to", "not run")) == (one.kind in LOST)
    return text


def junit(one: Made) -> str:
    report(one)
    document = ElementTree.parse(one.folder.path / "junit.xml").getroot()
    cases = list(document.iter("testcase"))
    errors = sum(case.find("error") is not None for case in cases)
    failures = sum(case.find("failure") is not None for case in cases)
    told = (int(document.get("tests", 0)), int(document.get("errors", 0)))
    assert (errors > 0) == (one.kind in LOST)
    assert (failures > 0) == (one.kind == "failed")
    assert told == (len(cases), errors)
    return one.coverage.sentence()


def metrics(one: Made) -> str:
    report(one)
    text = (one.folder.path / "metrics.prom").read_text()
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["qnn_harness_coverage_whole"] == (one.kind not in LOST)
    assert found.get("qnn_harness_selected_cases") == one.coverage.selected
    return one.coverage.sentence()


def step(one: Made) -> str:
    text = step_summary(one.folder.contents().cases, one.coverage, one.folder.run_id)
    return text.partition("\n")[0]


def findings(one: Made) -> str:
    cases = one.folder.contents().cases
    expected = one.kind in LOST or one.kind == "failed"
    assert bool(github_lines(cases, one.coverage)) == expected
    assert bool(code_quality(cases, one.coverage)) == expected
    return one.coverage.sentence()


PLACES: Mapping[str, Callable[[Made], str]] = {
    "terminal": terminal,
    "report": report,
    "page": html_page,
    "junit": junit,
    "metrics": metrics,
    "GitHub's summary": step,
    "annotations, GitLab": findings,
    "compare": comparison,
    "compare --markdown": partial(comparison, form="--markdown"),
    "compare --html": partial(comparison, form="--html"),
    "compare --json": partial(comparison, form="--json"),
    "history": history,
    "history --json": partial(history, form="--json"),
    "nightly": night,
    "site": site,
}


KINDS = [
    pytest.param(
        kind, marks=() if kind in ("passed", "failed", "lab", "killed") else pytest.mark.slow
    )
    for kind in EXITS
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_ends_as_its_kind_says(made_of: MadeOf, kind: str) -> None:
    one = made_of(kind)
    assert one.code == EXITS[kind][0], one.output
    assert one.coverage.headline.startswith(SAID[kind])
    assert one.coverage.is_whole == (kind not in LOST)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_every_place_says_it_first_and_claims_nothing_else(
    made_of: MadeOf, place: str, kind: str
) -> None:
    said = PLACES[place](made_of(kind))
    of_history = place.startswith("history")
    if not of_history:
        told = re.sub(r" \((\d+|none) of them new\)", "", said)
        assert made_of(kind).coverage.sentence() in told, said
    elif place != "history --json":
        lost = kind in ("lab", "input")
        assert ("; 1 case without a verdict in the last run" in said) == lost, said
        assert ("; 3 cases not run in " in said) == (kind == "killed"), said
        assert ("; whether all was run is unknown of " in said) == (kind == "unknown"), said
    if kind in LOST and not of_history:
        assert not GREEN.search(said), said
    if kind == "passed" and place in ("compare", "compare --markdown", "nightly"):
        assert GREEN.search(said), "or else nothing would be found above"


READERS = re.compile(
    r"\b(contents|read_attempts|read_journal|read_once|cases_in|lines_in|"
    r"stored_attempts|totals)\("
)
TOLD_BY = {
    "nightly/chain.py": "nightly",
    "history/comparison_text.py": "compare",
    "history/previous.py": "page",
    "cli/history.py": "history",
    "history/run_changes.py": "site",
    "cli/report.py": "report",
    "report/merge.py": "report",
    "report/ci.py": "GitHub's summary",
    "report/html.py": "page",
    "report/metrics.py": "metrics",
    "report/projections.py": "page",
    "results/run_folder.py": "page",
    "report/summary.py": "terminal",
    "plugin/recorder.py": "terminal",
    "plugin/device_run.py": "terminal",
}
SUM_UP_NOTHING = {
    "history/attempts.py": "reads",
    "history/importing.py": "reads",
    "results/journal.py": "reads",
    "report/model_figures.py": "figures of cases, behind what says how many were judged",
    "layers/network.py": "one case for each context; one without outputs is an error",
    "cli/run.py": "prints records",
    "cli/notify.py": "by what the terminal has",
    "bisect/loop.py": "one case",
    "reduce/subject.py": "one case",
}


def test_whoever_reads_whole_runs_is_in_the_table() -> None:
    harness = ROOT / "harness"
    readers = {
        str(file.relative_to(harness))
        for file in harness.rglob("*.py")
        if READERS.search(file.read_text())
    }
    known = {*TOLD_BY, *SUM_UP_NOTHING}
    assert readers - known == set(), "say where it is told, and add that to the table"
    assert known - readers == set()
    assert set(TOLD_BY.values()) <= set(PLACES)
