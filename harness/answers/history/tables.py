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

VERSION: Final = "12"
"""Of the tables; a database with others is refused."""

metadata: Final = MetaData()
# texts are compared byte by byte, as in SQLite
_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")

meta: Final = Table(
    "meta",
    metadata,
    Column("name", _TEXT, primary_key=True),
    Column("value", _TEXT, nullable=False),
)
runs: Final = Table(
    "runs",
    metadata,
    Column("run", _TEXT, primary_key=True),
    Column("started", _TEXT, nullable=False, index=True),
    Column("digest", _TEXT, nullable=False),
    Column("folder", _TEXT, nullable=False),
    Column("damaged", Integer, nullable=False),
    Column("size", Integer, nullable=False),
    Column("series", _TEXT),
    Column("number", BigInteger),
    Column("not_run", BigInteger),
    Column("told", _TEXT, nullable=False),
)
attempts: Final = Table(
    "attempts",
    metadata,
    Column("run", _TEXT, ForeignKey("runs.run"), primary_key=True),
    Column("line", Integer, primary_key=True),
    Column("name", _TEXT, nullable=False),
    Column("device", _TEXT),
    Column("simulated", _TEXT),
    Column("qnn", _TEXT),
    Column("ort", _TEXT),
    Column("axes", _TEXT, nullable=False),
    Column("outcome", _TEXT, nullable=False),
    Column("cause", _TEXT),
    Column("known_issue", _TEXT),
    Column("diagnosis", _TEXT),
    Column("signature", _TEXT),
    Column("error", _TEXT),
    Column("started", _TEXT, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("kin", _TEXT, nullable=False),
    Column("test", _TEXT, nullable=False),
    Column("placement", _TEXT),
    Column("soc", _TEXT),
    Column("figures", _TEXT),
    Column("server", _TEXT),
    Column("cause_id", _TEXT),
    Column("identity", _TEXT, nullable=False, index=True),
    Column("counts", Boolean, nullable=False),
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
    Column("soc", _TEXT),
    Column("host", _TEXT),
    Column("busy_s", Double, nullable=False),
    Column("span_s", Double, nullable=False),
    Column("hottest_c", Double),
    Column("battery_percent", BigInteger),
    Column("free_storage_bytes", BigInteger),
    Column("link_faults", BigInteger, nullable=False),
    Column("recoveries", BigInteger, nullable=False),
    Column("quarantines", BigInteger, nullable=False),
    Column("state", _TEXT),
    Column("finding", _TEXT),
)
nights: Final = Table(
    "nights",
    metadata,
    Column("night", _TEXT, primary_key=True),
    Column("run", _TEXT),
    Column("said", _TEXT, nullable=False),
)
