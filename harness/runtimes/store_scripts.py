"""The scripts that fill the store of files on a device; they run in dash, mksh, bash and busybox.

Those that check it and remove from it are in store_upkeep; what follows is true of all.

Hosts that share a device run them at the same time, and any of them may end after any command.
What keeps them from harming each other is an order of steps, no lock (a lock's holder may be a
host that nobody can ask):

- Whoever wants something writes its name into a mark of its own first, and looks then.
- Whoever removes something makes it invisible first, reads all marks then, and removes it only if
  none names it. So one of the two always sees the other.
- Nothing is ever put under a name that was used before (each has a random end), so a remover that
  was delayed cannot hit what came after it.
- A set counts when it is listed, and that is one rename, the last step of making it.

Ages of marks are counted in the device's uptime: its clock may jump. A mark from before a reboot
is void, since nothing runs any more.
"""

from __future__ import annotations

from typing import Final

MARK: Final = "@qnn-harness:"

# first of all: $boot, $up; `prune SECONDS` removes the marks of those that must be gone
COMMON: Final = r"""
m=@qnn-harness:
LC_ALL=C TZ=UTC; export LC_ALL TZ
fail() { echo "${m}fail $*"; exit 1; }
boot=; read -r boot 2>/dev/null </proc/sys/kernel/random/boot_id
up=; read -r up x 2>/dev/null </proc/uptime; up=${up%%.*}
case $up in ''|*[!0-9]*) up=0;; esac
[ -n "$boot" ] || boot=unknown
prune() { # seconds
  for f in inuse/*; do
    [ -f "$f" ] || continue
    at=; since=; read -r at since 2>/dev/null <"$f"
    case $since in ''|*[!0-9]*) at=;; esac
    [ "$at" = "$boot" ] && [ $((up - since)) -lt "$1" ] || rm -f "$f"
  done
}
space() { df -kP . 2>/dev/null | { d=; while IFS= read -r x; do d=$x; done; echo "${m}df $d"; }; }
"""

# follows `if` and a try of stat; `show KIND PATH...` tells size and times of files
SHOW: Final = r"""
then
  show() {
    k=$1; shift
    find "$@" ! -type d -exec stat -L -c "$m$k %s|%Y|%Z|%n" {} + 2>/dev/null
  }
else
  echo "${m}untimed"
  show() {
    k=$1; shift
    find "$@" ! -type d 2>/dev/null |
      while IFS= read -r f; do s=$(wc -c <"$f") && echo "$m$k $((s))|0|0|$f"; done
  }
fi
"""

# Few processes: on a phone each takes milliseconds, and this runs before everything.
# $1 workdir, $2 name of our mark, $3 seconds that a mark lasts.
# stdin: names of sets, one a line; an empty line; all that our mark shall name, one a line.
LOOK_SCRIPT: Final = (
    COMMON
    + r"""
for d in store/.incoming sets listed inuse; do
  [ -d "$1/$d" ] || mkdir -p "$1/$d" || fail "cannot make folders in $1"
done
cd "$1" || fail "cannot make folders in $1"
mark=$2; lasts=$3
set --
while IFS= read -r p && [ -n "$p" ]; do set -- "$@" "$p"; done
{ echo "$boot $up"; cat; } >"inuse/.$mark" && mv -f "inuse/.$mark" "inuse/$mark" ||
  fail "cannot write below $PWD"
prune "$lasts"
echo "${m}boot $boot"
command -v sha256sum >/dev/null 2>&1 || echo "${m}unhashed"
! command -v tar >/dev/null 2>&1 || echo "${m}tar"
k=; read -r k 2>/dev/null <.links
if [ -z "$k" ]; then
  t=.try-$mark; : >"$t"
  if ln "$t" "$t-2" 2>/dev/null; then k=hard
  elif ln -s "$t" "$t-2" 2>/dev/null; then k=soft
  else k=copy; fi
  echo "$k" >"$t-3" && mv -f "$t-3" .links
  rm -f "$t" "$t-2"
fi
echo "${m}links $k"
for f in inuse/*; do echo "${m}mark ${f#inuse/}"; done
n=$#; wanted=$n; there=0
while [ "$n" -gt 0 ]; do
  p=$1; shift; n=$((n - 1)); there=$((there + 1))
  for f in "listed/$p".*; do
    if [ -f "$f" ]; then echo "${m}listed ${f#listed/}"; set -- "$@" "$f"
    else there=$((there - 1)); fi
  done
done
if [ $# -gt 0 ]; then
  touch -c "$@" 2>/dev/null
  for f in "$@"; do shift; set -- "$@" "sets/${f#listed/}"; done
fi
if stat -L -c "${m}now %s|%Y|%Z|%n" "inuse/$mark" 2>/dev/null
"""
    + SHOW
    + r"""
show file store "$@"
[ "$wanted" -gt 0 ] && [ "$there" -ge "$wanted" ] || space # nothing will come
echo "${m}done"
"""
)

