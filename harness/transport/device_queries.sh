# What devices are asked, question by question, for toybox, busybox and coreutils in dash, mksh and
# bash alike; `device_queries.py` makes scripts of those that somebody needs. $d is the work folder, $r
# stands before every path of the device (empty but in tests).
# shellcheck shell=dash disable=SC2010,SC2034,SC2086,SC2154
d=$1
r=${2-}
m=@qnn-harness:
T=
timeout 1 true 2>/dev/null && T='timeout -s KILL 3'
w() { a=-; [ -r "$1" ] && a=r; [ -w "$1" ] && a=${a}w; echo "$a $1"; }

#: machine
uname -m
#: kernel
uname -sr
#: libc
[ -e "$r/system/bin/linker64" ] && echo bionic || {
  getconf GNU_LIBC_VERSION || ldd --version
} 2>&1 | head -n 1
#: pages
# adb's way to tell 16 KB ones (source.android.com, "16 KB page size"); busybox may lack it
getconf PAGESIZE 2>/dev/null ||
  sed -n 's/^KernelPageSize: *\([0-9]*\) kB$/\1/p' /proc/self/smaps 2>/dev/null |
  { read -r k && echo $((k * 1024)); }
#: properties
getprop 2>/dev/null
#: release
cat "$r/etc/os-release" 2>/dev/null
#: soc
cat "$r/sys/devices/soc0/machine" 2>/dev/null
#: soc-id
cat "$r/sys/devices/soc0/soc_id" 2>/dev/null
#: gpu
cat "$r/sys/class/kgsl/kgsl-3d0/gpu_model" 2>/dev/null
#: soc-serial
cat "$r/sys/devices/soc0/serial_number" 2>/dev/null
#: machine-id
cat "$r/etc/machine-id" 2>/dev/null
#: boot
cat "$r/proc/sys/kernel/random/boot_id"; getprop ro.boot.boot_id 2>/dev/null
#: coprocessors
# Nodes are fastrpc of mainline and of Qualcomm's kernels, kgsl of Adreno; libraries lie where
# Android and Qualcomm's Linux images have the drivers' own; oqclc is the offline OpenCL compiler
# with which libQnnGpu.so for x86-64 prepares without a GPU.
for f in /dev/fastrpc-* /dev/adsprpc-smd* /dev/cdsprpc-smd* /sys/class/fastrpc/* \
  /sys/class/adsprpc-smd; do
  [ -e "$f" ] && echo "dsp $f"
done
grep -al cdsp /sys/class/remoteproc/*/name /sys/bus/msm_subsys/devices/*/name 2>/dev/null |
  sed 's/^/dsp /'
for f in /dev/kgsl-3d0 /sys/class/kgsl/kgsl-3d0; do [ -e "$f" ] && echo "gpu $f"; done
for l in /vendor/lib64 /system/lib64 /system/vendor/lib64 /odm/lib64 /usr/lib /usr/lib64 \
  /usr/lib/aarch64-linux-gnu /lib/aarch64-linux-gnu; do
  for f in "$l"/libcdsprpc.so "$l"/libcdsprpc.so.*; do [ -e "$f" ] && echo "dsp $f"; done
  for f in "$l"/libOpenCL.so* "$l"/libOpenCL_adreno.so*; do [ -e "$f" ] && echo "gpu $f"; done
done
f=$(command -v oqclc) && echo "gpu_compiler $f"
echo looked
#: public-libraries
# what apps may load beside the NDK's (source.android.com, "Namespaces for native libraries")
[ -r "$r/vendor/etc/public.libraries.txt" ] && cat "$r/vendor/etc/public.libraries.txt" \
  "$r/system/etc/public.libraries.txt" "$r"/system/etc/public.libraries-*.txt \
  "$r"/product/etc/public.libraries-*.txt 2>/dev/null
#: booted
getprop sys.boot_completed 2>/dev/null
#: uptime
cat "$r/proc/uptime"
#: user
id -u
#: memory
head -n 5 "$r/proc/meminfo" 2>/dev/null
#: writable
# Android's shell does not say why its own echo could not write; cat does.
if e=$(mkdir -p "$d" 2>&1); then
  (umask 077; echo ok | cat >"$d/.health-$$") 2>&1 && cat "$d/.health-$$"
  rm -f "$d/.health-$$"
else
  echo "$e"
fi
#: storage
# of the nearest folder that exists, as the work folder need not yet
p=$d
while [ ! -d "$p" ] && [ "$p" != / ] && [ -n "$p" ]; do p=${p%/*}; done
df -k "${p:-/}" 2>/dev/null; stat -f -c 'free %a %S' "${p:-/}" 2>/dev/null
#: battery
# dumpsys is Android's; where it is missing or slow, /sys has most of it
$T dumpsys battery 2>/dev/null | head -n 40
#: supplies
grep -aH "" "$r"/sys/class/power_supply/*/type "$r"/sys/class/power_supply/*/capacity \
  "$r"/sys/class/power_supply/*/status "$r"/sys/class/power_supply/*/temp 2>/dev/null
#: zones
grep -aH "" "$r"/sys/class/thermal/thermal_zone*/type "$r"/sys/class/thermal/thermal_zone*/temp \
  2>/dev/null
