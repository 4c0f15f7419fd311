"""Facts, files and logs of a case from a device's answers: whole, refused, cut, or nonsense."""

import json
from datetime import datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from harness.evidence.device_replies import (
    AVC_PATTERN,
    DSP_PATTERN,
    NO_STACK,
    Baseline,
    DeviceClock,
    Report,
    age_s,
    baseline_of,
    kernel_window,
    matching,
    npu_lines,
    parse_log_line,
    table,
    window,
)
from harness.evidence.redaction import EvidenceFile
from harness.transport.device_queries import Section
from harness.transport.shell_protocol import TOKEN_VARIABLE
from tests.properties import reached, reaches
from tests.snapshots import Snapshot

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
    evidence = Report(notes.append, baseline, 10, LIMIT)
    evidence.read(sections({"clock": CLOCK, "tools": TOOLS} | answer))
    json.dumps(evidence.facts, allow_nan=False)
    return evidence, notes


def sections(answer: dict[str, str | bytes]) -> dict[str, Section]:
    return {
        name: Section(text.encode() if isinstance(text, str) else text, whole=True)
        for name, text in answer.items()
    }


def files(evidence: Report) -> dict[str, str]:
    return {file.name: file.text for file in evidence.files() if file.text.strip()}


LACKING: list[dict[str, str | bytes]] = [
    {"dmesg": "dmesg: klogctl: Permission denied\n"},
    {"tombstones": "ls: /data/tombstones: Permission denied\n"},
    {"tools": "logcat=yes\n"},
    {"dsps": ""},
    {"clock": "epoch_s=\nuptime_s=x\nlocal=\n"},
    {"clock": CLOCK + "jump_s=77\n"},
    {"clock": CLOCK.replace("1716287700", "inf")},
    {"clock": CLOCK.replace("12:35:00", "12:35:00+02:00")},
    {"clock": CLOCK.replace("5000.25", "3.5")},
]


def test_what_is_missing_is_said(snapshot: Snapshot) -> None:
    assert [" / ".join(report(answer)[1]) for answer in LACKING] == snapshot


def test_dsps_are_compared() -> None:
    before = Baseline("abc def", 1716282700, {"a/state": "running", "a/crash_count": "0"})
    evidence, notes = report({"dsps": "a/state=offline\na/crash_count=1\nb/state=x\n"}, before)
    assert evidence.facts["dsps_changed"] == [
        "a/crash_count: 0 -> 1",
        "a/state: running -> offline",
        "b/state: not there -> x",
    ]
    assert notes == []
    assert baseline_of(sections({"clock": CLOCK})) == Baseline("abc def", 1716282700, {})


@pytest.mark.parametrize(
    ("name", "text"), [("logcat", LOG), ("dmesg", DMESG)], ids=["logcat", "dmesg"]
)
def test_a_log_that_was_cut_says_so_unless_the_case_is_all_there(name: str, text: str) -> None:
    old, new = text.splitlines(keepends=True)
    for answer, cut in ((new * 30, True), (old * 3 + new * 30, False)):
        evidence, _ = report({name: answer})
        (log,) = (file for file in evidence.files() if file.name == f"{name}.txt")
        assert log.cut is cut


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("1 pause\n", "1 pause\n"),
        (f"{NO_STACK}\n", ""),
        (f"no: x\nmore\n{NO_STACK}\n", "no: x\nmore\n"),
    ],
)
def test_a_debugger_that_gave_no_stack_is_noted(
    stack: str, expected: str, snapshot: Snapshot
) -> None:
    evidence, notes = report({"dsps": "a=b"})
    evidence.read_process(7, sections({"stack": stack, "threads": "7/comm:x\n"}))
    assert evidence.facts["hung_process"] == 7
    assert files(evidence)["process-threads.txt"] == "7/comm:x\n"
    assert evidence.files()[0] == EvidenceFile("process-stack.txt", expected)
    assert notes == snapshot


