"""The tables of the history, the same in SQLite and in PostgreSQL."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

VERSION: Final = "13"
"""Of the tables; a database with others is refused."""

metadata: Final = MetaData()
# texts are compared byte by byte, as in SQLite
_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")


def _texts(*names: str, nullable: bool = False) -> list[Column[str]]:
    return [Column(name, _TEXT, nullable=nullable) for name in names]


meta: Final = Table("meta", metadata, Column("name", _TEXT, primary_key=True), *_texts("value"))
runs: Final = Table(
    "runs",
    metadata,
    Column("run", _TEXT, primary_key=True),
    Column("started", _TEXT, nullable=False, index=True),
    *_texts("digest", "folder", "told"),
    *_texts("series", nullable=True),
    Column("size", Integer, nullable=False),
    Column("number", BigInteger),
    Column("not_run", BigInteger),
)
attempts: Final = Table(
    "attempts",
    metadata,
    Column("run", _TEXT, ForeignKey("runs.run"), primary_key=True),
    Column("line", Integer, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("identity", _TEXT, nullable=False, index=True),
    Column("counts", Boolean, nullable=False),
    *_texts("name", "kin", "test", "axes", "outcome", "started"),
    *_texts("device", "simulated", "soc", "qnn", "ort", "placement", nullable=True),
    *_texts("cause", "known_issue", "diagnosis", "signature", "error", nullable=True),
    *_texts("server", "cause_id", "figures", nullable=True),
)
Index(
    "attempts_of_kin",
    *(attempts.c[name] for name in ("kin", "run", "outcome", "cause")),
)
Index(
    "attempts_of_cause",
    *(attempts.c[name] for name in ("cause_id", "run", "kin")),
    sqlite_where=attempts.c.cause_id.is_not(None),
    postgresql_where=attempts.c.cause_id.is_not(None),
)
device_runs: Final = Table(
    "device_runs",
    metadata,
    Column("run", _TEXT, ForeignKey("runs.run"), primary_key=True),
    Column("device", _TEXT, primary_key=True),
    *_texts("soc", "host", "state", "finding", nullable=True),
    Column("busy_s", Double, nullable=False),
    Column("span_s", Double, nullable=False),
    Column("hottest_c", Double),
    Column("battery_percent", BigInteger),
    Column("free_storage_bytes", BigInteger),
    Column("link_faults", BigInteger, nullable=False),
    Column("recoveries", BigInteger, nullable=False),
    Column("quarantines", BigInteger, nullable=False),
)
nights: Final = Table(
    "nights",
    metadata,
    Column("night", _TEXT, primary_key=True),
    *_texts("run", nullable=True),
    *_texts("said"),
)
