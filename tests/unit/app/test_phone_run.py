"""Which lines of a phone's log are of an app, what they show, and names that are none."""

import pytest

from harness.app.phone_run import app_lines, component_of, outcome_of, require_package
from harness.core.errors import ConfigError

LOG = """\
--------- beginning of main
11-30 10:00:00.100  1000  1010 I ActivityManager: Start proc 4321:com.example:npu/u0a9 for service
11-30 10:00:00.100  1000  1010 I ActivityManager: Start proc 5000:com.example.other/u0a8 for service
11-30 10:00:00.101  4320  4320 I App     : ours, seen by pidof
11-30 10:00:00.102  4321  4321 I App     : ours, a second process
11-30 10:00:00.103  5000  5000 E App     : another app
11-30 10:00:00.104  4321  4399 F libc    : Fatal signal 11 (SIGSEGV), code 1 in tid 4399
11-30 10:00:00.105  5000  5000 F libc    : Fatal signal 6 (SIGABRT), of another app
11-30 10:00:00.106  6000  6000 F DEBUG   : *** *** *** ***
11-30 10:00:00.107  6000  6000 F DEBUG   : pid: 4321, tid: 4399, name: x  >>> com.example:npu <<<
11-30 10:00:00.108  6001  6001 F DEBUG   : pid: 5000, tid: 5000, name: x  >>> com.example.other <<<
11-30 10:00:00.109  1000  1011 I ActivityManager: Process com.example:npu (pid 4321) has died
11-30 10:00:00.110  1000  1011 I App     : not.com.example, com.examples, com.example.other
"""
HANG = "11-30 10:00:09.000  1000  1011 E ActivityManager: ANR in com.example (com.example/.Main)"


def test_the_lines_of_an_app() -> None:
    lines, processes = app_lines(LOG, "com.example", [4320])
    assert processes == [4321, 4320]
    numbers = [LOG.split("\n").index(line) for line in lines]
    assert numbers == [1, 3, 4, 6, 8, 9, 11]
    assert app_lines("", "com.example", []) == ([], [])


def test_what_becomes_of_an_app() -> None:
    lines, processes = app_lines(LOG, "com.example", [])
    outcome = outcome_of(lines, "com.example", processes)
    assert outcome is not None
    assert outcome[0] == "crashed"
    assert "Fatal signal 11" in outcome[1]
    assert outcome_of([HANG], "com.example", []) == ("hung", HANG)
    others = [HANG.replace("com.example", "com.other"), HANG.replace("ActivityManager", "App")]
    assert outcome_of([*others, lines[3]], "com.example", [1]) is None


@pytest.mark.parametrize("name", [".Main", "com.example.Main", "com.example/.Main", "a.B$C_1"])
def test_activities(name: str) -> None:
    assert component_of("com.example", name) == f"com.example/{name.rpartition('/')[2]}"


@pytest.mark.parametrize(
    "name", ["", "com.other/.Main", "/.Main", ".Ma in", ".Main'", "a\n", ".M;x", "-n", "é.B", "."]
)
def test_no_activities(name: str) -> None:
    with pytest.raises(ConfigError, match="is not an activity of"):
        component_of("com.example", name)


@pytest.mark.parametrize("name", ["", "single", "a;b.c", "a..b", "a.1b", "a.b\n", "é.b", "a" * 256])
def test_no_packages(name: str) -> None:
    require_package("com.example_1.App")
    with pytest.raises(ConfigError, match="not a valid package name"):
        require_package(name)
