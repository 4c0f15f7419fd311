"""The store of files on a device: its layout, the two scripts that keep it, their answers (pure).

    <workdir>/store/<sha256>      each content once; `<sha256>-x` if it may be executed
    <workdir>/store/.incoming/    what is being pushed, under random names
    <workdir>/sets/<name>-<key>/  links into the store: one runtime, or the files of one context

A file gets into the store only after its sha256 was checked on the device, and then carries a
modification time that nothing else has (2000-01-01). Whoever writes to it later, through whatever
link, changes that time: so size and time tell, without hashing again, that a file is still what
its name says. A set is made under another name and renamed, so it is complete or not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MARK: Final = "@qnn-harness:"
_STORED_AT: Final = 946684800
_STORED_AT_TOUCH: Final = "200001010000.00"
_LISTED = re.compile(r"(\d{1,19})\|(-?\d{1,19})\|(.+)")
_FREE = re.compile(r"\s(\d{1,19})\s+(\d{1,19})\s+(-?\d{1,19})\s+\d{1,3}%\s")
_FILE_NAME = re.compile(r"[A-Za-z0-9_+=@,.-]+(?:/[A-Za-z0-9_+=@,.-]+)*")

# $1 workdir. stdin: paths below it, one a line. Works with toybox, busybox and coreutils.
LOOK_SCRIPT: Final = r"""
m=@qnn-harness:
LC_ALL=C TZ=UTC; export LC_ALL TZ
fail() { echo "${m}fail $*"; exit 1; }
mkdir -p "$1/store/.incoming" "$1/sets" && cd "$1" || fail "cannot make folders in $1"
command -v sha256sum >/dev/null 2>&1 || echo "${m}unhashed"
if stat -L -c '%s|%Y|%n' . >/dev/null 2>&1
then show() { find "$@" ! -type d -exec stat -L -c "${m}file %s|%Y|%n" {} + 2>/dev/null; }
else
  echo "${m}untimed"
  show() {
    find "$@" ! -type d 2>/dev/null |
      while IFS= read -r f; do s=$(wc -c <"$f") && echo "${m}file $((s))|0|$f"; done
  }
fi
set --
while IFS= read -r p; do
  set -- "$@" "$p"
  [ $# -lt 200 ] || { show "$@"; set --; }
done
[ $# -eq 0 ] || show "$@"
df -kP . 2>/dev/null | tail -n 1 | { IFS= read -r d; echo "${m}df $d"; }
echo "${m}done"
"""

# $1 workdir, $2 random name, $3 time for touch. stdin: what to take in and which sets to make.
PLACE_SCRIPT: Final = r"""
m=@qnn-harness:
LC_ALL=C TZ=UTC; export LC_ALL TZ
w=$1; r=$2; t=$3; n=0; new=
fail() { echo "${m}fail $*"; exit 1; }
cd "$w" || fail "no folder $w"
trap 'rm -rf "store/.incoming/$r".* "sets/.new-$r-"*' EXIT
hashing=; ! command -v sha256sum >/dev/null 2>&1 || hashing=yes
take() { # entry size
  f=store/.incoming/$r.$1
  s=$(wc -c <"$f") || fail "$1 did not arrive"
  [ "$((s))" = "$2" ] || fail "$1 arrived with $((s)) bytes instead of $2"
  if [ -n "$hashing" ]; then
    h=$(sha256sum <"$f") || fail "cannot hash $1"
    [ "${h%% *}" = "${1%-x}" ] || fail "$1 arrived damaged: its sha256 is ${h%% *}"
  fi
  case $1 in *-x) chmod 555 "$f";; *) chmod 444 "$f";; esac || fail "cannot set the mode of $1"
  touch -t "$t" "$f" || fail "cannot set the time of $1"
  mv -f "$f" "store/$1" || fail "cannot rename $1"
}
link() { # entry name
  [ -f "store/$1" ] || fail "$1 is not in the store"
  d=$new/$2; d=${d%/*}
  [ -d "$d" ] || mkdir -p "$d" || fail "cannot make $d"
  ln "store/$1" "$new/$2" 2>/dev/null || ln -s "$w/store/$1" "$new/$2" 2>/dev/null ||
    { cp "store/$1" "$new/$2" && touch -t "$t" "$new/$2"; } || fail "cannot make $new/$2"
}
finish() {
  [ -n "$new" ] || return 0
  if [ -e "sets/$name" ] || [ -L "sets/$name" ]; then
    mv "sets/$name" "$new-old" || fail "cannot replace set $name"
  fi
  mv "$new" "sets/$name" || fail "cannot name set $name"
  # somebody else was faster: ours went into theirs
  [ ! -d "sets/$name/${new##*/}" ] || rm -rf "sets/$name/${new##*/}"
  new=
}
while IFS= read -r line; do
  rest=${line#* }
  case $line in
    "take "*) take "${rest%% *}" "${rest#* }";;
    "set "*)
      finish; n=$((n + 1)); name=$rest; new=sets/.new-$r-$n
      mkdir "$new" || fail "cannot make $new";;
    "link "*) link "${rest%% *}" "${rest#* }";;
  esac
