"""What tar_blocks makes is what Python's own tarfile reads."""

from __future__ import annotations

import io
import tarfile

from hypothesis import given
from hypothesis import strategies as st

from harness.runtimes.tar_blocks import BLOCK_BYTES, END_OF_TAR, tar_file, tar_link

NAMES = st.text("abc-_.0/é", min_size=1, max_size=300).filter(
    lambda name: not name.startswith("/") and not name.endswith("/")
)


def read(parts: list[bytes]) -> list[tuple[tarfile.TarInfo, bytes]]:
    data = b"".join((*parts, END_OF_TAR))
    assert len(data) % BLOCK_BYTES == 0
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [
            (one, taken.read() if one.isreg() and (taken := tar.extractfile(one)) else b"")
            for one in tar
        ]


@given(st.lists(st.tuples(NAMES, st.binary(max_size=1100), st.integers(0, 0o777))))
def test_files(files: list[tuple[str, bytes, int]]) -> None:
    parts = [block for name, content, mode in files for block in tar_file(name, content, mode)]
    assert [(one.name, content, one.mode) for one, content in read(parts)] == files


@given(NAMES, NAMES)
def test_links(name: str, target: str) -> None:
    parts = [*tar_link(name, target, 0o555, hard=True), *tar_link(name, target, 0, hard=False)]
    hard, soft = (one for one, _ in read(parts))
    assert (hard.name, hard.linkname, hard.islnk(), hard.mode) == (name, target, True, 0o555)
    assert (soft.name, soft.linkname, soft.issym()) == (name, target, True)
