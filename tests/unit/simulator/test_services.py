"""Names of shell services, as adb clients of all ages write them."""

from __future__ import annotations

import pytest

from harness.simulator.services import ShellRequest, parse_shell


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shell,v2,raw:ls -l", ShellRequest("ls -l", v2=True)),
        ("shell,v2:ls", ShellRequest("ls", v2=True)),
        ("shell,v2,TERM=xterm-256color,pty:", ShellRequest("", v2=True)),
        ("shell,v2,raw:", ShellRequest("", v2=True)),
        ("shell:", ShellRequest("", v2=False)),
        ("shell:echo a:b", ShellRequest("echo a:b", v2=False)),
        ("shell,raw:x", ShellRequest("x", v2=False)),
        ("shell:a\nb", ShellRequest("a\nb", v2=False)),
        ("exec:cat", ShellRequest("cat", v2=False)),
        ("exec:", None),
        ("shell", None),
        ("shellx:ls", None),
        ("sync:", None),
        ("", None),
    ],
)
def test_names(name: str, expected: ShellRequest | None) -> None:
    assert parse_shell(name) == expected
