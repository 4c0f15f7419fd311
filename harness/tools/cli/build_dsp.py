"""`qnn-harness simulator build-dsp`: builds what the DSPs of simulated devices run in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from harness.ground.errors.outgoing_text import outgoing
from harness.ground.files.cache import BOARDS, cache_root
from harness.ground.files.notices import Notices, followed_by, shown_by
from harness.tools.cli.lab_options import NamedPath
from harness.tools.cli.say import say


@click.command("build-dsp")
@click.option("--source", type=NamedPath(), metavar="FILE", help="QEMU's source, as a .tar.xz.")
@click.option("--mirror", metavar="URL", help="A mirror of Debian (default: apt's).")
@click.option("--anew", is_flag=True, help="Build also where it is there already.")
def build_dsp_command(source: Path | None, mirror: str | None, anew: bool) -> None:
    """Build the emulator for DSPs of simulated devices, in some minutes and without root.

    It is QEMU of Debian with vector instructions for floating point and the matrix unit.
    """
    from harness.device.dsp.hexagon import build_loader, why_no_loader
    from harness.device.dsp.qemu import VARIABLE, find_qemu
    from harness.device.dsp.qemu_build import build_qemu

    cache = cache_root() / BOARDS
    # a console that is no terminal shows nothing of what is under way
    with Console(file=sys.stderr).status("looking around ...") as spinner:

        def show(text: str) -> None:
            spinner.update(Text(outgoing(f"{text} ...")))

        def follow(_: str, facts: Mapping[str, object]) -> None:
            if facts.get("doing"):
                show(f"{facts['doing']}: {facts['done']} of {facts['total']} steps")

        notices = Notices(progress=show, warn=lambda text: say(f"qnn-harness: {text}", err=True))
        with shown_by(notices), followed_by(follow):
            built = build_qemu(cache, source=source, mirror=mirror, anew=anew)
            used = find_qemu(cache)
            lacking = why_no_loader(cache)
            if lacking is None:
                build_loader(cache)
    more = f" with {', '.join(sorted(used.can))}" if used.can else ""
    say(f"{used.path}: QEMU {used.version}{more}")
    if used.path != built:
        say(f"note: {built} was built, but {VARIABLE} names another, {used.path}", err=True)
    if lacking is not None:
        say(f"note: {lacking}", err=True)
