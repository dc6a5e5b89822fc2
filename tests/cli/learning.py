"""Tables, commands and interruptions for the tests of ``ostraka learn``."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from ostraka import Ledger
from ostraka.console import Stages
from tests.cli.terminal import Said, typed

CANARY = "canary7391"
FILES = {
    *("student.skops", "model-card.md", "result.json", "privacy-label.json", "labels.parquet"),
    *("ledger.sqlite", "ledger.sqlite.secret", "report.html", "manifest.json", "plan.json"),
}
HAS_ONNX = find_spec("onnx") is not None
COMMON = ("--label", "ill", "--teachers", "40", "--epsilon", "3", "--answers", "20")


def rows(n: int, *, seed: int) -> dict[str, list]:
    """Whoever is old or smokes is mostly ill; two rows a person."""
    rng = np.random.default_rng(seed)
    age, smokes = rng.integers(20, 80, n), rng.random(n) < 0.4
    ill = age + 30 * smokes + rng.normal(0, 8, n) > 60
    return {
        "who": [f"{CANARY}-{k // 2}" for k in range(n)],
        "age": age.tolist(),
        "smokes": np.where(smokes, "yes", "no").tolist(),
        "ill": np.where(ill, "sick", "well").tolist(),
    }


def csv(table: dict[str, list]) -> str:
    return "\n".join(
        [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    )


def tables(folder: Path) -> Path:
    """A private CSV, and public rows as Parquet with and without labels."""
    (folder / "private.csv").write_text(csv(rows(600, seed=0)) + "\n")
    public = rows(200, seed=1)
    parquet.write_table(pa.table(public).drop_columns("who"), folder / "labelled.parquet")
    parquet.write_table(pa.table(public).drop_columns(["who", "ill"]), folder / "public.parquet")
    return folder


def learn(*arguments: object, verb: str = "learn", unexpected: bool = False) -> Said:
    """Exit code, stdout and stderr, neither of which may hold a private cell."""
    run = typed(verb, *arguments, "--yes", unexpected=unexpected)
    assert CANARY not in run.out + run.err
    return run


def person(*options: object, public: str = "labelled.parquet", **how: bool) -> Said:
    """The command of the quick start, on small tables."""
    return learn("private.csv", *COMMON, "--public", public, "--person", "who", *options, **how)


def charges(folder) -> list:
    with Ledger(folder / "run" / "ledger.sqlite") as ledger:
        return list(ledger.entries())


def interrupt_at(monkeypatch, stage: str, at: int) -> None:
    called = Stages.__call__

    def stop(self, name, done, total):
        called(self, name, done, total)
        if name == stage and done >= at:
            raise KeyboardInterrupt

    monkeypatch.setattr(Stages, "__call__", stop)
