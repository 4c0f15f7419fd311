"""Files that unpack to gigabytes take little memory."""

import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.containers.artefact import ArtefactError
from harness.containers.open import open_artefact
from tests.unit.containers.made import FIELD

MOST_BYTES = 200 << 20
METADATA = "dlc.metadata"
ZEROS = 1 << 20

READERS = (
    "from harness.containers.open import open_artefact; open_artefact(file)",
    "from harness.core.archive import unpack; (file.parent / 'out').mkdir(); "
    "unpack(file, file.parent / 'out', lambda name: True)",
)
READ = """
import sys
from pathlib import Path
from harness.core.errors import HarnessError
file = Path(sys.argv[1])
try:
    {reader}
except HarnessError as error:
    print(str(error)[-300:])
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""


def deflate_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open(METADATA, "w") as member:
            for _ in range(400):
                member.write(bytes(ZEROS))
        for number in range(30):
            archive.writestr(f"lib{number}.so", bytes(ZEROS))


def large_directory(path: Path) -> None:
    """As many members as a zip tells of, all without content."""
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(65_000):
            archive.writestr(f"{number:0200}", b"")
        archive.writestr(METADATA, b"")


def lying_directory(path: Path) -> None:
    """Says that its directory has one member in a few bytes, in a place where some look for it."""
    large_directory(path)
    content = bytearray(path.read_bytes())
    end = content.rindex(b"PK\x05\x06")
    struct.pack_into("<HH", content, end + 8, 1, 1)
    path.write_bytes(content)


def long_names(path: Path) -> None:
    """A bundle whose names are as long as a zip can say, each character one of four bytes."""
    head = struct.Struct("<4sHHHHHIIIHH")
    with path.open("wb") as file:
        for name in (
            b"manifest.json",
            *(f"{n:05}".encode() + b"\xff" * 65_000 for n in range(4000)),
        ):
            file.write(head.pack(b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name)
        file.write(b"PK\x01\x02")


@pytest.mark.slow
@pytest.mark.parametrize("bomb", [deflate_bomb, large_directory, lying_directory, long_names])
def test_the_worst_input_takes_little_memory(tmp_path: Path, bomb: Callable[[Path], None]) -> None:
    file = tmp_path / "worst.dlc"
    bomb(file)
    for reader in READERS:
        # in a process of its own: the peak of this one is that of all tests before
        command = [sys.executable, "-c", READ.format(reader=reader), file]
        *message, peak = subprocess.check_output(command, text=True).splitlines()
        assert int(peak) << 10 < MOST_BYTES, message
        assert not message or re.search("packed|zip|at most", message[0])


def test_a_model_beyond_4_gb_is_read_and_one_that_lies_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zipfile writes zip64 where a model is that large; its end says where the directory is."""
    file = tmp_path / "large.dlc"
    metadata = zipfile.ZipFile(FIELD / "test_abs.dlc").read(METADATA)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(METADATA, metadata)
        with archive.open("model.params", "w", force_zip64=True) as member:
            member.write(b"x" * 99)
        # as it does for more members than 16 bits tell, or behind 4 GB
        monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    content = file.read_bytes()
    assert b"PK\x06\x06" in content
    assert open_artefact(file).kind == "dlc"
    locator = content.index(b"PK\x06\x07")
    for offset, value in ((locator + 8, 7), (content.index(b"PK\x06\x06") + 40, 1 << 40)):
        lying = content[:offset] + struct.pack("<Q", value) + content[offset + 8 :]
        file.write_bytes(lying)
        with pytest.raises(ArtefactError):
            open_artefact(file)
