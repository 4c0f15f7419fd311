"""Wheels taken apart on the host: unpacked once, checked at every use, made anew when damaged."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from harness.errors import InfraError
from harness.runtimes.archive import names_of, parse_record, read_member, unpack
from harness.runtimes.file_sets import BUILD_INFO
from harness.runtimes.notices import Say
from harness.runtimes.sealed import (
    SealedFolder,
    damage_of,
    publish,
    seal,
    sealed_once,
    work_folder,
)
from harness.runtimes.wheels import CachedWheel, WheelCache, WheelRequest

_LAYOUT: Final = 1
_MAX_RECORD_BYTES = 4 << 20
_MAX_INFO_BYTES = 64 << 10
_TIMEOUT_S = 300.0


class UnpackedWheels:
    """Folders below `root`, one per wheel; `warn` hears of folders that had been changed."""

    def __init__(self, root: Path, wheels: WheelCache, *, notify: Say, warn: Say) -> None:
        self._root = root
        self._wheels = wheels
        self._notify = notify
        self._warn = warn

    def folder(self, request: WheelRequest, wanted: Callable[[str], bool]) -> SealedFolder:
        """The wanted files of a wheel; `data` holds `qnn_version` where the wheel names one.

        Raises InfraError if the wheel cannot be had or is not what its own RECORD says.
        """
        wheel = self._wheels.fetch(request)
        folder = self._folder(request)
        names = sorted(name for name in names_of(wheel.path) if wanted(name))
        facts = {"layout": _LAYOUT, "wheel": wheel.sha256, "names": names}
        return sealed_once(
            folder,
            facts,
            lambda: _unpack(wheel, folder, facts),
            what=str(request),
            timeout_s=_TIMEOUT_S,
            notify=self._notify,
            warn=self._warn,
        )

    def damage(self, request: WheelRequest) -> list[str]:
        """What of a wheel's files in the cache is not as it was unpacked, every byte read."""
        folder = self._folder(request)
        return [f"{folder.name}: {damage}" for damage in damage_of(folder)]

    def _folder(self, request: WheelRequest) -> Path:
        return self._root / request.file_name.removesuffix(".whl")


def build_info_version(source: str) -> str:
    """The QNN version in the text of a wheel's build_and_package_info.py, which is not run (pure).

    Raises ValueError if it does not assign a text to `qnn_version` exactly once.
    """
    found = [
        statement.value.value
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        and [getattr(target, "id", None) for target in statement.targets] == ["qnn_version"]
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    ]
    if len(found) != 1:
        raise ValueError("it does not name one qnn_version")
    return str(found[0])


def _unpack(wheel: CachedWheel, folder: Path, facts: Mapping[str, Any]) -> None:
    wanted = set(facts["names"])
    with work_folder(folder.parent) as work:
        unfinished = work / "unpacked"
        unfinished.mkdir()
        files = unpack(wheel.path, unfinished, wanted.__contains__)
        record = _record_of(wheel.path)
        for file in files:
            if record.get(file.name) != file.sha256:
                raise InfraError(f"{wheel.path.name}: {file.name} is not what its RECORD says")
        data = {}
        if BUILD_INFO in wanted:
            data["qnn_version"] = _qnn_version_of(wheel.path)
        seal(unfinished, facts, data, {file.name: file.sha256 for file in files})
        publish(unfinished, folder)


def _qnn_version_of(wheel: Path) -> str:
    source = read_member(wheel, BUILD_INFO, max_bytes=_MAX_INFO_BYTES).decode("utf-8", "replace")
    try:
        return build_info_version(source)
    except (ValueError, SyntaxError, RecursionError) as error:
        raise InfraError(f"{wheel.name}: {BUILD_INFO}: {error}") from error


def _record_of(wheel: Path) -> dict[str, str]:
    names = [name for name in names_of(wheel) if name.endswith(".dist-info/RECORD")]
    records = [name for name in names if name.count("/") == 1]
    if len(records) != 1:
        raise InfraError(f"{wheel.name} has {len(records)} RECORDs")
    text = read_member(wheel, records[0], max_bytes=_MAX_RECORD_BYTES).decode("utf-8", "replace")
    try:
        return parse_record(text)
    except ValueError as error:
        raise InfraError(f"{wheel.name}: {records[0]}: {error}") from error
