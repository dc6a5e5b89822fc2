"""Weights of RMIA's ratio in the hierarchical statistic, on data that no table of membership is about.

MNIST, Diabetes 130, SST-2 and AG News, with networks and comparisons of ``bench membership``. The weight of n
references is w m / (m + n). For each pair of w and m the command counts the comparisons of AUC and rates in
which the statistic lies below the best other method by more than the interval. Of the pairs with the fewest,
the library has the one which weighs the ratio most where there are two references.
"""

from __future__ import annotations

import csv
import gzip

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bench import _data, diabetes130, membership
from bench._data import folder
from ostraka.audit.attacks import membership as statistics

PAIRS = ((0.0, 1.0), (2.0, 30.0), (3.0, 16.0), (4.0, 8.0), (4.0, 16.0))
REFERENCES = (2, 4, 8, 31)
EPOCHS = {"mnist": 20, "diabetes": 60, "sst2": 20, "ag_news": 20}
SETTINGS: dict[str, object] = {}
QUICK = {
    "PAIRS": ((4.0, 8.0),),
    "REFERENCES": (4,),
    "EPOCHS": {"ag_news": 1},
    "SETTINGS": {"NETWORKS": 5, "TARGETS": 3, "DRAWS": 20},
}
COUNTS = tuple(diabetes130.EDGES)
KINDS = (
    "race",
    "gender",
    "age",
    "admission_type_id",
    "discharge_disposition_id",
    "admission_source_id",
    "max_glu_serum",
    "A1Cresult",
    "insulin",
    "change",
    "diabetesMed",
    "metformin",
)


def mnist() -> tuple[np.ndarray, np.ndarray]:
    """4,000 images, 10 digits."""
    parts = []
    for name, skip, shape in (("images-idx3", 16, (-1, 784)), ("labels-idx1", 8, (-1,))):
        with gzip.open(folder() / "mnist" / f"train-{name}-ubyte.gz") as file:
            parts.append(np.frombuffer(file.read(), np.uint8, offset=skip).reshape(shape)[:4_000])
    return parts[0] / np.float32(255), parts[1]


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    """4,000 patients, and whether they come back to the hospital."""
    rows: dict[str, dict[str, str]] = {}
    with gzip.open(folder() / "diabetes130" / "diabetic_data.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["patient_nbr"], row)
            if len(rows) == 4_000:
                break
    cells = np.array([[row[name] for name in (*COUNTS, *KINDS)] for row in rows.values()], dtype=object)
    numbers = list(range(len(COUNTS)))
    encode = make_column_transformer(
        (StandardScaler(), numbers),
        (
            OneHotEncoder(sparse_output=False, min_frequency=10, handle_unknown="infrequent_if_exist"),
            list(range(len(COUNTS), cells.shape[1])),
        ),
    )
    y = np.array([row["readmitted"] != "NO" for row in rows.values()])
    return np.asarray(encode.fit_transform(cells), dtype=np.float32), y.astype(int)


def sst2() -> tuple[np.ndarray, np.ndarray]:
    """3,000 phrases of twelve words and more as bags of words, and whether they praise."""
    with gzip.open(folder() / "sst2" / "train.tsv.gz", "rt", encoding="utf-8") as file:
        table = [line.rstrip("\n").split("\t") for line in file][1:]
    table = [row for row in table if len(row[0].split()) >= 12]
    return _bags([table[row] for row in np.random.default_rng(0).permutation(len(table))[:3_000]], text=0)


def ag_news() -> tuple[np.ndarray, np.ndarray]:
    """2,000 reports as bags of the words that occur twice, 4 topics."""
    with gzip.open(folder() / "ag_news" / "train.csv.gz", "rt", encoding="utf-8") as file:
        return _bags(list(csv.reader(file))[1 : 1 + (_data.MOST_ROWS or 2_000)], text=1)


def _bags(table: list[list[str]], *, text: int) -> tuple[np.ndarray, np.ndarray]:
    bags = CountVectorizer(min_df=2, binary=True).fit_transform([row[text] for row in table])
    return bags.toarray().astype(np.float32), np.array([row[1 - text] for row in table])


def main() -> None:
    """All data sets and pairs."""
    for setting, value in SETTINGS.items():
        setattr(membership, setting, value)
    below = dict.fromkeys(PAIRS, 0)
    defaults = statistics.RATIO_WEIGHT, statistics.RATIO_MODELS
    for name, epochs in EPOCHS.items():
        models = membership.trained(name, *globals()[name](), epochs=epochs)
        for n_references in REFERENCES:
            for pair in PAIRS:
                statistics.RATIO_WEIGHT, statistics.RATIO_MODELS = pair
                table = membership.rates(models, n_references)
                sentences = [membership.against_the_best(table, column) for column in range(3)]
                below[pair] += sum(sentence.endswith("below") for sentence in sentences)
                print(f"  {n_references} references, w and m {pair}: " + "; ".join(sentences), flush=True)
    statistics.RATIO_WEIGHT, statistics.RATIO_MODELS = defaults
    for pair, count in below.items():
        print(f"w and m {pair}: below by more than the interval in {count} comparisons")
