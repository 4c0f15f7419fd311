"""Releases of engines and the QNN that each takes, from a table with its sources (pure)."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Final, Literal

from harness.core.json_record import Part
from harness.core.versions import QnnVersion, VersionRange

Verdict = Literal["fits", "accepted", "refused", "unknown"]
"""fits: made and tested with it; accepted: it is let through, and nobody says that it works."""


class EngineRelease(Part):
    """A release of an engine, and the QNN that it was made with, by its `source`.

    It takes files of these `kinds`. `contains`: it brings this QNN along. `refuses_older`: `check`
    in its code refuses QNN libraries with an older API. `takes` are the only versions that it works
    with, as far as it was tried, `ort` is the ONNX Runtime that it needs. `verdict` is about a
    file: it loads with this QNN (fits), or with a newer one that it lets through (accepted).
    """

    engine: str
    version: str
    qnn: str
    source: str
    kinds: tuple[str, ...]
    contains: bool
    refuses_older: bool
    check: str
    takes: str | None = None
    ort: str | None = None
    verdict: Verdict = "unknown"

    def fit(self, libraries: QnnVersion) -> Verdict:
        made_with = QnnVersion.parse(self.qnn)
        if self.takes is not None and libraries not in VersionRange.parse(self.takes):
            return "refused"
        if libraries.matches(made_with) or made_with.matches(libraries):
            return "fits"
        # the versions of QNN's APIs rise with its minor version
        is_older = libraries.parts[:2] < made_with.parts[:2]
        return "refused" if is_older and self.refuses_older else "accepted"

    def judged(self, compiler: QnnVersion | None) -> EngineRelease:
        """Return the release with the verdict about contexts of a compiler."""
        verdict: Verdict = "unknown"
        if compiler and not compiler.is_newer_than(QnnVersion.parse(self.qnn)):
            verdict = "fits"
        elif compiler:
            verdict = "refused" if self.contains else self.fit(compiler)
        return self.model_copy(update={"verdict": verdict})


ENGINE_RELEASES: Final = {
    (engine, release["version"]): EngineRelease.model_validate(
        {"engine": engine, **table, **release}
    )
    for engine, table in tomllib.loads(
        files("harness.runtimes").joinpath("engine-versions.toml").read_text("ascii")
    ).items()
    for release in table.pop("releases")
}
"""By engine and version."""
