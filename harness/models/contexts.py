"""The contexts of any sources: compiled, or read from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from harness.containers.manifest import Expects, RunPlan
from harness.core.errors import ConfigError, HarnessError, InternalError
from harness.models.compile import ContextKey, ContextStore
from harness.models.compiler import CompileError
from harness.models.context_file import ContextFile, ContextFiles
from harness.models.models import Model
from harness.models.source import ClosenessAsked, Context, Reference
from harness.probe.build import ProbeBuilder
from harness.probe.plan import ONCE, Rounds
from harness.runtimes.catalog import Catalog

Source = Model | ContextFile
"""The kinds of sources that there are."""

Made = Mapping[Source, Context | ConfigError | CompileError]
"""What became of each source."""


class SourceList(tuple[Source, ...]):
    """Sources that belong together and have one name, such as those of a file with many contexts.

    A test takes it as it takes a tuple of sources; cases and records call it by its name.
    """

    name: str

    empty_caches: tuple[str, ...]
    """Where its file should hold further contexts, and holds none."""

    not_run: str
    """What to say of a file of which these are only a part."""

    rounds: Rounds
    """How often each graph is executed."""

    closeness: ClosenessAsked
    """What is asked of each output."""

    plan: RunPlan | None
    expects: Expects | None
    """How its file says that they were run, and what that came to."""

    wrong: ConfigError | None = None
    """Why nothing can be taken from its file; the case of the file ends with it."""

    def __new__(
        cls,
        name: str,
        sources: Iterable[Source],
        empty_caches: Iterable[str] = (),
        plan: RunPlan | None = None,
        expects: Expects | None = None,
        closeness: ClosenessAsked | None = None,
        not_run: str = "",
    ) -> Self:
        """Takes the sources in the order in which they are to be loaded."""
        made = super().__new__(cls, tuple(sources))
        made.name = name
        made.empty_caches, made.not_run = tuple(empty_caches), not_run
        made.plan, made.expects, made.rounds = plan, expects, ONCE
        made.closeness = ClosenessAsked() if closeness is None else closeness
        return made

    @classmethod
    def unreadable(cls, name: str, error: ConfigError) -> Self:
        """Make a list for a file that nothing can be taken from."""
        made = cls(name, ())
        made.wrong = error
        return made

    def __str__(self) -> str:
        return self.name

    # other plug-ins of pytest (allure) show parameters so
    __repr__ = __str__


class Contexts:
    """Contexts by source, for any compiler and HTP architecture; nothing is made or read twice."""

    def __init__(self, cache: Path, catalog: Catalog, probes: ProbeBuilder) -> None:
        self._compiled = ContextStore(cache, catalog, probes)
        self._files = ContextFiles(cache, catalog, probes)

    def of(self, sources: Iterable[Source], compiler: str | None, htp_arch: int | None) -> Made:
        """The contexts of all of these; those of models as a compiler makes them.

        Files need neither compiler nor architecture. What a compiler refused, or is wrong with a
        file, stands in the place of a context. Raises for the rest as `ContextStore.each` and
        `ContextFiles.contexts`.
        """
        wanted = list(dict.fromkeys(sources))
        models = [one for one in wanted if isinstance(one, Model)]
        made = self._compiled.each([_key(one, compiler, htp_arch) for one in models])
        found: dict[Source, Context | ConfigError | CompileError] = {}
        found.update(zip(models, made, strict=True))
        files = [one for one in wanted if isinstance(one, ContextFile)]
        for file, read in self._files.contexts(files).items():
            found[file] = read
        return {one: found[one] for one in wanted}

    def metadata(self, sources: Iterable[Source]) -> dict[ContextFile, Mapping[str, Any]]:
        """What the files among these say of themselves; as `ContextFiles.metadata`."""
        return self._files.metadata(one for one in sources if isinstance(one, ContextFile))

    def references(self, models: Sequence[Model], compiler: str) -> list[Reference]:
        """The references of models; raises as `ContextStore.references`."""
        return self._compiled.references(models, compiler)


def required(made: Made) -> dict[Source, Context]:
    """The contexts of all of these. Raises the first error that stands in the place of one."""
    found = {}
    for source, one in made.items():
        if isinstance(one, HarnessError):
            raise one
        found[source] = one
    return found


def _key(model: Model, compiler: str | None, htp_arch: int | None) -> ContextKey:
    arch = model.htp_arch or htp_arch
    if compiler is None or arch is None:
        raise InternalError(f"{model} is to be compiled, but not by what or for which HTP")
    return replace(model, htp_arch=0), compiler, arch
