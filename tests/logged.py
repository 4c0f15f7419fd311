"""Messages that the harness logs for its user while a test runs."""

from dataclasses import dataclass, field


@dataclass
class Logged:
    """Line by line, from all threads."""

    progress: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
