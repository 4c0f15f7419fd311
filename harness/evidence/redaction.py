"""Conversion of a device's output to text (pure): readable, of limited size, and without data that
identifies its owner or the device.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from harness.core.outgoing_text import without_secrets

_MAX_ROUNDS: Final = 4
_WHOLE_LINE: Final = "<line>"

# Every quantifier is bounded or possessive, so that no line can make a pattern run for long. A
# value never contains < or >, so that a replacement is never taken for a value.
_SEPARATOR: Final = r"""(?:["']?+[ \t]{0,2}+[:=][ \t]{0,2}+|[ \t]{1,2}+(?=["']))"""
_QUOTED: Final = r"""(?:"[^"<>\n]{1,64}"|'[^'<>\n]{1,64}')"""

_MAC: Final = (
    r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?![0-9A-Fa-f])"
)

# The redacted data, in the order of the search: accounts, Wi-Fi, and numbers that identify a device
# or its owner.
_PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    "account": (
        r"(?i:\bAccount[ \t]?\{name=)(?P<account_0>[^,<>}\n]{1,128})",
        rf"(?i:\baccount[_ ]?(?:name)?{_SEPARATOR})"
        rf"(?P<account_1>{_QUOTED}|[^\s,;<>\"'{{}}()\[\]]{{1,128}})",
    ),
    # the name of an interface has an @ and a version too: android.hardware.audio@7.0-impl.so
    "email": (
        r"[\w.%+-]{1,64}(?:@|%40)(?![0-9]{1,4}\.[0-9])"
        r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}",
    ),
    "ssid": (rf"(?<!\bN)(?i:ssid{_SEPARATOR})(?P<ssid_0>{_QUOTED}|[^,;<>\"'\n]{{1,32}})",),
    "mac": (_MAC,),
    "id": (
        r"(?i:\b(?:imei|imsi|meid|iccid|msisdn|serialno|android_?id|line1_?number|phone_?number)"
        rf"[0-9]?{_SEPARATOR})(?P<id_0>{_QUOTED}|[^\s,;<>\"'{{}}()\[\]]{{1,64}})",
    ),
    "phone": (r"(?<![\w.+)-])\+[1-9](?:[ -]?[0-9]){7,14}(?![0-9])",),
    "imei": (r"(?<![0-9A-Za-z_.])[0-9]{15}(?![0-9A-Za-z_.])",),
}

# Words without which a pattern cannot match, where that is cheaper to find out.
_NEEDS: Final[dict[str, Callable[[str], bool]]] = {
    "email": lambda text: "@" in text or "%40" in text,
    "account": lambda text: "ccount" in text or "CCOUNT" in text,
    "phone": lambda text: "+" in text,
}
_REPLACED: Final = {
    code: "\ufffd" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if chr(code) not in "\n\t"
}
_CUT_BYTES: Final = 64


@dataclass(frozen=True)
class EvidenceFile:
    """A text to be kept under a name; if it is too large, its beginning or its end.

    `cut`: the device did not send all of it in the first place.
    """

    name: str
    text: str
    keep_end: bool = False
    cut: bool = False


def clean(data: bytes) -> str:
    """Decode bytes without control characters, which a terminal would obey."""
    return data.decode("utf-8", "replace").replace("\r\n", "\n").translate(_REPLACED)


def fit(file: EvidenceFile, most_bytes: int) -> tuple[bytes, bool]:
    """Return the redacted text in at most `most_bytes` of UTF-8, and whether it was cut.

    A cut text says so in its first or last line; it is empty if not even that fits.
    """
    # cut before the redaction, which is slow; a character has at least one byte
    text = without_secrets(file.text)  # before a cut splits a secret
    cut = len(text) > most_bytes
    if cut:
        text = text[len(text) - most_bytes :] if file.keep_end else text[:most_bytes]
    content = redact(text).encode("utf-8", "replace")
    if not cut and not file.cut and len(content) <= most_bytes:
        return content, False
    room = most_bytes - _CUT_BYTES
    if room <= 0:
        return b"", True
    if cut or len(content) > room:
        begin = content[:room]
        whole = begin.rpartition(b"\n")[0] or begin
        if file.keep_end:
            whole = whole_lines(content[-room:])
        content = whole.decode("utf-8", "ignore").encode()
    if file.keep_end:
        return b"[cut: what came before is not kept]\n" + content, True
    return content + b"\n[cut: what came behind is not kept]\n", True


def whole_lines(end: bytes) -> bytes:
    """Return the end of a text without the partial line at its beginning, unless that is most."""
    lines = end.partition(b"\n")[2]
    return lines if len(lines) * 2 > len(end) else end


def redact(text: str) -> str:
    """Return `text` without data that identifies people or a device. Idempotent.

    Each occurrence becomes `<kind>`, a key of `_PATTERNS`. IP addresses stay: versions like
    2.47.0.1 look the same. Lines stay lines; one made to defy redaction is removed as a whole. The
    result is at most twice as long; the time depends only on the length of the text.
    """
    # a replacement may make another match possible, so one round is not always enough
    for _ in range(_MAX_ROUNDS):
        result = _redact_once(text)
        if result == text:
            return result
        text = result
    return "\n".join(
        line if _redact_once(line) == line else _WHOLE_LINE for line in text.split("\n")
    )


def _redact_once(text: str) -> str:
    for kind in _PATTERNS:
        needs = _NEEDS.get(kind)
        if needs is None or needs(text):
            for pattern in _PATTERNS[kind]:
                text = re.sub(pattern, _replacer(kind), text)
    return text


@cache
def _replacer(kind: str) -> Callable[[re.Match[str]], str]:
    instead = f"<{kind}>"

    def replace(match: re.Match[str]) -> str:
        if kind == "imei" and not _luhn(match[0]):
            return match[0]
        values = [name for name, value in match.groupdict().items() if value is not None]
        if not values:
            return instead
        # the value is the end of the match
        return match[0].removesuffix(match[values[0]]) + instead

    return replace


def _luhn(digits: str) -> bool:
    doubled = (int(digit) * (2 if index % 2 else 1) for index, digit in enumerate(digits))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0