done
finish
find store/.incoming -type f -ctime +0 -exec rm -f {} + 2>/dev/null
echo "${m}done"
"""


@dataclass(frozen=True)
class StoredFile:
    """A file of a set: its name there, its local source, size in bytes, entry in the store."""

    name: str
    source: Path
    size: int
    entry: str


@dataclass(frozen=True)
class FileSet:
    """What becomes one folder on the device; `name` is that folder's, `title` is for people."""

    name: str
    title: str
    files: tuple[StoredFile, ...]


@dataclass(frozen=True)
class StoreView:
    """What a device has of what was asked for: {path below workdir: (size, time or None)}.

    `free_bytes` is None where df did not tell.
    """

    files: Mapping[str, tuple[int, int | None]]
    hashing: bool
    free_bytes: int | None

    def has_set(self, wanted: FileSet) -> bool:
        """Whether all files of a set are there, unchanged."""
        return all(self._has(f"sets/{wanted.name}/{file.name}", file.size) for file in wanted.files)

    def has_entry(self, entry: str, size: int) -> bool:
        """Whether the store has this content, unchanged."""
        return self._has(f"store/{entry}", size)

    def _has(self, path: str, size: int) -> bool:
        found = self.files.get(path)
        return found is not None and found[0] == size and found[1] in (None, _STORED_AT)


class StoreAnswerError(ValueError):
    """A script said that it failed (the text is its own), or did not come to its end."""


def entry_name(sha256: str, mode: int) -> str:
    """The name in the store for content of this hash, executable or not."""
    return f"{sha256}-x" if mode & 0o111 else sha256


def valid_name(name: str) -> bool:
    """Whether a file may be called so inside a set: no spaces, no `..`, nothing a shell expands."""
    parts = name.split("/")
    return bool(_FILE_NAME.fullmatch(name)) and not any(
        part in (".", "..") or part.startswith("-") for part in parts
    )


def look_input(sets: Iterable[FileSet]) -> bytes:
    """stdin of LOOK_SCRIPT: the folders of these sets and their entries in the store."""
    paths: dict[str, None] = {}
    for wanted in sets:
        paths[f"sets/{wanted.name}"] = None
        paths.update((f"store/{file.entry}", None) for file in wanted.files)
    return "".join(f"{path}\n" for path in paths).encode()


def place_input(arrived: Mapping[str, int], sets: Iterable[FileSet]) -> bytes:
    """stdin of PLACE_SCRIPT: {entry: size} of what was pushed, and the sets to make."""
    lines = [f"take {entry} {size}\n" for entry, size in arrived.items()]
    for wanted in sets:
        lines.append(f"set {wanted.name}\n")
        lines += [f"link {file.entry} {file.name}\n" for file in wanted.files]
    return "".join(lines).encode()


def place_arguments(workdir: str, random: str) -> Sequence[str]:
    """The positional parameters of PLACE_SCRIPT."""
    return (workdir, random, _STORED_AT_TOUCH)


def incoming_name(random: str, entry: str) -> str:
    """Where below workdir an entry is pushed to."""
    return f"store/.incoming/{random}.{entry}"


def parse_look(output: str) -> StoreView:
    """Reads LOOK_SCRIPT's answer. Raises StoreAnswerError."""
    lines = _answer(output)
    timed = "untimed" not in lines
    files: dict[str, tuple[int, int | None]] = {}
    free_bytes = None
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "file" and (found := _LISTED.fullmatch(rest)):
            files[found[3]] = (int(found[1]), int(found[2]) if timed else None)
        elif kind == "df" and (space := _FREE.search(f" {rest} ")):
            free_bytes = max(0, int(space[3])) * 1024
    return StoreView(files, hashing="unhashed" not in lines, free_bytes=free_bytes)


def check_place(output: str) -> None:
    """Raises StoreAnswerError unless PLACE_SCRIPT came to its end."""
    _answer(output)


def _answer(output: str) -> list[str]:
    lines = [line[len(_MARK) :] for line in output.splitlines() if line.startswith(_MARK)]
    for line in lines:
        if line.startswith("fail "):
            raise StoreAnswerError(line.removeprefix("fail ")[:300])
    if "done" not in lines:
        raise StoreAnswerError("its script did not come to an end")
    return lines
