# Asks for the logs and dumps of a case's time.
window() { # since when ($w) and how logcat is told so ($S)
  J=
  [ -n "$boot_s" ] && {
    j=$((n - u - boot_s))
    [ $j -gt "$jump_s" ] || [ $j -lt "-$jump_s" ] && { J=1; echo "jump_s=$j"; }
  }
  w=$((n - last_s))
  [ -n "$J" ] && w=0
  S=$(date -d "@$w" '+%m-%d %H:%M:%S.000' 2>/dev/null)
  # times mean nothing where the clock has jumped: the last lines are taken instead
  [ -z "$J" ] && [ -n "$S" ] || S=$max_lines
}
tools() {
  for t in logcat dmesg getprop timeout debuggerd eu-stack gdb; do
    command -v "$t" >/dev/null && echo "$t=yes"
  done
}
lines() { $T logcat -d -b main -b system -b crash -v threadtime -t "$S"; }
all_lines() { lines 2>&1 | head -c "$read_bytes" | tail -c "$most"; }
tags() { lines | head -c "$read_bytes" | grep -aiE "$coarse" | tail -c "$most"; }
kernel() { $T dmesg 2>&1 | head -c "$read_bytes" | tail -c "$most"; }
tombstones() { ls -t "$d"; }
meminfo() { cat /proc/meminfo; }

bounded 5
# in this shell and not in one of its own: what it finds out is used further down
b clock
{ clock; window; } 2>/dev/null
b '='
part dsps 16384
part tools 4096
d=${ANDROID_DATA:-/data}/tombstones
part tombstones 16384
# the texts only: what stands in the .pb files beside them cannot be redacted
for f in $(ls -t "$d" 2>/dev/null | grep -aE '^tombstone_[0-9]+$' | head -n "$dumps"); do
  m=$(stat -c %Y "$d/$f") && [ "$m" -ge "$w" ] && {
    b "$f"
    head -c "$most" "$d/$f" 2>&1
    b '='
  }
done
part tags "$most"
part dmesg "$most" kernel
part logcat "$most" all_lines
part meminfo 16384
