"""The table of engines' releases, and its answers."""

import pytest

from harness.core.versions import QNN_WHEELS, QnnVersion
from harness.engines.executorch_files import TAKES, VERSION
from harness.runtimes.engine_versions import ENGINE_RELEASES
from harness.runtimes.preflight import PLUGIN_MIN_API, SILENT_PLUGIN_MAX_API


def test_the_table_agrees_with_the_wheels_that_are_fetched() -> None:
    assert all(release.source and release.check for release in ENGINE_RELEASES.values())
    wheels = [ENGINE_RELEASES["onnxruntime-qnn", version] for version in QNN_WHEELS.values()]
    assert {release.qnn: release.version for release in wheels} == QNN_WHEELS
    assert {release.ort for release in wheels[1:]} == {f">=1.{PLUGIN_MIN_API}.2"}
    assert str(wheels[0].ort).endswith(f",<1.{SILENT_PLUGIN_MAX_API + 1}")
    assert ENGINE_RELEASES["executorch", VERSION].takes == str(TAKES)


@pytest.mark.parametrize(
    ("engine", "version", "qnn", "verdict"),
    [
        ("onnxruntime-qnn", "2.7.0", "2.51.0.260929181845", "fits"),
        ("onnxruntime-qnn", "2.7.0", "2.50.40", "refused"),
        ("onnxruntime-qnn", "2.5.0", "2.51.0", "refused"),
        ("onnxruntime-qnn", "1.22.2", "2.51.0", "accepted"),
        ("litert", "2.3.0", "2.49.40", "refused"),
        ("litert", "2.3.0", "2.51.0", "accepted"),
        ("executorch", "1.4.1", "2.36.0", "accepted"),
        ("executorch", "1.5.1", "2.49.0", "fits"),
        ("executorch", "1.5.1", "2.50.0", "refused"),
    ],
)
def test_the_fit_of_a_release(engine: str, version: str, qnn: str, verdict: str) -> None:
    assert ENGINE_RELEASES[engine, version].fit(QnnVersion.parse(qnn)) == verdict
