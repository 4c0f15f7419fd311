# Takes in what comes to our folder of .incoming, and makes the sets.
# $1 workdir, $2 our folder in .incoming, $3 time for touch. stdin is an archive: ready/ has small
# contents under their names in the store; .control: what to remove;
# .links: `entry path` of all links; .links.tar: the same links, where one process can make them
# all; listed/: a list of entries for each set. Large contents lie beside ready/ already.
w=$1; own=store/.incoming/$2; t=$3
cd "$w" && mkdir -p "$own/ready" && cd "$own" || fail "cannot make $own"
finish() { cd "$w" && rm -rf "$own"; echo "${m}done"; exit 0; }
tar -xomf - || fail "cannot unpack what was sent"
hash_all() { # files; large ones side by side, each into a file of its own: a pipe mixes lines
  if ! command -v sha256sum >/dev/null 2>&1; then
    for f in "$@"; do echo "${f%%[.-]*}  $f"; done
  elif [ -z "$large" ] && [ $# -le 1000 ] || [ $# -lt 3 ]; then
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
large=
for f in [0-9a-f]*; do [ ! -f "$f" ] || { mv -f "$f" ready && large=yes; }; done
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
    unclaim) rm -f "inuse/$a";;
  esac
done <"$own/.control"
# what earlier deliveries of ours left when they came to nothing
for d in "${own%.*}".*; do [ "$d" = "$own" ] || rm -rf "$d"; done
for d in $(cd store/.incoming && find ./* -prune -type d -ctime +1 2>/dev/null); do
  [ -e "inuse/${d%.*}" ] || rm -rf "store/.incoming/$d"
done
finish
