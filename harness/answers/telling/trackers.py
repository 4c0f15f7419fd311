"""Issues of GitHub and GitLab, one for each cause: opened, brought up to date, closed, once each.

A cause is found again by its id at the end of an issue's title, whoever opened that: so nothing is
opened twice, wherever a night died. No client of these is needed: it is four requests.
GitHub: docs.github.com/rest/issues/issues; GitLab: docs.gitlab.com/api/issues.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from harness.ground import InfraError

_GITHUB: Final = re.compile(r"/([\w.-]+/[\w.-]+)/issues/?", re.ASCII)
_GITLAB: Final = re.compile(r"/([\w./-]+)/-/issues/?", re.ASCII)
_ID: Final = re.compile(r"\[([0-9a-f]{12})\]\s*\Z")
_PAGE: Final = 100
_MOST_PAGES: Final = 100
_MOST_BYTES: Final = 32 << 20
_ANSWER_S: Final = 20.0
# GitHub asks for a second between requests that write
_PAUSE_S: Final = 1.0
_MOST_WRITES: Final = 50


class Wanted(NamedTuple):
    """An issue as it should be."""

    id: str
    title: str
    text: str
    is_open: bool


def is_tracker(url: str) -> bool:
    """Whether an address is that of a list of issues."""
    at = urlsplit(url)
    known = _GITHUB.fullmatch(at.path) or _GITLAB.fullmatch(at.path)
    return at.scheme in ("http", "https") and known is not None


class Tracker:
    """The issues of one project, at the address that a browser shows of their list."""

    def __init__(self, url: str) -> None:
        import requests

        at = urlsplit(url)
        host = f"{at.hostname}:{at.port}" if at.port else str(at.hostname)
        gitlab, github = _GITLAB.fullmatch(at.path), _GITHUB.fullmatch(at.path)
        self._is_gitlab = gitlab is not None
        if gitlab is not None:
            self._at = f"{at.scheme}://{host}/api/v4/projects/{quote(gitlab[1], safe='')}/issues"
        else:
            assert github is not None
            api = "api.github.com" if host == "github.com" else f"{host}/api/v3"
            self._at = f"{at.scheme}://{api}/repos/{github[1]}/issues"
        token = unquote(at.username or at.password or "")
        self._session, self._failed = requests.Session(), requests.RequestException
        self._session.headers["Accept"] = "application/json"

        def signed(request: Any) -> Any:  # no netrc, whatever it has
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        self._session.auth = signed if token else None

    def bring_up(self, wanted: Collection[Wanted]) -> str | None:
        """Makes the issues what they should be; what is left for the next time, None if nothing.

        Raises InfraError if the server refuses something, or says nothing that can be read.
        """
        known = self._known({one.id for one in wanted})
        writes = 0
        for one in wanted:
            said = known.get(one.id)
            change = self._change(one, said)
            if not change:
                continue
            if writes == _MOST_WRITES:
                return f"more than {_MOST_WRITES} issues changed: the others follow the next time"
            if writes:
                time.sleep(_PAUSE_S)
            writes += 1
            number = said and f"/{said['iid' if self._is_gitlab else 'number']}"
            how = "POST" if not number else "PUT" if self._is_gitlab else "PATCH"
            self._asked(how, number or "", json=change)
        return None

    def _known(self, wanted: Collection[str]) -> dict[str, Mapping[str, Any]]:
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
            if len(listed) < _PAGE or found.keys() >= set(wanted):
                return found
        raise InfraError(f"it has more than {_PAGE * _MOST_PAGES} issues: name another project")

    def _change(self, one: Wanted, said: Mapping[str, Any] | None) -> dict[str, str]:
        """What is to be written; nothing if it is so already, or never was news."""
        text = "description" if self._is_gitlab else "body"
        if said is None:
            return {"title": one.title, text: one.text} if one.is_open else {}
        was_open = said.get("state") in ("open", "opened")
        if not (was_open or one.is_open):
            return {}
        change = {text: one.text} if _lines(said.get(text)) != _lines(one.text) else {}
        if was_open != one.is_open and self._is_gitlab:
            change["state_event"] = "reopen" if one.is_open else "close"
        elif was_open != one.is_open:
            change["state"] = "open" if one.is_open else "closed"
        return change

    def _asked(self, how: str, more: str = "", **said: Any) -> Any:
        """What the server answers. A redirection would make another request of one that writes."""
        try:
            with self._session.request(
                how,
                self._at + more,
                timeout=_ANSWER_S,
                allow_redirects=False,
                stream=True,
                **said,
            ) as answer:
                if answer.status_code not in (200, 201):
                    later = answer.headers.get("Retry-After")
                    wait = f", and wants {later[:20]} s of peace" if later else ""
                    raise InfraError(f"{how} of issues: HTTP {answer.status_code}{wait}")
                content = b""
                for piece in answer.iter_content(1 << 16):
                    content += piece
                    if len(content) > _MOST_BYTES:
                        raise InfraError(f"{how} of issues: more than {_MOST_BYTES} bytes")
        except self._failed as error:
            raise InfraError(f"{how} of issues: {type(error).__name__}") from error
        try:
            return json.loads(content)
        except ValueError as error:
            raise InfraError(f"{how} of issues: the server says no JSON") from error


def _lines(text: object) -> list[str]:
    return str(text or "").strip().splitlines()
