"""DLCs: models of a Qualcomm converter that are no context binaries yet. They are only shown."""

from __future__ import annotations

from typing import Any, Final

from harness.ground.files.archive import ArchiveError, ArchiveLimits, opened_archive
from harness.libraries.containers.artefact import Artefact
from harness.libraries.containers.blobs import whole_file
from harness.libraries.containers.file_bytes import FileBytes

_METADATA: Final = "dlc.metadata"
_MAX_METADATA_BYTES: Final = 1 << 20
# a model may be as large as a disk, since only the metadata is unpacked
_LIMITS: Final = ArchiveLimits(
    archive_bytes=1 << 50, total_bytes=1 << 50, ratio=1 << 50, zip64=True
)


def read_dlc(data: FileBytes) -> Artefact:
    """One piece, the whole file; `records` and what the converter said of itself are facts.

    Raises ArtefactError for a zip that is damaged, or no DLC.
    """
    try:
        with data.open() as file, opened_archive(file, _LIMITS) as opened:
            records = {record.filename: record.file_size for record in opened.infolist()}
            if _METADATA not in records:
                raise data.error(f"the zip has no {_METADATA}, so it is no DLC", 0)
            with opened.open(_METADATA) as metadata:
                text = metadata.read(_MAX_METADATA_BYTES).decode("utf-8", "replace")
    except (ArchiveError, OSError) as error:
        raise data.error(f"the zip is damaged: {error}", 0) from error
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    facts: dict[str, Any] = {
        "records": records,
        "converter": said.get("converter-version", ""),
        "command": said.get("converter-command", ""),
    }
    return Artefact(data.path, "dlc", (whole_file(data),), facts)
