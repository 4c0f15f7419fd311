"""The one way in which commands print: nothing that a device said can steer the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

import click

from harness.errors.outgoing_text import Command, outgoing, without_commands, without_secrets_in


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints text for people, on stderr with `err`, without a newline behind it if not `nl`."""
    if isinstance(text, Command):
        sys.stdout.write(Command(f"{text}\n"))  # click makes a text of its own of it
    else:
        click.echo(outgoing(text), err=err, nl=nl)


def show_notices(context: click.Context) -> None:
    """Shows progress to whoever looks at a terminal, and warnings also in a pipe; on stderr."""
    from harness.files.notices import Notices, shown_by

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            say(text, err=True)

    def warn(text: str) -> None:
        say(f"warning: {text}", err=True)

    context.with_resource(shown_by(Notices(progress=progress, warn=warn)))


def say_found(found: object, lines: Iterable[str], as_json: bool) -> None:
    """Prints what a command found: as JSON for programs, or in lines for people."""
    if as_json:
        say_json(found)
    else:
        for line in lines:
            say(line)


def say_json(value: object) -> None:
    """Prints JSON for programs; in it every character beyond printable ASCII is escaped."""
    text = json.dumps(without_secrets_in(value), indent=2)
    click.echo(without_commands(text.replace("\x7f", "\\u007f")))
