"""The doctor's questions to a device, asked in one round trip; answers are parsed defensively."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.core.axes import RPC_LIBRARY
from harness.core.errors import DeviceError
from harness.core.socs import PLATFORMS, Platform
from harness.lab.attach import AttachedDevice
from harness.lab.facts import VITALS_QUESTIONS, Vitals, parse_vitals
from harness.transport.questions import (
    MAX_PATH,
    first_line,
    parse_access,
    parse_sections,
    query_script,
)

_ASK_S: Final = 20.0
_MAX_BYTES: Final = 1 << 20
_MAX_LISTED: Final = 64
_MAX_DENIAL: Final = 400
_FRESH_S: Final = 600
# An ELF note of the linker's, in the hexadecimal digits of a file's head: NT_GNU_BUILD_ID of "GNU".
_BUILD_ID: Final = re.compile(r"04000000(?:08|10|14)00000003000000474e5500([0-9a-f]{16,40})")
NEEDED_PROGRAMS: Final = ("sha256sum", "tar", "ln", "df", "head", "id", "chmod")
"""Programs that the scripts of the store on a device call, besides those of every shell."""

SIGNED_SHELL: Final = "fastrpc_shell_3"
UNSIGNED_SHELL: Final = "fastrpc_shell_unsigned_3"
"""The shell that the DSP runs an unsigned process in; logs show it being opened
(github.com/qualcomm/GenieX/issues/989, github.com/qualcomm/fastrpc/issues/400)."""

QUESTIONS: Final = (
    "owners selinux who denials rpc rpc-builds shells skels opencl executable interpreter missing "
    "tools"
)


@dataclass(frozen=True)
class DeviceAnswers:
    """A device's answers to the doctor; empty or None where it gave none.

    Mappings are path or name to whether the shell user may read (r) and write (w) it. `exec_exit`
    is how a script that exits with 7 ended in the work folder, `exec_said` what was printed.
    `account` is the output of `id`, `denials` what SELinux refused of late, `rpc_builds` the file
    behind each libcdsprpc.so and its build id.
    """

    vitals: Vitals
    owners: tuple[str, ...] = ()
    selinux: str | None = None
    account: str | None = None
    denials: tuple[str, ...] = ()
    rpc_libraries: Mapping[str, str] = field(default_factory=dict)
    rpc_builds: Mapping[str, str] = field(default_factory=dict)
    shells: Mapping[str, str] = field(default_factory=dict)
    skels: Mapping[str, str] = field(default_factory=dict)
    opencl: Mapping[str, str] = field(default_factory=dict)
    exec_exit: int | None = None
    exec_said: str = ""
    has_interpreter: bool = False
    missing_programs: tuple[str, ...] = ()
    tools: str | None = None


def script_for(platform: Platform, workdir: str, *, root: str = "") -> str:
    """Return the script that asks a device of this kind everything."""
    script = query_script(
        f"{VITALS_QUESTIONS} {QUESTIONS}",
        interpreter=platform.interpreter,
        libraries=" ".join(platform.library_folders),
        folders=" ".join(platform.dsp_folders),
        opencl=" ".join(platform.opencl),
        shells=f"{SIGNED_SHELL} {UNSIGNED_SHELL}",
        programs=" ".join(NEEDED_PROGRAMS),
        rpc=RPC_LIBRARY,
        fresh_s=str(_FRESH_S),
    )
    return f"set -- {shlex.quote(workdir)} {shlex.quote(root)}\n{script}"


def parse_answers(text: str) -> DeviceAnswers | None:
    """Parse the answer to the script; None if it is incomplete. Malformed parts are left out."""
    sections = parse_sections(text)
    vitals = parse_vitals(text)
    if vitals is None:
        return None
    selinux = first_line(sections, "selinux") or ""
    executed = " ".join(sections.get("executable", []))
    exit_match = re.search(r"\bexit (\d{1,3})$", executed)
    return DeviceAnswers(
        vitals=vitals,
        owners=tuple(line[:MAX_PATH] for line in sections.get("owners", [])[:20]),
        selinux={"1": "Enforcing", "0": "Permissive"}.get(selinux, selinux) or None,
        account=(first_line(sections, "who") or "")[:300] or None,
        denials=tuple(line[:_MAX_DENIAL] for line in sections.get("denials", [])[-16:]),
        rpc_libraries=parse_access(sections, "rpc"),
        rpc_builds=dict(map(_build, sections.get("rpc-builds", [])[:_MAX_LISTED])),
        shells=parse_access(sections, "shells"),
        skels=parse_access(sections, "skels"),
        opencl=parse_access(sections, "opencl"),
        exec_exit=int(exit_match[1]) if exit_match else None,
        exec_said=executed[:300],
        has_interpreter=first_line(sections, "interpreter") == "there",
        missing_programs=tuple(
            name for name in sections.get("missing", []) if name in NEEDED_PROGRAMS
        ),
        tools=first_line(sections, "tools"),
    )


def _build(line: str) -> tuple[str, str]:
    """Return a library's path, and its build: the name of the file itself and its build id."""
    name, _, rest = line.partition(" ")
    head, _, path = rest.partition(" ")
    note = _BUILD_ID.search(head)
    known = ([name] if name != RPC_LIBRARY else []) + ([f"build id {note[1]}"] if note else [])
    return path[:MAX_PATH], ", ".join(known)[:MAX_PATH] or "without a build id"


def query_device(device: AttachedDevice) -> DeviceAnswers:
    """Ask a device all questions in one round trip. Raises DeviceError."""
    script = script_for(PLATFORMS[device.target], device.workdir)
    answer = device.transport.shell(
        script, timeout_s=_ASK_S, max_output_bytes=_MAX_BYTES, doing="ask what it has"
    )
    answers = parse_answers(answer.stdout.decode("utf-8", "replace"))
    if answers is None:
        tail = answer.stdout[-400:]
        raise DeviceError("its answer is incomplete", serial=device.transport.serial, output=tail)
    return answers
