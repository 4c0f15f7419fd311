"""The types of the fields of devices.yaml, each with its own words for what is wrong with it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

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

from harness.device.dsp.dsp import DspLimits
from harness.device.lab.device_url import DEVICE_URL, DEVICE_URLS, device_at
from harness.device.ssh.login import HOST, SSH_COMPUTER, login_at
from harness.ground.facts.socs import HTP_ARCHS
from harness.ground.yaml_lines.models import Text, matching

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_SERIAL = re.compile(r"[!-~]{1,128}", re.ASCII)
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
    if device_at(text) is None:
        choices = {"choices": list(DEVICE_URLS)}
        raise PydanticCustomError("device_url", "must be the address of a device", choices)
    return text


def _device_address(text: str) -> str:
    # which of the two it must be, `transport` says
    return _device_url(text) if "://" in text else _ssh(text)


def _ssh(text: str) -> str:
    if login_at(text) is None:
        raise PydanticCustomError("ssh", "must be a computer that ssh knows: [user@]host[:port]")
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


def _in_schema(pattern: re.Pattern[str]) -> Any:
    return Field(json_schema_extra={"pattern": f"^(?:{pattern.pattern})$"})


_is_name = matching(
    _NAME, "name", "must be lower-case letters, digits, dots, dashes or underscores, at most 64"
)
_is_word = matching(
    _WORD, "word", "must be letters, digits, dots, dashes or underscores, at most 64"
)
_is_serial = matching(_SERIAL, "serial", "must be 1 to 128 visible characters without spaces")
_is_address = matching(_ADDRESS, "host", "must be a host name or an IP address, without a port")
LabName = Annotated[Text, AfterValidator(_is_name), _in_schema(_NAME)]
Word = Annotated[Text, AfterValidator(_is_word), _in_schema(_WORD)]
Serial = Annotated[Text, AfterValidator(_is_serial), _in_schema(_SERIAL)]
Address = Annotated[Text, AfterValidator(_is_address), _in_schema(_ADDRESS)]
DeviceUrl = Annotated[
    Text,
    AfterValidator(_device_address),
    _in_schema(re.compile(f"{DEVICE_URL.pattern}|{SSH_COMPUTER.pattern}")),
]
SshComputer = Annotated[Text, AfterValidator(_ssh), _in_schema(SSH_COMPUTER)]
Workdir = Annotated[Text, AfterValidator(_workdir), _in_schema(_WORKDIR)]
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
    """What a simulated board's DSP has; what is not said is as a phone's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sessions: Annotated[StrictInt, Field(ge=0, le=64)] | None = None
    """How many protection domains all processes together may open."""

    handles: Annotated[StrictInt, Field(ge=0, le=4096)] | None = None
    """How many DMA handles a process may have."""

    mapped_mb: Annotated[StrictInt, Field(ge=1, le=4096)] | None = None
    """How much (MiB) of its client's memory a protection domain may map."""

    vtcm_mb: Annotated[StrictInt, Field(ge=1, le=32)] | None = None
    """How much fast memory (MiB) it has; by default as the SoC."""

    hvx_threads: Annotated[StrictInt, Field(ge=1, le=16)] | None = None
    """How many vector contexts it has."""

    unsigned_pd: StrictBool | None = None
    """Whether programs without a vendor's signature may open it."""

    def limits(self, arch: int | None, vtcm_mb: int | None) -> DspLimits:
        """All of its limits, on a SoC with that HTP (73 for v73) and so much VTCM (MiB)."""
        of_soc = {"arch": arch, "vtcm_mb": vtcm_mb}
        told = {name: value for name, value in self.model_dump().items() if value is not None}
        given = {name: int(value) for name, value in (of_soc | told).items() if value is not None}
        return DspLimits(**given)


Dsp = Annotated[
    DspFields | None, BeforeValidator(_dsp, json_schema_input_type=StrictBool | DspFields)
]
