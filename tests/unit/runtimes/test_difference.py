"""Differences of two sets of libraries."""

from __future__ import annotations

from pathlib import Path

from harness.core.local_file import LocalFile
from harness.runtimes.difference import FileChange, difference, plain_name


def test_files_are_paired_by_their_plain_names() -> None:
    assert plain_name("capi/libonnxruntime.so.1.24.1") == "capi/libonnxruntime.so"
    assert plain_name("x.libs/libstdc++-0a1b2c3d.so.6") == "x.libs/libstdc++.so"
    assert plain_name("libQnnHtpV73Stub.so") == "libQnnHtpV73Stub.so"
    old, new = (
        [LocalFile(Path(name), name, size, digit * 64) for name, size, digit in files]
        for files in (
            [("liba.so.1", 10, "1"), ("libsame.so", 10, "2"), ("libgone.so", 10, "3")],
            [("liba.so.2", 12, "4"), ("libsame.so", 10, "2"), ("libnew.so", 11, "5")],
        )
    )
    changes = difference(old, new)
    assert (changes.gone, changes.new) == ({"libgone.so": 10}, {"libnew.so": 11})
    assert changes.same == ["libsame.so"]
    assert changes.changed == [FileChange(name="liba.so", size_before=10, size_after=12)]
