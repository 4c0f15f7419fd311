"""Names of shell services, as adb clients of all ages write them."""

from __future__ import annotations

import pytest

from harness.simulator.services import ShellRequest, parse_shell


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shell,v2,raw:ls -l", ShellRequest("ls -l", True, False, False)),
        ("shell,v2:ls", ShellRequest("ls", True, False, False)),
        ("shell,v2,pty:ls", ShellRequest("ls", True, True, False)),
        (
            "shell,v2,TERM=xterm-256color,pty:",
            ShellRequest("", True, True, False, "xterm-256color"),
        ),
        ("shell,v2,TERM=a;b,raw:x", ShellRequest("x", True, False, False)),
        ("shell,v2,raw:", ShellRequest("", True, False, False)),
        ("shell,v2:", ShellRequest("", True, True, False)),
        ("shell:", ShellRequest("", False, True, False)),
        ("shell:echo a:b", ShellRequest("echo a:b", False, True, True)),
        ("shell,raw:x", ShellRequest("x", False, True, True)),
        ("shell,pty:x", ShellRequest("x", False, True, False)),
        ("shell:a\nb", ShellRequest("a\nb", False, True, True)),
        ("exec:cat", ShellRequest("cat", False, False, False)),
        ("exec:", None),
        ("shell", None),
        ("shellx:ls", None),
        ("sync:", None),
        ("", None),
    ],
)
def test_names(name: str, expected: ShellRequest | None) -> None:
    assert parse_shell(name) == expected
