"""A night tells people what it found: once, whenever it died, and goes on whoever is silent."""

from __future__ import annotations

import json
from pathlib import Path

import apprise
import pytest
import yaml

from harness.answers.telling.news import News, NewsItem
from harness.answers.telling.told import NEWS, ToldState
from harness.answers.telling.trackers import is_tracker
from harness.device.lab.notify import NewsChannel
from harness.ground.errors import InfraError
from harness.ground.files.whole_file import write_json
from harness.search.nightly.chain import Chain
from harness.search.nightly.kept_nights import STATE
from harness.search.nightly.night import STEPS, Night
from harness.verdict.results.run_folder import RunFolder
from tests.integration.answers.telling.servers import Webhook
from tests.integration.device_runs import ROOT
from tests.integration.in_process import qnn_harness
from tests.unit.answers.history.runs import attempt, run_folder
from tests.unit.search.nightly.nights import a_night
from tests.unit.search.nightly.test_telling import an_issue

LAB = "schema: 1\ndevices: [{name: a, serial: s, soc: QCS8550}]\nnotify:\n"


def at_its_last_step(reports: Path, lab: Path) -> Chain:
    run = run_folder(reports, attempt("a failed"))
    night = a_night(night="20261126T010000Z-ab-nightly", lab=str(lab), until=0.0)
    more = {"done": STEPS[:-1], "run": run.name, "verdict": "all new", "issues": (an_issue(),)}
    chain = Chain(night.model_copy(update=more), (), reports, None)
    chain._keep()
    (chain.path / "comparison.md").write_text("told\n")
    return chain


def test_a_night_tells_once_and_goes_on_whoever_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.search.nightly.telling._LEAST_S", 120.0)
    hook, lab = Webhook(), tmp_path / "devices.yaml"
    lab.write_text(
        f"{LAB}  - {{name: chat, url: 'json://{hook.at}/'}}\n"
        "  - {name: away, url: 'json://127.0.0.1:9/'}\n"
    )
    chain = at_its_last_step(tmp_path, lab)
    over = chain.go_on()
    assert over.next_step is None
    (said,) = over.told
    assert said.startswith("away was not told: ")
    assert said in (chain.path / "summary.md").read_text()
    (got,) = hook.got
    assert got["title"] == f"Causes: 1 new: {over.night}"
    assert "failed: it broke" in got["message"]
    # it died before it wrote down that this was over
    kept = json.loads((chain.path / STATE).read_text()) | {"done": STEPS[:-1]}
    again = Chain(Night.model_validate(kept), (), tmp_path, None).go_on()
    assert (len(hook.got), again.told) == (1, over.told)
    assert ToldState.of(chain.path, "chat", over.night).state == "sent"
    hook.close()


