"""``ostraka sample``: write tables of a made-up hospital for trying out the commands."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

from ostraka import console
from ostraka.console import argument, option, verb

_WARDS = ("surgery", "heart", "children", "lungs")


@verb()
def sample(
    folder: Path = argument(..., "Where to write private.csv and public.csv.", "FOLDER"),
    *,
    rows: int = option(12_000, "Rows of private.csv.", "N", min=100),
    seed: int = option(0, "Of the made-up rows.", "N", min=0),
    as_json: bool = option(False, "Print JSON on stdout.", name="--json"),
) -> None:
    """Write two tables of made-up hospital visits: a private one, and a public one.

    Example: ostraka sample tables --rows 12000
    """
    import numpy as np

    for name in ("private", "public"):
        console.require_new(folder / f"{name}.csv", option="FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    for name, n_rows, number in (("private", rows, seed), ("public", max(500, rows // 6), seed + 1)):
        # the visits of patients, about three each; public ones have no names
        rng = np.random.default_rng(number)
        patient = np.sort(rng.integers(0, n_rows // 3, n_rows))
        age = rng.integers(18, 95, n_rows // 3)[patient]
        ward = rng.choice(_WARDS, n_rows)
        days = 1 + rng.poisson(4, n_rows)
        drugs = rng.poisson(1 + age / 25)
        risk = (age - 60) / 15 + (days - 5) / 3 + (drugs - 3) / 3 + (ward == "heart") - 0.4
        again = np.where(rng.random(n_rows) < 1 / (1 + np.exp(-2 * risk)), "yes", "no")
        columns: dict[str, Any] = {"patient": [f"p{k:05d}" for k in patient]} if name == "private" else {}
        columns |= {"age": age, "ward": ward, "days": days, "drugs": drugs, "readmitted": again}
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf8")
    private, public = folder / "private.csv", folder / "public.csv"
    files = f"{quote(str(private))} --label readmitted --public {quote(str(public))}"
    learn = f"ostraka learn {files} --person patient"
    words = f"{private} and {public} hold made-up visits. Learn who comes back:\n{learn}"
    record = {"private": str(private), "public": str(public), "rows": rows, "seed": seed, "learn": learn}
    console.say(record, words, as_json=as_json)
