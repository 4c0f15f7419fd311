"""Issues of GitHub and GitLab, one for each cause: opened, brought up to date, closed, once each.

A cause is found again by its id at the end of an issue's title, whoever opened that: so nothing is
opened twice, wherever a night died. No client of theirs is needed for three requests.
GitHub: docs.github.com/rest/issues/issues; GitLab: docs.gitlab.com/api/issues.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from harness.ground.errors import InfraError

_LIST: Final = re.compile(
    r"(https?)://(?:([^@/]*)@)?([^@/]+)/(?:([\w./-]+)/-|([\w.-]+/[\w.-]+))/issues/?", re.ASCII
)
_ID: Final = re.compile(r"\[([0-9a-f]{12})\]\s*\Z")
_PAGE: Final = 100
_MOST_PAGES: Final = 100
_MOST_BYTES: Final = 32 << 20
_ANSWER_S: Final = 20.0
# GitHub asks for a second between requests that write
_PAUSE_S: Final = 1.0
_MOST_WRITES: Final = 50


class WantedIssue(NamedTuple):
    """An issue as it should be; `id` is that of its cause."""

    id: str
    title: str
    text: str
    is_open: bool


def is_tracker(url: str) -> bool:
    """Whether an address is that of a list of issues, as a browser shows it."""
    return _LIST.fullmatch(url) is not None


def bring_up(url: str, wanted: Sequence[WantedIssue]) -> str:
    """Makes the issues what they should be; what is left for the next time, "" if nothing.

    Raises InfraError if the server refuses something, or says nothing that can be read.
    """
    tracker, writes = _Tracker(url), 0
    known = tracker.known({one.id for one in wanted}) if wanted else {}
    for one in wanted:
        if not (change := tracker.change(one, known.get(one.id))):
            continue
        if writes == _MOST_WRITES:
            return f"more than {_MOST_WRITES} issues changed: the others follow the next time"
        if writes:
            time.sleep(_PAUSE_S)
        writes += 1
        tracker.write(change, known.get(one.id))
    return ""


class _Tracker:
    def __init__(self, url: str) -> None:
        import requests

        found = _LIST.fullmatch(url)
        assert found is not None
        scheme, login, host, gitlab, github = found.groups()
        api = "api.github.com" if host == "github.com" else f"{host}/api/v3"
        self._at = f"{scheme}://{api}/repos/{github}/issues"
        if gitlab:
            self._at = f"{scheme}://{host}/api/v4/projects/{quote(gitlab, safe='')}/issues"
        self._number, self._text = ("iid", "description") if gitlab else ("number", "body")
        self._is_gitlab, token = bool(gitlab), unquote((login or "").strip(":"))
        self._session, self._failed = requests.Session(), requests.RequestException

        def signed(request: Any) -> Any:  # whatever a .netrc has
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        self._session.auth = signed if token else None

    def known(self, wanted: set[str]) -> dict[str, Mapping[str, Any]]:
        """The issues of causes, as the server tells of them; the last opened comes first there."""
        found: dict[str, Mapping[str, Any]] = {}
        every = {} if self._is_gitlab else {"state": "all"}
        for page in range(1, _MOST_PAGES + 1):
            listed = self._asked("GET", params={**every, "per_page": _PAGE, "page": page})
            if not isinstance(listed, list):
                raise InfraError("the server says no list of issues")
            for one in listed:
                title = _ID.search(str(one.get("title"))) if isinstance(one, dict) else None
                if title and title[1] in wanted and "pull_request" not in one:
                    found.setdefault(title[1], one)
            if len(listed) < _PAGE or found.keys() >= wanted:
                return found
        raise InfraError(f"it has more than {_PAGE * _MOST_PAGES} issues: name another project")

    def change(self, one: WantedIssue, said: Mapping[str, Any] | None) -> dict[str, str]:
        """What is to be written; nothing if it is so already, or was closed before."""
        if said is None:
            return {"title": one.title, self._text: one.text} if one.is_open else {}
        was_open = said.get("state") in ("open", "opened")
        if not (was_open or one.is_open):
            return {}
        same = str(said.get(self._text) or "").split() == one.text.split()
        change = {} if same else {self._text: one.text}
        if was_open != one.is_open and self._is_gitlab:
            change["state_event"] = "reopen" if one.is_open else "close"
        elif was_open != one.is_open:
            change["state"] = "open" if one.is_open else "closed"
        return change

    def write(self, change: Mapping[str, str], said: Mapping[str, Any] | None) -> None:
        """Opens an issue, or changes the one that there is."""
        if said is None:
            self._asked("POST", json=change)
        else:
            how = "PUT" if self._is_gitlab else "PATCH"
            self._asked(how, f"/{said.get(self._number)}", json=change)

    def _asked(self, how: str, more: str = "", **said: Any) -> Any:
        """What the server answers. After a redirection one that writes would be another request."""
        rules = {"timeout": _ANSWER_S, "allow_redirects": False, "stream": True}
        content = b""
        try:
            with self._session.request(how, self._at + more, **rules, **said) as answer:
                if answer.status_code not in (200, 201):
                    later = answer.headers.get("Retry-After")
                    wait = f", and wants {later[:20]} s of peace" if later else ""
                    raise InfraError(f"{how} of issues: HTTP {answer.status_code}{wait}")
                for piece in answer.iter_content(1 << 16):
                    content += piece
                    if len(content) > _MOST_BYTES:
                        raise InfraError(f"{how} of issues: more than {_MOST_BYTES} bytes")
            return json.loads(content)
        except (self._failed, ValueError) as error:
            raise InfraError(f"{how} of issues: {type(error).__name__}") from error
