"""Options that a night takes from the command that resumes it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.nightly import nightly
from harness.nightly.night import Night
from harness.nightly.night_steps import Chain

LAB = "schema: 1\ndevices: [{name: a, serial: s}]\n"


@pytest.mark.parametrize(
    ("words", "site"),
    [
        (["--site", "new"], "new"),
        ([], None),
        (["--resume"], "old"),
        (["--resume", "--site", "n"], "n"),
    ],
)
def test_a_night_that_is_gone_on_with_keeps_the_pages_that_are_named_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], site: str | None
) -> None:
    started: list[Night] = []

    def ended(chain: Chain) -> Night:
        chain._save()
        started.append(chain.night)
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Chain, "go_on", ended)
    Path("devices.yaml").write_text(LAB)
    for words_given in (["--site", "old"], words):
        CliRunner().invoke(nightly, words_given)
    first, second = started
    assert first.night == second.night
    assert second.site == (site and str(tmp_path / site))
