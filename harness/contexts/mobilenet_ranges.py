"""The ranges of MobileNet-v2's activations, calibrated: what its 8-bit twin is quantised with.

Held fixed, so that the twin is the same to the byte on every computer: least and greatest value
over the pictures of variants 1000 to 1003, by ORT 1.26.0 on the CPU, two digits. What is behind
ReLU6 has the range 0 to 6. A test calibrates again and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "x": (-0.99, 0.99),
        "block_0_0_project": (-1.43, 1.68),
        "block_1_0_project": (-1.51, 1.67),
        "block_1_1_project": (-1.64, 1.76),
        "block_1_1_add": (-2.37, 2.92),
        "block_2_0_project": (-3.26, 2.56),
        "block_2_1_project": (-2.54, 2.78),
        "block_2_1_add": (-3.62, 3.49),
        "block_2_2_project": (-3.88, 3.45),
        "block_2_2_add": (-6.14, 5.64),
        "block_3_0_project": (-5.1, 4.99),
        "block_3_1_project": (-3.43, 3.51),
        "block_3_1_add": (-7.34, 6.09),
        "block_3_2_project": (-4.58, 5.07),
        "block_3_2_add": (-6.87, 6.79),
        "block_3_3_project": (-6.93, 4.75),
        "block_3_3_add": (-10.0, 9.41),
        "block_4_0_project": (-6.71, 7.51),
        "block_4_1_project": (-6.21, 6.9),
        "block_4_1_add": (-10.72, 11.69),
        "block_4_2_project": (-7.21, 11.33),
        "block_4_2_add": (-14.8, 13.66),
        "block_5_0_project": (-7.51, 6.38),
        "block_5_1_project": (-7.05, 8.31),
        "block_5_1_add": (-11.45, 11.03),
        "block_5_2_project": (-8.36, 7.15),
        "block_5_2_add": (-12.47, 14.1),
        "block_6_0_project": (-9.38, 9.45),
        "average": (0, 5.97),
        "y": (-11.28, 9.25),
    }
)
