"""What is known of Qualcomm SoCs: HTP architecture, QNN's id, VTCM and Adreno model."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class Soc:
    """One SoC by the name its maker prints on it.

    `htp_arch` is 73 for v73, None for a DSP without HTP. `soc_model` is the id that QNN and ORT
    use, which is not the kernel's /sys/devices/soc0/soc_id. `vtcm_mb` in MiB, `adreno` the GPU's
    model number; None where no public source was found.
    """

    name: str
    htp_arch: int | None
    soc_model: int
    vtcm_mb: int | None = None
    adreno: str | None = None


# Ids and VTCM: QAIRT SDK docs ("Supported Snapdragon devices") and pytorch/executorch's
# backends/qualcomm SoC table. Adreno 612 of QCS610: microsoft/onnxruntime#24004; the others are
# the GPUs that the makers of the SoCs name. Older SDKs use 35 for QCM6490 and QCS6490.
_TABLE: Final = (
    Soc("SM8350", 68, 30, 4),
    Soc("SA8295", 68, 39, 8),
    Soc("QCM6490", 68, 93, 2, "643"),
    Soc("QCS6490", 68, 93, 2, "643"),
    Soc("SM8450", 69, 36, 8, "730"),
    Soc("SM8475", 69, 42, 8),
    Soc("SXR2230P", 69, 53, 8),
    Soc("SM8550", 73, 43, 8, "740"),
    Soc("QCS8550", 73, 43, 8, "740"),
    Soc("SA8255", 73, 52, 8),
    Soc("QCS9100", 73, 77, 8),
    Soc("SSG2115P", 73, 46, 2),
    Soc("SC8380XP", 73, 60),
    Soc("SM8650", 75, 57, 8, "750"),
    Soc("SM8750", 79, 69, 8, "830"),
    Soc("SXR2330P", 79, 75, 8),
    Soc("SM8850", 81, 87, 8, "840"),
    Soc("SM8845", 81, 97, 8),
    Soc("SA8797", 81, 72, 16),
    Soc("QCS610", None, 16, None, "612"),
    Soc("QCS410", None, 33),
    Soc("SM8250", None, 21),
)

# What kernels show in /sys/devices/soc0/soc_id: include/dt-bindings/arm/qcom,ids.h of Linux.
KERNEL_SOC_IDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "SM8350": 439,
        "QCM6490": 497,
        "QCS6490": 498,
        "SM8450": 457,
        "SM8475": 530,
        "SM8550": 519,
        "QCS8550": 603,
        "QCS9100": 667,
        "SC8380XP": 555,
        "SM8650": 557,
        "SM8750": 618,
    }
)

DEVICE_PD_BYTES: Final = 3840 << 20
"""What one protection domain of a DSP holds: 4 GiB of addresses, of which about 3.75 are usable.

QAIRT SDK docs, "Multiple cDSP Sessions". One context cannot span two.
"""

SOCS: Final[Mapping[str, Soc]] = MappingProxyType({soc.name: soc for soc in _TABLE})
HTP_ARCHS: Final[tuple[int, ...]] = tuple(
    sorted({soc.htp_arch for soc in _TABLE if soc.htp_arch is not None})
)


def near_socs(name: str) -> list[str]:
    """The names in the table that are close to an unknown name."""
    return difflib.get_close_matches(name.upper()[:40], SOCS, n=3, cutoff=0.6)
