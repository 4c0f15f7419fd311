"""USB devices of the makers that matter, their nodes, and the udev rules there are for them."""

from __future__ import annotations

import contextlib
import grp
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.ground.files.whole_file import read_bounded

# usb.org's vendor ids: Qualcomm's own boards and unprovisioned phones, Google's adb interface.
VENDORS: Final[Mapping[str, str]] = {"05c6": "Qualcomm", "18d1": "Google"}
RULE_FOLDERS: Final = (
    Path("/etc/udev/rules.d"),
    Path("/run/udev/rules.d"),
    Path("/usr/lib/udev/rules.d"),
    Path("/lib/udev/rules.d"),
)
_VENDOR: Final = re.compile(r"""idVendor\}?\s*==\s*"([0-9a-fA-F]{4})\"""")
_MAX_BYTES: Final = 1 << 20
_MAX_LISTED: Final = 32


@dataclass(frozen=True)
class UsbDevice:
    """A device on the bus; `writable` is whether adb, as this user, could open it."""

    vendor: str
    product: str
    serial: str
    node: str
    writable: bool


def vendor_devices(
    root: Path = Path("/sys/bus/usb/devices"), nodes: Path = Path("/dev/bus/usb")
) -> Iterator[UsbDevice]:
    """Those of the vendors above, as the kernel shows them. Never raises."""
    with contextlib.suppress(OSError):
        for folder in sorted(root.iterdir())[:1000]:
            vendor = _text(folder / "idVendor").lower()
            if vendor not in VENDORS:
                continue
            bus, number = _text(folder / "busnum"), _text(folder / "devnum")
            if not (bus.isdigit() and number.isdigit()):
                continue
            node = nodes / f"{int(bus):03d}" / f"{int(number):03d}"
            yield UsbDevice(
                vendor=vendor,
                product=_text(folder / "product"),
                serial=_text(folder / "serial"),
                node=str(node),
                writable=os.access(node, os.R_OK | os.W_OK),
            )


def rules_for_vendors(folders: tuple[Path, ...] = RULE_FOLDERS) -> dict[str, tuple[str, ...]]:
    """{vendor id: the rule files that name it}. Never raises."""
    found: dict[str, dict[str, None]] = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            for file in sorted(folder.glob("*.rules")):
                for vendor in rule_vendors(_text(file, _MAX_BYTES)) & set(VENDORS):
                    found.setdefault(vendor, {})[str(file)] = None
    return {vendor: tuple(files)[:_MAX_LISTED] for vendor, files in found.items()}


def rule_vendors(text: str) -> set[str]:
    """The vendor ids that a file of udev rules names outside of comments (pure)."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return {vendor.lower() for vendor in _VENDOR.findall("\n".join(lines))}


def user_groups() -> frozenset[str]:
    """The names of the groups that this process is in."""
    names = set()
    for number in {*os.getgroups(), os.getegid()}:
        with contextlib.suppress(KeyError):
            names.add(grp.getgrgid(number).gr_name)
    return frozenset(names)


def rule_line(vendor: str) -> str:
    """A udev rule that lets the user at the desk, and plugdev, use a vendor's devices (pure)."""
    match = f'SUBSYSTEM=="usb", ATTR{{idVendor}}=="{vendor}"'
    return f'{match}, MODE="0660", GROUP="plugdev", TAG+="uaccess"'


def _text(path: Path, most: int = 4096) -> str:
    try:
        return read_bounded(path, most).decode("utf-8", "replace").strip()
    except OSError:
        return ""
