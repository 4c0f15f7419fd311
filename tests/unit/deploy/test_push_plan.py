"""Archives of push plans, read by Python's own tarfile."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from harness.core.local_file import LocalFile
from harness.deploy.deploy import SMALL_BYTES, plan_push
from harness.deploy.layout import FileSet, entry_name

SIZES = {"empty": 0, "block": 512, "odd/one": 513, "large": SMALL_BYTES + 1}


def read(data: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    assert len(data) % tarfile.BLOCKSIZE == 0
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {
            member.name: (
                member,
                stream.read() if member.isreg() and (stream := tar.extractfile(member)) else b"",
            )
            for member in tar
        }


def a_set(folder: Path) -> FileSet:
    files = []
    for name, size in SIZES.items():
        path = folder / name.replace("/", "-")
        path.write_bytes(name.encode()[:1] * size)
        mode = 0o755 if name == "block" else 0o644
        files.append(LocalFile(path, name, size, f"{size:064x}", mode))
    # long names need a member of their own kind
    return FileSet("set-" + "n" * 60, "set", tuple(files))


@pytest.mark.parametrize("links", ["hard", "soft", "copy"])
def test_what_is_packed(links: Any, tmp_path: Path) -> None:
    file_set = a_set(tmp_path)
    stored = {entry: f"{entry}.1" for entry in file_set.entries}
    plan = plan_push([file_set], stored, file_set.entries, ["drop x"], end="1", links=links)
    assert [file.name for file in plan.alone.values()] == ["large"]
    members = read(plan.archive())
    for file in file_set.files:
        packed = members.get(f"ready/{stored[entry_name(file)]}")
        assert (packed is None) == (file.name == "large")
        if packed:
            assert packed[1] == file.path.read_bytes()
            assert packed[0].mode == (0o555 if file.name == "block" else 0o444)
    assert members[".control"][1] == b"drop x\n"
    assert (".links.tar" in members) == (links != "copy")
    if links == "copy":
        return
    link_members = read(members[".links.tar"][1])
    for file in file_set.files:
        link, _ = link_members[f"sets/{file_set.name}.1/{file.name}"]
        up = "" if links == "hard" else "../" * (3 if "/" in file.name else 2)
        assert link.linkname == f"{up}store/{stored[entry_name(file)]}"
        assert (link.islnk(), link.issym()) == (links == "hard", links == "soft")
        assert link.mode == (0o555 if file.name == "block" else 0o444)
