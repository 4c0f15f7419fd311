"""A probe that was built elsewhere: found by its name, and checked before it is believed.

`QNN_HARNESS_PROBES` names a folder with `<target>/qnn-probe` or `qnn-probe-<target>` in it. The
package from an index has such a folder, too (`python -m harness.tools.cli.ship` makes it), so that
who installs it needs no compiler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.ground.errors import ConfigError
from harness.ground.facts.platforms import PLATFORMS
from harness.ground.files.whole_file import read_bounded
from harness.libraries.runtimes.elf import ElfError, ElfFacts, read_elf

FOLDER_VARIABLE: Final = "QNN_HARNESS_PROBES"
PROTOCOL: Final = 2
SHIPPED: Final = Path(__file__).with_name("shipped")
"""The probes that came with the package, if they did."""
_NAME: Final = "qnn-probe"
_MAX_BYTES: Final = 64 << 20
_IDENTITY: Final = re.compile(
    rb"qnn-probe protocol=(\d{1,4}) source=([0-9a-zA-Z]{1,64}) target=([a-z0-9-]{1,32})"
)


@dataclass(frozen=True)
class ProbeIdentity:
    """What `qnn-probe --version` prints, read from the file itself."""

    protocol: int
    source: str
    target: str


def find_prebuilt(environment: Mapping[str, str], target: str) -> Path | None:
    """The probe for a target in the folder that the environment names; None if there is none.

    Raises ConfigError if that is no folder.
    """
    named = environment.get(FOLDER_VARIABLE, "").strip()
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", field=FOLDER_VARIABLE)
    candidates = (folder / target / _NAME, folder / f"{_NAME}-{target}")
    return next((path for path in candidates if path.exists()), None)


def shipped_probe(target: str, *, source: str) -> Path | None:
    """The probe that came with the package; None if it did not, or is of other sources."""
    path = SHIPPED / f"{_NAME}-{target}"
    said = identity_of(_read(path)) if path.exists() else None
    return path if said is not None and said.source == source else None


def checked_prebuilt(path: Path, target: str, *, source: str, android_api: int | None) -> Path:
    """A probe built elsewhere, if it is the one that would be built here for this device.

    `source` is the hash of the sources as they are now. Raises ConfigError naming each mismatch.
    """
    data = _read(path)
    facts = _elf(path, data, target)
    problems = mismatches(facts, identity_of(data), target, source=source, android_api=android_api)
    if problems:
        raise ConfigError(f"this prebuilt probe does not fit: {'; '.join(problems)}", file=path)
    return path


def check_probe(path: Path, target: str) -> Path:
    """A program that was just built, if it is one for the target. Raises ConfigError if not."""
    if problem := libc_problem(_elf(path, _read(path), target), target):
        raise ConfigError(problem, file=path)
    return path


def identity_of(data: bytes) -> ProbeIdentity | None:
    """What a probe says of itself, None if it says nothing (pure)."""
    found = _IDENTITY.search(data)
    if found is None:
        return None
    return ProbeIdentity(int(found[1]), found[2].decode(), found[3].decode())


def mismatches(
    facts: ElfFacts,
    identity: ProbeIdentity | None,
    target: str,
    *,
    source: str,
    android_api: int | None,
) -> list[str]:
    """Everything that keeps a prebuilt probe from being used (pure)."""
    problems = []
    if problem := libc_problem(facts, target):
        problems.append(problem)
    built_for = facts.android_api
    if built_for is not None and android_api is not None and built_for > android_api:
        problems.append(f"it was built for Android API {built_for}, the device has {android_api}")
    if identity is None:
        problems.append(
            "it does not say what it was built from (older, or no probe): build it anew"
        )
        return problems
    if identity.target != target:
        problems.append(f"it says that it is for {identity.target}, not {target}")
    if identity.protocol != PROTOCOL:
        problems.append(f"it speaks protocol {identity.protocol}, this harness {PROTOCOL}")
    if identity.source != source:
        problems.append(
            f"it was built from the sources {identity.source[:16]}, the ones here are "
            f"{source[:16]}: build it anew"
        )
    return problems


def libc_problem(facts: ElfFacts, target: str) -> str | None:
    """Why a program's C library is not the target's; a static program needs none (pure)."""
    wanted = PLATFORMS[target].libc
    if facts.libc in (None, wanted):
        return None
    return f"it is linked with {facts.libc}, and {target} has {wanted}"


def _elf(path: Path, data: bytes, target: str) -> ElfFacts:
    wanted = PLATFORMS[target].machine
    try:
        facts = read_elf(data)
    except ElfError as error:
        raise ConfigError(f"not a 64-bit program for {target}: {error}", file=path) from None
    if facts.bits != 64 or facts.machine != wanted:
        said = f"{facts.bits} bits, {facts.machine}"
        raise ConfigError(f"not a 64-bit program for {target}: it is for {said}", file=path)
    return facts


def _read(path: Path) -> bytes:
    try:
        return read_bounded(path, _MAX_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read the probe: {error.strerror or error}", file=path) from error
