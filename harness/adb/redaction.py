"""Takes out of a device's logs what says who its owner is and where it stands (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

MAX_GROWTH: Final = 2
"""A redacted text is at most so many times as long as it was."""

_MAX_ROUNDS: Final = 4
_WHOLE_LINE: Final = "<line>"

# Every quantifier is bounded or possessive, so that no line can make a pattern run for long. A
# value never holds < or >: what stands in for one is then never taken for another one.
_SEPARATOR: Final = r"""(?:["']?+[ \t]{0,2}+[:=][ \t]{0,2}+|[ \t]{1,2}+(?=["']))"""
_QUOTED: Final = r"""(?:"[^"<>\n]{1,64}"|'[^'<>\n]{1,64}')"""

_MAC: Final = (
    r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?![0-9A-Fa-f])"
)
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"

_PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    # the name of an interface has an @ and a version too: android.hardware.audio@7.0-impl.so
    "email": (
        r"[\w.%+-]{1,64}(?:@|%40)(?![0-9]{1,4}\.[0-9])"
        r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}",
    ),
    "account": (
        r"(?i:\bAccount[ \t]?\{name=)(?P<account_0>[^,<>}\n]{1,128})",
        rf"(?i:\baccount[_ ]?(?:name)?{_SEPARATOR})"
        rf"(?P<account_1>{_QUOTED}|[^\s,;<>\"'{{}}()\[\]]{{1,128}})",
    ),
    "ssid": (rf"(?<!\bN)(?i:ssid{_SEPARATOR})(?P<ssid_0>{_QUOTED}|[^,;<>\"'\n]{{1,32}})",),
    "mac": (_MAC,),
    "id": (
        r"(?i:\b(?:imei|imsi|meid|iccid|msisdn|serialno|android_?id|line1_?number|phone_?number)"
        rf"[0-9]?{_SEPARATOR})(?P<id_0>{_QUOTED}|[^\s,;<>\"'{{}}()\[\]]{{1,64}})",
    ),
    "phone": (r"(?<![\w.+)-])\+[1-9](?:[ -]?[0-9]){7,14}(?![0-9])",),
    "imei": (r"(?<![0-9A-Za-z_.])[0-9]{15}(?![0-9A-Za-z_.])",),
    "ip": (
        rf"(?<![0-9.])(?:{_OCTET}\.){{3}}{_OCTET}(?![0-9.])",
        r"(?<![0-9A-Za-z:])(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}(?![0-9A-Za-z:])",
        r"(?<![0-9A-Za-z:])(?:[0-9A-Fa-f]{1,4}:){1,6}(?::[0-9A-Fa-f]{1,4}){1,6}(?![0-9A-Za-z:])",
    ),
}

# Words without which a pattern cannot match, where that is cheaper to find out.
_NEEDS: Final[dict[str, Callable[[str], bool]]] = {
    "email": lambda text: "@" in text or "%40" in text,
    "account": lambda text: "ccount" in text or "CCOUNT" in text,
    "phone": lambda text: "+" in text,
}


@dataclass(frozen=True)
class Redaction:
    """What is taken out: each occurrence becomes `<what it was>`.

    `accounts`: email addresses and names of accounts. `wifi`: SSID, BSSID and every MAC address.
    `numbers`: phone numbers, IMEI, IMSI and other numbers that identify a device or its owner.
    `addresses`: IP addresses; off by default, since versions like 2.47.0.1 look the same.
    """

    accounts: bool = True
    wifi: bool = True
    numbers: bool = True
    addresses: bool = False

    def kinds(self) -> tuple[str, ...]:
        """The names of what is taken out, in the order in which it is looked for."""
        chosen = (
            (self.accounts, ("account", "email")),
            (self.wifi, ("ssid", "mac")),
            (self.numbers, ("id", "phone", "imei")),
            (self.addresses, ("ip",)),
        )
        return tuple(kind for wanted, kinds in chosen if wanted for kind in kinds)


def redact(text: str, redaction: Redaction = Redaction()) -> str:
    """`text` without what `redaction` names; the same again when given its own result.

    Lines stay lines; one made to defy redaction is taken out as a whole. The result is at most
    MAX_GROWTH times as long; the time it takes grows with the length of the text only.
    """
    kinds = redaction.kinds()
    # what stands in for one thing may let another be seen, so one round is not always enough
    for _ in range(_MAX_ROUNDS):
        result = _once(text, kinds)
        if result == text:
            return result
        text = result
    lines = text.split("\n")
    return "\n".join(line if _once(line, kinds) == line else _WHOLE_LINE for line in lines)


def _once(text: str, kinds: tuple[str, ...]) -> str:
    for kind in kinds:
        needs = _NEEDS.get(kind)
        if needs is None or needs(text):
            for pattern in _compiled(kind):
                text = pattern.sub(_replacer(kind), text)
    return text


@cache
def _compiled(kind: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in _PATTERNS[kind])


@cache
def _replacer(kind: str) -> Callable[[re.Match[str]], str]:
    instead = f"<{kind}>"

    def replace(match: re.Match[str]) -> str:
        if kind == "imei" and not _luhn(match[0]):
            return match[0]
        values = [name for name, value in match.groupdict().items() if value is not None]
        if not values:
            return instead
        start, end = match.span(values[0])
        whole, offset = match[0], match.start()
        return whole[: start - offset] + instead + whole[end - offset :]

    return replace


def _luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of an IMEI; a time in nanoseconds rarely fits."""
    doubled = (int(digit) * (2 if index % 2 else 1) for index, digit in enumerate(digits))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0
