"""`qnn-harness notify`: send the head of a summary to the channels of the lab."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from harness.cli.common_options import NamedPath, lab_option
from harness.cli.say import say
from harness.core.errors import ConfigError, InfraError
from harness.core.files import read_bounded
from harness.notify.messages import TEST_MESSAGE, Message, channel_problem, require_channels, send
from harness.report.summary import summary_lines
from harness.results.run_folder import RunFolder

_LATEST: Final = Path("reports/latest-nightly")
_MOST_BYTES: Final = 64 << 20


@click.command()
@click.argument("folder", default=_LATEST, type=NamedPath())
@click.option("--test", is_flag=True, help="Send a test message instead.")
@click.option("--dry-run", is_flag=True, help="Print the message and the channels only.")
@lab_option
def notify(folder: Path, test: bool, dry_run: bool, lab_file: Path) -> int:
    """Send the summary of a night or a run to the channels of `notify` in devices.yaml.

    FOLDER is that of a night (default: reports/latest-nightly) or of a run. `nightly` sends its own
    message; this command repeats one that did not arrive.

    \b
    Exit codes: 0 sent, 2 wrong input, 3 a channel failed.
    """
    channels = require_channels(lab_file)
    message = TEST_MESSAGE if test else _message(folder)
    if dry_run:
        say(message.title)
        say(f"{message.body}\n", nl=False)
        failures = {channel.name: channel_problem(channel) for channel in channels}
    else:
        failures = send(message, channels)
    for name, why in failures.items():
        state = "would be sent" if dry_run else "sent"
        say(f"{name}: {state}" if why is None else f"{name}: not sent: {why}")
    return InfraError.exit_code if any(failures.values()) else 0


def _message(folder: Path) -> Message:
    summary = folder / "summary.md"
    if summary.is_file():
        text = read_bounded(summary, _MOST_BYTES).decode(errors="replace")
        return Message.head_of(text, folder.resolve().name, summary)
    if not folder.exists():
        raise ConfigError("does not exist; name the folder of a night or a run", file=folder)
    run = RunFolder.open(folder)
    records, report = run.contents().cases, run.path / "report.html"
    title, *lines = summary_lines(records, run.coverage(), report)
    return Message.of_lines(f"{title} ({run.run_id})", lines, report)
