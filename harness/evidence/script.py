"""The scripts that ask a device for evidence (pure).

They run in dash, mksh, bash and busybox. Every part (`sections_with` of `questions.py`) is bounded
on the device already, and none of them keeps the others from being tried.
"""

from __future__ import annotations

from typing import Final

from harness.transport.questions import PREFIX
from harness.transport.shell_protocol import TOKEN_VARIABLE

DEVICE_READ_BYTES: Final = 16 << 20
"""How much of a log is looked through on the device for its last part."""

_FACTS_BYTES: Final = 4096
_TABLE_BYTES: Final = 16384
_SIZES_BYTES: Final = 1 << 20
MAX_LINES: Final = 20_000
NO_STACK: Final = "no-native-stack"
"""Stands at the end of the section `stack` where no debugger gave one."""

JUMP_S: Final = 5
"""A device's clock that went so many seconds wrong has jumped."""

_TOOLS: Final = "logcat dmesg getprop timeout debuggerd eu-stack gdb"
_COARSE: Final = "adsprpc|qnn|fastrpc|DEBUG|libc|executorch|onnxruntime|SSR|CONN Reset|avc: "

# A tool that hangs must not take the rest with it; where `timeout` is missing, it does.
_BOUNDED: Final = "T=;timeout 1 true 2>/dev/null&&T='timeout -s KILL {seconds}';"

_CLOCK: Final = (
    "n=$(date +%s);u=0;read -r u x </proc/uptime;echo epoch_s=$n;echo uptime_s=$u;u=${u%.*};"
    "echo local=$(date '+%Y-%m-%d %H:%M:%S');"
    "echo boot_id=$(cat /proc/sys/kernel/random/boot_id) $(getprop ro.boot.boot_id 2>/dev/null);"
    # the clock of the kernel's log stands still while the device sleeps, as that of its scheduler
    "grep -a exec_start /proc/self/sched|tr ':' '='"
)
_REMOTEPROC: Final = (
    "for f in /sys/class/remoteproc/*/name /sys/class/remoteproc/*/state "
    "/sys/class/remoteproc/*/recovery /sys/bus/msm_subsys/devices/*/name "
    "/sys/bus/msm_subsys/devices/*/state /sys/bus/msm_subsys/devices/*/crash_count;do "
    '[ -r "$f" ]&&read -r v <"$f"&&echo "${f#/sys/}=$v";done'
)
_LOGCAT: Final = '$T logcat -d -b main -b system -b crash -v threadtime -t "$S"'
_THREADS: Final = (
    'cd "/proc/$p/task"&&a=&&for t in [0-9]*;do '
    'a="$a $t/comm $t/stat $t/wchan $t/syscall $t/stack";done;$T grep -aH "" $a'
)
# The next one is tried where one is missing or fails, as debuggerd does for whom it does not trust;
# after one that took too long there is no time left for another.
_NATIVE: Final = (
    'n() { command -v $1 >/dev/null&&{ $T "$@";case $? in 0|124|137);;*)false;;esac;};};'
    "n debuggerd -b $p||n eu-stack -p $p||n gdb -nx -batch -iex 'set auto-load off' "
    "-iex 'set debuginfod enabled off' -p $p -ex 'thread apply all backtrace 48'||"
    f"echo {NO_STACK}"
)


def state_script(token: str) -> str:
    """Asks for the clocks and what the DSPs are doing."""
    return _section(token, "clock", _CLOCK, _FACTS_BYTES) + _section(
        token, "dsps", _REMOTEPROC, _TABLE_BYTES
    )


