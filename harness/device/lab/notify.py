"""`notify:` in devices.yaml: who is told of a night or a comparison, and of what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import PydanticCustomError

from harness.device.lab.fields import LabName
from harness.ground.errors import ConfigError
from harness.ground.yaml_lines.models import Text

NewsKind = Literal["new", "fixed", "lost", "flaky"]
NEWS_KINDS: Final[tuple[NewsKind, ...]] = get_args(NewsKind)

_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
_URL: Final = re.compile(r"(?:[a-z][a-z0-9+.-]{0,31}://[!-~]{1,2000}|\$\{\w+\})", re.ASCII)


def _url(text: str) -> str:
    if not _URL.fullmatch(text):
        raise PydanticCustomError(
            "notify_url",
            "must be a URL, as in slack://${{SLACK_TOKENS}}/#lab, or ${{NAME}} of a variable that "
            "has one",
        )
    return text


class NewsChannel(BaseModel, extra="forbid", frozen=True):
    """Somebody who is told: a chat, a mailbox, a webhook, or a list of issues."""

    name: LabName
    """What it is called wherever it is spoken of: its URL is said nowhere."""

    url: Annotated[Text, AfterValidator(_url), Field(repr=False)]
    """As apprise writes them; a list of issues as a browser shows it:
    https://${TOKEN}@github.com/OWNER/REPO/issues, or .../PROJECT/-/issues of GitLab. ${NAME} is
    taken from the environment."""

    news: tuple[NewsKind, ...] = NEWS_KINDS
    """Of what it is told: causes that are new, fixed, or flaky since now, verdicts that are lost.
    """

    template: Text | None = None
    """A template of Jinja in place of ours; relative to the folder of devices.yaml."""

    def address(self, environ: Mapping[str, str]) -> str:
        """Its URL with what the environment has. Raises ConfigError for what is not set there."""

        def value(found: re.Match[str]) -> str:
            if not (said := environ.get(found[1], "").strip()):
                raise ConfigError(f"the environment has no {found[1]}", field=f"notify {self.name}")
            return said

        return _VARIABLE.sub(value, self.url)
