# Claims what is used, then tells what is there.
# Few processes: on a phone each takes milliseconds, and this runs before everything.
# $1 workdir, $2 name of our claim, $3 seconds that a claim lasts.
# stdin: names of sets, one a line; an empty line; all that our claim shall name, one a line.
for d in store/.incoming sets listed inuse; do
  [ -d "$1/$d" ] || mkdir -p "$1/$d" || fail "cannot make folders in $1"
done
cd "$1" || fail "cannot make folders in $1"
claim=$2; lasts=$3
set --
while IFS= read -r p && [ -n "$p" ]; do set -- "$@" "$p"; done
{ echo "$boot $up"; cat; } >"inuse/.$claim" && mv -f "inuse/.$claim" "inuse/$claim" ||
  fail "cannot write below $PWD"
prune "$lasts"
echo "${m}boot $boot"
command -v sha256sum >/dev/null 2>&1 || echo "${m}unhashed"
k=; read -r k 2>/dev/null <.links
if [ -z "$k" ]; then
  t=.try-$claim; : >"$t"
  if ln "$t" "$t-2" 2>/dev/null; then k=hard
  elif ln -s "$t" "$t-2" 2>/dev/null; then k=soft
  else k=copy; fi
  echo "$k" >"$t-3" && mv -f "$t-3" .links
  rm -f "$t" "$t-2"
fi
echo "${m}links $k"
for f in inuse/*; do echo "${m}claim ${f#inuse/}"; done
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
if stat -L -c %Y "inuse/$claim" >/dev/null 2>&1; then timed=yes; else echo "${m}untimed"; fi
show file store "$@"
[ "$wanted" -gt 0 ] && [ "$there" -ge "$wanted" ] || space # nothing will come
echo "${m}done"
