"""The Tab key in a real bash, set up by the line that docs/reference/cli.md shows."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.integration.device_runs import ROOT
from tests.integration.terminal import Terminal

LINE = re.compile(r"^\| bash \| [^|]* \| `([^`]*)` \|$", re.MULTILINE)


@pytest.fixture
def shell(tmp_path: Path) -> Terminal:
    (line,) = LINE.findall((ROOT / "docs/reference/cli.md").read_text("utf-8"))
    (tmp_path / "bashrc").write_text(f"PS1='> '\n{line}\necho ready\n")
    (tmp_path / "model.log").touch()
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return Terminal(["bash", "--rcfile", "bashrc", "-i"], cwd=tmp_path, env=env)


def test_tab_completes_commands_options_and_files(shell: Terminal) -> None:
    with shell:
        shell.wait_for("ready")
        for typed, completed in (
            ("qnn-harness expl", "qnn-harness explain "),
            ("--js", "qnn-harness explain --json "),
            ("\x15qnn-harness explain mod", "qnn-harness explain model.log "),
        ):
            shell.send(f"{typed}\t")
            shell.wait_for(lambda screen, text=completed: text.rstrip() in screen.text)
