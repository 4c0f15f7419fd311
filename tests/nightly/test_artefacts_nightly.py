"""Ten minutes of damaged artefacts: an error that names the file, or what it truly says."""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.libraries.containers.damage import SMALL, damaged, require_error_or_truth, seeds

SECONDS = float(os.environ.get("QNN_FUZZ_SECONDS", "600"))
KEPT = Path(__file__).parents[2] / "reports/tests/damaged"
LONGEST_S = 300  # an endless file takes some 20 s on a computer that does nothing else

pytestmark = pytest.mark.nightly


def test_no_damage_is_more_than_an_error(tmp_path: Path, show_figures: Callable[..., None]) -> None:
    seed = int(os.environ.get("QNN_FUZZ_SEED") or random.SystemRandom().randrange(10**9))
    chance, whole = random.Random(seed), seeds()
    (tmp_path / "side.bin").write_bytes(SMALL)
    path = tmp_path / "artefact"
    opened = readable = 0
    found: dict[str, Path] = {}
    end = time.monotonic() + SECONDS
    while (begin := time.monotonic()) < end:
        name = chance.choice(sorted(whole))
        content = damaged(whole[name], chance)
        path.write_bytes(content)
        try:
            readable += require_error_or_truth(path)
            problem = "" if time.monotonic() - begin < LONGEST_S else f"more than {LONGEST_S} s"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        opened += 1
        if problem and problem not in found:
            kept = KEPT / f"{hashlib.sha256(content).hexdigest()[:12]}.{name}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(content)
            found[problem] = kept
    show_figures("damaged artefacts", seed=seed, opened=opened, readable=readable)
    assert 0 < readable < opened
    assert not found, f"put into tests/unit/libraries/containers/corpus: {found}"
