"""Lines of the evidence that may show a cause."""

from __future__ import annotations

from pathlib import Path

from harness.evidence.case_evidence import telling_lines


def test_logs_tell_and_other_files_do_not(tmp_path: Path) -> None:
    files = {
        "logcat-npu.txt": "a\nb\n",
        "dsp.txt": "SSR Detected\n",
        "logcat.txt": "whatever other processes say\n",
        "process-maps.txt": "7f00 /lib/adsprpc\n",
        "evidence.json": "{}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "dmesg.txt").write_bytes(b"\xff\n" + b"x\n" * 5000)
    lines = telling_lines(tmp_path, [*files, "dmesg.txt", "avc.txt"])
    assert lines == ("a", "b", "SSR Detected", *["x"] * 500)
