"""The origin of a probe: named, shipped, or compiled."""

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
    identity = f"qnn-probe protocol={build.PROTOCOL} source={source} target={target}"
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


def test_what_is_named_comes_first(shipped: Path, tmp_path: Path) -> None:
    ship(shipped, "linux-x64", source_hash(read_sources()))
    named = tmp_path / "linux-x64/qnn-probe"
    named.parent.mkdir()
    named.touch()
    environment = {"PATH": str(tmp_path), "QNN_HARNESS_PROBES": str(tmp_path)}
    assert ProbeBuilder(tmp_path, environment).origin("linux-x64") == str(named)
