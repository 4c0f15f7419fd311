"""The channels of `notify` in devices.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field

from harness.core.errors import ConfigError
from harness.core.yaml_document import Name, Text, check_document, matching, read_document

_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
_CHANNEL_URL: Final = re.compile(r"(?:[a-z][a-z0-9+.-]{0,31}://[!-~]{1,2000}|\$\{\w+\})", re.ASCII)
_PROBLEM: Final = (
    "must be a URL, as in slack://${SLACK_TOKENS}/#lab, or ${NAME} of an environment variable "
    "with one"
)


class NotifyChannel(BaseModel, extra="forbid", frozen=True):
    """A chat, a mailbox or a webhook."""

    name: Name
    """Stands for the channel in every message; its URL is never printed."""

    url: Annotated[
        Text, AfterValidator(matching(_CHANNEL_URL, "notify_url", _PROBLEM)), Field(repr=False)
    ]
    """A URL of apprise. ${NAME} is taken from the environment."""

    runs: bool = False
    """Send a message at the end of each pytest run of devices, too, and not only of nights."""

    def address(self, environ: Mapping[str, str]) -> str:
        """Return the URL with its variables filled in. Raise ConfigError for one that is unset."""

        def value(variable: re.Match[str]) -> str:
            text = environ.get(variable[1], "").strip()
            if not text:
                raise ConfigError(f"the environment variable {variable[1]} is not set", field="url")
            return text

        return _VARIABLE.sub(value, self.url)


class _Channels(BaseModel, extra="ignore"):
    notify: tuple[NotifyChannel, ...] = ()


_NO_FILE: Final = "does not exist; `qnn-harness init` writes one, and --lab FILE names another"


def load_channels(lab_file: Path) -> tuple[NotifyChannel, ...]:
    """Return the channels of devices.yaml, whatever else in it is wrong.

    Raise ConfigError if there is no such file, or `notify` cannot be read.
    """
    return check_document(
        read_document(lab_file, ConfigError(_NO_FILE, file=lab_file)), _Channels
    ).notify
