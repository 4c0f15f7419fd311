# Stands before each of the scripts that ask for evidence; device_replies.py gives them their variables.
# They run in dash, mksh, bash and busybox. Every part is bounded here already, and none of them
# keeps the others from being tried.
# shellcheck shell=dash disable=SC2010,SC2012,SC2034,SC2035,SC2046,SC2086,SC2154
bounded() { # SECONDS: a tool that hangs must not take the rest with it; without `timeout`, it does
  T=
  timeout 1 true 2>/dev/null && T="timeout -s KILL $1"
}
b() { printf '\n@qnn-harness:%s %s\n' "$k" "$1"; }
part() { # NAME BYTES [FUNCTION]: what the function says, of the same name by default, cut there
  b "$1"
  { "${3-$1}"; } 2>&1 </dev/null | head -c "$2"
  b '='
}
clock() {
  n=$(date +%s)
  u=0
  read -r u x </proc/uptime
  echo "epoch_s=$n"
  echo "uptime_s=$u"
  u=${u%.*}
  echo "local=$(date '+%Y-%m-%d %H:%M:%S')"
  echo boot_id=$(cat /proc/sys/kernel/random/boot_id) $(getprop ro.boot.boot_id 2>/dev/null)
  # the clock of the kernel's log stands still while the device sleeps, as that of its scheduler
  grep -a exec_start /proc/self/sched | tr ':' '='
}
dsps() {
  for f in /sys/class/remoteproc/*/name /sys/class/remoteproc/*/state \
    /sys/class/remoteproc/*/recovery /sys/bus/msm_subsys/devices/*/name \
    /sys/bus/msm_subsys/devices/*/state /sys/bus/msm_subsys/devices/*/crash_count; do
    [ -r "$f" ] && read -r v <"$f" && echo "${f#/sys/}=$v"
  done
}
