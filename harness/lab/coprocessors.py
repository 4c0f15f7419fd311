"""What a device shows of the processors behind QNN's backends, its DSP and its GPU (pure).

It decides whether "cannot reach the DSP" is a failure or the plain truth about a board without
one. Anything seen counts: a phone may hide its device nodes from the shell, but hardly its nodes,
its remote processors and the libraries of all apps at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_MAX_SIGNS: Final = 32
_SIGN: Final = re.compile(r"(dsp|gpu) (\S.{0,199})")

# Part of the script that asks for all facts. Nodes: fastrpc of mainline and of Qualcomm's kernels,
# kgsl of Adreno. Libraries: where Android and Qualcomm's Linux images have the drivers' own.
SCRIPT: Final = r"""
echo "${m}coprocessors"
for f in /dev/fastrpc-* /dev/adsprpc-smd* /dev/cdsprpc-smd* /sys/class/fastrpc/* \
  /sys/class/adsprpc-smd; do
  [ -e "$f" ] && echo "dsp $f"
done
grep -al cdsp /sys/class/remoteproc/*/name /sys/bus/msm_subsys/devices/*/name 2>/dev/null |
  sed 's/^/dsp /'
for f in /dev/kgsl-3d0 /sys/class/kgsl/kgsl-3d0; do [ -e "$f" ] && echo "gpu $f"; done
for d in /vendor/lib64 /system/lib64 /system/vendor/lib64 /odm/lib64 /usr/lib /usr/lib64 \
  /usr/lib/aarch64-linux-gnu /lib/aarch64-linux-gnu; do
  for f in "$d"/libcdsprpc.so*; do [ -e "$f" ] && echo "dsp $f"; done
  for f in "$d"/libOpenCL.so* "$d"/libOpenCL_adreno.so*; do [ -e "$f" ] && echo "gpu $f"; done
done
echo "looked"
"""


@dataclass(frozen=True)
class Coprocessors:
    """Paths that show a DSP for HTP and a GPU for OpenCL; none: the device shows none."""

    dsp: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()


def parse_coprocessors(sections: Mapping[str, Sequence[str]]) -> Coprocessors | None:
    """What SCRIPT found; None if the device did not answer it to the end."""
    lines = sections.get("coprocessors", [])
    if "looked" not in lines:
        return None
    found: dict[str, list[str]] = {"dsp": [], "gpu": []}
    for line in lines:
        sign = _SIGN.fullmatch(line)
        if sign and len(found[sign[1]]) < _MAX_SIGNS:
            found[sign[1]].append(sign[2])
    return Coprocessors(tuple(found["dsp"]), tuple(found["gpu"]))
