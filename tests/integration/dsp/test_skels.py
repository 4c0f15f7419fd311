"""The loader with the real skels: what they import is there, and they open and answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.dsp.emulator import DSP_ARCHS
from tests.integration.conftest import RuntimeFor
from tests.integration.dsp.conftest import BeginDsp

VERSIONS = ("2.47.0", "2.48.40", "2.51.0")
INVOKE = rb"\w+_skel_handle_invoke(?=\0)"
NO_SUCH_SYMBOL, BAD_ELF = 0x80000442, 0x80000452
CONFIGURE = 2
"""A method that a stub calls first, with 12 bytes and the domain's name."""

SKELS = [(version, arch) for version in VERSIONS for arch in DSP_ARCHS]


def skel_of(runtime_for: RuntimeFor, version: str, arch: int) -> Path:
    """The skel of a wheel for arm64."""
    files = runtime_for(version, "linux-arm64").files
    return next(file.path for file in files if file.path.name == f"libQnnHtpV{arch}Skel.so")


def uri(skel: Path) -> str:
    """The URI by which the stub of its own version opens it."""
    (invoke,) = {*re.findall(INVOKE, skel.read_bytes())}
    return f"file:///{skel.name}?{invoke.decode()}&_modver=1.0&_dom=cdsp"


@pytest.mark.parametrize(("version", "arch"), SKELS)
def test_a_skel_opens_and_answers(
    begin: BeginDsp, runtime_for: RuntimeFor, version: str, arch: int
) -> None:
    skel = skel_of(runtime_for, version, arch)
    process = begin(skel, arch=arch)
    channel = process.channel()
    opened = channel.open(uri(skel))
    assert opened.status == 0
    answer = channel.invoke(opened.value, CONFIGURE, [bytes(12), b"cdsp\0"], [8, 0])
    assert answer.status == 0
    assert channel.close(opened.value).status == 0
    assert (process.end(), process.said()) == (0, ())
    assert "nothing here gives" not in process.log(), "all that it imports is found as it is loaded"


def test_a_skel_of_another_version_than_the_stub_does_not_open(
    begin: BeginDsp, runtime_for: RuntimeFor
) -> None:
    skel = skel_of(runtime_for, "2.51.0", 73)
    channel = begin(skel).channel()
    of_another = uri(skel).replace("2_51_0", "2_48_40")
    assert channel.open(of_another).status == NO_SUCH_SYMBOL


def test_a_skel_for_a_newer_dsp_is_refused(begin: BeginDsp, runtime_for: RuntimeFor) -> None:
    skel = skel_of(runtime_for, "2.51.0", 75)
    process = begin(skel, arch=73)
    assert process.channel().open(uri(skel)).status == BAD_ELF
    assert "the skel is for v75, and this DSP is v73" in process.log()
