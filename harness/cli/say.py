"""Output of commands, in which text from devices cannot control the terminal."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import click

from harness.core.outgoing_text import continued, outgoing, without_commands, without_secrets_in


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a line of text, on stderr with `err`; without a newline if not `nl`.

    Further lines in it, which come from other programs, are marked as continued.
    """
    plain = outgoing(text)
    click.echo(continued(plain) if nl else plain, err=err, nl=nl)


def show_notices(context: click.Context) -> None:
    """Show progress on a terminal, and warnings also in a pipe, on stderr."""
    from harness.core.notices import Notices, shown_by

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            say(text, err=True)

    def warn(text: str) -> None:
        say(f"warning: {text}", err=True)

    context.with_resource(shown_by(Notices(progress=progress, warn=warn)))


@contextlib.contextmanager
def shown_transfers() -> Iterator[None]:
    """Show the progress of downloads in a line of stderr if that is a terminal."""
    from harness.core.notices import followed_by
    from harness.plugin.progress import details

    def follow(_: str, facts: Mapping[str, object]) -> None:
        click.echo(f"\r{outgoing(details(facts))}\x1b[K", err=True, nl=False)

    with followed_by(follow) if sys.stderr.isatty() else contextlib.nullcontext():
        yield


def say_result(document: object, lines: Iterable[str], as_json: bool) -> None:
    """Print the result of a command, as JSON or as lines of text."""
    if as_json:
        say_json(document)
    else:
        for line in lines:
            say(line)


def say_json(document: object) -> None:
    """Print a model, or a list of models; every character beyond printable ASCII is escaped."""
    from pydantic import TypeAdapter

    value = TypeAdapter(type(document)).dump_python(document, mode="json", by_alias=True)
    pieces = json.JSONEncoder(indent=2).iterencode(without_secrets_in(value))
    # some lines at a time: of a comparison the text has as many bytes as the journals
    waiting: list[str] = []
    for piece in pieces:
        waiting.append(piece)
        if len(waiting) >= _MOST_PIECES and piece.startswith("\n"):
            click.echo(_safe("".join(waiting)), nl=False)
            waiting.clear()
    click.echo(_safe("".join(waiting)))


_MOST_PIECES: Final = 10_000


def _safe(text: str) -> str:
    return without_commands(text.replace("\x7f", "\\u007f"))
