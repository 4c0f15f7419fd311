"""What any text is made into before it is printed, stored or raised (pure).

Devices, servers and files say whatever they like: characters that steer a terminal are shown as
escapes, and what gives access somewhere is taken out.
"""

from __future__ import annotations

import re
from typing import Any, Final

INSTEAD: Final = "***"
"""What stands where a secret stood."""
# C0 but tab and newline, DEL, C1, what changes the direction of text, line and paragraph
# separators, halves of characters, invisible tags.
_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# A path that was made of a URL has one slash.
_BEGIN: Final = r"(?:(?<=://)|(?<=https:/)|(?<=http:/))"
_USERINFO: Final = re.compile(_BEGIN + r"[^\s/?#]{0,2000}@")
# A port is a number: what else stands behind the colon is a password with / ? or # in it, or one
# whose end was cut off.
_PASSWORD: Final = re.compile(
    _BEGIN
    + r"[^\s/?#@:\[\]]{0,255}:(?![0-9]{0,5}(?:[/?#\s'\"().,:;!\]]|$))(?:[^\s@]{0,500}@)?[^\s/?#@]*"
)
_PARAMETER: Final = re.compile(
    r"([?&;][\w.~-]{0,60}?(?:token|key|secret|passw(?:or)?d|pwd|sig(?:nature)?|auth|credentials?|"
    r"session|jwt)[\w.~-]{0,60}=)[^&;#\s\"'<>]+",
    re.IGNORECASE,
)


def counted(number: int, what: str) -> str:
    """As in "1 context" and "2 contexts"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def without_secrets(text: str) -> str:
    """`text` without what stands before the @ of a URL, and without tokens in its query."""
    if ":/" not in text:
        return text
    text = _PASSWORD.sub(_cut_password, _USERINFO.sub(f"{INSTEAD}@", text))
    return _PARAMETER.sub(rf"\1{INSTEAD}", text)


def _cut_password(found: re.Match[str]) -> str:
    _, at, host = found[0].rpartition("@")
    return f"{INSTEAD}@{host}" if at else INSTEAD


def without_secrets_in(value: Any) -> Any:
    """The same for every text, also keys, in what JSON can hold."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {without_secrets_in(key): without_secrets_in(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets_in(item) for item in value]
    return value


def printable(text: str) -> str:
    """`text` as one that cannot steer a terminal: such characters become escapes, as in \\x1b.

    What JSON may hold as it is becomes an escape of JSON, so that JSON stays the same.
    """
    return _STEERING.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def outgoing(text: str) -> str:
    """`text` as it may be printed: printable, and without secrets. The same again if repeated."""
    return printable(without_secrets(text))
