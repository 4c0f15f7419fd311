"""A table: what a run can come to, by real runs, and what every place says that sums a run up.

Nothing is green above a missing verdict.
"""

import functools
import json
import os
import re
import shutil
import signal
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from harness.history.database import VARIABLE
from harness.nightly.issues import issue_text
from harness.nightly.night import Night, summary_lines
from harness.nightly.night_steps import Chain
from harness.report.ci import step_summary
from harness.report.report_files import run_data
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
    assert MODE != "failed", "it broke"
    if MODE == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if MODE == "lab":
        (simulated,) = bench.case.prepared.provisioned.lab_device.lab.simulation.devices.values()
        os.kill(simulated.pid, signal.SIGKILL)
        with contextlib.suppress(InfraError):
            while True:
                bench.device.transport.shell("true", timeout_s=60)
    bench.run(NOOP).check()


@pytest.mark.device(**({"htp_arch": 99} if MODE == "slip" else {}))
def test_last(bench):
    bench.run(NOOP).check()
"""
EXITS: Mapping[str, tuple[int, int, int]] = {
    "passed": (0, 0, 0),
    "failed": (1, 1, 1),
    "lab": (3, 3, 3),
    "input": (2, 2, 2),
    "slip": (2, 3, 3),
    "killed": (-signal.SIGKILL, 3, 3),
    "unknown": (-signal.SIGKILL, 3, 3),
}
"""Of each kind how the run ends, its comparison with one that passed, and a night of it."""
MISSING: Mapping[str, Mapping[str, int]] = {
    "lab": {"lab": 1},
    "input": {"input": 1},
    "slip": {"not run": 1},
    "killed": {"not run": 3},
}
LOST = ("lab", "input", "slip", "killed", "unknown")
GREEN = re.compile(r"(?<!\d )\bpassed\b(?! before)|nothing (new )?fails|no difference", re.I)
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
    """Return a function that makes the run of a kind, once for all places."""
    mine = module_lab.folder / "mine"
    mine.mkdir()
    (mine / "test_mine.py").write_text(SUITE)
    whole = context_for("tiny", "2.51.0").path.read_bytes()
    unread = module_lab.folder / "unread"

    @functools.cache
    def get(kind: str) -> Made:
        if kind == "unknown":
            return of_an_older_harness(get("killed"), unread)
        base = get("passed").folder if kind != "passed" else None
        (mine / "mode").write_text(kind)
        (mine / "model.bin").write_bytes(whole[: len(whole) // 2] if kind == "input" else whole)
        completed = module_lab.run("--qnn", "2.51.0", "-o", "qnn_retries=0", suites=mine)
        folder = RunFolder.open(module_lab.reports / "latest")
        if kind == "killed":  # before places write into its folder
            shutil.copytree(folder.path, unread)
        return Made(kind, completed.code, completed.output, folder, base or folder, module_lab.file)

    return get


def of_an_older_harness(killed: Made, unread: Path) -> Made:
    """The killed run, with no number of cases in its run.json."""
    path = killed.folder.path.with_name(f"{killed.folder.path.name}0")
    shutil.copytree(unread, path)
    info = json.loads((path / "run.json").read_text())
    del info["selected"]
    (path / "run.json").write_text(json.dumps(info | {"run": path.name}))
    return Made("unknown", killed.code, killed.output, RunFolder(path), killed.base, killed.lab)


def terminal(made_run: Made) -> str:
    if made_run.kind in ("killed", "unknown"):
        return report(made_run)  # it was killed before it could say anything
    assert "= qnn-harness =" in made_run.output, made_run.output
    if made_run.coverage.is_whole:  # pytest's last line says it
        return made_run.output.splitlines()[-1].replace(" failed", " failure")
    _, _, text = made_run.output.partition("= qnn-harness =")
    return next(line for line in text.splitlines()[1:] if line)


def report(made_run: Made) -> str:
    return qnn_harness("report", "write", made_run.folder.path).stdout.partition("\n")[0]


def html_page(made_run: Made) -> str:
    report(made_run)
    text = (made_run.folder.path / "report.html").read_text()
    title = re.search("<title>(.*?)</title>", text, re.S)
    verdict = re.search('class="verdict">(.*?)</p>', text)
    since = re.search(r"</a>:</span>(.*?)</div>", text, re.S)
    assert verdict[1] in title[1]
    since_text = re.sub("<[^>]*>", "", since[1]) if since and made_run.kind in LOST else ""
    return verdict[1] + since_text.partition("no difference among")[0]


def comparison(made_run: Made, form: str = "") -> str:
    words = form.split()
    completed = qnn_harness(
        "compare", *words, made_run.base.path, made_run.folder.path, code=EXITS[made_run.kind][1]
    )
    if form == "--json":
        document = json.loads(completed.stdout)
        assert document["exit_code"] == completed.returncode
        assert Coverage.model_validate(document["coverage"]) == made_run.coverage
        return str(document["verdict"])
    if form == "--format md":
        return "\n".join(completed.stdout.splitlines()[:3])
    if form == "--format html":
        (shown,) = re.findall('class="verdict (?:good|bad)">.*?</p>', completed.stdout)
        title = re.search("<title>(.*?)</title>", completed.stdout)
        assert ('"verdict good"' in shown) == (completed.returncode == 0), shown
        return title[1] + shown
    return completed.stdout


def history(made_run: Made, form: str = "") -> str:
    """Of both runs: of the newer one how many cases left no record, too."""
    database = {VARIABLE: str(made_run.folder.path / "history.sqlite")}
    with mock.patch.dict(os.environ, database):
        qnn_harness("history", "import", made_run.base.path, made_run.folder.path, code=0)
        completed = qnn_harness("history", "list", *form.split(), code=0)
    if form == "--json":
        document = json.loads(completed.stdout)
        assert document["lost"] == (made_run.kind in ("lab", "input"))
        lacks = [(of["run"], of["not_run"]) for of in document["lacking"]]
        missing = {"killed": 3, "slip": 1, "unknown": None}
        expected = (
            [(made_run.folder.run_id, missing[made_run.kind])] if made_run.kind in missing else []
        )
        assert lacks == expected
        return ""
    return completed.stdout


def site(made_run: Made) -> str:
    """The front page of both runs."""
    out = made_run.folder.path / "site"
    with mock.patch.dict(os.environ, {VARIABLE: str(made_run.folder.path / "site.sqlite")}):
        qnn_harness("history", "import", made_run.base.path, made_run.folder.path)
        qnn_harness("report", "site", "--output", out, code=0)
    text = (out / "index.html").read_text()
    (shown,) = re.findall('class="(verdict[ a-z]*)">(.*?)</p>', text)
    assert ("bad" in shown[0]) == (made_run.kind in LOST or made_run.kind == "failed"), (
        made_run.kind
    )
    return str(shown[1])


def night(made_run: Made) -> str:
    """A night whose run is over, and was compared before with the one that passed."""
    reports = made_run.folder.path / "night"
    reports.mkdir(exist_ok=True)
    for folder in (made_run.base, made_run.folder):
        if not (reports / folder.run_id).exists():
            shutil.copytree(folder.path, reports / folder.run_id, ignore=lambda *_: ["night"])
    values: dict[str, object] = {
        "arguments": (),
        "selection": ("x",),
        "lab": str(made_run.lab),
        "folder": str(ROOT),
    }
    values |= {"budget_s": 60.0, "until": time.time() + 60}
    code, text = 0, ""
    for number, folder in enumerate((made_run.base, made_run.folder)):
        name = f"2026112{number}T000000Z-00-nightly"
        started_night = Night.model_validate(
            values
            | {
                "night": name,
                "started": f"2026-11-2{number}",
                "done": ("fetch", "run"),
                "run": folder.run_id,
                "run_exit_code": EXITS[made_run.kind][0] if number else 0,
            }
        )
        chain = Chain(started_night, (), reports)
        chain._save()
        finished_night = chain.go_on()
        code = finished_night.exit_code
        shown = (reports / name / "summary.md").read_text().splitlines()[:3]
        issues = [issue_text(issue) for issue in finished_night.issues]
        text = "\n".join(
            [*shown, str(finished_night.verdict), *summary_lines(finished_night), *issues]
        )
    assert code == EXITS[made_run.kind][2], text
    assert any(f"# `{words}" in text for words in ("lost to", "not run")) == (made_run.kind in LOST)
    return text


def junit(made_run: Made) -> str:
    report(made_run)
    document = ElementTree.parse(made_run.folder.path / "junit.xml").getroot()
    cases = list(document.iter("testcase"))
    errors = sum(case.find("error") is not None for case in cases)
    failures = sum(case.find("failure") is not None for case in cases)
    counts = (int(document.get("tests", 0)), int(document.get("errors", 0)))
    assert (errors > 0) == (made_run.kind in LOST)
    assert (failures > 0) == (made_run.kind == "failed")
    assert counts == (len(cases), errors)
    return made_run.coverage.headline()


def step(made_run: Made) -> str:
    text = step_summary(run_data(made_run.folder))
    return text.partition("\n")[0]


PLACES: Mapping[str, Callable[[Made], str]] = {
    "terminal": terminal,
    "report": report,
    "page": html_page,
    "junit": junit,
    "GitHub's summary": step,
    "compare": comparison,
    "compare --format md": partial(comparison, form="--format md"),
    "compare --format html": partial(comparison, form="--format html"),
    "compare --json": partial(comparison, form="--json"),
    "history": history,
    "history --json": partial(history, form="--json"),
    "nightly": night,
    "site": site,
}


KINDS = [
    pytest.param(kind, marks=pytest.mark.slow if kind in ("input", "unknown") else ())
    for kind in EXITS
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_ends_as_its_kind_says(made_of: MadeOf, kind: str) -> None:
    made_run = made_of(kind)
    assert made_run.code == EXITS[kind][0], made_run.output
    assert made_run.coverage.missing == MISSING.get(kind, {})
    assert made_run.coverage.selected == (None if kind == "unknown" else 4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_every_place_says_it_first_and_claims_nothing_else(
    made_of: MadeOf, place: str, kind: str
) -> None:
    sentence = PLACES[place](made_of(kind))
    of_history = place.startswith("history")
    if not of_history:
        plain = re.sub(r" \((\d+|none) new\)| new(?= failure)", "", sentence)
        assert made_of(kind).coverage.headline() in plain.lower(), sentence
    elif place != "history --json":
        words = {"without a verdict": ("lab", "input"), "not run": ("killed", "slip")}
        for text, kinds in (words | {"is unknown": ("unknown",)}).items():
            assert (text in sentence.partition("\n")[0]) == (kind in kinds), sentence
    if kind in LOST and not of_history:
        assert not GREEN.search(sentence), sentence
    if kind == "passed" and place in ("compare", "compare --format md", "nightly"):
        assert GREEN.search(sentence), "or else nothing would be found above"
