"""What the doctor asks a device, in one round trip, and how the answer is read without trust."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.adb.sections import first_line, integer, sections_of
from harness.lab.vitals import SCRIPT as VITALS_SCRIPT
from harness.lab.vitals import Vitals, parse_vitals
from harness.qnn.backends import RPC_LIBRARY
from harness.qnn.platforms import Platform

MAX_BYTES: Final = 1 << 20
_MAX_LISTED: Final = 64
_MAX_PATH: Final = 200
_MAX_DENIAL: Final = 400
_DAEMON: Final = "cdsprpcd"
_FRESH_S: Final = 600
# An ELF note of the linker's, in the hexadecimal digits of a file's head: NT_GNU_BUILD_ID of "GNU".
_BUILD_ID: Final = re.compile(r"04000000(?:08|10|14)00000003000000474e5500([0-9a-f]{16,40})")
NEEDED_PROGRAMS: Final = ("sha256sum", "tar", "ln", "df", "head", "id", "chmod")
"""What the scripts of the store on a device call besides what every shell has."""

SIGNED_SHELL: Final = "fastrpc_shell_3"
UNSIGNED_SHELL: Final = "fastrpc_shell_unsigned_3"
"""What the DSP runs a process in that is not signed; seen in logs as opened for it
(github.com/qualcomm/GenieX/issues/989, github.com/qualcomm/fastrpc/issues/400)."""

# `$1` is the work folder, `$2` stands before paths of the device (empty but in tests), `$m` and
# `$T` are set by the script for the vitals, which runs before. Nothing but what toybox, busybox
# and coreutils have in common.
_SCRIPT: Final = r"""
w() { a=-; [ -r "$1" ] && a=r; [ -w "$1" ] && a=${a}w; echo "$a $1"; }
echo "${m}nodes"
for f in "$r"/dev/adsprpc-smd* "$r"/dev/fastrpc-*; do [ -e "$f" ] && w "$f"; done
echo "${m}owners"; ls -l "$r"/dev/ 2>/dev/null | grep -E 'adsprpc|fastrpc' | head -n 20
echo "${m}selinux"; getenforce 2>/dev/null || cat "$r/sys/fs/selinux/enforce" 2>/dev/null; echo
echo "${m}who"; id | tr -s ' ' | cut -c -300
echo "${m}denials"; S=$(date -d @$(($(date +%s) - LAST)) '+%m-%d %H:%M:%S.000' 2>/dev/null)
{ $T logcat -d -b events -b main -b system -t "${S:-4000}" || $T dmesg; } 2>/dev/null |
grep -a 'avc: .*denied' | grep -aE 'rpc|dsp' | tail -n 16
echo "${m}daemons"
for f in "$r"/proc/[0-9]*/comm; do read -r c <"$f" && case $c in init|systemd|cdsprpcd)
echo "$c"; esac; done 2>/dev/null
echo "${m}rpc"; for d in LIBRARIES; do [ -e "$r$d/RPC" ] && w "$r$d/RPC"; done
echo "${m}rpc-builds"; for d in LIBRARIES; do f=$r$d/RPC; [ -r "$f" ] && {
l=$(readlink -f "$f"); h=$(head -c 4096 "$f" | od -An -v -tx1 | tr -d ' \n')
echo "${l##*/} $h $f"; }; done 2>/dev/null
echo "${m}signatures"; for d in FOLDERS; do for f in "$r$d"/testsig-*.so; do
[ -e "$f" ] && echo "$f"; done; done
echo "${m}shells"
for d in FOLDERS; do for f in SIGNED UNSIGNED; do [ -e "$r$d/$f" ] && w "$r$d/$f"; done; done
for f in "$r"/usr/share/qcom/*/*/*/dsp/cdsp/fastrpc_shell*_3; do [ -e "$f" ] && w "$f"; done
echo "${m}skels"
for f in SKELS; do [ -e "$f" ] && w "$f"; done
echo "${m}opencl"; for f in OPENCL; do [ -e "$r$f" ] && w "$r$f"; done
echo "${m}executable"; f=$1/.doctor-$$
(umask 077; echo 'exit 7' >"$f") 2>&1 && chmod 700 "$f" && { "$f"; echo "exit $?"; } 2>&1
rm -f "$f"
echo "${m}libc"; [ -e "$r/system/bin/linker64" ] && echo bionic || {
getconf GNU_LIBC_VERSION || ldd --version; } 2>&1 | head -n 1
echo "${m}interpreter"; [ -e "$r"INTERPRETER ] && echo there
echo "${m}missing"; for p in PROGRAMS; do command -v $p >/dev/null 2>&1 || echo $p; done
echo "${m}tools"; { toybox --version || busybox || cp --version; } 2>/dev/null | head -n 1
echo "${m}clock"; date +%s
echo "${m}doctor-end"
"""


@dataclass(frozen=True)
class DeviceAnswers:
    """What a device said to the doctor; empty or None where it did not say.

    Mappings are path or name to whether the shell user may read (r) and write (w) it. `exec_exit`
    is how a script that exits with 7 ended in the work folder, `exec_said` what was printed.
    `clock_s` is the device's time in seconds since 1970. `who` is what `id` says, `denials` what
    SELinux refused of late, `rpc_builds` the file behind each libcdsprpc.so and its build id.
    `daemons` are those of the DSP that run; `sees_processes` whether others' are in sight at all.
    """

    vitals: Vitals
    nodes: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[str, ...] = ()
    selinux: str | None = None
    who: str | None = None
    denials: tuple[str, ...] = ()
    daemons: tuple[str, ...] = ()
    sees_processes: bool = False
    rpc_libraries: Mapping[str, str] = field(default_factory=dict)
    rpc_builds: Mapping[str, str] = field(default_factory=dict)
    signatures: tuple[str, ...] = ()
    shells: Mapping[str, str] = field(default_factory=dict)
    skels: Mapping[str, str] = field(default_factory=dict)
    opencl: Mapping[str, str] = field(default_factory=dict)
    exec_exit: int | None = None
    exec_said: str = ""
    libc: str | None = None
    glibc: tuple[int, int] | None = None
    has_interpreter: bool = False
    missing_programs: tuple[str, ...] = ()
    tools: str | None = None
    clock_s: int | None = None


def script_for(platform: Platform, workdir: str, *, root: str = "") -> str:
    """The script that asks everything of a device of this kind."""
    folders = _words(platform.dsp_folders)
    skels = " ".join(f'"$r"{shlex.quote(d)}/*Htp*[Ss]kel.so' for d in platform.dsp_folders)
    text = _SCRIPT
    for name, value in (
        ("INTERPRETER", shlex.quote(platform.interpreter)),
        ("LIBRARIES", _words(platform.library_folders)),
        ("UNSIGNED", UNSIGNED_SHELL),
        ("SIGNED", SIGNED_SHELL),
        ("FOLDERS", folders),
        ("SKELS", skels or "''"),
        ("OPENCL", _words(platform.opencl)),
        ("PROGRAMS", _words(NEEDED_PROGRAMS)),
        ("RPC", RPC_LIBRARY),
        ("LAST", str(_FRESH_S)),
    ):
        text = text.replace(name, value)
    return f"set -- {shlex.quote(workdir)} {shlex.quote(root)}\n{VITALS_SCRIPT}{text}"


def parse_answers(text: str) -> DeviceAnswers | None:
    """Reads the answer to the script, None if it is not whole; what is malformed is left out."""
    sections = sections_of(text)
    vitals = parse_vitals(text)
    if vitals is None or "doctor-end" not in sections:
        return None
    libc = first_line(sections, "libc")
    running = list(dict.fromkeys(sections.get("daemons", [])[:_MAX_LISTED]))
    glibc = re.search(r"\b(\d{1,3})\.(\d{1,3})\b", libc or "")
    executed = " ".join(sections.get("executable", []))
    ended = re.search(r"\bexit (\d{1,3})$", executed)
    return DeviceAnswers(
        vitals=vitals,
        nodes={name.rsplit("/", 1)[-1]: how for name, how in _access(sections, "nodes").items()},
        owners=tuple(line[:_MAX_PATH] for line in sections.get("owners", [])[:20]),
        selinux=_selinux(first_line(sections, "selinux")),
        who=(first_line(sections, "who") or "")[:300] or None,
        denials=tuple(line[:_MAX_DENIAL] for line in sections.get("denials", [])[-16:]),
        daemons=tuple(name for name in running if name == _DAEMON),
        sees_processes=bool(running),
        rpc_libraries=_access(sections, "rpc"),
        rpc_builds=dict(map(_build, sections.get("rpc-builds", [])[:_MAX_LISTED])),
        signatures=tuple(
            line.rsplit("/", 1)[-1][:_MAX_PATH] for line in sections.get("signatures", [])[:8]
        ),
        shells=_access(sections, "shells"),
        skels=_access(sections, "skels"),
        opencl=_access(sections, "opencl"),
        exec_exit=int(ended[1]) if ended else None,
        exec_said=executed[:300],
        libc=libc,
        glibc=(int(glibc[1]), int(glibc[2])) if glibc and libc != "bionic" else None,
        has_interpreter=first_line(sections, "interpreter") == "there",
        missing_programs=tuple(
            name for name in sections.get("missing", []) if name in NEEDED_PROGRAMS
        ),
        tools=first_line(sections, "tools"),
        clock_s=integer(first_line(sections, "clock")),
    )


def _access(sections: Mapping[str, list[str]], name: str) -> dict[str, str]:
    found = {}
    for line in sections.get(name, [])[:_MAX_LISTED]:
        how, _, path = line.partition(" ")
        if re.fullmatch(r"-|-?r?w?", how) and path:
            found[path[:_MAX_PATH]] = how.lstrip("-")
    return found


def _build(line: str) -> tuple[str, str]:
    """A library's path, and what is known of its build: the file's own name, its build id."""
    name, _, rest = line.partition(" ")
    head, _, path = rest.partition(" ")
    note = _BUILD_ID.search(head)
    known = ([name] if name != RPC_LIBRARY else []) + ([f"build id {note[1]}"] if note else [])
    return path[:_MAX_PATH], ", ".join(known)[:_MAX_PATH] or "without a build id"


def _selinux(line: str | None) -> str | None:
    return {"1": "Enforcing", "0": "Permissive"}.get(line or "", line)


def _words(words: tuple[str, ...]) -> str:
    return " ".join(shlex.quote(word) for word in words) or "''"
