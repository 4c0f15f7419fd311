# Starts an app, and prints the log until the app has ended or the time is over; on stderr the system's
# words about the start, and the app's processes. $k is the package, $c the activity, $n the seconds.
# `cmd` itself, since `am` would leave it behind.
# shellcheck shell=dash disable=SC2034,SC2154
T=
timeout 1 true 2>/dev/null && T="timeout -s KILL $n"
logcat -b main -b system -b crash -v threadtime -T "$(date '+%m-%d %H:%M:%S.000')" &
l=$!
{
  $T cmd activity start -S -W -a android.intent.action.MAIN -c android.intent.category.LAUNCHER \
    -n "$c" 2>&1 | head -c 4096 | sed 's/^/start: /' >&2
} &
a=$!
read -r u x </proc/uptime
e=$((${u%.*} + n + 1))
g=0
q=
while [ $g -lt 4 ] && read -r u x </proc/uptime && [ "${u%.*}" -lt $e ]; do
  p=$(pidof "$k")
  [ "$p" = "$q" ] || echo "processes: $p" >&2
  q=$p
  g=$((g + 1))
  if [ -n "$p" ] || kill -0 $a 2>/dev/null; then g=0; fi
  sleep 0.5
done
kill $l
