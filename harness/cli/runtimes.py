"""`qnn-harness runtimes`: the QNN versions that can be had, and fetching them ahead of time."""

from __future__ import annotations

import json

import click

from harness.cache import cache_root
from harness.cli.lab_options import json_option
from harness.runtimes.catalog import Catalog

TARGETS = ("linux-x64", "linux-arm64")


@click.group()
def runtimes() -> None:
    """QNN runtimes: versions, files, download."""


@runtimes.command("list")
@click.option("--target", type=click.Choice(TARGETS), default="linux-x64", show_default=True)
@json_option
def list_(target: str, as_json: bool) -> None:
    """List the QNN versions there are for a target, and which are in the cache."""
    catalog = Catalog(cache_root())
    rows = [
        {"qnn": version, "target": target, "cached": catalog.is_cached(version, target)}
        for version in catalog.versions(target)
    ]
    if as_json:
        click.echo(json.dumps({"runtimes": rows}, indent=2))
        return
    for row in rows:
        click.echo(f"{row['qnn']:<12} {target:<12} {'cached' if row['cached'] else ''}".rstrip())


@runtimes.command()
@click.argument("version")
@click.option("--target", type=click.Choice(TARGETS), default="linux-x64", show_default=True)
def fetch(version: str, target: str) -> None:
    """Fetch runtimes into the cache, so that a later run needs no network."""
    catalog = Catalog(cache_root(), notify=lambda text: click.echo(text, err=True))
    for exact in catalog.resolve(version, target):
        runtime = catalog.runtime(exact, target)
        size = sum(file.size for file in runtime.files)
        click.echo(f"{exact} {target}: {len(runtime.files)} files, {size / 1e6:.1f} MB")
