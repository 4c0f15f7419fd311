# $1 workdir, $2 time for touch. stdin: entries that were stored before the last reboot, one a
# line: what was in memory only when the power went may be lost without a trace in size or time.
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
