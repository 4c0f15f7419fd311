"""Answers of several kinds of systems about themselves are read without trust."""

import pytest
from hypothesis import given

from harness.lab.facts import Coprocessors, DeviceFacts, parse_coprocessors, parse_facts
from harness.simulator.boot_files import device_properties
from tests.properties import damaged, reached, reaches

PHONE = """@qnn-harness:machine\r
aarch64\r
@qnn-harness:kernel\r
Linux 6.1.57-android14\r
@qnn-harness:libc\r
bionic\r
@qnn-harness:properties\r
[ro.soc.model]: [SM8650]\r
[ro.build.version.release]: [14]\r
[ro.build.id]: [UKQ1 [bracketed] 001]\r
[ro.build.version.sdk]: [34]\r
[ro.product.cpu.abilist]: [arm64-v8a,armeabi-v7a,armeabi]\r
@qnn-harness:release\r
@qnn-harness:memory\r
MemTotal:       11437584 kB\r
@qnn-harness:storage\r
Filesystem      1K-blocks     Used Available Use% Mounted on\r
/dev/block/dm-51 233523180 48291176 185100932  21% /data\r
@qnn-harness:soc\r
@qnn-harness:soc-id\r
557\r
@qnn-harness:gpu\r
Adreno750v2\r
@qnn-harness:end\r
"""

