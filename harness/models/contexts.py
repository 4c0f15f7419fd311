"""The contexts of any sources: compiled, or read from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from harness.containers.manifest import Expects, RunPlan
from harness.core.context_options import OptionValue
from harness.core.errors import ConfigError, HarnessError, InternalError
from harness.models.builtin_models import Model
from harness.models.compiler import CompileError
from harness.models.context_cache import ContextKey, ContextStore
from harness.models.context_file import ContextFile, ContextFiles
from harness.models.session_plan import ClosenessLimits, Context, Reference
from harness.probe.build import ProbeBuilder
from harness.probe.plan import ONCE, Rounds
from harness.runtimes.catalog import Catalog

Source = Model | ContextFile
"""A source of contexts: a model to compile, or a file."""

SourceContexts = Mapping[Source, Context | ConfigError | CompileError]
"""The context of each source, or its error."""


class SourceList(tuple[Source, ...]):
    """Sources with a common name, such as those of a file with many contexts.

    Tests use it like a tuple of sources; cases and records show its name.
    """

    name: str

    not_run: str
    """Note on the parts of the file that do not run."""

    rounds: Rounds
    """Number of executions of each graph."""

    closeness: ClosenessLimits
    """Conditions for each output."""

    context_options: Mapping[str, OptionValue]
    """The options with which each context loads."""

    plan: RunPlan | None
    expects: Expects | None
    """The way in which the contexts of a bundle ran, and the outcome."""

    wrong: ConfigError | None = None
    """Error of a file without sources; the case of the file ends with it."""

    def __new__(
        cls,
        name: str,
        sources: Iterable[Source],
        plan: RunPlan | None = None,
        expects: Expects | None = None,
        closeness: ClosenessLimits | None = None,
        not_run: str = "",
        context_options: Mapping[str, OptionValue] | None = None,
    ) -> Self:
        """Create a list of sources, in the order in which they are to be loaded."""
        source_list = super().__new__(cls, tuple(sources))
        source_list.name = name
        source_list.not_run = not_run
        source_list.plan, source_list.expects, source_list.rounds = plan, expects, ONCE
        source_list.closeness = ClosenessLimits() if closeness is None else closeness
        packed = plan.context_options if plan is not None else {}
        source_list.context_options = context_options or packed
        return source_list

    @classmethod
    def unreadable(cls, name: str, error: ConfigError) -> Self:
        """Create an empty list for a file that cannot be read."""
        sources = cls(name, ())
        sources.wrong = error
        return sources

    def __str__(self) -> str:
        return self.name

    # other plug-ins of pytest (allure) show parameters by their repr
    __repr__ = __str__


class Contexts:
    """Contexts by source, for any compiler and HTP architecture; each is made or read once."""

    def __init__(self, cache: Path, catalog: Catalog, probes: ProbeBuilder) -> None:
        self._compiled = ContextStore(cache, catalog, probes)
        self._files = ContextFiles(cache, catalog, probes)

    def of(
        self, sources: Iterable[Source], compiler: str | None, htp_arch: int | None
    ) -> SourceContexts:
        """Return the contexts of all sources, compiling models.

        Files need neither compiler nor architecture. A source that was refused, or cannot be read,
        has its error instead of a context. Raises as `ContextStore.each` and
        `ContextFiles.contexts`.
        """
        unique = list(dict.fromkeys(sources))
        models = [source for source in unique if isinstance(source, Model)]
        compiled = self._compiled.each([_key(model, compiler, htp_arch) for model in models])
        files = (source for source in unique if isinstance(source, ContextFile))
        contexts: dict[Source, Context | ConfigError | CompileError] = {}
        contexts.update(zip(models, compiled, strict=True))
        contexts.update(self._files.contexts(files).items())
        return {source: contexts[source] for source in unique}

    def metadata(self, sources: Iterable[Source]) -> dict[ContextFile, Mapping[str, Any]]:
        """Return the metadata of the files among the sources; see `ContextFiles.metadata`."""
        return self._files.metadata(source for source in sources if isinstance(source, ContextFile))

    def references(self, models: Sequence[Model], compiler: str) -> list[Reference]:
        """Return the references of models; raises as `ContextStore.references`."""
        return self._compiled.references(models, compiler)


def require_contexts(contexts: SourceContexts) -> dict[Source, Context]:
    """Return the contexts of all sources. Raises the first error among them."""
    whole = {}
    for source, context in contexts.items():
        if isinstance(context, HarnessError):
            raise context
        whole[source] = context
    return whole


def _key(model: Model, compiler: str | None, htp_arch: int | None) -> ContextKey:
    arch = model.htp_arch or htp_arch
    if compiler is None or arch is None:
        raise InternalError(f"{model} needs a compiler and an HTP architecture")
    return replace(model, htp_arch=0), compiler, arch
