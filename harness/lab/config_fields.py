"""The parts of devices.yaml and their types, each with its own words for what is wrong with it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from harness.core.socs import HTP_ARCHS
from harness.core.yaml_document import Name, Text, in_schema, matching
from harness.dsp.simulated_dsp import DspLimits
from harness.lab.tagged_union import TaggedModel
from harness.transport.adb_address import USER_PORT, SshAddress, TcpAddress
from harness.transport.ssh_connection import HOST, SSH_COMPUTER, is_port, login_at

_ADB_SERIAL: Final = r'[!"$-.0->@-~]{1,128}'  # of a URL: without / ? and #
DEVICE_URL: Final = re.compile(rf"(adb|ssh)://{SSH_COMPUTER.pattern}/({_ADB_SERIAL})", re.ASCII)
DEVICE_URLS: Final = ("adb://HOST[:PORT]/SERIAL", "ssh://LOGIN[:PORT]/SERIAL, LOGIN: [user@]host")
"""Forms of the address of a device that is attached to an adb server elsewhere."""


def ssh_address(
    computer: str, behind: str = "127.0.0.1", port: int = USER_PORT
) -> SshAddress | None:
    """Return the adb server behind `[user@]host[:port]`; None if `computer` has another form."""
    login = login_at(computer)
    return None if login is None else SshAddress(login.login, login.port, behind, port)


def parse_device_url(url: str) -> tuple[TcpAddress | SshAddress, str] | None:
    """Return the server and the serial that `url` names; None if it is no address of a device."""
    match = DEVICE_URL.fullmatch(url)
    if match is None or (match[1] == "adb" and "@" in match[2]) or not is_port(match[3]):
        return None
    if match[1] == "adb":
        return TcpAddress(match[2].strip("[]"), int(match[3] or USER_PORT)), match[4]
    server = ssh_address(url[len("ssh://") : match.end(3) if match[3] else match.end(2)])
    return None if server is None else (server, match[4])


WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
SERIAL = re.compile(r"[!-~]{1,128}", re.ASCII)
_ADDRESS = re.compile(rf"{HOST}|[0-9A-Fa-f:.%]{{2,45}}", re.ASCII)
_WORKDIR = re.compile(r"(?:/[^/\x00-\x1f\x7f]+)+/?")


def _workdir(text: str) -> str:
    if (
        len(text) > 200
        or not _WORKDIR.fullmatch(text)
        or posixpath.normpath(text) != text.rstrip("/")
    ):
        raise PydanticCustomError(
            "workdir",
            "must be an absolute path below /, without '.', '..' or double slashes, "
            "of at most 200 characters",
        )
    return text.rstrip("/")


def _device_url(text: str) -> str:
    if parse_device_url(text) is None:
        problem = "must be the address of a device; [user@]host[:port] needs `transport: ssh`"
        raise PydanticCustomError("device_url", problem, {"choices": list(DEVICE_URLS)})
    return text


def _ssh(text: str) -> str:
    if login_at(text) is None:
        raise PydanticCustomError("ssh", "must be the destination of ssh: [user@]host[:port]")
    return text


def _htp_arch(number: int) -> int:
    if number not in HTP_ARCHS:
        choices = {"choices": list(HTP_ARCHS)}
        raise PydanticCustomError("htp_arch", "unknown HTP architecture", choices)
    return number


def _adreno(value: object) -> object:
    # 740 in YAML is a number; what it names is a model.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _enabled(value: object) -> object:
    if not isinstance(value, bool) and value != "auto":
        raise PydanticCustomError("enabled", "must be true, false or auto")
    return value


def _dsp(value: object) -> object:
    if isinstance(value, bool):
        return {} if value else None
    if not isinstance(value, Mapping):
        raise PydanticCustomError("dsp", "must be true, false or a mapping of limits")
    return value


_is_word = matching(
    WORD, "word", "must be letters, digits, dots, dashes or underscores, at most 64"
)
_is_serial = matching(SERIAL, "serial", "must be 1 to 128 visible characters without spaces")
_is_address = matching(_ADDRESS, "host", "must be a host name or an IP address, without a port")
Word = Annotated[Text, AfterValidator(_is_word), in_schema(WORD)]
Serial = Annotated[Text, AfterValidator(_is_serial), in_schema(SERIAL)]
Address = Annotated[Text, AfterValidator(_is_address), in_schema(_ADDRESS)]
DeviceUrl = Annotated[Text, AfterValidator(_device_url), in_schema(DEVICE_URL)]
SshComputer = Annotated[Text, AfterValidator(_ssh), in_schema(SSH_COMPUTER)]
Workdir = Annotated[Text, AfterValidator(_workdir), in_schema(_WORKDIR)]
HtpArch = Annotated[
    StrictInt, AfterValidator(_htp_arch), Field(json_schema_extra={"enum": list(HTP_ARCHS)})
]
Enabled = Annotated[
    bool | Literal["auto"],
    BeforeValidator(_enabled),
    WithJsonSchema({"enum": [True, False, "auto"]}),
]
Adreno = Annotated[Word, BeforeValidator(_adreno), WithJsonSchema({"type": ["string", "integer"]})]


class DspFields(BaseModel):
    """Resources of a simulated board's DSP; the default is those of a phone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sessions: Annotated[StrictInt, Field(ge=0, le=64)] | None = None
    """The most protection domains that all processes together may open."""

    handles: Annotated[StrictInt, Field(ge=0, le=4096)] | None = None
    """The most DMA handles of a process."""

    mapped_mb: Annotated[StrictInt, Field(ge=1, le=4096)] | None = None
    """The most memory (MiB) of its client that a protection domain may map."""

    vtcm_mb: Annotated[StrictInt, Field(ge=1, le=32)] | None = None
    """The size of its VTCM in MiB (default: that of the SoC)."""

    hvx_threads: Annotated[StrictInt, Field(ge=1, le=16)] | None = None
    """The number of its vector (HVX) contexts."""

    unsigned_pd: StrictBool | None = None
    """False: only programs with a vendor's signature may open it."""

    def limits(self, arch: int | None, vtcm_mb: int | None) -> DspLimits:
        """Return all limits, on a SoC with this HTP (73 for v73) and VTCM (MiB)."""
        of_soc = {"arch": arch, "vtcm_mb": vtcm_mb}
        fields = {key: value for key, value in self.model_dump().items() if value is not None}
        limits = {key: int(value) for key, value in (of_soc | fields).items() if value is not None}
        return DspLimits(**limits)


Dsp = Annotated[
    DspFields | None, BeforeValidator(_dsp, json_schema_input_type=StrictBool | DspFields)
]


PACKAGE_INDEX: Final = "pypi"
"""The source that no lab has to name; it is asked last."""


def _source_name(text: str) -> str:
    if text == PACKAGE_INDEX:
        raise PydanticCustomError("source", "is the name of a built-in source; choose another name")
    if text in ("latest", "all") or text[0].isdigit():
        raise PydanticCustomError("source", "looks like a version; choose another name")
    return text


SourceName = Annotated[Name, AfterValidator(_source_name)]


class RuntimeSource(TaggedModel):
    """One more place that libraries come from; the other keys are those of its kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    tag = "kind"
    hook = "qnn_runtime_sources"

    name: SourceName
    """The name before its versions: `--qnn NAME:2.31.0`, `--qnn NAME:latest`."""

    kind: str
    """The kind of place."""

    def open(self, folder: Path, cache_root: Path) -> object:
        """Return the `LibrarySource`; relative paths are below `folder`, that of devices.yaml.

        Nothing is read before the source is asked. Raises ConfigError.
        """
        raise NotImplementedError