@pytest.mark.parametrize(
    ("clock", "kernel_s"),
    [
        # the scheduler's clock counts milliseconds, and stands still with that of the kernel's log
        ("uptime_s=5000\nse.exec_start   =  4000500\n", 4000.5),
        ("uptime_s=5000.25\n", 5000.25),
        ("uptime_s=5000.25\nse.exec_start=nan\n", 5000.25),
        ("uptime_s=x\nse.exec_start=\n", None),
    ],
)
def test_the_kernels_log_is_cut_by_the_kernels_own_clock(
    clock: str, kernel_s: float | None
) -> None:
    begins = 3000 if kernel_s is None else kernel_s - 10
    lines = [f"[{begins - 0.001:.6f}] old\n", f"[{begins:.6f}] new\n"]
    times = "epoch_s=1716287700\nlocal=2024-05-21 12:35:00\nboot_id=a\n"
    evidence, _ = report({"clock": times + clock, "dmesg": "".join(lines)})
    assert files(evidence)["dmesg.txt"] == "".join(lines[kernel_s is not None :])


@pytest.mark.parametrize(
    ("boot_id", "uptime", "rebooted"),
    [
        (None, "8.0", False),
        (None, "7.9", True),
        (None, "nan", False),
        ("abc def", "5000.25", False),
        ("other", "5000.25", True),
        ("abc def", "1.0", True),
    ],
)
def test_another_boot_id_or_less_uptime_than_the_case_took_tells_of_a_boot(
    boot_id: str | None, uptime: str, rebooted: bool
) -> None:
    before = Baseline(boot_id, 1716282700, {}) if boot_id else None
    evidence, _ = report({"clock": CLOCK.replace("5000.25", uptime)}, before)
    assert evidence.facts["rebooted"] is rebooted
    assert evidence.facts["uptime_s"] == (None if uptime == "nan" else float(uptime))


def test_facts_of_an_answer_are_what_the_device_said() -> None:
    answer = {"clock": CLOCK + "jump_s=77\n", "dsps": "a/state=running\n", "logcat": LOG}
    evidence, _ = report(answer)
    assert files(evidence)["logcat.txt"] == LOG, "after a jump all is kept"
    assert evidence.facts == {
        "window_s": 10,
        "device_clock": "1716287700",
        "clock_jump_s": "77",
        "dsps": {"a/state": "running"},
        "uptime_s": 5000.25,
        "rebooted": False,
    }


def test_a_section_that_ended_early_is_noted_by_its_name(snapshot: Snapshot) -> None:
    notes: list[str] = []
    evidence = Report(notes.append, None, 10, LIMIT)
    evidence.read(
        {"meminfo": Section(b"MemTotal: 1", whole=False), "dsps": Section(b"", whole=True)}
    )
    assert notes == snapshot
    assert files(evidence)["meminfo.txt"] == "MemTotal: 1"


@pytest.mark.parametrize("name", ["logcat", "dmesg", "meminfo"])
@pytest.mark.parametrize("length", [LIMIT, LIMIT + 1])
def test_a_log_longer_than_was_asked_for_was_cut(name: str, length: int) -> None:
    evidence, _ = report({"clock": "", name: "qnn\n" + "x" * (length - 4)})
    by_name = {file.name: file for file in evidence.files()}
    file, cut = by_name[f"{name}.txt"], length > LIMIT and name != "meminfo"
    assert (file.cut, file.text.startswith("qnn")) == (cut, not cut)
    assert file.keep_end is (name != "meminfo")
    assert by_name["dsp.txt"].cut is (cut and name != "logcat")


def test_tags_that_were_cut_may_have_been_of_dsps_and_denials() -> None:
    evidence, _ = report({"clock": "", "tags": "x" * (LIMIT + 1)})
    cut = {file.name for file in evidence.files() if file.cut}
    assert {"dsp.txt", "avc.txt"} <= cut
    assert "logcat.txt" not in cut


@pytest.mark.parametrize(("line", "refused"), [(1, True), (3, True), (4, False)])
def test_a_kernel_log_that_is_refused_says_so_at_its_beginning(line: int, refused: bool) -> None:
    evidence, _ = report({"dmesg": "\n" * (line - 1) + "dmesg: no\n"})
    assert ("dmesg.txt" not in files(evidence)) is refused


def test_logs_of_tools_that_are_missing_are_no_logs() -> None:
    answer = {"logcat": LOG, "tags": LOG, "dmesg": DMESG, "tools": "timeout=yes\ndmesg=yes\n"}
    evidence, _ = report(answer)
    assert set(files(evidence)) == {"dmesg.txt", "dsp.txt"}
    evidence, _ = report(answer | {"tools": "timeout=yes\nlogcat=yes\n"})
    assert "dmesg.txt" not in files(evidence)


