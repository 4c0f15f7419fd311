"""The origin of a probe: shipped, or compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import ConfigError
from harness.probe import build
from harness.probe.build import CAME_ALONG, ProbeBuilder, read_sources, source_hash

TARGETS = ("linux-x64", "linux-arm64", "android-arm64")


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shipped"
    folder.mkdir()
    monkeypatch.setattr(build, "SHIPPED", folder)
    return folder


def ship(folder: Path, target: str, source: str) -> None:
    identity = f"qnn-probe protocol=2 source={source} target={target}"
    (folder / f"qnn-probe-{target}").write_text(identity)


@pytest.mark.parametrize("target", TARGETS)
def test_what_came_along_wants_no_compiler(target: str, shipped: Path, tmp_path: Path) -> None:
    builder = ProbeBuilder(tmp_path, {"PATH": str(tmp_path)})
    with pytest.raises(ConfigError, match="no C compiler found"):
        builder.origin(target)
    ship(shipped, target, "0" * 64)  # of other sources
    with pytest.raises(ConfigError, match="no C compiler found"):
        builder.origin(target)
    ship(shipped, target, source_hash(read_sources()))
    assert builder.origin(target) == CAME_ALONG
