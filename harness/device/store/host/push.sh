# Pushes files that this host keeps to a device, by its own adb. If any is missing it says which,
# and pushes none. A file that is not what its name says is removed, hence missing.
# $1 folder, $2 and $3 where the adb server listens, $4 serial, $5 folder on the device; then the
# files' names there, each `<name here>.<anything>`. stdin ends when nobody waits any more.
m=@qnn-harness:
fail() { echo "${m}fail $*"; exit 1; }
echo "${m}begun"
command -v adb >/dev/null 2>&1 || fail "no adb on the PATH of a command run by ssh"
command -v sha256sum >/dev/null 2>&1 || fail "no sha256sum"
d=${1:-$HOME/.cache/qnn-harness/pushes} host=$2 port=$3 serial=$4 to=$5
shift 5
exec 3<&0 </dev/null
adb_does() {
  adb -H "$host" -P "$port" -s "$serial" "$@" &
  a=$!
  { read -r _ <&3; kill "$a"; } >/dev/null 2>&1 &
  w=$!
  wait "$a"; r=$?
  kill "$w"
  return $r
}
missing=
for n in "$@"; do
  f=$d/${n%.*}; h=${n%%[.-]*}
  if [ -f "$f" ]; then
    found=$(sha256sum <"$f")
    # the time says what was used longest ago
    [ "${found%% *}" != "$h" ] || { touch -c "$f"; continue; }
    rm -f "$f" || fail "$f is damaged and cannot be removed"
  fi
  missing=yes; echo "${m}missing $n"
done
# what could not be pushed then need not be sent here
[ -z "$missing" ] || { adb_does get-state && echo "${m}done"; exit; }
for n in "$@"; do
  adb_does push "$d/${n%.*}" "$to/$n" || exit 1
  echo "${m}pushed $n"
done
echo "${m}done"
