"""`qnn-harness runtimes`: the libraries that can be had, what they are, whether they are whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from harness.cli.lab_options import json_option, lab_option, open_catalog
from harness.cli.runtime_view import file_rows, ort_rows, runtime_row, show_lines
from harness.cli.say import say, say_json
from harness.errors import ConfigError, HarnessError, InfraError
from harness.files.cache import cache_root
from harness.files.notices import Notices, shown_by
from harness.qnn.backends import BACKENDS
from harness.qnn.platforms import TARGETS
from harness.qnn.socs import HTP_ARCHS
from harness.runtimes.catalog import Catalog, Entry, choose_runtimes

_NEGATIVE = 1

target_option = click.option(
    "--target", type=click.Choice(TARGETS), default="linux-x64", show_default=True
)


@click.group()
@click.pass_context
def runtimes(context: click.Context) -> None:
    """QNN runtimes: where they come from, their files, download.

    A runtime is named by its version (2.51.0, a short form, latest, all, or a range such as
    '>=2.48,<2.51'), with the name of a source of devices.yaml in front (sdk:latest), or by the
    path of a QAIRT SDK, an AAR, a Maven repository or a folder with libraries.
    """

    def tell(text: str) -> None:
        say(text, err=True)

    context.with_resource(shown_by(Notices(progress=tell, warn=tell)))


@runtimes.command("list")
@lab_option
@click.option("--target", type=click.Choice(TARGETS), help="Only what is for this target.")
@json_option
def list_(lab_file: Path, target: str | None, as_json: bool) -> int:
    """List the runtimes there are, source by source, and which need no network."""
    catalog = open_catalog(lab_file)
    entries: list[Entry] = []
    problems: dict[str, HarnessError] = {}
    for one in [target] if target else TARGETS:
        for source in catalog.sources:
            try:
                entries += catalog.entries_of(source, one)
            except HarnessError as error:
                problems.setdefault(f"{source.name}: {error}", error)
    orts = ort_rows(catalog, [target] if target else TARGETS)
    if as_json:
        rows = [runtime_row(entry) for entry in entries]
        told = {"runtimes": rows, "orts": orts, "problems": list(problems)}
        say_json(told)
    else:
        say(f"{'RUNTIME':<24} {'TARGET':<14} {'SOURCE':<12} CACHED")
        for entry in entries:
            cached = "yes" if entry.cached else "no"
            say(f"{entry.name:<24} {entry.target:<14} {entry.source:<12} {cached}")
        say(f"\n{'ONNX RUNTIME':<24} {'TARGET':<14} {'SOURCE':<12} CACHED")
        for ort in orts:
            cached = "yes" if ort["cached"] else "no"
            say(f"{ort['ort']:<24} {ort['target']:<14} {ort['source']:<12} {cached}")
        for problem in problems:
            say(f"error: {problem}", err=True)
    return max((error.exit_code for error in problems.values()), default=0)


@runtimes.command()
@lab_option
@click.argument("version")
@click.option("--ort", metavar="VERSION", help="Fetch these versions of ONNX Runtime, too.")
@target_option
@json_option
def fetch(lab_file: Path, version: str, ort: str | None, target: str, as_json: bool) -> None:
    """Fetch runtimes into the cache, so that a later run needs no network."""
    catalog = open_catalog(lab_file)
    orts = catalog.ort.resolve(ort, target, field="--ort") if ort else []
    rows: list[dict[str, object]] = []
    for name in catalog.resolve(version, target, field="VERSION"):
        runtime = catalog.runtime(name, target)
        row = {"name": name, "target": target, "files": len(runtime.files)}
        rows.append(row | {"bytes": runtime.size})
    for name in orts:
        file = catalog.ort.fetch(name, target)
        rows.append({"name": f"ORT {name}", "target": target, "files": 1, "bytes": file.size})
    if not as_json:
        for found in rows:
            size = f"{int(str(found['bytes'])) / 1e6:.1f} MB"
            say(f"{found['name']} {target}: {found['files']} files, {size}")
    if as_json:
        say_json({"runtimes": rows})


@runtimes.command()
@lab_option
@click.argument("version")
@target_option
@click.option("--backend", type=click.Choice(BACKENDS), default="htp", show_default=True)
@click.option("--htp-arch", type=click.Choice([str(arch) for arch in HTP_ARCHS]), metavar="NN")
@json_option
def show(
    lab_file: Path, version: str, target: str, backend: str, htp_arch: str | None, as_json: bool
) -> int:
    """Show what a runtime is made of, what of it a device would get, and what does not fit.

    Give the HTP architecture of the device that is meant (73 for v73) to have its stub and skel
    looked at. What is not here yet is fetched. Ends with 1 if something does not fit.
    """
    catalog = open_catalog(lab_file)
    shown: list[dict[str, Any]] = []
    arch = None if htp_arch is None else int(htp_arch)
    for name in catalog.resolve(version, target, field="VERSION"):
        shown.append(file_rows(catalog.runtime(name, target), backend, arch, cache_root()))
        if not as_json:
            for line in show_lines(shown[-1]):
                say(line)
    if as_json:
        say_json({"runtimes": shown})
    found = [one for row in shown for one in row["preflight"]]
    return _NEGATIVE if any(one["severity"] == "error" for one in found) else 0


@runtimes.command()
@lab_option
@click.argument("version", required=False)
@click.option("--target", type=click.Choice(TARGETS), help="Only what is for this target.")
@json_option
def verify(lab_file: Path, version: str | None, target: str | None, as_json: bool) -> int:
    """Read every byte of the runtimes on this computer and tell what is not as it was.

    Without VERSION all that are here. What was fetched is mended by its next use; what is yours
    (an SDK, a folder) is taken as it is then.
    """
    catalog = open_catalog(lab_file)
    rows: list[dict[str, Any]] = []
    if version is not None:
        # what means nothing anywhere is an error with its reason
        choose_runtimes(
            lambda spec, one: catalog.resolve(spec, one, field="VERSION"),
            [version],
            [target] if target else TARGETS,
        )
    for one in [target] if target else TARGETS:
        for name in _here(catalog, version, one):
            damage = catalog.damage(name, one)
            rows.append({"name": name, "target": one, "damage": damage})
        if version is None:
            for ort in ort_rows(catalog, [one]):
                if ort["cached"]:
                    damage = catalog.ort.damage(ort["ort"], one)
                    rows.append({"name": f"ORT {ort['ort']}", "target": one, "damage": damage})
    if not rows:
        raise ConfigError(f"no runtime {version or ''} is on this computer".replace("  ", " "))
    if as_json:
        say_json({"runtimes": rows})
    else:
        for row in rows:
            state = "; ".join(row["damage"]) if row["damage"] else "whole"
            say(f"{row['name']} {row['target']}: {state}")
    return _NEGATIVE if any(row["damage"] for row in rows) else 0


def _here(catalog: Catalog, version: str | None, target: str) -> Sequence[str]:
    """The runtimes of a target that need no network; none where no source has any for it."""
    if version is not None:
        try:
            named = catalog.resolve(version, target, field="VERSION")
        except ConfigError:
            return []
        return [name for name in named if catalog.is_kept(name, target)]
    found = []
    for source in catalog.sources:
        try:
            names = [one.name for one in catalog.entries_of(source, target)]
            found += [name for name in names if catalog.is_kept(name, target)]
        except InfraError as error:
            say(f"{source.name}: {error}", err=True)
    return found