def collect_script(
    token: str, *, last_s: int, boot_epoch_s: int | None, file_bytes: int, tombstones: int
) -> str:
    """Asks for the logs and dumps of the last `last_s` seconds.

    `boot_epoch_s` is what the device's clock said at its boot when it was asked before; when that
    has changed since, times in logs mean nothing, and their last part is taken instead.
    """
    jumped = "J=;"
    if boot_epoch_s is not None:
        jumped += (
            f"j=$((n-u-{boot_epoch_s}));"
            f"[ $j -gt {JUMP_S} ]||[ $j -lt -{JUMP_S} ]&&{{ J=1;echo jump_s=$j;}};"
        )
    jumped += (
        f"w=$((n-{last_s}));[ -n \"$J\" ]&&w=0;S=$(date -d @$w '+%m-%d %H:%M:%S.000' 2>/dev/null);"
        f'[ -z "$J" ]&&[ -n "$S" ]||S={MAX_LINES}'
    )
    head, tail = f"head -c {DEVICE_READ_BYTES}", f"tail -c {_one_more(file_bytes)}"
    tools = f"for t in {_TOOLS};do command -v $t >/dev/null&&echo $t=yes;done"
    return "".join(
        (
            _BOUNDED.format(seconds=5),
            # in this shell and not in one of its own: what it finds out is used further down
            f"{_begin(token, 'clock')};{{ {_CLOCK};{jumped};}} 2>/dev/null;{_end(token)};",
            _section(token, "dsps", _REMOTEPROC, _TABLE_BYTES),
            _section(token, "tools", tools, _FACTS_BYTES),
            _tombstones(token, file_bytes, tombstones),
            _section(token, "tags", f"{_LOGCAT}|{head}|grep -aiE '{_COARSE}'|{tail}"),
            _section(token, "dmesg", f"$T dmesg 2>&1|{head}|{tail}"),
            _section(token, "logcat", f"{_LOGCAT} 2>&1|{head}|{tail}"),
            _section(token, "meminfo", "cat /proc/meminfo", _TABLE_BYTES),
            _section(token, "dmabuf", "cat /sys/kernel/dmabuf/buffers/*/size", _SIZES_BYTES),
        )
    )


def look_script(token: str, pid: int, *, file_bytes: int, seconds: float) -> str:
    """Asks what a hung process does, with a native stack where a debugger is there, and ends it.

    Only a process that a call of the harness started is looked at, since numbers are used again.
    """
    most = _one_more(file_bytes)
    parts = (
        _BOUNDED.format(seconds=max(1, int(seconds))),
        f"p={pid};",
        f"$T grep -aqs {TOKEN_VARIABLE} /proc/$p/environ||exit 3;",
        _section(token, "threads", _THREADS, most),
        _section(token, "status", "$T cat /proc/$p/status", _TABLE_BYTES),
        _section(token, "maps", "$T cat /proc/$p/maps", most),
        _section(token, "fdinfo", 'cd "/proc/$p/fdinfo"&&$T grep -aH "" *', most),
        _section(token, "files", "ls -l /proc/$p/fd", most),
        _section(token, "stack", _NATIVE, most),
        "kill -9 $p",
    )
    return "".join(parts)


def _one_more(file_bytes: int) -> int:
    """What is asked for of a file, so that one larger than allowed is seen to be."""
    return file_bytes + 1


def _tombstones(token: str, file_bytes: int, most: int) -> str:
    # the texts only: what stands in the .pb files beside them cannot be redacted
    each = (
        f'm=$(stat -c %Y "$d/$f")&&[ "$m" -ge $w ]&&{{ {_begin(token, "$f")};'
        f'head -c {_one_more(file_bytes)} "$d/$f" 2>&1;{_end(token)};}}'
    )
    listed = f'{_begin(token, "tombstones")};ls -t "$d" 2>&1|head -c {_TABLE_BYTES};{_end(token)};'
    names = f"$(ls -t \"$d\" 2>/dev/null|grep -aE '^tombstone_[0-9]+$'|head -n {most})"
    return f'd="${{ANDROID_DATA:-/data}}/tombstones";{listed}for f in {names};do {each};done;'


def _section(token: str, name: str, body: str, most: int | None = None) -> str:
    bound = "" if most is None else f"|head -c {most}"
    return f"{_begin(token, name)};{{ {body};}} 2>&1 </dev/null{bound};{_end(token)};"


def _begin(token: str, name: str) -> str:
    return f"printf '\\n{PREFIX}%s %s\\n' {token} \"{name}\""


def _end(token: str) -> str:
    return _begin(token, "=")
