"""The time of real bisections over all wheels beside a shell loop that tries every version.

`make nightly` prints the ratios: of one axis, and of the grid of the nightly tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness.ground.facts.versions import QNN_WHEELS
from harness.libraries.runtimes.ort import ORT_VERSIONS
from tests.integration.device_runs import DeviceRuns
from tests.integration.search.bisect.bisections import RESIDENT, SESSION
from tests.integration.search.bisect.loops import beside_a_loop

QNN = tuple(QNN_WHEELS)
ORT = tuple(version for version in ORT_VERSIONS if version < "1.32")

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    ("case", "chosen", "axes", "held"),
    [
        (RESIDENT, "io-heavy and resident and 66", {"qnn": QNN}, {"compiler": QNN[0]}),
        (SESSION, "test_session and tiny", {"ort": ORT, "qnn": QNN}, {}),
    ],
    ids=["qnn", "ort,qnn"],
)
def test_beside_a_loop(
    tmp_path: Path,
    case: str,
    chosen: str,
    axes: Mapping[str, tuple[str, ...]],
    held: Mapping[str, str],
    show_figures: Callable[..., None],
) -> None:
    told = beside_a_loop(DeviceRuns(tmp_path), case, chosen, axes, held)
    show_figures(f"{','.join(axes)} beside a loop over every one", **told)
