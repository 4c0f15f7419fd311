"""Issues of trackers: opened once, brought up to date, closed, opened again; what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.answers.telling import trackers
from harness.answers.telling.trackers import WantedIssue, _Tracker, bring_up, is_tracker
from harness.ground.errors import InfraError
from tests.integration.answers.telling.servers import MockTracker

TOKEN = "t/o@k:en"
A, B = "a" * 12, "b" * 12


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockTracker]:
    monkeypatch.setattr(trackers, "_PAUSE_S", 0.0)
    started = MockTracker(TOKEN)
    yield started
    started.close()


@pytest.fixture(params=["/o/r/issues", "/g/sub/p/-/issues/"], ids=["github", "gitlab"])
def url(server: MockTracker, request: pytest.FixtureRequest) -> str:
    return f"http://t%2Fo%40k%3Aen@{server.at}{request.param}"


def wanted(cause: str, text: str = "text", *, is_open: bool = True) -> WantedIssue:
    return WantedIssue(cause, f"`failed` [{cause}]", text, is_open)


def at(server: MockTracker, place: int) -> tuple[str, str]:
    """What an issue is at, and its text."""
    one = server.issues[place]
    said = one.get("body") or one.get("description")
    return {"opened": "open"}.get(one["state"], one["state"]), str(said)


def test_a_cause_has_one_issue_which_goes_with_it(server: MockTracker, url: str) -> None:
    server.issues.append({"number": 1, "iid": 1, "title": "a question", "state": "open"})
    text = "description" if "/-/" in url else "body"
    for _ in range(2):
        assert bring_up(url, [wanted(A), wanted(B, is_open=False)]) == ""
    assert (len(server.issues), at(server, 1)) == (2, ("open", "text"))
    assert len(server.writes) == 1, "what is as it should be is left alone"
    assert bring_up(url, [wanted(A, "more\r\n"), wanted(B)]) == ""
    said = [said for _, _, said in server.writes[1:]]
    assert said == [{text: "more\r\n"}, {"title": f"`failed` [{B}]", text: "text"}]
    bring_up(url, [wanted(A, "more\n")])
    assert len(server.writes) == 3, "ends of lines are the server's own"
    bring_up(url, [wanted(A, "gone", is_open=False)])
    assert at(server, 1) == ("closed", "gone")
    bring_up(url, [wanted(A, "gone for long", is_open=False)])
    assert len(server.writes) == 4, "what is closed stays as it was"
    bring_up(url, [wanted(A, "again")])
    assert at(server, 1) == ("open", "again")
    assert len(server.issues) == 3


def test_it_is_found_among_many_and_no_pull_request_is_taken_for_it(
    server: MockTracker, url: str
) -> None:
    bring_up(url, [wanted(A, "old")])
    issue = server.issues[0]
    others = [{**issue, "title": f"issue {number}"} for number in range(240)]
    pull = {**issue, "title": f"mends it [{A}]", "pull_request": {}}
    server.issues += [*others, pull]
    server.reads.clear()
    bring_up(url, [wanted(A, "new")])
    assert [one["page"] for one in server.reads] == [["1"], ["2"], ["3"]]
    assert server.writes[-1][1].endswith("/issues/1")
    assert at(server, 0) == ("open", "new")


def test_so_many_are_written_at_a_time(
    server: MockTracker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "_MOST_WRITES", 2)
    three = [wanted(f"{number:012x}") for number in range(3)]
    assert bring_up(url, three) == ("more than 2 issues changed: the others follow the next time")
    assert len(server.issues) == 2
    assert bring_up(url, three) == ""
    assert len(server.issues) == 3


@pytest.mark.parametrize(
    ("status", "headers", "told"),
    [
        (403, {"Retry-After": "60"}, "GET of issues: HTTP 403, and wants 60 s of peace"),
        (404, {}, "GET of issues: HTTP 404"),
        (301, {"Location": "http://127.0.0.1:9/elsewhere"}, "GET of issues: HTTP 301"),
    ],
)
def test_what_is_refused_is_said(
    server: MockTracker, url: str, status: int, headers: dict[str, str], told: str
) -> None:
    server.refuses = status, headers
    with pytest.raises(InfraError, match=f"^{told}$"):
        bring_up(url, [wanted(A)])
    assert server.writes == []


def test_what_is_too_long_is_not_read(
    server: MockTracker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_up(url, [wanted(A)])
    monkeypatch.setattr(trackers, "_MOST_BYTES", 10)
    with pytest.raises(InfraError, match=r"^GET of issues: more than 10 bytes$"):
        bring_up(url, [wanted(A)])


def test_a_wrong_token_and_a_server_that_is_away(server: MockTracker, url: str) -> None:
    with pytest.raises(InfraError, match="HTTP 401"):
        bring_up(url.replace("t%2F", "no"), [wanted(A)])
    with pytest.raises(InfraError, match=r"^GET of issues: ConnectionError$"):
        bring_up("http://127.0.0.1:9/o/r/issues", [wanted(A)])


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        (
            "https://t@github.com/me/my.repo/issues",
            "https://api.github.com/repos/me/my.repo/issues",
        ),
        (
            "https://git.example.com:8443/me/repo/issues",
            "https://git.example.com:8443/api/v3/repos/me/repo/issues",
        ),
        (
            "https://t@gitlab.com/a/b/c/-/issues",
            "https://gitlab.com/api/v4/projects/a%2Fb%2Fc/issues",
        ),
    ],
)
def test_the_address_of_a_browser_is_asked_at_its_api(address: str, asked: str) -> None:
    assert is_tracker(address)
    assert _Tracker(address)._at == asked


@pytest.mark.parametrize(
    "address", ["jsons://host/a/b/issues", "https://github.com/a/b", "https://hooks.slack.com/a/b"]
)
def test_other_addresses_are_for_apprise(address: str) -> None:
    assert not is_tracker(address)
