"""The options that a context binary was compiled with, as HTP's compiler writes them into it.

Each graph has records of them: the size in words of 32 bits, `Op`, and a line of text that ends
with NUL, `O=3;vtcm_mb=8;...`. A name may begin like one before it: two digits of base 36 then say
how many names back that is, and how many characters more than three are alike, as in
`sched_regions=200;03timeout=1200000`. Binaries of QNN 2.22 to 2.51 have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from harness.containers.artefact import Blob

MAIN_OPTIONS: Final = (
    *("O", "soc_type", "min_arch", "vtcm_mb", "hvx_threads", "memory_alloc_limit"),
    *("enable_dlbc", "relaxed_precision_flag"),
)

_RECORD: Final = re.compile(rb"(..)Op([A-Za-z]\w{0,60}=[ -~]{1,65000})(?=\0|(.))", re.DOTALL)
_LONGEST: Final = 66_000
_WINDOW: Final = 1 << 20
_MOST_LINES: Final = 64
_ALIKE: Final = re.compile("([0-9A-Z])([0-9A-Z])")
# QNN 2.49 writes an empty list as its name alone
_EMPTY_LIST: Final = re.compile(r"(_registry_list)(?=\w)")


def compiler_options(binary: Blob) -> dict[str, str]:
    """Return the options by name; empty if a binary has none. Raises OSError.

    Values that differ between its records are joined with ` / `.
    """
    lines: dict[bytes, None] = {}
    with binary.open() as file:
        for begin in range(0, binary.size, _WINDOW):
            file.seek(binary.offset + begin)
            window = file.read(min(_WINDOW + _LONGEST, binary.size - begin))
            for size, line, end in _RECORD.findall(window):
                # with the head, a NUL, and up to a whole word
                if not end and int.from_bytes(size, "little") == (len(line) + 8) // 4:
                    lines[line] = None
            if len(lines) >= _MOST_LINES:
                break
    values: dict[str, dict[str, None]] = {}
    for line in lines:
        for name, value in _named(line.decode("ascii")):
            values.setdefault(name, {})[value] = None
    return {name: " / ".join(each) for name, each in values.items()}


def _named(line: str) -> Iterator[tuple[str, str]]:
    names: list[str] = []
    for item in _EMPTY_LIST.sub(r"\1=;", line).removesuffix(";").split(";"):
        name, _, value = item.partition("=")
        match = _ALIKE.match(name)
        if match is not None and (back := int(match[1], 36)) < len(names):
            name = names[-1 - back][: int(match[2], 36) + 3] + name[2:]
        names.append(name)
        yield name, value
