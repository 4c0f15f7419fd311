"""What a user may write for a version: exact, short, a range, latest, all; from any source (pure).

A runtime is called by its version, with the name of its source and a colon in front: 2.51.0 where
it comes from PyPI, sdk:2.31.0.250130 where it comes from the source `sdk`.
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
    """A comma list taken apart; clauses of one range (>=2.48,<2.51) stay together."""
    parts: list[str] = []
    for part in (piece.strip() for piece in text.split(",")):
        if part[:1] in ("<", ">", "!", "=") and parts and parts[-1][:1] in ("<", ">", "!", "="):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def is_path(spec: str) -> bool:
    """Whether a spec is meant as a path: it has a slash, or begins with . or ~."""
    return _PATH.match(spec) is not None


def choose(
    spec: str, known: Mapping[str, str], *, field: str | None = None, what: str = "QNN"
) -> list[str]:
    """The names of the runtimes that one spec means.

    `known` is {name: version}; where two have the same version, the first is meant. Raises
    ConfigError naming `field` and the choices for anything else; `what` has the versions.
    """
    ordered = _without_repeats(known)
    if spec == "all":
        return ordered
    if spec == "latest":
        return ordered[-1:]
    if spec in known:
        return [spec]
    choices = [*ordered, *_WORDS]
    unknown = VersionError(f"unknown {what} version {spec[:80]!r}", field=field, choices=choices)
    parsed = {name: version for name in ordered if (version := QnnVersion.found_in(known[name]))}
    if spec[:1] in ("<", ">", "!", "="):
        wanted = VersionRange.parse(spec)
        found = [name for name, version in parsed.items() if version in wanted]
        if not found:
            raise VersionError(f"no {what} version is {spec[:80]}", field=field, choices=choices)
        return found
    try:
        short = QnnVersion.parse(spec)
    except ConfigError as error:
        raise unknown from error
    found = [name for name, version in parsed.items() if version.matches(short)]
    if not found:
        raise unknown
    if len(found) > 1:
        raise ConfigError(
            f"{spec!r} fits several {what} versions", field=field, choices=[*found, *_WORDS]
        )
    return found


def choose_all(
    spec: str, known: Iterable[str], *, field: str | None = None, what: str = "QNN"
) -> list[str]:
    """The versions that a comma list of specs means, each once; raises as `choose`."""
    by_name = {version: version for version in known}
    found: dict[str, None] = {}
    for part in split_specs(spec):
        found.update(dict.fromkeys(choose(part, by_name, field=field, what=what)))
    return list(found)


def names(versions: Mapping[str, Sequence[str]], plain: str) -> dict[str, str]:
    """{name: version} of what the sources have, in their order; those of `plain` have no prefix."""
    return {
        version if source == plain else f"{source}:{version}": version
        for source, listed in versions.items()
        for version in listed
    }


def _without_repeats(known: Mapping[str, str]) -> list[str]:
    first: dict[str, str] = {}
    for name, version in known.items():
        first.setdefault(version, name)
    return [first[version] for version in sorted(first, key=version_key)]
