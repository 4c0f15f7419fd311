"""The scripts that check, list and empty the store on a device; see store_scripts."""

from __future__ import annotations

from typing import Final

from harness.runtimes.store_scripts import COMMON, SHOW

# $1 workdir, $2 time for touch. stdin: entries that were stored before the last reboot, one a
# line: what was in memory only when the power went may be lost without a trace in size or time.
CHECK_SCRIPT: Final = (
    COMMON
    + r"""
cd "$1/store" || fail "no store in $1"
t=$2
hashing=; ! command -v sha256sum >/dev/null 2>&1 || hashing=yes
while read -r f; do
  h=${f%%[.-]*}
  [ -z "$hashing" ] || { h=$(sha256sum <"$f"); h=${h%% *}; }
  if [ "$h" = "${f%%[.-]*}" ]
  then touch -c -t "$t" "$f" || fail "cannot set the time of $f"
  else echo "${m}lost $f"; rm -f "$f"
  fi
done
echo "${m}done"
"""
)

# $1 workdir, $2 seconds that a mark lasts. What there is, and who uses it.
INVENTORY_SCRIPT: Final = (
    COMMON
    + r"""
cd "$1" 2>/dev/null || { echo "${m}nothing"; echo "${m}done"; exit 0; }
prune "$2"
for f in inuse/*; do
  [ -f "$f" ] || continue
  echo "${m}mark ${f#inuse/}"
  { read -r x; while read -r p; do echo "${m}used $p"; done; } <"$f"
done
if stat -L -c %Z / >/dev/null 2>&1
"""
    + SHOW
    + r"""
show list listed
for f in listed/*; do
  [ -f "$f" ] || continue
  while read -r p; do echo "${m}ref ${f#listed/} $p"; done <"$f"
done
for f in sets/*; do [ ! -d "$f" ] || echo "${m}folder ${f#sets/}"; done
for f in store/.incoming/*; do [ ! -d "$f" ] || echo "${m}incoming ${f##*/}"; done
show store store
space
echo "${m}done"
"""
)

# $1 workdir, $2 random name, $3 seconds that a mark lasts, $4 time that makes an entry invisible.
# stdin: `set NAME`, `entry NAME`, `drop INCOMING`, `unmark MARK`, one a line.
EVICT_SCRIPT: Final = (
    COMMON
    + r"""
w=$1
cd "$w" || fail "no folder $w"
gone=listed/.gone-$2; lasts=$3; t=$4
# one day at least: toybox takes `+0` for a second
find listed/.gone-* -prune -ctime +1 -exec rm -rf {} + 2>/dev/null
mkdir -p listed && mkdir "$gone" && cat >"$gone/.wanted" || fail "cannot write below $w"
trap 'rm -rf "$gone"' EXIT
hide() { [ $# -eq 0 ] || touch -c -t "$t" "$@" || fail "cannot set times"; }
set --
while read -r verb a; do
  case $verb in
    set) echo "${a%.*}"; mv -f "listed/$a" "$gone/$a" 2>/dev/null;;
    entry)
      echo "${a%.*}"
      set -- "$@" "store/$a"; [ $# -lt 200 ] || { hide "$@"; set --; };;
    unmark) rm -f "inuse/$a";;
  esac
done <"$gone/.wanted" >"$gone/.names"
hide "$@"
prune "$lasts"
{ cat inuse/* 2>/dev/null; :; } >"$gone/.used" || fail "cannot write below $w"
used=$(grep -xFf "$gone/.names" "$gone/.used")
[ $? -le 1 ] || [ ! -s "$gone/.names" ] || fail "cannot read the marks of those who use $w"
nl='
'
while read -r verb a; do
  case $verb in
    set|entry)
      case $nl$used$nl in *"$nl${a%.*}$nl"*)
        echo "${m}kept $verb $a"
        [ "$verb" = entry ] || mv -f "$gone/$a" "listed/$a" 2>/dev/null
        continue;;
      esac;;
  esac
  case $verb in
    set) rm -rf "sets/$a";;
    entry) rm -f "store/$a";;
    drop) rm -rf "store/.incoming/$a";;
  esac || fail "cannot remove $a"
  echo "${m}removed $verb $a"
done <"$gone/.wanted"
space
echo "${m}done"
"""
)

# $1 workdir. Removes all that these scripts ever made, in an order in which nothing is listed
# that is not there.
REMOVE_ALL_SCRIPT: Final = (
    COMMON
    + r"""
cd "$1" 2>/dev/null || { echo "${m}done"; exit 0; }
rm -rf listed && rm -rf sets store inuse .links .try-* || fail "cannot remove all below $1"
cd / && rmdir "$1" 2>/dev/null
echo "${m}done"
"""
)