BOARD = """@qnn-harness:machine
aarch64
@qnn-harness:kernel
Linux 6.6.52
@qnn-harness:libc
@qnn-harness:properties
@qnn-harness:release
NAME="QCOM Reference Distro"
PRETTY_NAME="QCOM Reference Distro 1.4"
@qnn-harness:memory
MemTotal:        5551234 kB
@qnn-harness:storage
Filesystem
           1K-blocks      Used Available Use% Mounted on
/dev/disk/by-partlabel/system-with-a-long-name
            100000000  40000000  60000000  40% /
@qnn-harness:soc
QCS6490
@qnn-harness:end
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            PHONE,
            DeviceFacts(
                target="android-arm64",
                machine="aarch64",
                libc="bionic",
                soc="SM8650",
                soc_id=557,
                adreno="750",
                os_build="Android 14 (UKQ1 [bracketed] 001)",
                free_storage_bytes=185100932 * 1024,
                ram_bytes=11437584 * 1024,
                android_api=34,
                target_reason=parse_facts(PHONE).target_reason,
            ),
        ),
        (
            BOARD,
            DeviceFacts(
                target="linux-arm64",
                machine="aarch64",
                soc="QCS6490",
                soc_id=None,
                adreno=None,
                os_build="QCOM Reference Distro 1.4",
                free_storage_bytes=60000000 * 1024,
                ram_bytes=5551234 * 1024,
                target_reason=parse_facts(BOARD).target_reason,
            ),
        ),
    ],
)
def test_known_systems(text: str, expected: DeviceFacts) -> None:
    assert parse_facts(text) == expected


def test_a_device_of_a_simulated_farm_is_told_from_a_phone_by_itself() -> None:
    listed = "".join(f"[{key}]: [{value}]\n" for key, value in device_properties("a", "X").items())
    facts = parse_facts(f"@qnn-harness:properties\n{listed}@qnn-harness:end\n")
    assert facts.simulated
    assert not parse_facts(PHONE).simulated


@reaches(0.8)
@given(damaged(PHONE) | damaged(BOARD))
def test_a_damaged_answer_makes_up_no_fact(text: str) -> None:
    """Whatever is told was said: as a word of the answer, or as a number in it."""
    parsed = parse_facts(text)
    if parsed.soc or parsed.ram_bytes:
        reached()
    lines = text.replace("\r\n", "\n")
    for word in (parsed.machine, parsed.soc, parsed.adreno, parsed.serial_number, parsed.glibc):
        assert word is None or word in lines
    for number in (parsed.soc_id, parsed.android_api):
        assert number is None or str(number) in lines
    for size in (parsed.ram_bytes, parsed.free_storage_bytes):
        assert size is None or size % 1024 == 0
        assert size is None or str(size // 1024) in lines


@pytest.mark.parametrize(
    ("answers", "serial", "identity"),
    [
        (
            "@qnn-harness:properties\n[ro.serialno]: [1a2b3c4d]\n",
            "1a2b3c4d",
            "serial number 1a2b3c4d",
        ),
        (
            "@qnn-harness:properties\n[ro.boot.serialno]: [1a2b3c4d]\n"
            "@qnn-harness:machine-id\nfeed\n",
            "1a2b3c4d",
            "serial number 1a2b3c4d",
        ),
        ("@qnn-harness:soc-serial\n123456789\n", None, "SoC serial number 123456789"),
        (
            "@qnn-harness:soc-serial\n0000\n@qnn-harness:machine-id\nfeedbeef\n",
            None,
            "machine-id feedbeef",
        ),
        ("@qnn-harness:properties\n[ro.serialno]: [unknown]\n", None, None),
        ("@qnn-harness:machine-id\nuninitialized\n", None, None),
        ("@qnn-harness:machine-id\n$(reboot)\n", None, None),
        ("", None, None),
    ],
)
def test_what_tells_a_device_from_others_like_it(
    answers: str, serial: str | None, identity: str | None
) -> None:
    facts = parse_facts(answers)
    assert (facts.serial_number, next(iter(facts.identity), None)) == (serial, identity)


def answer(machine: str, *, libc: str = "", abis: str = "") -> str:
    listed = f"[ro.product.cpu.abilist]: [{abis}]\n[ro.build.version.sdk]: [30]\n" if abis else ""
    return (
        f"@qnn-harness:machine\n{machine}\n@qnn-harness:libc\n{libc}\n"
        f"@qnn-harness:properties\n{listed}@qnn-harness:end\n"
    )


@pytest.mark.parametrize(
    ("machine", "libc", "abis", "target"),
    [
        ("aarch64", "bionic", "arm64-v8a,armeabi-v7a", "android-arm64"),
        ("aarch64", "bionic", "armeabi-v7a,armeabi", None),
        ("armv8l", "bionic", "armeabi-v7a,armeabi", None),
        ("armv7l", "", "", None),
        ("aarch64", "", "", "linux-arm64"),
        ("x86_64", "", "", "linux-x64"),
        ("x86_64", "bionic", "x86_64,arm64-v8a", None),
        ("riscv64", "", "", None),
        ("aarch64", "bionic", "arm64-v8a,$(reboot)", "android-arm64"),
    ],
)
def test_the_target_is_what_the_device_reports(
    machine: str, libc: str, abis: str, target: str | None
) -> None:
    facts = parse_facts(answer(machine, libc=libc, abis=abis))
    assert facts.target == target
    assert "reboot" not in facts.target_reason
    assert facts.android_api == (30 if libc and abis else None)


@pytest.mark.parametrize(
    ("libc", "glibc"),
    [
        ("glibc 2.35", "2.35"),
        ("glibc 2.35.1", "2.35"),
        ("ldd (Ubuntu GLIBC 2.35-0ubuntu3.8) 2.35", "2.35"),
        ("bionic", None),
        ("BusyBox v1.36.1 () multi-call binary.", None),
    ],
)
def test_the_version_of_glibc(libc: str, glibc: str | None) -> None:
    assert parse_facts(answer("aarch64", libc=libc)).glibc == glibc


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (None, None),
        ([], None),
        (["dsp /dev/adsprpc-smd"], None),
        (["looked"], Coprocessors()),
        (["gpu_compiler /bin/oqclc", "looked"], Coprocessors((), (), ("/bin/oqclc",))),
        (
            ["dsp /dev/fastrpc-cdsp", "gpu /vendor/lib64/libOpenCL.so", "noise", "npu x", "looked"],
            Coprocessors(("/dev/fastrpc-cdsp",), ("/vendor/lib64/libOpenCL.so",)),
        ),
        (["dsp " + "x" * 300, "dsp", "dsp  ", "looked"], Coprocessors()),
    ],
)
def test_coprocessors(lines: list[str] | None, expected: Coprocessors | None) -> None:
    sections = {} if lines is None else {"coprocessors": lines}
    assert parse_coprocessors(sections) == expected


def test_coprocessors_are_bounded() -> None:
    parsed = parse_coprocessors({"coprocessors": [*["dsp /x"] * 100, "looked"]})
    assert len(parsed.dsp) == 32
