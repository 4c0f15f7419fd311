"""What `runtimes list` and `runtimes show` print of a runtime, as rows and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from harness.qnn.backends import Backend
from harness.qnn.platforms import Target
from harness.runtimes.catalog import Catalog, Entry
from harness.runtimes.library_facts import KnownFacts, LibraryFacts, build_id_of
from harness.runtimes.needed_files import narrowed
from harness.runtimes.preflight import Subject, preflight
from harness.runtimes.preflight_linking import DeviceFacts
from harness.runtimes.pypi import PYPI
from harness.runtimes.runtime import LocalFile, Runtime

_ENGINE = "qnn"


def runtime_row(entry: Entry) -> dict[str, Any]:
    """A runtime that can be had, as JSON."""
    row = asdict(entry)
    row["qnn"] = row.pop("version")
    return row


def ort_rows(catalog: Catalog, targets: Iterable[str]) -> list[dict[str, Any]]:
    """The versions of ONNX Runtime that can be had for these targets, as JSON."""
    return [
        {
            "ort": version,
            "target": target,
            "source": PYPI,
            "cached": catalog.ort.is_cached(version, target),
        }
        for target in targets
        for version in catalog.ort.versions(target)
    ]


def file_rows(
    runtime: Runtime, backend: str, htp_arch: int | None, cache_root: Path
) -> dict[str, Any]:
    """A runtime with all its files, as JSON: what each is, and whether a device would get it."""
    facts = KnownFacts(cache_root).of(runtime)
    needed = {one.file_name: one.elf.needed for one in facts if one.elf is not None}
    chosen = narrowed(runtime, backend, _ENGINE, htp_arch, needed=needed)
    pushed = {file.name for file in chosen.files}
    any_arch = narrowed(runtime, backend, _ENGINE, None, needed=needed)
    looked_at = {file.name for file in any_arch.files}
    subject = Subject(
        files=[one for one in facts if one.name in looked_at],
        device=DeviceFacts(target=cast(Target, runtime.target), htp_arch=htp_arch),
        backend=cast(Backend, backend),
        qnn_version=runtime.qnn_version,
    )
    return {
        "name": runtime.name,
        "qnn": runtime.qnn_version,
        "build_id": runtime.build_id or build_id_of(facts),
        "ort": runtime.ort_version,
        "target": runtime.target,
        "source": runtime.source,
        "root": str(runtime.root),
        "htp_archs": list(runtime.htp_archs),
        "backend": backend,
        "htp_arch": htp_arch,
        "files": [
            _file_row(file, fact, file.name in pushed)
            for file, fact in zip(runtime.files, facts, strict=True)
        ],
        "preflight": [asdict(one) for one in preflight(subject)],
    }


def _file_row(file: LocalFile, fact: LibraryFacts, pushed: bool) -> dict[str, Any]:
    elf = fact.elf
    return {
        "name": file.name,
        "bytes": file.size,
        "sha256": file.sha256,
        "pushed": pushed,
        "kind": fact.kind,
        "htp_arch": fact.htp_arch,
        "build": _build_text(fact),
        "machine": elf.machine if elf else None,
        "libc": elf.libc if elf else None,
        "min_glibc": ".".join(map(str, elf.min_glibc)) if elf and elf.min_glibc else None,
        "needed": list(elf.needed) if elf else [],
        "problem": fact.problem,
    }


def _build_text(fact: LibraryFacts) -> str | None:
    """As in 2.51.0.260929181845, or the time alone where that is all that the file says."""
    build = fact.build
    return ".".join(filter(None, (build.version, build.stamp))) if build else None


def show_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """The same for people."""
    archs = ", ".join(f"v{arch}" for arch in row["htp_archs"])
    yield (
        f"{row['name']} for {row['target']}: build {row['build_id'] or 'not told'}, "
        f"from {row['source']} ({row['root']})"
        + (f", ORT {row['ort']}" if row["ort"] else "")
        + (f", HTP {archs}" if archs else "")
    )
    for file in row["files"]:
        mark = "*" if file["pushed"] else " "
        what = file["problem"] or " ".join(
            str(part)
            for part in (
                file["kind"],
                file["machine"],
                file["libc"] and f"{file['libc']} {file['min_glibc'] or ''}".strip(),
                file["build"],
            )
            if part
        )
        size, digest = f"{file['bytes'] / 1e6:>7.1f} MB", file["sha256"][:12]
        yield f" {mark} {size}  {digest}  {file['name']}  {what}"
    arch = f" on HTP v{row['htp_arch']}" if row["htp_arch"] else ""
    yield f" * is pushed for backend {row['backend']}{arch}"
    for one in row["preflight"]:
        thread = f" ({one['thread']})" if one["thread"] else ""
        yield f"   {one['severity']} {one['code']}: {one['explanation']}. {one['fix']}.{thread}"
