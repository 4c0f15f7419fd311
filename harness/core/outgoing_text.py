"""What any text is made into before it is printed, stored or raised (pure).

Devices, servers and files say whatever they like. Characters that steer a terminal are shown as
escapes, words that steer a CI system are broken, and what gives access somewhere is taken out.

Programs print what none of our functions made: a traceback, a name of pytest's, a line that was
folded at the terminal's width.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, TextIO

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
# A value that has a name: up to its end, or to that of its quotes, which JSON may have escaped.
# What ends a text of JSON is no quote that opens one: behind it is no character of a value.
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
        # many a text calls a word of its own a token
        rf"""{_WORD}token{_IS}(?=(?:\\{{0,3}}["'])?(?=[A-Za-z_.~+/=-]{{0,200}}[0-9])
          [\w.~+/=-]{{16}})""",
        r"--(?:password|passwd|passphrase|secret|api-key|(?:[a-z]{1,20}-)?token)(?P<named>[ ]|=)",
    )
)
# A header: up to its end, of some kinds with all that they tell by names.
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
# What says by itself that it is a token or a key.
_TOKEN: Final = re.compile(
    r"""(?<![A-Za-z0-9_])(?:gh[opsur]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255}|glpat-[\w-]{20,255}
      |hf_[A-Za-z0-9]{30,255}|xox[abeprs]-[\w-]{10,255}|A[KS]IA[0-9A-Z]{16}(?![0-9A-Z])
      |npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{40,2000}
      |sk-(?:[A-Za-z0-9]{40,255}|(?:admin|ant|proj|svcacct)-[\w-]{20,255})
      |AIza[\w-]{35}|ya29\.[\w-]{20,2000}|GOCSPX-[\w-]{28}
      |eyJ[\w-]{8,4000}\.eyJ[\w-]{8,4000}\.[\w-]{0,4000})""",
    re.VERBOSE,
)
# A key: up to its end, whatever a log has put before its lines.
_KEY: Final = re.compile(
    r"(?<=PRIVATE KEY-----)"
    r"(?:(?:[^-]|-(?!----)){16,20000}(?=-----END)|[\s\\A-Za-z0-9+/=]{16,20000})"
)
# The same where its lines come one by one, among others: long words, and the last of each.
_KEY_BEGINS: Final = re.compile(r"BEGIN[A-Z0-9 ]{0,40} PRIVATE KEY-----(?!.*-----END)")
_OF_KEY: Final = re.compile(
    r"(?:(?<=\\n)|(?<![\w.+/=\\]))[A-Za-z0-9+/=]{16,}(?![\w.+/=])"
    r"|(?<!\S)[A-Za-z0-9+/=]+(?=\s*\Z)"
)
_MOST_KEY_LINES: Final = 400
# One of them stands in whatever the patterns above can match.
_SIGNS: Final = re.compile(
    r"(?i:authorization|cookie|bearer|passw|passphrase|--[a-z-]{0,20}token|--secret|--api-key"
    r"|(?:secret|token|key|psk)(?:\\{0,3}[\"'])?[ \t]{0,3}[:=])"
    r"|:/|gh[opsur]_|github_pat_|glpat-|hf_|xox[abeprs]-|A[KS]IA|eyJ|PRIVATE KEY"
    r"|npm_|pypi-|sk-[a-zA-Z0-9]|AIza|ya29|GOCSPX"
)

# The same in bytes, and what may be hidden by JSON's escapes: of ASCII, and of a slash.
_SIGNS_IN_BYTES: Final = re.compile(_SIGNS.pattern.encode() + rb"|\\u00|\\/")
MOST_LINE_BYTES: Final = 4 << 20
"""So many bytes are kept of a line that may have secrets: a look takes ten times the memory."""
LINE_WAS_CUT: Final = b" ... (the rest of this line was left out)"
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


def counted(number: int, what: str, several: str = "") -> str:
    """As in "1 context" and "2 contexts"; `several` where it takes more than an s."""
    return f"{number} {what}" if number == 1 else f"{number} {several or what + 's'}"


def without_secrets(text: str) -> str:
    """`text` without what gives access somewhere.

    That is what stands before the @ of a URL or in a token of its query, what a header or a name
    says is a password, a key or a token, and what looks like a token of GitHub, GitLab, Slack, AWS,
    Hugging Face, npm, PyPI, OpenAI or Google, a JWT or a private key. What is only called a token
    must also look like one: 16 characters, one of them a digit.
    """
    if _SIGNS.search(text) is None:
        return text
    if ":/" in text:
        text = _PASSWORD.sub(_cut_password, _USERINFO.sub(f"{INSTEAD}@", text))
        text = _PARAMETER.sub(rf"\1{INSTEAD}", text)
    text = _HEADER.sub(rf"\1{INSTEAD}", _COOKIES.sub(rf"\1{INSTEAD}", text))
    for named in _NAMED:
        text = named.sub(_without_value, text)
    return _TOKEN.sub(INSTEAD, OpenKey().without(_KEY.sub(INSTEAD, text)))


class OpenKey:
    """A private key whose lines come one by one, among others: masks those until it ends."""

    def __init__(self) -> None:
        self._lines = 0

    @property
    def is_open(self) -> bool:
        return self._lines > 0

    def without(self, text: str) -> str:
        """The next lines without any part of a key, whether it began before them or in them."""
        if not self._lines and "PRIVATE KEY" not in text:
            return text
        return "\n".join(map(self._line, text.split("\n")))

    def _line(self, line: str) -> str:
        if self._lines:
            of_key, end, behind = line.partition("-----END")
            self._lines = 0 if end else self._lines - bool(line)
            line = f"{_OF_KEY.sub(INSTEAD, of_key)}{end}{behind}"
        if _KEY_BEGINS.search(line):
            self._lines = _MOST_KEY_LINES
        return line


def _without_value(found: re.Match[str]) -> str:
    opening = found["quote"] or found["escaped"] or found["open"] or ""
    return f"{found[1]}{opening}{INSTEAD}"


def _cut_password(found: re.Match[str]) -> str:
    _, at, host = found[0].rpartition("@")
    return f"{INSTEAD}@{host}" if at else INSTEAD


def without_secrets_in(value: Any) -> Any:
    """A JSON value without secrets in its texts and keys; a key may say that its value is one."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {
            without_secrets_in(key): INSTEAD
            if isinstance(item, str) and item and _NAME_ALONE.search(str(key))
            else without_secrets_in(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets_in(item) for item in value]
    return value


def may_have_secrets(content: bytes) -> bool:
    """Whether anything in it may be a secret, also one that JSON has escaped: seen at a glance."""
    return _SIGNS_IN_BYTES.search(content) is not None


def log_without_secrets(content: bytes, key: OpenKey | None = None) -> bytes:
    """What a program wrote, as it is kept: without secrets, also those that JSON has escaped.

    Lines stay lines. A line without secrets stays as it is, byte for byte; one that may have
    secrets is cut at MOST_LINE_BYTES. `key` is a key that began in earlier lines.
    """
    key = key or OpenKey()
    if not key.is_open and not may_have_secrets(content):
        return content
    return b"\n".join(_line_without_secrets(line, key) for line in content.split(b"\n"))


def _line_without_secrets(line: bytes, key: OpenKey) -> bytes:
    if not key.is_open and not may_have_secrets(line):
        return line
    if len(line) > MOST_LINE_BYTES:
        return _line_without_secrets(line[:MOST_LINE_BYTES], key) + LINE_WAS_CUT
    text = line.decode("utf-8", "surrogateescape")
    safe = key.without(without_secrets(text))
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

    Characters that JSON may hold become JSON's own escapes, so that JSON keeps its meaning.
    """
    return _STEERING.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    if found[0] < " ":
        return f"\\x{ord(found[0]):02x}"
    return json.dumps(found[0]).strip('"')


class Command(str):
    """A line of ours that a CI system is to obey. Its texts are quoted as that system wants it."""


def without_commands(text: str) -> str:
    """`text` in which no CI system finds a command, unless it is a `Command`.

    JSON keeps its meaning. Applied again, also to a longer text around it, it changes nothing more.
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


def one_line(text: str, most: int | None = None) -> str:
    """Return `text` as it may be printed on one line: of `most` characters, if that is given."""
    bounded = text if most is None else text[:most]  # a slice of a `Command` is none
    return " ".join(outgoing(bounded).split())[:most]


CONTINUED: Final = "  | "
"""What a line begins with that continues one, so that it is none of its own."""


def continued(text: str) -> str:
    """`text` with each line but the first indented and marked, unless it is so already."""
    return re.sub(rf"\n(?!{re.escape(CONTINUED)})", f"\n{CONTINUED}", text)


_ONE_COLOUR: Final = re.compile(f"({_COLOUR})")
_COLOURS: Final = re.compile(f"(?:{_COLOUR})*+")
_LONGEST: Final = 64
"""So many characters of a line are enough to see a command that begins in them."""
_BLANK_LINE: Final = re.compile(
    r"(?:\s|\x1b\[[0-9;]{0,20}m)*+"
    r"(:|::(?:[A-Za-z-]|\x1b\[[0-9;]{0,20}m){0,40}(?:\x1b(?:\[[0-9;]{0,20})?)?"
    r"|(?:\x1b(?:\[[0-9;]{0,20})?)?)"
)


class OutgoingStream:
    """Stands in for a text stream; does no harm in front of another one of its kind.

    `trusted`: whether its writer may steer the terminal. Of any other writer only colours and lines
    written over themselves are let through, and secrets are taken out of each write.
    """

    def __init__(self, stream: TextIO, *, trusted: bool = True) -> None:
        self._stream = stream
        self._trusted = trusted
        self._line = ""

    def write(self, text: str) -> int:
        """Writes a text without commands, also without one that began in an earlier text."""
        if isinstance(text, Command):
            self._line = ""
            return self._stream.write(text)
        shown = text if self._trusted else _harmless(text)
        # only the last character of a command is changed, and that has not been written yet
        whole = without_commands(self._line + shown)
        line = min(whole.rpartition("\n")[2], whole.rpartition("\r")[2], key=len)
        self._stream.write(whole[len(self._line) :])
        if len(line) > _LONGEST:
            # as its end alone, a line would be blank that is not
            blank = _BLANK_LINE.fullmatch(line)
            line = blank[1] if blank else "." + line[-_LONGEST:]
        self._line = line
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each."""
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
    shown = (part if at % 2 else printable(part) for at, part in enumerate(parts))
    return "".join([begin, again, *shown])
