"""Events as the probe writes them: numbered, and sealed with their checksum."""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from harness.probe.events import MARK, SEAL, TranscriptParser
from harness.probe.transcript import Transcript


def event_line(content: bytes) -> bytes:
    """One line of a JSON object that lacks its closing bracket."""
    return MARK + content + SEAL % crc32(content) + b"\n"


def event_lines(events: Iterable[Mapping[str, Any]], first: int = 0) -> bytes:
    """Events one after another; `first` is the number of the first."""
    texts = (json.dumps({**event, "n": number}) for number, event in enumerate(events, first))
    return b"".join(event_line(text[:-1].encode()) for text in texts)


def parse_transcript(data: bytes) -> Transcript:
    """The transcript of a whole stream."""
    parser = TranscriptParser()
    parser.feed(data)
    return parser.close()