# $1 workdir, $2 our folder in .incoming, $3 time for touch, $4 `tar` if stdin is an archive.
# In the folder are then: ready/: contents under their names in the store; .control: what to take
# over from others and to remove; .links: `entry path` of all links; .links.tar: the same links,
# where one process can make them all; listed/: a list of entries for each set. Contents may also
# lie beside ready/; where .expected names them, one a line, they are being pushed meanwhile in
# that order, and .pushed after them: each has come when the next one is there.
PLACE_SCRIPT: Final = (
    COMMON
    + r"""
w=$1; own=store/.incoming/$2; t=$3
cd "$w" && mkdir -p "$own/ready" && cd "$own" || fail "cannot make $own"
finish() { cd "$w" && rm -rf "$own"; echo "${m}done"; exit 0; }
[ "$4" != tar ] || tar -xomf - || fail "cannot unpack what was sent"
hash_all() { # files; large ones side by side, each into a file of its own: a pipe mixes lines
  if ! command -v sha256sum >/dev/null 2>&1; then
    for f in "$@"; do echo "${f%%[.-]*}  $f"; done
  elif [ -n "$one_by_one" ] && [ $# -le 1000 ] || [ $# -lt 3 ]; then
    sha256sum "$@"
  else
    for part in 0-3 4-7 89ab c-f; do
      find . -type f -name "[$part]*" -exec sha256sum {} + >"../.hashes-$part" &
    done
    wait
    cat ../.hashes-*
  fi
}
keep() {
  touch -t "$t" "$@" || fail "cannot set times"
  mv -f "$@" ../../.. || fail "cannot rename into the store"
}
take() { # all that is in ready: into the store if it is what its name says
  cd ready || fail "cannot enter $own"
  set -- [0-9a-f]*
  if [ -f "$1" ]; then
    h=; left=$#
    for f in $(hash_all "$@"); do
      [ -n "$h" ] || { h=$f; continue; }
      f=${f#./}; left=$((left - 1))
      case $f in
        "$h".*|"$h"-x.*) ;;
        *) echo "${m}damaged ${f%.*} $h"; rm -f "$f"; : >../.damaged;;
      esac
      h=
    done
    [ "$left" -eq 0 ] || fail "cannot hash what was sent"
    if [ $# -le 1000 ] && [ ! -e ../.damaged ]; then
      keep "$@"
    else
      set --
      for f in [0-9a-f]*; do
        [ -f "$f" ] || continue
        set -- "$@" "$f"; [ $# -lt 200 ] || { keep "$@"; set --; }
      done
      [ $# -eq 0 ] || keep "$@"
    fi
  fi
  cd ..
}
one_by_one=yes # they are small ones
take
one_by_one=
while read -r verb a; do
  [ "$verb" != adopt ] || mv -f "../$a" ready 2>/dev/null
done <.control
for f in [0-9a-f]*; do [ ! -f "$f" ] || [ -e .expected ] || mv -f "$f" ready; done
take
if [ -e .expected ]; then
  i=0; one=; next=; exec 3<.expected
  read -r one <&3 && read -r next <&3
  while [ -n "$one" ]; do
    set --; all=; [ ! -e .pushed ] || all=yes
    while [ -n "$one" ] && [ -e "${next:-.pushed}" ] && [ $# -lt 200 ]; do
      set -- "$@" "$one"; one=$next; next=; [ -z "$one" ] || read -r next <&3
    done
    if [ $# -gt 0 ]; then
      # while more is coming, whoever brings it needs the other processors
      one_by_one=yes; [ -z "$all" ] || one_by_one=
      mv -f "$@" ready && take || fail "cannot rename in $own"
    fi
    [ -z "$one" ] || [ -z "$all" ] || [ $# -gt 0 ] || fail "what was sent is gone from $own"
    [ -e .expected ] || fail "given up by the other side"
    [ -z "$one" ] || [ -e .pushed ] || {
      i=$((i + 1)); [ $((i % 20)) -ne 0 ] || echo "${m}waiting" || exit 1
      sleep 0.05 2>/dev/null || sleep 1
    }
  done
  exec 3<&-
fi
[ ! -e .damaged ] || finish
cd "$w" || fail "no folder $w"
if [ ! -e "$own/.links.tar" ] || ! tar -xomf "$own/.links.tar" 2>/dev/null; then
  while read -r e n; do
    [ -f "store/$e" ] || { echo "${m}absent ${e%.*}"; : >"$own/.damaged"; continue; }
    [ -d "${n%/*}" ] || mkdir -p "${n%/*}" || fail "cannot make ${n%/*}"
    [ ! -e "$n" ] && [ ! -L "$n" ] || rm -f "$n"
    ln "store/$e" "$n" 2>/dev/null || ln -s "$w/store/$e" "$n" 2>/dev/null ||
      { cp "store/$e" "$n" && touch -t "$t" "$n"; } || fail "cannot make $n"
  done <"$own/.links"
fi
[ ! -e "$own/.damaged" ] || finish
touch "$own/listed/"* && mv -f "$own/listed/"* listed/ || fail "cannot list the sets"
while read -r verb a; do
  case $verb in
    unlist) rm -f "listed/$a";;
    drop) rm -rf "store/.incoming/$a";;
    unmark) rm -f "inuse/$a";;
  esac
done <"$own/.control"
# what earlier deliveries of ours left when they came to nothing
for d in "${own%.*}".*; do [ "$d" = "$own" ] || rm -rf "$d"; done
for d in $(cd store/.incoming && find * -prune -type d -ctime +1 2>/dev/null); do
  [ -e "inuse/${d%.*}" ] || rm -rf "store/.incoming/$d"
done
finish
"""
)
