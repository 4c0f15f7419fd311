"""Facts and files from answers as devices give them: whole, refused, cut, or nonsense."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.adb.sections import Section
from harness.evidence.report import Baseline, Report, baseline_of
from harness.evidence.script import NO_STACK
from tests.properties import reached, reaches

CLOCK = (
    "epoch_s=1716287700\nuptime_s=5000.25\nlocal=2024-05-21 12:35:00\nboot_id=abc def\n"
    "se.exec_start                                =       4000000.700160\n"
)
TOOLS = "logcat=yes\ndmesg=yes\ntimeout=yes\n"
LOG = (
    "05-21 12:30:00.000     1     2 I adsprpc : old\n"
    "05-21 12:34:58.000     1     2 E adsprpc : new\n"
)
# the kernel's clock stood still for 1000 s, while the device slept
DMESG = "[ 3900.000000] old\n[ 3999.000000] remoteproc remoteproc0: crash detected in cdsp\n"
LIMIT = 1000


def report(
    answer: dict[str, str | bytes], baseline: Baseline | None = None
) -> tuple[Report, list[str]]:
    notes: list[str] = []
    made = Report(notes.append, baseline, 10, LIMIT)
    made.read(sections({"clock": CLOCK, "tools": TOOLS} | answer))
    json.dumps(made.facts, allow_nan=False)
    return made, notes


def sections(answer: dict[str, str | bytes]) -> dict[str, Section]:
    return {
        name: Section(text.encode() if isinstance(text, str) else text, whole=True)
        for name, text in answer.items()
    }


def files(made: Report) -> dict[str, str]:
    return {file.name: file.text for file in made.files() if file.text.strip()}


def test_logs_are_cut_to_the_case() -> None:
    made, notes = report({"logcat": LOG, "tags": LOG, "dmesg": DMESG, "dsps": "a/state=running"})
    assert notes == []
    found = files(made)
    assert found["logcat.txt"] == found["logcat-adsprpc.txt"] == LOG.splitlines(True)[1]
    assert found["dmesg.txt"] == DMESG.splitlines(True)[1]
    assert len(found["dsp.txt"].splitlines()) == 2
    assert (made.facts["rebooted"], made.facts["clock_jump_s"]) == (False, None)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"dmesg": "dmesg: klogctl: Permission denied\n"}, "no kernel log: dmesg: klogctl"),
        ({"tombstones": "ls: /data/tombstones: Permission denied\n"}, "no tombstones: ls:"),
        ({"tools": "logcat=yes\n"}, "not on the device: dmesg, timeout"),
        ({"dsps": ""}, "no state of remote processors"),
        ({"clock": "epoch_s=\nuptime_s=x\nlocal=\n"}, "times are not known"),
        ({"clock": CLOCK + "jump_s=77\n"}, "have jumped"),
        ({"clock": CLOCK.replace("5000.25", "3.5")}, "booted during the case"),
    ],
)
def test_what_is_missing_is_said(answer: dict[str, str | bytes], says: str) -> None:
    _, notes = report(answer)
    assert any(says in note for note in notes), notes


def test_after_a_jump_all_is_kept() -> None:
    made, _ = report({"clock": CLOCK + "jump_s=77\n", "logcat": LOG})
    assert files(made)["logcat.txt"] == LOG


def test_dsps_are_compared() -> None:
    before = Baseline("abc def", 1716282700, {"a/state": "running", "a/crash_count": "0"})
    made, notes = report({"dsps": "a/state=offline\na/crash_count=1\n"}, before)
    assert made.facts["dsps_changed"] == ["a/crash_count: 0 -> 1", "a/state: running -> offline"]
    assert notes == []
    assert baseline_of(sections({"clock": CLOCK})) == Baseline("abc def", 1716282700, {})


def test_a_log_that_was_cut_says_so_unless_the_case_is_all_there() -> None:
    new = LOG.splitlines(True)[1] * 30
    for text, cut in ((new, True), (LOG.splitlines(True)[0] * 3 + new, False)):
        made, _ = report({"logcat": text})
        (log,) = (file for file in made.files() if file.name == "logcat.txt")
        assert log.cut is cut


def test_an_endless_line_is_kept_whatever_comes_behind_it() -> None:
    made, _ = report({"logcat": "x" * (LIMIT) + "\n\n"})
    (log,) = (file for file in made.files() if file.name == "logcat.txt")
    assert log.cut
    assert log.text.startswith("xxx")


def test_a_hung_process() -> None:
    made, notes = report({})
    fdinfo = "5:pos:\t0\n5:ino:\t7\n5:size:\t4096\n5:exp_name:\tqcom\n"
    made.read_process(7, sections({"threads": "7/comm:x\n", "fdinfo": fdinfo, "stack": ""}))
    assert made.facts["hung_process"] == {"pid": 7, "dmabufs": 1, "dmabuf_bytes": 4096}
    assert any("no native stack" in note for note in notes)
    assert files(made)["process-threads.txt"] == "7/comm:x\n"


@pytest.mark.parametrize(
    ("stack", "note", "kept"),
    [
        ("1 pause\n", None, "1 pause\n"),
        (f"{NO_STACK}\n", "no native stack: no debugger", None),
        (f"no: x\nmore\n{NO_STACK}\n", "no native stack: no: x", "no: x\nmore\n"),
    ],
)
def test_a_debugger_that_gave_no_stack_is_noted(
    stack: str, note: str | None, kept: str | None
) -> None:
    made, notes = report({})
    made.read_process(7, sections({"stack": stack}))
    assert files(made).get("process-stack.txt") == kept
    assert [text for text in notes if "native stack" in text] == [
        text for text in notes if note is not None and text.startswith(note)
    ]
    assert bool(note) == any("native stack" in text for text in notes)


NAMES = st.sampled_from(["clock", "dsps", "tools", "tags", "dmesg", "logcat", "dmabuf"])
TEXTS = st.binary(max_size=100) | st.text("0123456789=.:-_ \nepochsuptilca", max_size=80).map(
    lambda text: ("epoch_s=9e99\nuptime_s=nan\nlocal=0001-01-01\n" + text).encode()
)


@reaches(0.5)
@given(st.dictionaries(NAMES, TEXTS), st.booleans())
def test_no_answer_upsets_it(answer: dict[str, str | bytes], with_baseline: bool) -> None:
    made, _ = report(answer, Baseline("", 0, {}) if with_baseline else None)
    made.read_process(1, sections(answer))
    for file in made.files():
        reached()
        assert file.name
        assert not [char for char in file.text if ord(char) < 32 and char not in "\n\t"]
