"""The output of its runs that a bisection keeps."""

from pathlib import Path

import pytest

from harness.bisect import search_loop


@pytest.mark.parametrize("most", [1 << 20, 40])
def test_the_output_of_a_run_is_kept_without_secrets_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(search_loop, "_MOST_OUTPUT_BYTES", most)
    output = tmp_path / "output.txt"
    output.write_text(f"{'before ' * 20}\nfetch https://me:hunter2@host/x\nall is well\n")
    search_loop._without_secrets(output)
    kept = output.read_text()
    assert kept.endswith("all is well\n")
    assert "hunter2" not in kept
    assert len(kept) <= most
