"""What is said of a device whose HTP nobody knows: a mistake in devices.yaml, and not of a test."""

from __future__ import annotations

import contextlib
from pathlib import Path

from harness.device.lab.inventory import DeviceConfig
from harness.ground.errors import ConfigError
from harness.ground.facts.socs import SOCS
from harness.ground.yaml_lines.document import read_document
from harness.ground.yaml_lines.models import did_you_mean, entries_of


def unknown_arch(config: DeviceConfig, told: str | None, file: Path | None) -> ConfigError:
    """What is wrong in `file` with a device whose HTP nobody knows; `told` is its SoC by itself."""
    line = None
    with contextlib.suppress(ConfigError):
        document = read_document(file) if file else None
        for at, one in entries_of(document, "devices").items() if document else ():
            if document and one.get("name") == config.name:
                line = document.line(("devices", at, "soc"))
    soc = config.soc or told
    problem = f"its SoC is not known: set `soc` or `htp_arch`{f', it says {told}' if told else ''}"
    if soc in SOCS:
        problem = f"{soc} has no HTP"
    elif config.soc:
        meant = f", the device says {told}" if told in SOCS else did_you_mean(config.soc, SOCS)
        problem = f"soc {config.soc} is unknown{meant or '; if it is right, set `htp_arch`'}"
    return ConfigError(f"{config.name}: {problem}", file=file, line=line)
