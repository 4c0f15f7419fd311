"""What any text is made into before it is printed, stored or raised (pure).

Devices, servers and files say whatever they like: characters that steer a terminal are shown as
escapes, words that steer a CI system are broken, and what gives access somewhere is taken out.
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
# A header, or a value that has a name: up to its end.
_NAMED: Final = re.compile(
    r"""(?<![A-Za-z0-9])((?:
        (?:authorization|cookie)["']?[ \t]{0,3}[:=][ \t]{0,3}["']?
        (?:(?:bearer|basic|digest|negotiate|token)[ \t]{1,3})?
      | (?:password|passwd|passphrase|secret|(?:api|access|private|secret)[_-]?key|apikey
        |(?:access|auth|api|id|refresh|private)[_-]?token)["']?[ \t]{0,3}[:=][ \t]{0,3}["']?
      | bearer[ \t]{1,3}(?=[\w.~+/-]{16})
    ))(?:[^\s"',;&<>{}()\[\]\\]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_COOKIES: Final = re.compile(r"(?<![A-Za-z0-9])(cookie: ?)[^\n\"'\\]+", re.IGNORECASE)
# What says by itself that it is a token or a key.
_TOKEN: Final = re.compile(
    r"""(?<![A-Za-z0-9_])(?:gh[opsur]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255}|glpat-[\w-]{20,255}
      |xox[abeprs]-[\w-]{10,255}|A[KS]IA[0-9A-Z]{16}(?![0-9A-Z])
      |eyJ[\w-]{8,4000}\.eyJ[\w-]{8,4000}\.[\w-]{0,4000})""",
    re.VERBOSE,
)
_KEY: Final = re.compile(r"(?<=PRIVATE KEY-----)[\s\\A-Za-z0-9+/=]{16,20000}")
_KEY_IN_BYTES: Final = re.compile(_KEY.pattern.encode())
# One of them stands in whatever the patterns above can match.
_SIGNS: Final = re.compile(
    r"(?i:authorization|cookie|bearer|passw|passphrase|(?:secret|token|key)[\"']?[ \t]{0,3}[:=])"
    r"|:/|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|A[KS]IA|eyJ|PRIVATE KEY"
)

# The same in bytes, and what may be hidden by JSON's escapes: of ASCII, and of a slash.
_SIGNS_IN_BYTES: Final = re.compile(_SIGNS.pattern.encode() + rb"|\\u00|\\/")
_JSON_ESCAPE: Final = re.compile(r"\\(?:u00([2-7][0-9a-fA-F])|/)")

# What CI systems obey in a log. GitHub: `::name` and then ` ` or `::`, behind white space at the
# beginning of a line (a node id may begin so, too: its name has other characters), and `##[`
# anywhere (actions/runner, ActionCommand.cs); Azure: `##vso[` anywhere (its agent, Command.cs), and
# TeamCity `##teamcity[`; GitLab and Travis: sections. What a colour is set before is at the
# beginning, too. Of each, the last character becomes an escape of JSON.
_COLOUR: Final = r"\x1b\[[0-9;]{0,20}m"
_BLANK: Final = rf"(?<![^\n\r])(?:[^\S\n\r]|{_COLOUR})*+"
_COMMANDS: Final = (
    re.compile(rf"({_BLANK}::(?:[A-Za-z-]|{_COLOUR}){{1,40}})[ :]"),
    re.compile(r"(##[\w.-]{0,40})\["),
    re.compile(r"((?:section_(?:start|end)|travis_(?:fold|time))):"),
)
# Buildkite: a group of lines. pytest begins lines so, too.
_GROUP: Final = re.compile(rf"({_BLANK}(?:---|\+\+\+|~~~|\^\^\^))[ ]")


def counted(number: int, what: str) -> str:
    """As in "1 context" and "2 contexts"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def without_secrets(text: str) -> str:
    """`text` without what gives access somewhere.

    That is what stands before the @ of a URL or in a token of its query, what a header or a name
    says is a password, a key or a token, and what looks like a token of GitHub, GitLab, Slack or
    AWS, a JWT or a private key.
    """
    if _SIGNS.search(text) is None:
        return text
    if ":/" in text:
        text = _PASSWORD.sub(_cut_password, _USERINFO.sub(f"{INSTEAD}@", text))
        text = _PARAMETER.sub(rf"\1{INSTEAD}", text)
    text = _NAMED.sub(rf"\1{INSTEAD}", _COOKIES.sub(rf"\1{INSTEAD}", text))
    return _TOKEN.sub(INSTEAD, _KEY.sub(INSTEAD, text))


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


def log_without_secrets(content: bytes) -> bytes:
    """What a program wrote, as it is kept: without secrets, also those that JSON has escaped.

    Lines stay lines; one without secrets stays as it is, byte for byte.
    """
    if _SIGNS_IN_BYTES.search(content) is None:
        return content
    content = _KEY_IN_BYTES.sub(lambda key: b"***" + b"\n" * key[0].count(b"\n"), content)
    return b"\n".join(map(_line_without_secrets, content.split(b"\n")))


def _line_without_secrets(line: bytes) -> bytes:
    if _SIGNS_IN_BYTES.search(line) is None:
        return line
    text = line.decode("utf-8", "surrogateescape")
    safe = without_secrets(text)
    if "\\" in safe:
        # escapes hide nothing from whoever reads the line as JSON
        plain = _JSON_ESCAPE.sub(_unescaped, safe)
        if without_secrets(plain) != plain:
            safe = without_secrets(plain)
    return line if safe == text else safe.encode("utf-8", "surrogateescape")


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else found[0][1]


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


class Command(str):
    """A line of our own that a CI system is to obey, of texts that are quoted in its way."""


def without_commands(text: str) -> str:
    """`text` in which no CI system finds a command, wherever it looks for one, unless it is one.

    What is in JSON stays the same there. The same again if repeated, also in a longer text.
    """
    if isinstance(text, Command):
        return text
    for pattern in _COMMANDS:
        text = pattern.sub(_broken, text)
    return text


def _broken(found: re.Match[str]) -> str:
    return f"{found[1]}\\u{ord(found[0][-1]):04x}"


def outgoing(text: str) -> str:
    """`text` as it may be printed: it steers no terminal and no CI system, and has no secrets.

    The same again if repeated.
    """
    if isinstance(text, Command):
        return text
    return _GROUP.sub(_broken, without_commands(printable(without_secrets(text))))


CONTINUED: Final = "  | "
"""What a line begins with that continues one, so that it is none of its own."""


def continued(text: str) -> str:
    """`text` with each line but the first one indented and marked. The same again if repeated."""
    return re.sub(rf"\n(?!{re.escape(CONTINUED)})", f"\n{CONTINUED}", text)
