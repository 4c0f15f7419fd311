"""The scripts' answers, cut anywhere and with anything in between."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.adb.connection import MAX_REQUEST_BYTES
from harness.adb.evidence_script import (
    Section,
    collect_script,
    look_script,
    parse_sections,
    state_script,
)

TOKEN = "0123456789abcdef"
SCRIPTS = {
    "state": state_script(TOKEN),
    "collect": collect_script(TOKEN, last_s=7, boot_epoch_s=1, file_bytes=1 << 20, tombstones=4),
    "look": look_script(TOKEN, 7, file_bytes=1 << 20, seconds=2.5),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_small_and_valid(name: str) -> None:
    assert len(SCRIPTS[name]) < min(4000, MAX_REQUEST_BYTES)
    done = subprocess.run(["sh", "-n", "-c", SCRIPTS[name]], capture_output=True, check=False)
    assert done.stderr == b""


def answer(parts: dict[str, bytes]) -> bytes:
    token = TOKEN.encode()
    return b"".join(
        b"\n\x1e%s %s\n%s\n\x1e%s =\n" % (token, name.encode(), content, token)
        for name, content in parts.items()
    )


NAMES = st.from_regex(r"[a-z_0-9]{1,20}", fullmatch=True)
CONTENTS = st.binary(max_size=60) | st.just(b"\n\x1ebad =\n")


@given(st.dictionaries(NAMES, CONTENTS, max_size=5))
def test_what_was_sent_is_found(parts: dict[str, bytes]) -> None:
    expected = {name: Section(content, whole=True) for name, content in parts.items()}
    assert parse_sections(b"noise" + answer(parts), TOKEN) == expected


@given(st.dictionaries(NAMES, CONTENTS, max_size=5), st.integers(0, 500))
def test_an_answer_cut_anywhere(parts: dict[str, bytes], length: int) -> None:
    found = parse_sections(answer(parts)[:length], TOKEN)
    assert list(found) == list(parts)[: len(found)]
    assert all(section.whole for section in list(found.values())[:-1])
    for name, section in found.items():
        if section.whole:
            assert section.content == parts[name]


@given(st.binary(max_size=300))
def test_no_answer_upsets_it(data: bytes) -> None:
    parse_sections(data, TOKEN)
