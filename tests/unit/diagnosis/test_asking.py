"""Commands that decide between causes where no line states one."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest

from harness.diagnosis.any_log import LogText, read_log
from harness.diagnosis.explanation import COMMANDS, Explained, next_command
from harness.diagnosis.rules import own_rules

RULES = own_rules()


LOG_COMMANDS = {"android": "adb logcat", "linux": "journalctl", "windows": "wevtutil"}


def cause(id: str, confidence: Any = "possible", failure: int = 1) -> Explained:
    return Explained(
        id=id, confidence=confidence, words="w", fix="f", threads=(), lines=(), failure=failure
    )


def command_file(*causes: Explained, files: int = 0) -> str | None:
    command = next_command(causes, known_files=files)
    return None if command is None else command.file


def test_the_command_that_tells_of_most_is_asked_for() -> None:
    assert command_file(cause("fastrpc-denied"), cause("no-channel")) == "dev.txt"
    assert command_file(cause("older-libraries"), cause("two-copies")) == "maps.txt"
    assert command_file(cause("skel-not-found"), cause("invalid-config")) == "logcat.txt"
    assert command_file(cause("no-dsp-session")) == "logcat.txt"


def test_less_sure_causes_and_other_failures_count_for_nothing() -> None:
    less = (cause("older-libraries"), cause("two-copies"), cause("mixed-libraries"))
    assert command_file(cause("dsp-restarted", "likely"), *less) == "dmesg.txt"
    other = (cause("older-libraries", "likely", 2), cause("two-copies", "likely", 2))
    assert command_file(cause("dsp-restarted", "likely", 1), *other) == "dmesg.txt"


def test_after_an_answer_the_next_is_asked_for_and_then_none() -> None:
    unsure = cause("no-dsp-session")
    assert [command_file(unsure, files=files) for files in range(4)] == [
        *("logcat.txt", "dmesg.txt", "dsp.txt"),
        None,
    ]


def test_what_is_known_is_not_asked_for() -> None:
    assert command_file() is None
    assert command_file(cause("skel-not-found", "known")) is None
    assert command_file(cause("op-unsupported")) is None


def test_questions_are_about_causes_that_there_are() -> None:
    assert {cause for command in COMMANDS for cause in command.causes} <= {
        rule.id for rule in RULES
    }
    assert len({command.file for command in COMMANDS}) == len(COMMANDS)


@pytest.mark.parametrize(
    ("line", "system"),
    [
        ("ggml-hex: Loading driver C:\\Windows\\x\\libcdsprpc.dll", "windows"),
        ("LoadLibrary failed with error 126", "windows"),
        ("vendor/qcom/proprietary/adsprpc/src/fastrpc_apps_user.c:4247: Error 0x416", "android"),
        ("dlopen failed: /data/local/tmp/libQnnHtp.so", "android"),
        ("Jan 02 18:21:10 qcs8300-ride-sx adsprpcd[654]: Invalid domain name", "linux"),
        ("remoteproc remoteproc3: can't start rproc cdsp: -110", "linux"),
        ("../../src/fastrpc_apps_user.c:879: Warning", "linux"),
        ("QnnDsp <E> DspTransport.openSession qnn_open failed, 0x72", "android"),
    ],
)
def test_a_log_tells_where_it_was_written(line: str, system: str) -> None:
    lines = [LogText(1, "x"), LogText(2, line)]
    command = next_command((cause("no-dsp-session"),), lines)
    assert command is not None
    assert command.command.startswith(LOG_COMMANDS[system])


SAID_ON = {
    "linux": (LogText(1, "../../src/fastrpc_apps_user.c:879: Warning"),),
    "windows": (LogText(1, "LoadLibrary failed with error 126"),),
}


def test_each_system_is_asked_by_its_own_commands() -> None:
    causes = (cause("no-dsp-session"),)
    for system, expected in {
        "android": ["adb logcat -d", "adb shell dmesg"],
        "linux": ["journalctl -b", "dmesg"],
        "windows": ["wevtutil qe Application /c:200 /rd:true /f:text", "wevtutil qe System"],
    }.items():
        commands = [next_command(causes, SAID_ON.get(system, ()), files) for files in range(2)]
        assert [
            bool(now and now.command.startswith(w))
            for now, w in zip(commands, expected, strict=True)
        ] == [
            True,
            True,
        ]
    third = next_command(causes, SAID_ON["linux"], 2)
    assert third is not None
    assert third.command.startswith("for p in /sys/class/remoteproc/*; do ")
    assert third.command.endswith("; done")
    # Windows has neither its folders nor its nodes
    assert next_command(causes, SAID_ON["windows"], 2) is None
    assert next_command((cause("two-copies"),), SAID_ON["windows"]) is not None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["[    1.250000] remoteproc-cdsp: crash detected"], ["logcat.txt", "dsp.txt", None]),
        (["01-02 03:04:05.678  1234  1240 E adsprpc : x"], ["dmesg.txt", "dsp.txt", None]),
        (
            [
                "Jan 02 18:21:10 board adsprpcd[654]: x",
                "Jan 02 18:21:11 board kernel: [1.250000] qcom,fastrpc: y",
            ],
            ["dsp.txt", None],
        ),
    ],
)
def test_a_log_that_is_there_is_not_asked_for(lines: list[str], expected: list[str | None]) -> None:
    log = read_log(BytesIO("\n".join(f"{line} failed" for line in lines).encode())).lines
    assert len(log) == len(lines)
    for files, file in enumerate(expected):
        command = next_command((cause("no-dsp-session"),), log, files)
        assert (command and command.file) == file
    other_lines = [replace(line, file="dmesg.txt") for line in log]
    assert next_command((cause("no-dsp-session"),), other_lines, 1) == next_command(
        (cause("no-dsp-session"),), [LogText(1, line.text) for line in log], 1
    )
