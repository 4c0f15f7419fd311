"""Real servers on loopback are told: each once, whoever dies; nothing hangs, nothing leaks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.answers.telling.news import News, NewsItem
from harness.answers.telling.told import (
    NEWS,
    ToldState,
    _deliver,
    keep_news,
    not_ready,
    tell,
    told_lines,
)
from harness.device.lab.inventory import load_lab
from harness.ground.host.deadline import Deadline
from tests.integration.answers.telling.servers import Mailbox, MockTracker, Webhook
from tests.integration.in_process import qnn_harness

ITEM = NewsItem(
    id="a" * 12,
    kind="new",
    title="`failed: <b>&| @here`",
    cases=2,
    facts=("on 6 of 6 `SM8750`, on no `SM8650`; since `2.50.40`",),
    issue="the text",
)
NIGHT = News(
    id="20261123T010000Z-ab-nightly",
    verdict="12 of 12 cases have a verdict; 1 new",
    lab=("Lab: 2 of 3 devices there.",),
    items=(
        ITEM,
        ITEM.model_copy(update={"id": "b" * 12, "kind": "fixed", "is_open": False}),
        ITEM.model_copy(update={"id": "c" * 12, "kind": "still", "title": "`old`"}),
    ),
)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    started = Webhook()
    yield started
    started.close()


def lab(folder: Path, *channels: str) -> Path:
    listed = "".join(f"  - {one}\n" for one in channels)
    file = folder / "devices.yaml"
    file.write_text(
        f"schema: 1\ndevices: [{{name: a, serial: s, soc: QCS8550}}]\nnotify:\n{listed}"
    )
    return file


def told(
    folder: Path, file: Path, news: News = NIGHT, seconds: float = 300.0
) -> dict[str, ToldState]:
    names = [one.name for one in load_lab(file, places=None).notify]
    keep_news(folder, news)
    return tell(folder, names, file, seconds)


def told_here(folder: Path, file: Path) -> dict[str, ToldState]:
    """The same without a process for each channel, which takes most of the time."""
    keep_news(folder, NIGHT)
    (folder / "told").mkdir()
    names = [one.name for one in load_lab(file, places=None).notify]
    for name in names:
        _deliver(folder, file, name)
    return {name: ToldState.of(folder, name, NIGHT.id) for name in names}


def states(found: dict[str, ToldState]) -> dict[str, str]:
    return {name: one.state for name, one in found.items()}


def test_all_are_told_at_once_and_each_once(
    tmp_path: Path, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox, tracker = Mailbox(), MockTracker("s3cret-token")
    monkeypatch.setenv("HOOK", f"json://{hook.at}/s3cret-path")
    monkeypatch.setenv("TOKEN", "s3cret-token")
    mine = tmp_path / "mine.j2"
    mine.write_text("{{ news.items | length }} for the boss\n{{ news.items[0].facts[0] }}")
    file = lab(
        tmp_path,
        '{name: chat, url: "${HOOK}"}',
        '{name: boss, url: "${HOOK}", news: [fixed], template: mine.j2}',
        '{name: calm, url: "${HOOK}", news: [flaky, lost]}',
        f'{{name: mail, url: "mailto://{mailbox.at}?from=lab@example.com&to=me@example.com"}}',
        f'{{name: issues, url: "http://${{TOKEN}}@{tracker.at}/o/r/issues"}}',
    )
    for _ in range(2):
        found = told(tmp_path, file)
        assert states(found) == {
            **dict.fromkeys(("chat", "boss", "mail", "issues"), "sent"),
            "calm": "nothing",
        }, found
        assert list(told_lines(found)) == []
    chat, boss = sorted(hook.got, key=lambda one: "boss" in one["title"])
    assert chat["title"] == "Causes: 1 new, 1 fixed: 20261123T010000Z-ab-nightly"
    assert "on 6 of 6 `SM8750`, on no `SM8650`; since `2.50.40`" in chat["message"]
    assert "12 of 12 cases have a verdict; 1 new." in chat["message"]
    assert "Lab: 2 of 3 devices there." in chat["message"]
    assert "＠here" in chat["message"], "nobody is called by what a device said"
    assert "old" not in chat["message"]
    assert boss["title"] == "2 for the boss", "what is still so is no news, but known"
    ((to, mail),) = mailbox.mails
    assert (to, mail["subject"]) == (["me@example.com"], chat["title"])
    html = mail.get_body(("html",)).get_content()
    assert "<code>failed: &lt;b&gt;&amp;|" in html
    assert [(one["title"], one["body"]) for one in tracker.issues] == [
        (f"`failed: <b>&| ＠here` [{'a' * 12}]", "the text"),
        (f"`old` [{'c' * 12}]", "the text"),
    ]
    kept = "".join(one.read_text() for one in tmp_path.glob("**/*.json"))
    assert "s3cret" not in kept + repr(load_lab(file))
    assert "notify" not in load_lab(file).model_dump(mode="json")
    mailbox.close()
    tracker.close()


def test_who_refuses_or_cannot_be_reached_costs_a_line(tmp_path: Path, hook: Webhook) -> None:
    refusing = Webhook(lambda _: 403)
    with socket.create_server(("127.0.0.1", 0)) as mute:  # it takes connections, and no more
        silent = f"127.0.0.1:{mute.getsockname()[1]}"
        file = lab(
            tmp_path,
            f'{{name: mute, url: "json://{silent}/?rto=0.1"}}',
            '{name: away, url: "json://127.0.0.1:9/"}',
            f'{{name: refusing, url: "json://{refusing.at}/s3cret"}}',
            '{name: unset, url: "json://${NOT_SET_ANYWHERE}"}',
            '{name: odd, url: "nosuch://s3cret"}',
            f'{{name: torn, url: "json://{hook.at}/", template: torn.j2}}',
            f'{{name: lacks, url: "json://{hook.at}/", template: none.j2}}',
        )
        (tmp_path / "torn.j2").write_text("{% if %}")
        found = told_here(tmp_path, file)
    why = dict(one.split(" was not told: ") for one in told_lines(found))
    assert set(why) == set(found)
    assert "403" in why["refusing"]
    assert why["unset"] == "notify unset: the environment has no NOT_SET_ANYWHERE"
    assert why["odd"] == "its URL is none that apprise knows; a webhook is jsons://HOST/PATH"
    assert why["torn"].startswith("template, line 1: Expected an expression")
    assert why["lacks"] == f"{tmp_path / 'none.j2'}: is no template that can be read"
    assert "s3cret" not in str(why)
    assert hook.got == []
    refusing.close()


def test_one_deadline_is_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is over once both servers that never answer have been asked."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(300)
        held = []

        class DeadlineOnceAsked(Deadline):
            def remaining(self) -> float:
                while len(held) < 2:
                    held.append(mute.accept())
                    assert held[-1][0].recv(1)
                return 0.0

        monkeypatch.setattr("harness.answers.telling.told.Deadline", DeadlineOnceAsked)
        silent = f"127.0.0.1:{mute.getsockname()[1]}"
        file = lab(
            tmp_path,
            f'{{name: mute, url: "json://{silent}/"}}',
            f'{{name: issues, url: "http://{silent}/o/r/issues"}}',
        )
        found = told(tmp_path, file)
    assert list(told_lines(found)) == [
        "mute was told, or not: whether it arrived is not known: --again sends it once more",
        "issues was not told: no answer in time",
    ]


def test_one_that_dies_while_it_tells_does_not_tell_twice(tmp_path: Path) -> None:
    got, over = threading.Event(), threading.Event()

    def answers(_: dict[str, Any]) -> int:
        got.set()
        over.wait(300)
        return 200

    hook = Webhook(answers)
    file = lab(tmp_path, f'{{name: chat, url: "json://{hook.at}/"}}')
    (tmp_path / NEWS).write_text(NIGHT.model_dump_json())
    words = ["harness.tools.cli.main", "tell", tmp_path, "--lab", file]
    process = subprocess.Popen([sys.executable, "-m", *map(str, words)])
    assert got.wait(300)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    again = qnn_harness("tell", tmp_path, "--lab", file)
    assert (again.returncode, len(hook.got)) == (3, 1), again
    assert again.stdout.startswith("chat was told, or not: ")
    over.set()
    asked = qnn_harness("tell", tmp_path, "--lab", file, "--again", "--json")
    assert (asked.returncode, len(hook.got)) == (0, 2), asked
    assert json.loads(asked.stdout) == {
        "schema": 1,
        "news": NIGHT.id,
        "channels": {"chat": {"state": "sent", "why": ""}},
    }
    hook.close()


@pytest.mark.nightly
def test_what_failed_is_told_later_and_other_news_are_told_anew(tmp_path: Path) -> None:
    codes = [500, 200, 200]
    hook = Webhook(lambda _: codes.pop(0))
    file = lab(tmp_path, f'{{name: chat, url: "json://{hook.at}/"}}')
    assert states(told(tmp_path, file)) == {"chat": "failed"}
    assert states(told(tmp_path, file)) == {"chat": "sent"}
    assert states(told(tmp_path, file)) == {"chat": "sent"}
    assert states(told(tmp_path, file, NIGHT.model_copy(update={"id": "other"}))) == {
        "chat": "sent"
    }
    assert [one["title"].rpartition(" ")[2] for one in hook.got] == [NIGHT.id, NIGHT.id, "other"]
    hook.close()


def test_a_dry_run_prints_what_would_be_told_and_asks_nobody(tmp_path: Path, hook: Webhook) -> None:
    file = lab(
        tmp_path,
        f'{{name: chat, url: "json://{hook.at}/"}}',
        '{name: calm, url: "${NOT_SET}", news: [lost]}',
        '{name: issues, url: "https://${NOT_SET}@github.com/o/r/issues", news: [new]}',
        '{name: mine, url: "https://github.com/o/r/issues", news: [new], template: mine.j2}',
    )
    (tmp_path / "mine.j2").write_text("mine of {{ item.id }}")
    (tmp_path / NEWS).write_text(NIGHT.model_dump_json())
    dry = qnn_harness("tell", tmp_path, "--lab", file, "--dry-run")
    assert (dry.returncode, dry.stderr) == (3, ""), "two of them could not be told"
    lines = dry.stdout.splitlines()
    assert lines[0] == f"chat: Causes: 1 new, 1 fixed: {NIGHT.id}"
    assert "calm: nothing" in lines
    assert [one for one in lines if one.startswith("issues: ")] == [
        f"issues: issue, open: `failed: <b>&| ＠here` [{'a' * 12}]",
        f"issues: issue, open: `old` [{'c' * 12}]",
    ]
    assert f"mine of {'a' * 12}" in lines
    assert (hook.got, (tmp_path / "told").exists()) == ([], False)


def test_what_is_wrong_with_the_words_is_said(tmp_path: Path) -> None:
    file = lab(tmp_path, "{name: chat, url: json://host/}")
    no_news = qnn_harness("tell", tmp_path, "--lab", file)
    assert (no_news.returncode, "no news that can be read" in no_news.stderr) == (2, True)
    (tmp_path / NEWS).write_text(NIGHT.model_dump_json())
    other = qnn_harness("tell", tmp_path, "--lab", file, "--to", "chat", "--to", "cat")
    assert (other.returncode, "there is no such channel (valid: chat)" in other.stderr) == (2, True)
    file.write_text(file.read_text().partition("notify:")[0])
    nobody = qnn_harness("tell", tmp_path, "--lab", file)
    assert (nobody.returncode, "names nobody who is to be told" in nobody.stderr) == (2, True)
    both = qnn_harness("tell", tmp_path, "--lab", file, "--dry-run", "--json")
    assert both.returncode == 2


def test_whether_a_channel_could_be_told_is_known_beforehand(tmp_path: Path, hook: Webhook) -> None:
    file = lab(
        tmp_path,
        '{name: unset, url: "${NOT_SET_ANYWHERE}"}',
        '{name: odd, url: "nosuch://s3cret"}',
        f'{{name: lacks, url: "json://{hook.at}/", template: none.j2}}',
        f'{{name: chat, url: "json://{hook.at}/", news: [lost]}}',
    )
    done = qnn_harness("doctor", "--lab", file, "--no-smoke", "--json")
    checks = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    states = {
        name: checks[f"notify {name}"]["status"] for name in ("unset", "odd", "lacks", "chat")
    }
    assert states == {"unset": "fail", "odd": "fail", "lacks": "fail", "chat": "ok"}
    assert "the environment has no NOT_SET_ANYWHERE" in checks["notify unset"]["found"]
    assert "s3cret" not in done.stdout + done.stderr
    keep_news(tmp_path, NIGHT)
    words = ("tell", tmp_path, "--dry-run", "--lab", file, "--to", "unset")
    dry = qnn_harness(*words, "--to", "chat")
    assert dry.returncode == 3
    assert "unset would not be told: notify unset: the environment has no" in dry.stdout
    assert "chat would not" not in dry.stdout
    alone = qnn_harness("tell", tmp_path, "--dry-run", "--to", "chat", "--lab", file)
    assert (alone.returncode, hook.got) == (0, [])
    test = qnn_harness("tell", "--test", "--to", "chat", "--lab", file)
    assert (test.returncode, test.stderr) == (0, "")
    (got,) = hook.got
    assert got["title"] == "Causes: 1 lost: test"
    assert "nothing has happened" in got["message"]


def test_a_channel_without_the_extra_could_not_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    file = lab(tmp_path, '{name: chat, url: "json://127.0.0.1/"}')
    (channel,) = load_lab(file).notify
    assert "qnn-harness[notify]" in str(not_ready(channel, tmp_path))
