# $1 workdir, $2 seconds that a claim lasts. What there is, and who uses it.
cd "$1" 2>/dev/null || { echo "${m}nothing"; echo "${m}done"; exit 0; }
prune "$2"
for f in inuse/*; do
  [ -f "$f" ] || continue
  echo "${m}claim ${f#inuse/}"
  { read -r x; while read -r p; do echo "${m}used $p"; done; } <"$f"
done
if stat -L -c %Y / >/dev/null 2>&1; then timed=yes; else echo "${m}untimed"; fi
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
