"""The properties of a simulated device: what its getprop answers, made for a SoC."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SIMULATED_HARDWARE: Final = "simulator"
"""What ro.hardware says, as of no phone."""
_FEATURES: Final = ("shell_v2", "stat_v2", "fixed_push_mkdir")
_NAME: Final = re.compile(r"[A-Za-z0-9._:@-]{1,255}")
_MAX_VALUE_CHARACTERS: Final = 4096

# Qualcomm's names of the platforms, as phones with these SoCs report them in ro.board.platform.
_PLATFORMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SM8250": "kona",
        "SM8350": "lahaina",
        "SM8450": "taro",
        "SM8475": "taro",
        "SM8550": "kalama",
        "QCS8550": "kalama",
        "SM8650": "pineapple",
        "SM8750": "sun",
        "SM8850": "canoe",
    }
)


def device_properties(
    name: str, soc: str, *, abi: str = "x86_64", root: bool = False
) -> dict[str, str]:
    """The property table of a device called `name` that poses as having the SoC `soc`.

    `abi` is the truth about what runs there: the host's own programs; `root` about who they run
    as: the user of a build for developers, else of one for all.
    """
    product = soc.lower()
    serial = "SIM" + hashlib.sha256(name.encode()).hexdigest()[:9].upper()
    release, sdk, build = "14", "34", "SIM1.240101.001"
    brand = "qnn-harness"
    build_type = "userdebug" if root else "user"
    made = f"{brand}/{product}/{product}:{release}/{build}/1"
    return {
        "ro.adb.secure": "1",
        "ro.board.platform": _PLATFORMS.get(soc, product),
        "ro.boot.hardware": SIMULATED_HARDWARE,
        "ro.boot.serialno": serial,
        "ro.build.display.id": build,
        "ro.build.fingerprint": f"{made}:{build_type}/test-keys",
        "ro.build.id": build,
        "ro.build.product": product,
        "ro.build.tags": "test-keys",
        "ro.build.type": build_type,
        "ro.build.version.incremental": "1",
        "ro.build.version.release": release,
        "ro.build.version.sdk": sdk,
        "ro.debuggable": "1" if root else "0",
        "ro.hardware": SIMULATED_HARDWARE,
        "ro.product.board": product,
        "ro.product.brand": brand,
        "ro.product.cpu.abi": abi,
        "ro.product.cpu.abilist": abi,
        "ro.product.cpu.abilist64": abi,
        "ro.product.device": product,
        "ro.product.manufacturer": brand,
        "ro.product.model": f"{soc} simulator",
        "ro.product.name": product,
        "ro.secure": "0" if root else "1",
        "ro.serialno": serial,
        "ro.soc.manufacturer": "QTI",
        "ro.soc.model": soc,
        "sys.boot_completed": "1",
    }


def board_properties(name: str, soc: str) -> dict[str, str]:
    """The property table of a simulated Linux board: few, and none of Android's version.

    A board's adbd has no properties of its own; these name the device for people and for us. It
    does not tell its SoC here: what it shows of that is in /sys.
    """
    android = device_properties(name, soc, abi="arm64-v8a")
    kept = ("ro.product.", "ro.serialno", "ro.boot.serialno", "ro.boot.hardware", "ro.adb.secure")
    return {key: value for key, value in android.items() if key.startswith(kept)}


def checked_properties(table: Mapping[str, str]) -> dict[str, str]:
    """The table sorted by name. Raises ValueError for what getprop's format cannot carry."""
    for name, value in table.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a property")
        if not isinstance(value, str) or re.search(r"[\r\n\0]", value):
            raise ValueError(f"property {name}: {value!r} is not one line of text")
        if len(value) > _MAX_VALUE_CHARACTERS:
            raise ValueError(f"property {name}: longer than {_MAX_VALUE_CHARACTERS} characters")
    return dict(sorted(table.items()))


def getprop_text(table: Mapping[str, str]) -> str:
    """The table as getprop prints it."""
    return "".join(f"[{name}]: [{value}]\n" for name, value in sorted(table.items()))


def banner(table: Mapping[str, str]) -> bytes:
    """What the device says about itself in CNXN: three properties and its features."""
    names = ("ro.product.name", "ro.product.model", "ro.product.device")
    fields = [f"{name}={table.get(name, '').replace(';', '_')}" for name in names]
    fields.append("features=" + ",".join(_FEATURES))
    return f"device::{';'.join(fields)}".encode()
