"""Sanitizing of text before it is printed, stored or raised (pure).

Text of devices, servers and files is not trusted. Control characters of terminals are shown as
escapes, commands to a CI system are broken, and secrets are removed.

`OutgoingStream` does so for text from elsewhere: a traceback, a name of pytest's, a line that was
folded at the terminal's width.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, Final, TextIO

REDACTED: Final = "***"
"""The replacement of a secret."""
# C0 but tab and newline, DEL, C1, changes of the text's direction, line and paragraph separators,
# surrogates, invisible tags.
_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# a path made from a URL has one slash
_BEGIN: Final = r"(?:(?<=://)|(?<=https:/)|(?<=http:/))"
_USERINFO: Final = re.compile(_BEGIN + r"[^\s/?#]{0,2000}@")
# A port is a number: other text after the colon is a password with / ? or # in it, or one whose end
# was cut off.
_PASSWORD: Final = re.compile(
    _BEGIN
    + r"[^\s/?#@:\[\]]{0,255}:(?![0-9]{0,5}(?:[/?#\s'\"().,:;!\]]|$))(?:[^\s@]{0,500}@)?[^\s/?#@]*"
)
_PARAMETER: Final = re.compile(
    r"([?&;][\w.~-]{0,60}?(?:token|key|secret|passw(?:or)?d|pwd|sig(?:nature)?|auth|credentials?|"
    r"session|jwt)[\w.~-]{0,60}=)[^&;#\s\"'<>]+",
    re.IGNORECASE,
)
# A named value: up to its end, or to that of its quotes, which JSON may have escaped. The quote
# that ends a JSON string does not open a value: no character of a value follows it.
_PLAIN: Final = r"""[^\s"',;&<>{}()\[\]\\\x1b]"""
_OPENS: Final = rf"(?(named)|(?!:)(?={_PLAIN}))"
_VALUE: Final = rf"""(?:
    (?P<quote>["']){_OPENS}(?:\\.|(?!(?P=quote))[^\\\n"]){{1,4000}}(?=(?P=quote))
  | (?P<escaped>\\{{1,3}}["']){_OPENS}(?:(?!(?P=escaped))(?:\\.|[^\\\n"])){{1,4000}}(?=(?P=escaped))
  | (?P<open>\\{{0,3}}["'])?(?!:){_PLAIN}+
)"""
_IS: Final = (
    r"""(?P<named>\\{0,3}["'])?[ \t]{0,3}[:=][ \t]{0,3}(?:(?:\x1b|\\u001b)\[[0-9;]{0,20}m)?"""
)
_WORD: Final = r"(?:(?<![A-Za-z0-9])|(?-i:(?<=[a-z])(?=[A-Z])))"
_NAME: Final = rf"""{_WORD}(?:password|(?<!etc/)passwd|passphrase|secret|psk|cookie
  |(?:api|access|private|secret)[_-]?key
  |(?:access|auth|api|id|refresh|private|session|secret)[_-]?token)"""
_NAME_ALONE: Final = re.compile(rf"{_NAME}\Z", re.IGNORECASE | re.VERBOSE)
_NAMED: Final = tuple(
    re.compile(rf"({name}){_VALUE}", re.IGNORECASE | re.VERBOSE)
    for name in (
        rf"{_NAME}{_IS}",
        # many texts use "token" for an ordinary word
        rf"""{_WORD}token{_IS}(?=(?:\\{{0,3}}["'])?(?=[A-Za-z_.~+/=-]{{0,200}}[0-9])
          [\w.~+/=-]{{16}})""",
        r"--(?:password|passwd|passphrase|secret|api-key|(?:[a-z]{1,20}-)?token)(?P<named>[ ]|=)",
    )
)
# A header: up to its end, for some kinds with all their named parameters.
_SAID: Final = rf"""\\{{0,3}}"(?={_PLAIN})(?!:)[^"\\\n]{{1,4000}}\\{{0,3}}\""""
_HEADER: Final = re.compile(
    rf"""(?<![A-Za-z0-9])((?:
        authorization(?:\\{{0,3}}["'])?[ \t]{{0,3}}[:=][ \t]{{0,3}}\[?(?:\\{{0,3}}["'])?
        (?:(?:bearer|basic|digest|negotiate|token)[ \t]{{1,3}})?
      | bearer[ \t]{{1,3}}(?=[\w.~+/-]{{16}})
    ))(?:[\w-]{{1,40}}={_SAID}|(?!:){_PLAIN}+)
    (?:,?[ ]{{1,3}}[\w-]{{1,40}}=(?:{_SAID}|(?!:){_PLAIN}{{1,4000}}))*+""",
    re.IGNORECASE | re.VERBOSE,
)
_COOKIES: Final = re.compile(r"(?<![A-Za-z0-9])(cookie: ?)[^\n\"'\\]+", re.IGNORECASE)
# Tokens and keys that are recognized by their own form.
_TOKEN: Final = re.compile(
    r"""(?<![A-Za-z0-9_])(?:gh[opsur]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255}|glpat-[\w-]{20,255}
      |hf_[A-Za-z0-9]{30,255}|xox[abeprs]-[\w-]{10,255}|A[KS]IA[0-9A-Z]{16}(?![0-9A-Z])
      |npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{40,2000}
      |sk-(?:[A-Za-z0-9]{40,255}|(?:admin|ant|proj|svcacct)-[\w-]{20,255})
      |AIza[\w-]{35}|ya29\.[\w-]{20,2000}|GOCSPX-[\w-]{28}
      |eyJ[\w-]{8,4000}\.eyJ[\w-]{8,4000}\.[\w-]{0,4000})""",
    re.VERBOSE,
)
# A key: up to its end, whatever a log has prefixed to its lines.
_KEY: Final = re.compile(
    r"(?<=PRIVATE KEY-----)"
    r"(?:(?:[^-]|-(?!----)){16,20000}(?=-----END)|[\s\\A-Za-z0-9+/=]{16,20000})"
)
# The same for lines that arrive one by one, among others: long words, and the last word of each.
_KEY_BEGINS: Final = re.compile(r"BEGIN[A-Z0-9 ]{0,40} PRIVATE KEY-----(?!.*-----END)")
_OF_KEY: Final = re.compile(
    r"(?:(?<=\\n)|(?<![\w.+/=\\]))[A-Za-z0-9+/=]{16,}(?![\w.+/=])"
    r"|(?<!\S)[A-Za-z0-9+/=]+(?=\s*\Z)"
)
_MOST_KEY_LINES: Final = 400
# Every match of the patterns above contains one of these.
_SIGNS: Final = re.compile(
    r"(?i:authorization|cookie|bearer|passw|passphrase|--[a-z-]{0,20}token|--secret|--api-key"
    r"|(?:secret|token|key|psk)(?:\\{0,3}[\"'])?[ \t]{0,3}[:=])"
    r"|:/|gh[opsur]_|github_pat_|glpat-|hf_|xox[abeprs]-|A[KS]IA|eyJ|PRIVATE KEY"
    r"|npm_|pypi-|sk-[a-zA-Z0-9]|AIza|ya29|GOCSPX"
)

# The same in bytes, and JSON's escapes of ASCII and of a slash, which may hide one.
_SIGNS_IN_BYTES: Final = re.compile(_SIGNS.pattern.encode() + rb"|\\u00|\\/")
MOST_LINE_BYTES: Final = 4 << 20
"""The limit for a line that may have secrets: the search takes ten times the memory."""
LINE_WAS_CUT: Final = b" ... (the rest of this line was left out)"
_JSON_ESCAPE: Final = re.compile(r"\\(?:u00([2-7][0-9a-fA-F])|/)")

# Commands to CI systems in a log. GitHub: `::name` and then ` ` or `::`, after white space at the
# beginning of a line (a node id may begin so, too: its name has other characters), and `##[`
# anywhere (actions/runner, ActionCommand.cs); Azure: `##vso[` anywhere (its agent, Command.cs), and
# TeamCity `##teamcity[`; GitLab and Travis: sections. Text after only colour codes is at the
# beginning, too. The last character of each becomes a JSON escape.
_COLOUR: Final = r"\x1b\[[0-9;]{0,20}m"
_BLANK: Final = rf"(?<![^\n\r])(?:[^\S\n\r]|{_COLOUR})*+"
_COMMANDS: Final = (
    re.compile(rf"({_BLANK}::(?:[A-Za-z-]|{_COLOUR}){{1,40}})[ :]"),
    re.compile(r"(##[\w.-]{0,40})\["),
    re.compile(r"((?:section_(?:start|end)|travis_(?:fold|time))):"),
)
# Buildkite: a group of lines. pytest begins lines so, too.
_GROUP: Final = re.compile(rf"({_BLANK}(?:---|\+\+\+|~~~|\^\^\^))[ ]")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Format a count, as in "1 context" and "2 contexts"; `plural` if an s is not enough."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def first_names(names: Iterable[str], most: int = 4, separator: str = ", ") -> str:
    """Return the first names, and how many more there are, in words."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return separator.join(every[:most]) + more


def clock(seconds: float) -> str:
    """Format a duration, as in 0:07, 12:30 and 1:02:03."""
    if seconds >= 360_000:
        return "100 h+"
    whole = math.ceil(max(0.0, seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def without_secrets(text: str) -> str:
    """Return `text` with secrets replaced by `***`.

    Secrets are the user information of a URL and tokens in its query, values that a header or a
    name calls a password, key or token, and text that looks like a token of GitHub, GitLab, Slack,
    AWS, Hugging Face, npm, PyPI, OpenAI or Google, a JWT or a private key. A value that is only
    called a token must also look like one: 16 characters, one of them a digit.
    """
    if _SIGNS.search(text) is None:
        return text
    if ":/" in text:
        text = _PASSWORD.sub(_cut_password, _USERINFO.sub(f"{REDACTED}@", text))
        text = _PARAMETER.sub(rf"\1{REDACTED}", text)
    text = _HEADER.sub(rf"\1{REDACTED}", _COOKIES.sub(rf"\1{REDACTED}", text))
    for named in _NAMED:
        text = named.sub(_without_value, text)
    return _TOKEN.sub(REDACTED, UnfinishedKey().without(_KEY.sub(REDACTED, text)))


class UnfinishedKey:
    """A private key whose lines arrive one by one, among others: masks them until it ends."""

    def __init__(self) -> None:
        self._lines = 0

    @property
    def is_open(self) -> bool:
        return self._lines > 0

    def without(self, text: str) -> str:
        """Return the next lines without any part of a key that began before them or in them."""
        if not self._lines and "PRIVATE KEY" not in text:
            return text
        return "\n".join(map(self._line, text.split("\n")))

    def _line(self, line: str) -> str:
        if self._lines:
            of_key, end, behind = line.partition("-----END")
            self._lines = 0 if end else self._lines - bool(line)
            line = f"{_OF_KEY.sub(REDACTED, of_key)}{end}{behind}"
        if _KEY_BEGINS.search(line):
            self._lines = _MOST_KEY_LINES
        return line


def _without_value(match: re.Match[str]) -> str:
    opening = match["quote"] or match["escaped"] or match["open"] or ""
    return f"{match[1]}{opening}{REDACTED}"


def _cut_password(match: re.Match[str]) -> str:
    _, separator, host = match[0].rpartition("@")
    return f"{REDACTED}@{host}" if separator else REDACTED


def without_secrets_in(value: Any) -> Any:
    """Return a JSON value without secrets in its strings and keys; a key may name a secret."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {
            without_secrets_in(key): REDACTED
            if isinstance(item, str) and item and _NAME_ALONE.search(str(key))
            else without_secrets_in(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets_in(item) for item in value]
    return value


def may_have_secrets(content: bytes) -> bool:
    """Return, by a quick check, whether content may have secrets, also JSON-escaped ones."""
    return _SIGNS_IN_BYTES.search(content) is not None


def log_without_secrets(content: bytes, key: UnfinishedKey | None = None) -> bytes:
    """Return a program's output without secrets, also JSON-escaped ones.

    Lines stay lines. A line without secrets is not changed; one that may have secrets is cut at
    MOST_LINE_BYTES. `key` is a private key that began in earlier lines.
    """
    key = key or UnfinishedKey()
    if not key.is_open and not may_have_secrets(content):
        return content
    return b"\n".join(_line_without_secrets(line, key) for line in content.split(b"\n"))


def _line_without_secrets(line: bytes, key: UnfinishedKey) -> bytes:
    if not key.is_open and not may_have_secrets(line):
        return line
    if len(line) > MOST_LINE_BYTES:
        return _line_without_secrets(line[:MOST_LINE_BYTES], key) + LINE_WAS_CUT
    text = line.decode("utf-8", "surrogateescape")
    safe = key.without(without_secrets(text))
    if "\\" in safe:
        # a JSON parser would decode escaped secrets
        plain = _JSON_ESCAPE.sub(_unescaped, safe)
        if without_secrets(plain) != plain:
            safe = without_secrets(plain)
    return line if safe == text else safe.encode("utf-8", "surrogateescape")


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else match[0][1]


def printable(text: str) -> str:
    """Return `text` with control characters of terminals as escapes, as in \\x1b.

    Characters that are valid in JSON become JSON escapes, so that JSON keeps its meaning.
    """
    return _STEERING.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    if match[0] < " ":
        return f"\\x{ord(match[0]):02x}"
    return json.dumps(match[0]).strip('"')


def without_commands(text: str) -> str:
    """Return `text` in which no CI system finds a command.

    JSON keeps its meaning. Idempotent, also for a longer text that contains the result.
    """
    for pattern in _COMMANDS:
        text = pattern.sub(_broken, text)
    return text


def _broken(match: re.Match[str]) -> str:
    return f"{match[1]}\\u{ord(match[0][-1]):04x}"


def outgoing(text: str) -> str:
    """Return `text` without control characters, commands to CI systems and secrets (idempotent)."""
    return _GROUP.sub(_broken, without_commands(printable(without_secrets(text))))


def one_line(text: str, most: int | None = None) -> str:
    """Return `text` as it may be printed on one line: of `most` characters, if that is given."""
    bounded = text if most is None else text[:most]
    return " ".join(outgoing(bounded).split())[:most]


def shortened(text: str, most: int) -> str:
    """Shorten a text in the middle, since names differ at their ends."""
    if len(text) <= most:
        return text
    half = (most - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


CONTINUED: Final = "  | "
"""The prefix of a line that continues the one before."""


def continued(text: str) -> str:
    """Return `text` with each line but the first indented and marked, unless it is already."""
    return re.sub(rf"\n(?!{re.escape(CONTINUED)})", f"\n{CONTINUED}", text)


_ONE_COLOUR: Final = re.compile(f"({_COLOUR})")
_COLOURS: Final = re.compile(f"(?:{_COLOUR})*+")
_LONGEST: Final = 64
"""The characters of a line that are kept to detect a command that begins in them."""
_BLANK_LINE: Final = re.compile(
    r"(?:\s|\x1b\[[0-9;]{0,20}m)*+"
    r"(:|::(?:[A-Za-z-]|\x1b\[[0-9;]{0,20}m){0,40}(?:\x1b(?:\[[0-9;]{0,20})?)?"
    r"|(?:\x1b(?:\[[0-9;]{0,20})?)?)"
)


class OutgoingStream:
    """Wrapper of a text stream that sanitizes what is written; it may be nested.

    `trusted`: its writer may control the terminal. From other writers only colours and lines that
    are overwritten pass, and secrets are removed from each write.
    """

    def __init__(self, stream: TextIO, *, trusted: bool = True) -> None:
        self._stream = stream
        self._trusted = trusted
        self._line = ""

    def write(self, text: str) -> int:
        """Write a text without commands, including one that began in an earlier text."""
        shown = text if self._trusted else _harmless(text)
        # only the last character of a command is changed, and that has not been written yet
        whole = without_commands(self._line + shown)
        line = min(whole.rpartition("\n")[2], whole.rpartition("\r")[2], key=len)
        self._stream.write(whole[len(self._line) :])
        if len(line) > _LONGEST:
            # the end of the line alone might look like a blank line
            blank = _BLANK_LINE.fullmatch(line)
            line = blank[1] if blank else "." + line[-_LONGEST:]
        self._line = line
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _harmless(text: str) -> str:
    text = without_secrets(text)
    begin, again, rest = text.partition("\r")  # pytest writes a line again
    if not again or _COLOURS.fullmatch(begin) is None:
        begin, again, rest = "", "", text
    parts = _ONE_COLOUR.split(rest)
    shown = (part if index % 2 else printable(part) for index, part in enumerate(parts))
    return "".join([begin, again, *shown])