@pytest.mark.parametrize("begun", [True, False])
def test_a_night_that_is_not_over_tells_so(
    begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the last word of the night before, that nothing fails, would seem to be of tonight."""
    monkeypatch.setattr("harness.search.nightly.telling._LEAST_S", 120.0)
    hook, lab, site = Webhook(), tmp_path / "devices.yaml", tmp_path / "site"
    lab.write_text(f"{LAB}  - {{name: chat, url: 'json://{hook.at}/'}}\n")
    name = "20261126T010000Z-ab-nightly"
    more = {"lab": str(lab), "folder": str(tmp_path), "site": str(site), "until": 0.0}
    night = a_night(night=name, done=STEPS[:1], **more)
    command = ("pytest", "-m", "device", str(tmp_path / name / "problem.json"))
    if begun:
        run = RunFolder(run_folder(tmp_path, attempt("a passed"), command=command, problem="ended"))
        write_json(run.path / "run.json", {**run.info(), "selected": 23})
    chain = Chain(night, (), tmp_path, None)
    for _ in range(2):
        with pytest.raises(InfraError, match=r"the night's time of .* was over before its run"):
            chain.go_on()
    (got,) = hook.got
    assert got["title"] == f"Causes: 1 lost: {name}, not over"
    said = "1 of 23 cases has a verdict, 22 not run" if begun else "no case was run"
    assert f"not over: {said}." in got["message"]
    summary = (tmp_path / "latest-nightly/summary.md").read_text()
    assert summary.startswith(f"### Devices: not over: {said}\n")
    assert summary.count("- `the night's time of ") == 1
    assert (site / "index.html").is_file()
    assert len([*site.glob("night/*.html")]) == begun
    kept = Night.model_validate_json((chain.path / STATE).read_text())
    assert (kept.done, kept.verdict) == (STEPS[:1], None), "--resume goes on with it"
    hook.close()


def test_a_lab_that_was_spoilt_meanwhile_costs_a_line(tmp_path: Path) -> None:
    lab = tmp_path / "devices.yaml"
    lab.write_text("none")
    (said,) = at_its_last_step(tmp_path, lab).go_on().told
    assert said.startswith("nobody was told: ")


def test_a_comparison_is_told_where_that_is_asked_for(tmp_path: Path) -> None:
    hook, lab = Webhook(), tmp_path / "devices.yaml"
    lab.write_text(f"{LAB}  - {{name: chat, url: 'json://{hook.at}/'}}\n")
    base = run_folder(tmp_path / "reports", attempt("a passed"))
    new = run_folder(tmp_path / "reports", attempt("a failed"))
    words = ("compare", base, new, "--lab", lab)
    dry = qnn_harness(*words, "--notify", "--dry-run")
    assert (dry.returncode, hook.got) == (1, [])
    assert f"chat: Causes: 1 new: {new.name} beside {base.name}" in dry.stderr
    for _ in range(2):
        done = qnn_harness(*words, "--notify", "--json")
        assert (done.returncode, done.stderr) == (1, "")
        assert json.loads(done.stdout)["new"]
    (got,) = hook.got
    assert "- `failed: call|1002|it broke` (1 case)" in got["message"]
    alone = qnn_harness(*words, "--dry-run")
    assert (alone.returncode, "--dry-run is of --notify" in alone.stderr) == (2, True)
    hook.close()


def test_what_the_page_shows_is_so(tmp_path: Path) -> None:
    page = (ROOT / "docs/nightly.md").read_text().partition("## Being told")[2]
    listed = page.partition("```yaml\n")[2].partition("```")[0]
    lab = tmp_path / "devices.yaml"
    lab.write_text(f"schema: 1\ndevices: [{{name: a, serial: s}}]\n{listed}")
    (tmp_path / "hook.j2").write_text("{{ news.counts }}!\n{{ news.items[0].facts }}")
    folder = tmp_path / "reports/latest-nightly"
    folder.mkdir(parents=True)
    kinds = ("new", "new", "fixed", "lost")
    about = {"id": "a" * 12, "title": "`t`", "cases": 1, "issue": "x"}
    items = [NewsItem(**about, kind=kind, is_open=kind != "fixed") for kind in kinds]
    news = News(id="20261123T105000Z-7426-nightly", verdict="all", items=tuple(items))
    (folder / NEWS).write_text(news.model_dump_json())
    shown = page.partition("```\n$ ")[2].partition("```")[0].splitlines()
    assert shown[-1].startswith("$ qnn-harness tell --to team ")
    words = shown[0].replace("reports/", "").split()[1:]
    said = qnn_harness(words[0], folder, *words[1:], "--lab", lab).stdout.splitlines()
    assert said[0] == shown[1]
    assert "mail: Causes: 1 lost: 20261123T105000Z-7426-nightly" in said
    assert f"hook: {news.counts}!" in said
    assert sum(line.startswith("issues: issue, open: `t` [") for line in said) == 3


def test_the_urls_that_the_page_shows_are_some() -> None:
    page = (ROOT / "docs/nightly.md").read_text().partition("## Being told")[2]
    listed = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])["notify"]
    token = "abcdefghijklmnopqrstuvwx"
    said = {"SLACK_TOKENS": f"T12345678/B12345678/{token}", "SMTP_LOGIN": "me:secret"}
    said |= {"CI_HOOK": "jsons://example.com/hook", "GITHUB_TOKEN": token}
    urls = [NewsChannel.model_validate(one).address(said) for one in listed]
    assert [is_tracker(one) for one in urls] == [False] * 3 + [True]
    names = [apprise.Apprise.instantiate(one).service_name for one in urls[:3]]
    assert names == ["Slack", "E-Mail", "JSON"]