#: clocks
grep -aH "" "$r"/sys/devices/system/cpu/cpufreq/policy*/scaling_governor \
  "$r"/sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq 2>/dev/null
#: thermal
$T dumpsys thermalservice 2>/dev/null |
  grep -aE 'Temperature\{|^Thermal Status:' | head -n 200
#: doze
$T dumpsys deviceidle get deep 2>/dev/null
#: remoteprocs
grep -aH "" "$r"/sys/class/remoteproc/*/name "$r"/sys/class/remoteproc/*/state 2>/dev/null
#: nodes
for f in "$r"/dev/adsprpc-smd* "$r"/dev/fastrpc-*; do [ -e "$f" ] && w "$f"; done
#: before
head -n 1 "$r/proc/stat"
#: after
sleep 1; head -n 1 "$r/proc/stat"
#: owners
ls -l "$r"/dev/ 2>/dev/null | grep -E 'adsprpc|fastrpc' | head -n 20
#: selinux
getenforce 2>/dev/null || cat "$r/sys/fs/selinux/enforce" 2>/dev/null
echo
#: who
id | sed 's|  *| |g' | cut -c -300
#: denials
s=$(date -d "@$(($(date +%s) - fresh_s))" '+%m-%d %H:%M:%S.000' 2>/dev/null)
{ $T logcat -d -b events -b main -b system -t "${s:-4000}" || $T dmesg; } 2>/dev/null |
  grep -a 'avc: .*denied' | grep -aE 'rpc|dsp' | tail -n 16
#: rpc
for l in $library_folders; do [ -e "$r$l/$rpc" ] && w "$r$l/$rpc"; done
#: rpc-builds
for l in $library_folders; do
  f=$r$l/$rpc
  [ -r "$f" ] && {
    l=$(readlink -f "$f"); h=$(head -c 4096 "$f" | od -An -v -tx1 | tr -d ' \n')
    echo "${l##*/} $h $f"
  }
done 2>/dev/null
#: shells
for l in $dsp_folders; do
  for f in $shells; do [ -e "$r$l/$f" ] && w "$r$l/$f"; done
done
for f in "$r"/usr/share/qcom/*/*/*/dsp/cdsp/fastrpc_shell*_3; do [ -e "$f" ] && w "$f"; done
#: skels
for l in $dsp_folders; do
  for f in "$r$l"/*Htp*[Ss]kel.so; do [ -e "$f" ] && w "$f"; done
done
#: opencl
for f in $opencl; do [ -e "$r$f" ] && w "$r$f"; done
#: executable
f=$d/.doctor-$$
(umask 077; echo 'exit 7' >"$f") 2>&1 && chmod 700 "$f" && { "$f"; echo "exit $?"; } 2>&1
rm -f "$f"
#: interpreter
[ -e "$r$interpreter" ] && echo there
#: missing
for p in $programs; do command -v "$p" >/dev/null 2>&1 || echo "$p"; done
#: tools
{ toybox --version || busybox || cp --version; } 2>/dev/null | head -n 1
