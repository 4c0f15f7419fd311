"""The table of messages (`corpus.tsv`): reading it, and making it anew.

`python -m tests.messages.corpus FOLDER...` reads every wheel and every library below the folders,
and each folder named `OWNER+NAME` (or `linux`) there as that repository's files. It prints what it
counts and keeps roles and causes that the table has. Without a folder it only counts.
"""

from __future__ import annotations

import csv
import re
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from tests.messages.binaries import messages_in, origin_of
from tests.messages.patterns import sample_of
from tests.messages.sources import SOURCES, messages_of

TABLE: Final = Path(__file__).with_name("corpus.tsv")
Role = Literal["known", "consequence", "benign", "nothing"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
_HEAD: Final = ("pattern", "origin", "role", "cause")
# What Windows' loader and Python say of libraries; no wheel has it.
WINDOWS: Final = (
    "The specified module could not be found.",
    "The specified procedure could not be found.",
    "%s is not a valid Win32 application.",
    "A dynamic link library (DLL) initialization routine failed.",
    "Could not find module '%s' (or one of its dependencies).",
    "DLL load failed while importing %s: The specified module could not be found.",
    "The application has failed to start because its side-by-side configuration is incorrect.",
    "LoadLibrary failed with error 126",
    "LoadLibrary failed with error 193",
    "LoadLibrary failed with error 127",
    "LoadLibrary failed with error 1114",
    # as ONNX Runtime hands it on
    'LoadLibrary failed with error 126 "" when trying to load "%s"',
    'LoadLibrary failed with error 127 "" when trying to load "%s"',
    'LoadLibrary failed with error 193 "" when trying to load "%s"',
    'LoadLibrary failed with error 1114 "" when trying to load "%s"',
)


# What names a driver or a library in logs stands before its message, or is put into it.
_BEFORE: Final = {
    "kernel-fastrpc": ("qcom,fastrpc 32300000.remoteproc:glink-edge.fastrpcglink-apps-dsp: ", "x"),
    "kernel-remoteproc": ("qcom_q6v5_pas 32300000.remoteproc: ", "cdsp.mbn"),
    "kernel-oom": ("", "qnn-net-run"),
    "bionic": ("", "libQnnHtp.so"),
    "glibc": ("libQnnHtp.so: ", "libQnnHtp.so"),
    "windows": ("", "QnnHtp.dll"),
}


@dataclass(frozen=True)
class Message:
    """What can be said: its pattern, who says it (several are divided by +), and what it tells.

    `role`: `known` states a cause by itself, `consequence` follows from one of several, `benign`
    tells of nothing wrong, `nothing` tells of no cause. `cause` is a rule's id.
    """

    pattern: str
    origin: str
    role: Role = "nothing"
    cause: str = ""

    @property
    def sample(self) -> str:
        """A line that says it, behind what stands before it in any log."""
        origin = self.origin.partition("+")[0]
        before, name = _BEFORE.get(origin, ("", "some"))
        return before + sample_of(self.pattern).replace("some", name)


def corpus(table: Path = TABLE) -> list[Message]:
    """The messages of the table; ValueError where a row has an unknown role."""
    with table.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)
        found = [Message(pattern, origin, role, cause) for pattern, origin, role, cause in rows]  # type: ignore[arg-type]
    if wrong := next((one for one in found if one.role not in ROLES), None):
        raise ValueError(f"{table}: {wrong.pattern!r} has the role {wrong.role!r}")
    return found


def write(messages: list[Message], table: Path = TABLE) -> None:
    """Writes the table, in the order of origins and patterns."""
    with table.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(
            file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n"
        )
        rows.writerow(_HEAD)
        for one in sorted(messages, key=lambda one: (one.origin, one.pattern)):
            rows.writerow((one.pattern, one.origin, one.role, one.cause))


def _said_in(folder: Path) -> Iterator[tuple[str, str]]:
    repository = folder.name.replace("+", "/")
    for source in SOURCES:
        if source.repository != repository:
            continue
        for file in folder.rglob("*.*"):
            name = file.relative_to(folder).as_posix()
            if re.match(source.paths, name) and "test" not in name:
                for message in messages_of(source, file.read_text("utf-8", "replace")):
                    yield message, source.origin


def _libraries(folder: Path) -> Iterator[tuple[str, bytes]]:
    for file in folder.rglob("*"):
        if file.suffix in (".whl", ".aar") and file.is_file():
            with zipfile.ZipFile(file) as wheel:
                for name in wheel.namelist():
                    if origin_of(Path(name).name):
                        yield Path(name).name, wheel.read(name)
        elif file.is_file() and origin_of(file.name):
            yield file.name, file.read_bytes()


def collected(folders: list[Path]) -> dict[str, set[str]]:
    """Every message below the folders, and who says it."""
    found: dict[str, set[str]] = defaultdict(set)
    for text in WINDOWS:
        found[text].add("windows")
    seen: set[int] = set()
    for folder in folders:
        for name, data in _libraries(folder):
            origin = origin_of(name)
            if origin is not None and hash(data) not in seen:
                seen.add(hash(data))
                for message in messages_in(data, origin[1]):
                    found[message].add(origin[0])
        for inner in (folder, *folder.iterdir()):
            if inner.is_dir():
                for message, who in _said_in(inner):
                    found[message].add(who)
    return found


def main(folders: list[Path]) -> None:
    """Makes the table anew, with the roles and causes it has; counts only without folders."""
    if not folders:
        print(coverage_text(corpus()))
        return
    before = {one.pattern: one for one in corpus()} if TABLE.exists() else {}
    now = []
    for pattern, origins in collected(folders).items():
        known = before.get(pattern, Message(pattern, ""))
        now.append(Message(pattern, "+".join(sorted(origins)), known.role, known.cause))
    write(now)
    print(coverage_text(now))


def coverage_text(messages: list[Message]) -> str:
    """How many messages there are, of which role, by origin: the figure that CI prints."""
    by_origin: dict[str, Counter[str]] = defaultdict(Counter)
    for one in messages:
        for origin in one.origin.split("+"):
            by_origin[origin][one.role] += 1
    total = Counter(one.role for one in messages)
    lines = [f"{len(messages)} messages: " + ", ".join(f"{total[role]} {role}" for role in ROLES)]
    for origin, counted in sorted(by_origin.items()):
        told = ", ".join(f"{counted[role]} {role}" for role in ROLES if counted[role])
        lines.append(f"  {origin}: {told}")
    return "\n".join(lines)


if __name__ == "__main__":
    main([Path(one) for one in sys.argv[1:]])
