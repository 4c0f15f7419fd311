"""Version specs of users: exact, short, a range, latest, all; from any source (pure).

A runtime is named by its version, with its source as prefix: 2.51.0 if it comes from PyPI,
sdk:2.31.0.250130 if it comes from the source `sdk`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from harness.core.errors import ConfigError, VersionError
from harness.core.versions import QnnVersion, VersionRange
from harness.runtimes.runtime import version_key

_WORDS = ("latest", "all")
_PATH = re.compile(r"[./~]|.*[/\\]|.*\.aar$", re.DOTALL)


def split_specs(text: str) -> list[str]:
    """Split a comma list; clauses of one range (>=2.48,<2.51) stay together."""
    parts: list[str] = []
    for part in (piece.strip() for piece in text.split(",")):
        if part[:1] in ("<", ">", "!", "=") and parts and parts[-1][:1] in ("<", ">", "!", "="):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def is_path(spec: str) -> bool:
    """Return whether a spec is a path: it has a slash, or begins with . or ~."""
    return _PATH.match(spec) is not None


def choose(
    spec: str, known: Mapping[str, str], *, field: str | None = None, product: str = "QNN"
) -> list[str]:
    """Return the names of the runtimes that one spec means.

    `known` is {name: version}; of two with the same version, the first is meant. Raises ConfigError
    naming `field` and the choices for anything else; `product` is the versions' software.
    """
    by_version = {known[name]: name for name in reversed([*known])}
    ordered = [by_version[number] for number in sorted(by_version, key=version_key)]
    if spec == "all":
        return ordered
    if spec == "latest":
        return ordered[-1:]
    if spec in known:
        return [spec]
    choices = [*ordered, *_WORDS]
    unknown = VersionError(f"unknown {product} version {spec[:80]!r}", field=field, choices=choices)
    parsed = {name: version for name in ordered if (version := QnnVersion.found_in(known[name]))}
    if spec[:1] in ("<", ">", "!", "="):
        bounds = VersionRange.parse(spec)
        matching = [name for name, version in parsed.items() if version in bounds]
        if not matching:
            problem = f"no {product} version matches {spec[:80]}"
            raise VersionError(problem, field=field, choices=choices)
        return matching
    try:
        short = QnnVersion.parse(spec)
    except ConfigError as error:
        raise unknown from error
    matching = [name for name, version in parsed.items() if version.matches(short)]
    if not matching:
        raise unknown
    if len(matching) > 1:
        raise ConfigError(
            f"{spec!r} matches several {product} versions",
            field=field,
            choices=[*matching, *_WORDS],
        )
    return matching


def choose_all(
    spec: str, known: Iterable[str], *, field: str | None = None, product: str = "QNN"
) -> list[str]:
    """Return the versions that a comma list of specs means, each once; raises as `choose`."""
    by_name = {version: version for version in known}
    versions: dict[str, None] = {}
    for part in split_specs(spec):
        versions.update(dict.fromkeys(choose(part, by_name, field=field, product=product)))
    return list(versions)


def names(versions: Mapping[str, Sequence[str]], plain: str) -> dict[str, str]:
    """Return {name: version} of the sources, in order; those of `plain` have no prefix."""
    return {
        version if source == plain else f"{source}:{version}": version
        for source, listed in versions.items()
        for version in listed
    }