def test_tombstones_that_are_there_are_kept() -> None:
    evidence, notes = report({"tombstones": "tombstone_00\n", "tombstone_00": "backtrace:\n"})
    assert notes == []
    assert files(evidence) == {"tombstone_00.txt": "backtrace:\n"}


def test_lines_that_hold_our_own_words_tell_nothing() -> None:
    line = f"05-21 12:34:58.000     1     2 E adbd : {TOKEN_VARIABLE}=x adsprpc avc: denied\n"
    evidence, _ = report({"tags": line + LOG, "dmesg": ""})
    assert TOKEN_VARIABLE not in files(evidence)["dsp.txt"]
    assert "avc.txt" not in files(evidence)


def test_a_process_that_nothing_was_heard_of_has_no_note() -> None:
    evidence, notes = report({})
    evidence.read_process(7, {})
    assert notes == []
    assert evidence.facts["hung_process"] == 7
    evidence.read_process(7, sections({"status": "Name: x", "files": "0 -> /a", "maps": "m"}))
    assert files(evidence) == {"process.txt": "Name: x\n0 -> /a", "process-maps.txt": "m"}


@pytest.mark.parametrize(
    ("clock", "baseline"),
    [
        ("epoch_s=100\nuptime_s=30.9\nboot_id=b\n", Baseline("b", 70, {"x": "y"})),
        ("epoch_s=100\nuptime_s=30\n", Baseline("", 70, {"x": "y"})),
        ("epoch_s=100\n", None),
        ("epoch_s=x\nuptime_s=1\n", None),
        ("epoch_s=1\nuptime_s=inf\n", None),
    ],
)
def test_a_baseline_is_when_a_device_booted_and_how_its_dsps_were(
    clock: str, baseline: Baseline | None
) -> None:
    assert baseline_of(sections({"clock": clock, "dsps": "x=y\n"})) == baseline
    assert baseline_of(sections({"dsps": "x=y\n"})) is None


NAMES = st.sampled_from(["clock", "dsps", "tools", "tags", "dmesg", "logcat"])
TEXTS = st.binary(max_size=100) | st.text("0123456789=.:-_ \nepochsuptilca", max_size=80).map(
    lambda text: ("epoch_s=9e99\nuptime_s=nan\nlocal=0001-01-01\n" + text).encode()
)


@reaches(0.5)
@given(st.dictionaries(NAMES, TEXTS), st.booleans())
def test_no_answer_upsets_it(answer: dict[str, str | bytes], with_baseline: bool) -> None:
    evidence, _ = report(answer, Baseline("", 0, {}) if with_baseline else None)
    evidence.read_process(1, sections(answer))
    for file in evidence.files():
        reached()
        assert file.name
        assert not [char for char in file.text if ord(char) < 32 and char not in "\n\t"]


NOON = datetime(2024, 5, 21, 12, 35)
NOW = DeviceClock(NOON)


@pytest.mark.parametrize(
    ("line", "now", "age", "tag"),
    [
        ("05-21 12:34:56.789  1234  5678 E QnnDsp  : <E> x", NOON, 3.211, "QnnDsp"),
        ("05-21 12:34:56.789  1234  5678 I adsprpc: a: b", NOON, 3.211, "adsprpc"),
        ("05-21 12:34:59.000  1234  5678 W a b c: ", NOON, 1.0, "a b c"),
        (" 05-21 12:34:59.000  1234  5678 I [Qnn ExecuTorch]: m", NOON, 1.0, "[Qnn ExecuTorch]"),
        ("05-21 12:35:01.000     1     2 D t: of the future", NOON, -1.0, "t"),
        # of lines without a year those of the last half year and the coming one are told apart
        ("12-31 23:59:59.000     1     2 D t: m", NOON, 141 * 86400 + 45301, "t"),
        ("11-01 12:35:00.000     1     2 D t: m", NOON, -164 * 86400, "t"),
        ("12-15 12:35:00.000     1     2 D t: m", NOON, 158 * 86400, "t"),
        ("01-01 00:00:00.500     1     2 D t: m", datetime(2023, 12, 31, 23, 59, 59), -1.5, "t"),
        # a leap day, and those that never were
        ("02-29 12:35:00.000     1     2 D t: m", NOON, 82 * 86400, "t"),
        ("02-29 00:00:00.000     1     2 D t: m", datetime(2022, 6, 1), -1, "t"),
        ("02-29 00:00:00.000     1     2 D t: m", datetime(1, 1, 1), -1, "t"),
    ],
)
def test_the_age_and_the_tag_of_a_line(line: str, now: datetime, age: float, tag: str) -> None:
    entry = parse_log_line(line)
    assert entry.tag == tag
    assert age_s(entry, DeviceClock(now)) == pytest.approx(age, abs=1e-5)


