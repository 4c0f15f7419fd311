"""Makes texts of what a device sent, fit to be read and no larger than allowed (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.adb.redaction import Redaction, redact

_REPLACED: Final = {
    code: "\ufffd" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t"
}
_CUT_BYTES: Final = 64


@dataclass(frozen=True)
class EvidenceFile:
    """A text to be kept under a name; of one too large, its beginning or its end.

    `cut` tells that the device did not give all of it in the first place.
    """

    name: str
    text: str
    keep_end: bool = False
    cut: bool = False


def clean(data: bytes) -> str:
    """Bytes as text without control characters, which a terminal would obey."""
    return data.decode("utf-8", "replace").replace("\r\n", "\n").translate(_REPLACED)


def fit(file: EvidenceFile, most_bytes: int, redaction: Redaction) -> tuple[bytes, bool]:
    """The redacted text in at most so many bytes of UTF-8, and whether it was cut.

    A cut text says so in its first or last line; it is empty where not even that has room.
    """
    text = file.text
    # redacting what is thrown away later would be a waste; a character has a byte at least
    text, cut = _cut(text, most_bytes, file.keep_end)
    content = redact(text, redaction).encode("utf-8", "replace")
    if not cut and not file.cut and len(content) <= most_bytes:
        return content, False
    room = most_bytes - _CUT_BYTES
    if room <= 0:
        return b"", True
    if file.keep_end:
        kept = content
        if cut or len(content) > room:
            kept = content[-room:].partition(b"\n")[2] or content[-room:]
        said = b"[cut: what came before is not kept]\n"
        return said + kept.decode("utf-8", "ignore").encode(), True
    kept = content
    if cut or len(content) > room:
        kept = content[:room].rpartition(b"\n")[0] or content[:room]
    said = b"\n[cut: what came behind is not kept]\n"
    return kept.decode("utf-8", "ignore").encode() + said, True


def _cut(text: str, most: int, keep_end: bool) -> tuple[str, bool]:
    if len(text) <= most:
        return text, False
    return (text[-most:] if keep_end else text[:most]) if most > 0 else "", True
