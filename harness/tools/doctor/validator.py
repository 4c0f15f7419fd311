"""qnn-platform-validator of a QAIRT SDK: pushed, run, and its answers read without trust.

Its words are those that people quote: `Unit Test on the backend GPU: Passed.`, `QNN is supported
for backend GPU on the device.` (rubikpi-ai/documentation#12), `Core Version of the backend DSP:
Hexagon Architecture V68`; the CSV has a column for each.
"""

from __future__ import annotations

import contextlib
import csv
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.device.store.deploy import Deployer
from harness.device.transport.device import Transport
from harness.device.transport.questions import sections_of
from harness.ground.errors import ConfigError
from harness.ground.facts.platforms import process_environment
from harness.libraries.runtimes.local_sources import folders_in, kept_inside, target_folder
from harness.tools.doctor.check import Checked, Status

PROGRAM: Final = "qnn-platform-validator"
_TIMEOUT_S: Final = 60.0
_MAX_BYTES: Final = 256 << 10
_MAX_ROWS: Final = 16
_LIBRARIES: Final = r"lib(?:Qnn(?:Gpu|Cpu|Htp|HtpV{arch}\w*|System)|c\+\+_shared)\.so"
_DSP_LIBRARIES: Final = r"lib(?:QnnHtpV{arch}Skel|[Cc]alculator_skel)\.so"
_SAID: Final = re.compile(
    r"(?P<what>Unit Test|Core Version|Library Version) (?:on|of) the backend (?P<backend>\w+): "
    r"(?P<value>[^\n]{1,80})"
)
_SUPPORTED: Final = re.compile(r"QNN is (?P<no>not )?supported for backend (?P<backend>\w+)")
# What is told of a backend, and what the CSV or its lines call it.
_TITLES: Final[Mapping[str, tuple[str, ...]]] = {
    "hardware": ("hardware", "backend_hardware"),
    "libraries": ("backend_libraries", "library_version"),
    "core": ("core_version",),
    "unit test": ("unit_test",),
}

BackendAnswers = Mapping[str, Mapping[str, str]]
"""What it says of each backend, by title and in its own words, as far as it says anything."""


def validator_files(sdk: Path | None, target: str, htp_arch: int | None) -> dict[str, Path] | str:
    """What has to be pushed, by name; else why there is nothing to push."""
    if sdk is None:
        return "the SDK has it, and neither QAIRT_SDK_ROOT nor QNN_SDK_ROOT names one"
    folder = target_folder(folders_in(sdk / "bin"), target, None)
    program = sdk / "bin" / (folder or "") / PROGRAM
    if folder is None or not program.is_file():
        return f"{sdk} has no {PROGRAM} for {target}"
    arch = r"\d\d" if htp_arch is None else str(htp_arch)
    files = {PROGRAM: program}
    wanted = [(sdk / "lib" / folder, _LIBRARIES)]
    wanted += [
        (sdk / "lib" / name / "unsigned", _DSP_LIBRARIES)
        for name in folders_in(sdk / "lib")
        if re.fullmatch(f"hexagon-v{arch}", name)
    ]
    for where, pattern in wanted:
        for file in sorted(where.glob("*.so")):
            if file.is_file() and re.fullmatch(pattern.replace("{arch}", arch), file.name, re.A):
                files.setdefault(file.name, file)
    try:
        return kept_inside(files, sdk, field="QAIRT_SDK_ROOT")
    except ConfigError as error:
        return error.problem


def run_validator(
    way: Transport, workdir: str, target: str, files: Mapping[str, Path]
) -> BackendAnswers:
    """Pushes it and asks it about all backends. Raises InfraError if that is impossible."""
    deployer = Deployer(way, workdir)
    try:
        folder = deployer.deploy_files("validator", files, programs=[PROGRAM])
        answer = way.shell(
            _script(folder, workdir, target),
            timeout_s=_TIMEOUT_S,
            max_output_bytes=_MAX_BYTES,
            doing="run the validator",
        )
    finally:
        deployer.release()
    return parse_answers(answer.stdout.decode("utf-8", "replace"))


def validator_checks(device: str, answers: BackendAnswers) -> Iterator[Checked]:
    """What its answers mean (pure)."""
    if not answers:
        found = "it ran and said nothing that is understood"
        yield Checked("device", device, PROGRAM, "unknown", found)
    for backend, told in answers.items():
        found = ", ".join(f"{title}: {value}" for title, value in told.items())
        works = (told.get("unit test") or told.get("hardware", "")).lower()
        status: Status = "ok" if works.startswith(("passed", "supported")) else "fail"
        advice = "see DSP nodes, libcdsprpc.so, OpenCL driver" if status == "fail" else ""
        if not works:
            status, advice = "unknown", ""
        yield Checked("device", device, f"{PROGRAM} {backend}", status, found, advice)


def parse_answers(text: str) -> BackendAnswers:
    """Reads its CSV files, and what it printed if those say nothing (pure)."""
    sections = sections_of(text)
    found: dict[str, dict[str, str]] = {}
    for row in _rows(sections.get("csv", [])):
        if backend := row.pop("backend", "").upper()[:20]:
            found.setdefault(backend, {}).update({key: v for key, v in row.items() if v})
    for line in sections.get("said", []):
        if said := _SAID.search(line):
            own = found.setdefault(said["backend"].upper(), {})
            own.setdefault(said["what"].lower().replace(" ", "_"), said["value"].rstrip(". "))
        if said := _SUPPORTED.search(line):
            own = found.setdefault(said["backend"].upper(), {})
            own.setdefault("hardware", "Not supported" if said["no"] else "Supported")
    return {
        backend: {
            title: value
            for title, names in _TITLES.items()
            if (value := next(filter(None, map(own.get, names)), None))
        }
        for backend, own in list(found.items())[:_MAX_ROWS]
    }


def _rows(lines: list[str]) -> Iterator[dict[str, str]]:
    """Rows of CSV tables, each behind a line of names that has `backend` in it."""
    head: list[str] = []
    with contextlib.suppress(csv.Error):
        for fields in csv.reader(lines[: 8 * _MAX_ROWS]):
            names = [field.strip().lower().replace(" ", "_") for field in fields]
            if "backend" in names:
                head = names
            elif head:
                yield {name: field.strip()[:80] for name, field in zip(head, fields, strict=False)}


def _script(folder: str, workdir: str, target: str) -> str:
    exports = "".join(
        f"export {name}={shlex.quote(value)};"
        for name, value in process_environment(target, [folder]).items()
    )
    return (
        f'o={shlex.quote(workdir)}/validator-$$;mkdir -p "$o"||exit 1;cd {shlex.quote(folder)}||'
        f"exit 1;{exports}echo '@qnn-harness:said';./{PROGRAM} --backend all --coreVersion "
        '--libVersion --testBackend --targetPath "$o" 2>&1|head -c 65536;echo;'
        'echo \'@qnn-harness:csv\';for f in "$o"/*.csv "$o"/*/*.csv;do [ -f "$f" ]&&'
        'head -c 65536 "$f"&&echo;done;rm -rf "$o"'
    )