@pytest.mark.parametrize(
    "line",
    [
        "--------- beginning of main",
        "13-41 12:34:56.789  1234  5678 E Tag: x",
        "05-21 25:34:56.789  1234  5678 E Tag: x",
        "05-21 12:34:56  1234  5678 E Tag: x",
        "E/Tag(1234): x",
        "05-21 12:34:56.789  1234  5678 E no end of the tag",
    ],
)
def test_what_is_no_entry(line: str) -> None:
    assert parse_log_line(line) is None


def test_a_window_keeps_what_belongs_to_its_lines() -> None:
    text = (
        "--------- beginning of main\n"
        "05-21 12:34:00.000     1     2 I a: old\n"
        "old continuation\n"
        "05-21 12:34:59.000     1     2 I a: new\n"
        "\ufffd\x00 garbage\n"
    )
    inside, left_out = window(text, NOW, 10)
    assert inside.split("\n") == [
        "--------- beginning of main",
        "05-21 12:34:59.000     1     2 I a: new",
        "\ufffd\x00 garbage",
        "",
    ]
    assert left_out == 2


@reaches(0.3)
@given(st.text(alphabet="0123456789:-. VE\n\tx+\0", max_size=300), st.floats(0, 1e9))
def test_no_text_upsets_a_window(text: str, last_s: float) -> None:
    inside, left_out = window(text, NOW, last_s)
    if inside or left_out:
        reached()
    assert inside.count("\n") + left_out <= text.count("\n") + 1
    kernel_window(text, last_s)
    npu_lines(text)


@given(st.integers(0, 400 * 86400), st.integers(0, 170 * 86400), st.integers(0, 170 * 86400))
def test_an_entry_is_inside_exactly_if_it_is_young_enough(now: int, age: int, last: int) -> None:
    local = datetime(2023, 12, 1) + timedelta(seconds=now)
    line = (local - timedelta(seconds=age)).strftime("%m-%d %H:%M:%S.000     1     2 I t: m")
    inside, _ = window(line, DeviceClock(local), last)
    assert bool(inside) == (age <= last)


def test_kernel_logs() -> None:
    text = (
        "[    1.000000] old\n<6>[   99.999] old too\n[  100.000001][T123] new\nmore\n"
        "[ 12345.678901] remoteproc remoteproc1: crash detected in cdsp\n"
    )
    inside, left_out = kernel_window(text, 100.0)
    assert inside.splitlines()[0] == "[  100.000001][T123] new"
    assert left_out == 2
    assert matching({"dmesg": inside}, DSP_PATTERN).startswith("dmesg: [ 12345.678901] remoteproc")
    line = "[  100.000001] as old as the window"
    assert kernel_window(line, 100.000001) == kernel_window(line, None) == (line, 0)
    assert kernel_window(line, 100.000002) == ("", 1)


def test_tags() -> None:
    def line(tag: str) -> str:
        return f"05-21 12:34:59.000     1     2 I {tag}: {tag}\n"

    tags = ["vendor.adsprpc", "QnnDsp", "[Qnn ExecuTorch]", "onnxruntime", "libc"]
    kept = "".join(map(line, tags))
    crash = line("DEBUG") + "backtrace:\n"
    assert npu_lines(f"{kept}{line('libcamera')}and more\n{crash}") == kept + crash


def test_denials() -> None:
    denied = 'type=1400 audit(0.0:9): avc:  denied  { read } for comm="qnn-probe"'
    assert matching({"logcat": f"x\n{denied}\n"}, AVC_PATTERN) == f"logcat: {denied}\n"


def test_lines_before_the_first_entry_are_nobodys() -> None:
    entry = "05-21 12:34:59.000     1     2 I adsprpc: a\n"
    other = "05-21 12:34:59.000     1     2 I other: b\n"
    log = npu_lines(f"first\n{entry}\nmore\n{other}more of the other\n")
    assert log == f"{entry}more\n"
    assert npu_lines("nothing\n") == ""
    assert table("a=1\na = 2\nb= x=y \nnone\n") == {"a": "1", "a ": "2", "b": "x=y"}
