"""DLCs: models of a Qualcomm converter that are no context binaries yet. They are only shown."""

from __future__ import annotations

import zipfile
from typing import Any, Final

from harness.artefacts.artefact import Artefact
from harness.artefacts.blobs import whole_file
from harness.artefacts.file_bytes import FileBytes

_METADATA: Final = "dlc.metadata"
_MAX_METADATA_BYTES: Final = 1 << 20


def read_dlc(data: FileBytes) -> Artefact:
    """One piece, the whole file; `records` and what the converter said of itself are facts.

    Raises ArtefactError for a zip that is damaged, or no DLC.
    """
    try:
        with zipfile.ZipFile(data.path) as opened:
            records = opened.infolist()
            found = any(record.filename == _METADATA for record in records)
            text = ""
            if found:
                with opened.open(_METADATA) as file:
                    text = file.read(_MAX_METADATA_BYTES).decode("utf-8", "replace")
    except Exception as error:  # zipfile names nine of its own and of the libraries it uses
        reason = str(error) or type(error).__name__
        raise data.error(f"the zip is damaged: {reason}", 0) from error
    if not found:
        raise data.error(f"the zip has no {_METADATA}, so it is no DLC", 0)
    for record in records:
        data.require(record.header_offset, record.compress_size, f"the record {record.filename}")
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    facts: dict[str, Any] = {
        "records": {record.filename: record.file_size for record in records},
        "converter": said.get("converter-version", ""),
        "command": said.get("converter-command", ""),
    }
    return Artefact(data.path, "dlc", (whole_file(data),), facts)
