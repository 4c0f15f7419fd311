"""What is called otherwise now: the old name works for a while, and says what takes its place."""

from __future__ import annotations

import warnings


class RenamedWarning(DeprecationWarning):
    """An old name was used; pytest lists it, and commands print it as a line."""


def renamed(old: str, new: str, *, until: str, stacklevel: int = 3) -> None:
    """Warns that a name, an option or a key is old, once for each place that uses it.

    `until` is the version that takes it no more; docs/versions.md says how long that has to be.
    `stacklevel` is that of `warnings.warn`: by default who called the one that calls this.
    """
    text = f"{old} is called {new} now; version {until} takes the old name no more"
    warnings.warn(text, RenamedWarning, stacklevel=stacklevel)
