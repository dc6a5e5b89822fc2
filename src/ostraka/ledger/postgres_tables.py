"""The tables of a ledger in PostgreSQL, and the parts of an address that may be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ostraka.ledger.budget import LedgerError

if TYPE_CHECKING:
    from ostraka.ledger.budget import Budget

__all__ = ["NAMES", "UPGRADES", "VERSION", "fill", "shown", "upgrade", "words"]

VERSION = 3
TABLES = """
CREATE TABLE ostraka_budget (
    id integer PRIMARY KEY CHECK (id = 1),
    version integer NOT NULL,
    epsilon double precision NOT NULL,
    delta double precision NOT NULL,
    adaptive boolean NOT NULL,
    secret text NOT NULL
);
CREATE TABLE ostraka_price (
    id integer PRIMARY KEY,
    mechanism text NOT NULL,
    unit text NOT NULL,
    orders bytea NOT NULL,
    cost bytea NOT NULL
);
CREATE TABLE ostraka_entry (
    seq bigint PRIMARY KEY,
    kind text NOT NULL,
    account text NOT NULL,
    key text,
    price integer REFERENCES ostraka_price,
    uses bigint NOT NULL,
    protects text NOT NULL,
    simulation integer NOT NULL,
    epsilon double precision NOT NULL,
    asked bytea,
    answer bigint,
    cap double precision,
    state bytea,
    digest bytea NOT NULL
);
CREATE UNIQUE INDEX ostraka_entry_key ON ostraka_entry (account, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX ostraka_entry_asked ON ostraka_entry (asked) WHERE asked IS NOT NULL AND uses > 0;
CREATE INDEX ostraka_entry_state ON ostraka_entry (seq) WHERE state IS NOT NULL;
CREATE TABLE ostraka_total (
    entry bigint NOT NULL REFERENCES ostraka_entry,
    account text NOT NULL,
    cap double precision,
    protects text NOT NULL,
    simulation integer NOT NULL,
    total bytea,
    PRIMARY KEY (entry, account)
);
CREATE TABLE ostraka_answer (
    entry bigint PRIMARY KEY REFERENCES ostraka_entry,
    "array" bytea NOT NULL,
    digest bytea NOT NULL
);
CREATE FUNCTION ostraka_append_only() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$;
"""
# what each format adds to the one before; new tables are made in the same steps
UPGRADES = {2: "ALTER TABLE ostraka_entry ADD COLUMN at bigint"}
NAMES = ("answer", "budget", "entry", "price", "total")


def fill(db: Any, budget: Budget, secret: str) -> None:
    """Create the tables, their triggers, and the row of the budget."""
    db.execute(TABLES)
    for step in UPGRADES.values():
        db.execute(step)
    values = (VERSION, budget.epsilon, budget.delta, budget.adaptive, secret)
    db.execute("INSERT INTO ostraka_budget VALUES (1, %s, %s, %s, %s, %s)", values)
    for name in NAMES:
        db.execute(
            f"CREATE TRIGGER ostraka_{name}_change BEFORE UPDATE OR DELETE ON ostraka_{name} "
            "FOR EACH ROW EXECUTE FUNCTION ostraka_append_only()"
        )
        db.execute(
            f"CREATE TRIGGER ostraka_{name}_empty BEFORE TRUNCATE ON ostraka_{name} "
            "FOR EACH STATEMENT EXECUTE FUNCTION ostraka_append_only()"
        )


def upgrade(db: Any, version: int, path: str) -> None:
    """Bring an older format to the present one, inside a transaction of the caller, while nobody writes."""
    lock = "SELECT pg_try_advisory_xact_lock(('ostraka_budget'::regclass)::oid::bigint)"
    (alone,) = db.execute(lock).fetchone()
    if not alone:
        raise LedgerError(f"{path} has an older format, and is in use: stop the other program first")
    for number in range(version, VERSION):
        db.execute(UPGRADES[number])
    db.execute("ALTER TABLE ostraka_budget DISABLE TRIGGER ostraka_budget_change")
    db.execute("UPDATE ostraka_budget SET version = %s", (VERSION,))
    db.execute("ALTER TABLE ostraka_budget ENABLE TRIGGER ostraka_budget_change")


def shown(pg: Any, where: str) -> str:
    """Return server and database of an address, without user, password and other parts."""
    try:
        parts = pg.conninfo.conninfo_to_dict(where)
    except pg.Error:  # its message may quote a password
        parts = {}
    host, database = str(parts.get("host") or ""), str(parts.get("dbname") or "")
    if not parts or "@" in host:  # possibly part of a password
        raise LedgerError(
            "the address of the ledger cannot be read: type postgresql://user@host/database, with special "
            "characters as %XX, and keep the password in PGPASSFILE"
        )
    return f"postgresql://{'' if host.startswith('/') else host}/{database}"


def words(error: Exception) -> str:
    """Return the first line of PostgreSQL's message: later lines may quote a statement."""
    return f"PostgreSQL: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
