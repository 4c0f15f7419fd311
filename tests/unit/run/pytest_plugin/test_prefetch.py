"""What `--ahead` takes."""

from __future__ import annotations

import pytest

from harness.ground.errors import ConfigError
from harness.run.pytest_plugin.prefetch import parse_versions


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("qnn=2.50.40", {"qnn": ["2.50.40"]}),
        ("qnn=2.50 compiler=2.47.0", {"qnn": ["2.50"], "compiler": ["2.47.0"]}),
        ("ort=1.28.0 qnn='/my sdk/2.31'", {"ort": ["1.28.0"], "qnn": ["/my sdk/2.31"]}),
        ("qnn=/sdk=new", {"qnn": ["/sdk=new"]}),
    ],
)
def test_versions_by_axis(text: str, versions: dict[str, list[str]]) -> None:
    assert parse_versions(text) == versions


@pytest.mark.parametrize("text", ["", "2.50.40", "qnn=", "cpu=1", "qnn=2.50 2.51", "qnn='2.50"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--ahead"):
        parse_versions(text)
