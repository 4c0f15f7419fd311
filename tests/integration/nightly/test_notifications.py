"""Messages about nights, runs and comparisons, as real servers on loopback get them."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import apprise
import pytest
import yaml

from harness.core.deadline import Deadline
from harness.core.errors import InfraError
from harness.core.files import write_json
from harness.lab.inventory import load_lab
from harness.nightly.night import STATE, STEPS, Night, lock_nights
from harness.nightly.night_steps import Chain
from harness.notify.channels import NotifyChannel, load_channels
from harness.notify.messages import SENT, Message, channel_problem, send
from harness.results.run_folder import RunFolder
from tests.integration.device_runs import ROOT, DeviceRuns
from tests.integration.in_process import qnn_harness
from tests.integration.nightly.servers import Mailbox, Webhook
from tests.snapshots import Snapshot
from tests.unit.history.runs import attempt, run_folder
from tests.unit.nightly.nights import a_night, an_issue

NAME = "20261126T010000Z-ab-nightly"
MESSAGE = Message("Devices: failed @here", "- **new** open: `failed: <b>&|` (2 cases)\n")


@pytest.fixture
def hook() -> Iterator[Webhook]:
    started = Webhook()
    yield started
    started.close()


def lab_of(folder: Path, *channels: str) -> Path:
    listed = "".join(f"  - {channel}\n" for channel in channels)
    file = folder / "devices.yaml"
    file.write_text(
        f"schema: 1\ndevices: [{{name: a, serial: s, soc: QCS8550}}]\nnotify:\n{listed}"
    )
    return file


def chat(hook: Webhook, name: str = "chat") -> str:
    return f'{{name: {name}, url: "json://{hook.address}/s3cret-path"}}'


def titles(hook: Webhook) -> list[str]:
    return [message["title"] for message in hook.got]


def at_its_last_step(reports: Path, lab_file: Path, **changed: Any) -> Chain:
    run = run_folder(reports, attempt("a passed"))
    night = a_night(night=NAME, lab=str(lab_file), folder=str(reports), until=0.0, run_exit_code=0)
    more = {"done": STEPS[:-1], "run": run.name, "verdict": "all", **changed}
    chain = Chain(night.model_copy(update=more), (), reports)
    chain._save()
    text = "### Devices: failed\n\n1 of 1 case; 1 new.\n\n#### New\n- details\n"
    (chain.path / "comparison.md").write_text(text)
    return chain


@pytest.mark.slow
def test_all_channels_get_a_message_once(
    tmp_path: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = Mailbox()
    monkeypatch.setenv("HOOK", f"json://{hook.address}/s3cret-path")
    file = lab_of(
        tmp_path,
        '{name: team, url: "${HOOK}"}',
        f'{{name: mail, url: "mailto://{mailbox.address}?from=lab@example.com&to=me@example.com"}}',
    )
    for _ in range(2):
        failures = send(MESSAGE, load_channels(file), tmp_path / SENT)
        assert failures == {"team": None, "mail": None}
    (got,) = hook.got
    assert got["title"] == "Devices: failed ＠here", "nobody is called by what a device printed"
    assert got["message"] == MESSAGE.body.strip()
    ((receivers, mail),) = mailbox.mails
    assert (receivers, mail["subject"]) == (["me@example.com"], got["title"])
    html = mail.get_body(("html",)).get_content()
    assert "<strong>new</strong> open: <code>failed: &lt;b&gt;&amp;|</code>" in html
    begins = MESSAGE.body.partition("\n")[0]
    assert sorted((tmp_path / SENT).read_text().splitlines()) == [
        f"{name}\t{got['title']}\t{begins}" for name in ("mail", "team")
    ]
    assert "s3cret" not in repr(load_lab(file))
    assert "notify" not in load_lab(file).model_dump(mode="json")
    for other in (Message("other", ""), Message("other", "for another reason")):
        assert send(other, load_channels(file), tmp_path / SENT)["team"] is None
    assert titles(hook)[1:] == ["other", "other"]
    mailbox.close()


@pytest.mark.slow
def test_a_channel_that_fails_says_why_and_nothing_secret(
    tmp_path: Path, hook: Webhook, snapshot: Snapshot
) -> None:
    refusing = Webhook(lambda _: 403)
    with socket.create_server(("127.0.0.1", 0)) as mute:  # it takes connections, and no more
        silent = f"127.0.0.1:{mute.getsockname()[1]}"
        file = lab_of(
            tmp_path,
            f'{{name: mute, url: "json://{silent}/?rto=0.1"}}',
            '{name: away, url: "json://127.0.0.1:9/"}',
            f'{{name: refusing, url: "json://{refusing.address}/s3cret"}}',
            '{name: unset, url: "json://${NOT_SET_ANYWHERE}"}',
            '{name: odd, url: "nosuch://s3cret"}',
            chat(hook),
        )
        failures = send(MESSAGE, load_channels(file), tmp_path / SENT)
    failed = {name: why for name, why in failures.items() if why is not None}
    assert set(failed) == {"mute", "away", "refusing", "unset", "odd"}
    assert "403" in failed["refusing"]
    assert [failed["unset"], failed["odd"]] == snapshot
    assert "s3cret" not in str(failed)
    assert len(hook.got) == 1
    assert (tmp_path / SENT).read_text().count("\n") == 1, "what failed is sent again"
    refusing.close()


def test_a_channel_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline is over once the server that never answers has been asked."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(300)
        processes: list[Any] = []

        class DeadlineOnceAsked(Deadline):
            def remaining(self) -> float:
                if not processes:
                    processes.append(mute.accept())
                    assert processes[-1][0].recv(1)
                return 0.0

        monkeypatch.setattr("harness.notify.messages.Deadline", DeadlineOnceAsked)
        file = lab_of(tmp_path, f'{{name: mute, url: "json://127.0.0.1:{mute.getsockname()[1]}/"}}')
        (problem,) = send(MESSAGE, load_channels(file)).values()
        assert "60 s" in str(problem)


def test_the_head_of_a_summary_is_short_and_safe(tmp_path: Path) -> None:
    lines = [f"- new {number} https://me:s3cret@host/ \x1b[31m" for number in range(500)]
    message = Message.head_of("\n".join(["### Devices: failed", "", *lines]), NAME, tmp_path)
    assert message.title == f"Devices: failed ({NAME})"
    assert len(message.body) < 3600
    first, *_, last = message.body.splitlines()
    assert first == r"- new 0 https://***@host/ \x1b[31m"
    assert str(tmp_path) in last


@pytest.mark.slow
def test_a_night_goes_on_whoever_is_silent_and_sends_once(tmp_path: Path, hook: Webhook) -> None:
    file = lab_of(tmp_path, chat(hook), "{name: away, url: 'json://127.0.0.1:9/'}")
    chain = at_its_last_step(tmp_path, file, failed_on=("new",), issues=(an_issue(),))
    finished = chain.go_on()
    (warning,) = finished.warnings
    assert warning.startswith("channel away ")
    assert warning in (chain.path / "summary.md").read_text()
    assert (finished.next_step, finished.exit_code) == (None, 1)
    assert titles(hook) == [f"Devices: failed ({NAME})"]
    body = hook.got[0]["message"]
    assert body.startswith("1 of 1 case; 1 new.\n")
    assert "details" in body
    assert "failed: it broke" in body
    # it died before it wrote down that this was over
    state = json.loads((chain.path / STATE).read_text()) | {"done": STEPS[:-1]}
    again = Chain(Night.model_validate(state), (), tmp_path).go_on()
    assert (len(hook.got), again.warnings) == (1, finished.warnings)


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_night_that_is_not_over_sends_so_once(
    is_begun: bool, tmp_path: Path, hook: Webhook
) -> None:
    """Else the last word of the night before, that nothing fails, would seem to be of tonight."""
    site = tmp_path / "site"
    more = {"lab": str(lab_of(tmp_path, chat(hook))), "folder": str(tmp_path), "site": str(site)}
    night = a_night(night=NAME, done=STEPS[:1], until=0.0, **more)
    command = ("pytest", "-m", "device", str(tmp_path / NAME / "problem.json"))
    if is_begun:
        run = RunFolder(run_folder(tmp_path, attempt("a passed"), command=command, problem="ended"))
        write_json(run.path / "run.json", {**run.info(), "selected": 23})
    chain = Chain(night, (), tmp_path)
    for _ in range(2):
        with pytest.raises(InfraError) as error:
            chain.go_on()
    (got,) = hook.got
    summary = (tmp_path / "latest-nightly/summary.md").read_text()
    headline, _, text = summary.removeprefix("### ").partition("\n")
    assert got["title"] == f"{headline} ({NAME})"
    assert ("22 not run" in headline) == is_begun
    reason = f"`{error.value}`"
    assert got["message"].startswith(reason[:40])
    assert text.count(reason[:40]) == 1
    assert (site / "index.html").is_file()
    assert len([*site.glob("night/*.html")]) == is_begun
    state = Night.model_validate_json((chain.path / STATE).read_text())
    assert (state.done, state.verdict) == (STEPS[:1], None), "--resume goes on with it"


@pytest.mark.slow
def test_a_night_that_is_refused_sends_why(
    tmp_path: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, reports = lab_of(tmp_path, chat(hook)), tmp_path / "reports"
    (tmp_path / "test_none.py").write_text("def test_plain(): pass\n")
    words = ("nightly", "--lab", file, "--reports", reports)
    qnn_harness(*words, "--", tmp_path / "test_none.py", code=2)
    assert not [*reports.glob("2*")]
    with mock.patch.dict(os.environ, QNN_HARNESS_HISTORY="nosuch://host/db"):
        database = qnn_harness(*words)
    assert (database.returncode, len(hook.got)) == (2, 2), database
    file.write_text(file.read_text().replace("soc:", "sock:"))
    wrong = qnn_harness(*words)
    assert (wrong.returncode, len(hook.got)) == (2, 3), wrong
    assert "devices[0].sock" in hook.got[-1]["message"]
    with lock_nights(reports):
        second = qnn_harness(*words)
    assert (second.returncode, len(hook.got)) == (2, 4), second
    assert str(os.getpid()) in hook.got[-1]["message"]
    none = qnn_harness(*words, "--resume")
    assert (none.returncode, len(hook.got)) == (2, 4), "it is asked at each boot"


@pytest.mark.slow
def test_a_summary_is_sent_by_hand(tmp_path: Path, hook: Webhook) -> None:
    file = lab_of(tmp_path, chat(hook))
    night, run = tmp_path / NAME, run_folder(tmp_path, attempt("a failed"))
    night.mkdir()
    (night / "summary.md").write_text("### Devices: failed\n\n- **new** open: `it broke`\n")
    link = tmp_path / "latest-nightly"
    link.symlink_to(NAME)
    dry = qnn_harness("notify", link, "--lab", file, "--dry-run")
    title = f"Devices: failed ({NAME})"
    assert dry.stdout == f"{title}\n- **new** open: `it broke`\nchat: would be sent\n"
    assert hook.got == []
    completed = qnn_harness("notify", link, "--lab", file)
    assert (completed.returncode, completed.stdout, titles(hook)) == (0, "chat: sent\n", [title])
    assert qnn_harness("notify", run, "--lab", file).returncode == 0
    assert run.name in titles(hook)[1]
    test = qnn_harness("notify", "--test", "--lab", file)
    assert (test.returncode, test.stdout, titles(hook)[2:]) == (
        0,
        "chat: sent\n",
        ["qnn-harness: test"],
    )
    neither = qnn_harness("notify", tmp_path / "none", "--lab", file)
    assert (neither.returncode, len(hook.got)) == (2, 3)
    lab_of(tmp_path, chat(hook), "{name: odd, url: 'nosuch://s3cret'}")
    for more in ((), ("--dry-run",)):
        partly = qnn_harness("notify", "--test", "--lab", file, *more)
        assert (partly.returncode, "odd: not sent: " in partly.stdout) == (3, True)
    file.write_text(file.read_text().partition("notify:")[0])
    qnn_harness("notify", "--test", "--lab", file, code=2)


@pytest.mark.slow
def test_a_run_is_sent_to_the_channels_that_want_runs(lab: DeviceRuns, hook: Webhook) -> None:
    channels = [
        {"name": "all", "url": f"json://{hook.address}/", "runs": True},
        {"name": "nights", "url": f"json://{hook.address}/"},
        {"name": "away", "url": "json://127.0.0.1:9/", "runs": True},
    ]
    lab.file.write_text(lab.file.read_text() + yaml.safe_dump({"notify": channels}))
    suite = lab.write_suite("import pytest\n@pytest.mark.device\ndef test_a(bench):\n    pass\n")
    finished = lab.run(suites=suite)
    assert finished.output.count("warning: channel ") == 1
    (message,) = hook.got
    assert finished.journal[0]["run"] in message["title"]
    lab.run("-o", f"qnn_problem_file={lab.folder}/problem", suites=suite)
    assert len(hook.got) == 1, "a part of a night or of a bisection"


def test_without_apprise_a_channel_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    (channel,) = load_channels(lab_of(tmp_path, '{name: chat, url: "json://127.0.0.1/"}'))
    assert "pip install 'qnn-harness[notify]'" in str(channel_problem(channel))


def test_the_urls_that_the_page_shows_are_some() -> None:
    page = (ROOT / "docs/howto/nightly-and-ci.md").read_text().partition("## Send messages")[2]
    listed = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])["notify"]
    token = "abcdefghijklmnopqrstuvwx"
    values = {"SLACK_TOKENS": f"T12345678/B12345678/{token}", "SMTP_LOGIN": "me:secret"}
    values |= {"CI_HOOK": "jsons://example.com/hook"}
    urls = [NotifyChannel.model_validate(entry).address(values) for entry in listed]
    names = [apprise.Apprise.instantiate(url).service_name for url in urls]
    assert names == ["Slack", "E-Mail", "JSON"]
