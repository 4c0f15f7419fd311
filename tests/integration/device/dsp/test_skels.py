"""The loader with the real skels: what they import is there, and they open and answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.device.dsp.build import NATIVE
from harness.device.dsp.hexagon import DSP_ARCHS
from harness.libraries.runtimes.elf import ElfReader, exported_symbols
from tests.integration.conftest import RuntimeFor
from tests.integration.device.dsp.conftest import BeginDsp

VERSIONS = ("2.47.0", "2.48.40", "2.51.0", "appbuilder:2.40.0", "appbuilder:2.51.40")
INVOKE = "_skel_handle_invoke"
SYMBOLS, HASHES, GNU_HASHES, WEAK = 6, 4, 0x6FFFFEF5, 2
NO_SUCH_SYMBOL, BAD_ELF = 0x80000442, 0x80000452
CONFIGURE = 2
"""A method that a stub calls first, with 12 bytes and the domain's name."""

SKELS = [
    (version, arch)
    for version in VERSIONS
    for arch in DSP_ARCHS
    if arch != 69 or "appbuilder" not in version  # its wheels have none
]


def skel_of(runtime_for: RuntimeFor, version: str, arch: int) -> Path:
    """The skel of a wheel for arm64."""
    files = runtime_for(version, "linux-arm64").files
    return next(one.path for one in files if one.path.name == f"libQnnHtpV{arch}Skel.so")


def imports(data: bytes) -> set[str]:
    """What a skel cannot do without."""
    reader = ElfReader(data)
    tags = reader.dynamic()
    start = reader.offset_of(tags[SYMBOLS])
    # that of GNU begins with the first symbol that is defined: imports lie before it
    hashes = reader.offset_of(tags.get(HASHES) or tags[GNU_HASHES])
    count = reader.unpack("II", hashes)[1]
    symbols = (reader.unpack("IIIBBH", start + 16 * index) for index in range(1, count))
    return {
        reader.string(name)
        for name, _, _, info, _, section in symbols
        if section == 0 and info >> 4 != WEAK
    }


def listed() -> set[str]:
    """What the loader's table of imports has."""
    text = (NATIVE / "imports.S").read_text()
    return set(re.findall(r"^    (?:ours|given|called) ([^\s,]+)", text, re.M))


def uri(skel: Path) -> str:
    """What the stub of its own version opens it by."""
    (invoke,) = (one for one in exported_symbols(skel.read_bytes()) if one.endswith(INVOKE))
    return f"file:///{skel.name}?{invoke}&_modver=1.0&_dom=cdsp"


@pytest.mark.parametrize(("version", "arch"), SKELS)
def test_all_that_a_skel_imports_is_in_the_table(
    runtime_for: RuntimeFor, version: str, arch: int
) -> None:
    needed = imports(skel_of(runtime_for, version, arch).read_bytes())
    assert len(needed) > 200
    assert needed - listed() == set()


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
    assert "nothing here gives" not in process.log()


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
