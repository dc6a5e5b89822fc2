"""One other generator of tables on coded rows, in its own environment: no import of ostraka.

``PYTHON bench/_synth_rival.py NAME FOLDER EPSILON DELTA SEED SECONDS [CHECKOUT]`` reads ``codes.csv`` and
``sizes.csv`` of the folder, and writes ``copy-NAME-EPSILON-SEED.csv`` there; of a model that only predicts,
the chances of the rows of ``real.csv``. It prints one line of JSON: versions, and seconds of processor time
from the coded rows to the copy, imports included. The system ends it after SECONDS of processor time.
``CHECKOUT`` is one of ``private-pgm``. ``python -m bench synth_rivals`` calls it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

MEBIBYTES = {
    "0.1": 80.0,
    "1": 1.0,
    "3": 1.0,
}  # of AIM's model; its authors' default is 80, their trials have 1
_LABEL = "income"


def read(folder: Path, name: str) -> tuple[list[str], np.ndarray]:
    """Names of columns, and rows."""
    with (folder / f"{name}.csv").open() as file:
        names = file.readline().strip().split(",")
    return names, np.loadtxt(folder / f"{name}.csv", dtype=np.int64, delimiter=",", skiprows=1, ndmin=2)


def former() -> None:
    """What AIM's code of 2024 imports and is not in the registry, and a quick log-sum-exp of its factors."""
    import mbi.factor
    from scipy import sparse

    def logsumexp(values: np.ndarray, axis: Any = None) -> Any:
        largest = np.max(values, axis=axis, keepdims=True)
        largest = np.where(np.isfinite(largest), largest, 0.0)
        with np.errstate(divide="ignore"):
            sums = np.log(np.sum(np.exp(values - largest), axis=axis))
        return sums + np.squeeze(largest, axis=axis)

    mbi.factor.logsumexp = logsumexp
    for name, member, value in (
        ("hdmm.matrix", "Identity", sparse.eye),
        ("autodp", "privacy_calibrator", None),  # of Laplace noise, which is not asked for
    ):
        package, _, _ = name.partition(".")
        sys.modules.setdefault(package, ModuleType(package))
        module = sys.modules.setdefault(name, ModuleType(name))
        setattr(module, member, value)


def dataset(names: list[str], rows: np.ndarray, sizes: np.ndarray) -> Any:
    """Rows as ``mbi`` has them, in its form of 2024 or of later."""
    import mbi
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]

    if hasattr(mbi, "FactoredInference"):
        former()
    domain = mbi.Domain(names, [int(size) for size in sizes])
    try:
        return mbi.Dataset(pd.DataFrame(rows, columns=names), domain)
    except (TypeError, ValueError, AttributeError):
        return mbi.Dataset({name: rows[:, j] for j, name in enumerate(names)}, domain)


def coded(names: list[str], data: Any) -> np.ndarray:
    """Codes of a copy in the order of the columns."""
    table = data.df if hasattr(data, "df") else data.to_dict()
    return np.column_stack([np.asarray(table[name], dtype=np.int64) for name in names])


def aim(names: list[str], rows: np.ndarray, sizes: np.ndarray, settings: Any) -> np.ndarray:
    """McKenna et al. 2022: all triples are the workload."""
    data = dataset(names, rows, sizes)
    from aim import AIM

    workload = [(columns, 1.0) for columns in combinations(names, 3)]
    mebibytes = MEBIBYTES.get(f"{settings.epsilon:g}", 1.0)
    mechanism = AIM(settings.epsilon, settings.delta, max_model_size=mebibytes)
    mechanism.prng = np.random  # which main has seeded
    _, copy = mechanism.run(data, workload, num_synth_rows=len(rows))
    return coded(names, copy)


def mst(names: list[str], rows: np.ndarray, sizes: np.ndarray, settings: Any) -> np.ndarray:
    """McKenna, Miklau and Sheldon 2021: a tree of pairs."""
    from mst import MST

    return coded(names, MST(dataset(names, rows, sizes), settings.epsilon, settings.delta))


def patectgan(names: list[str], rows: np.ndarray, sizes: np.ndarray, settings: Any) -> np.ndarray:
    """SmartNoise's PATE-CTGAN, with its defaults; all columns are categories."""
    import pandas as pd  # type: ignore[import-untyped,unused-ignore]
    from snsynth import Synthesizer

    table = pd.DataFrame(rows, columns=names)
    synthesizer = Synthesizer.create("patectgan", epsilon=settings.epsilon, delta=settings.delta)
    synthesizer.fit(table, categorical_columns=names, preprocessor_eps=0.0)
    copy = synthesizer.sample(len(rows))
    limits = np.asarray(sizes) - 1
    return np.clip(np.asarray(copy[names], dtype=np.int64), 0, limits)


def dp_ebm(names: list[str], rows: np.ndarray, sizes: np.ndarray, settings: Any) -> np.ndarray:
    """DP-EBM of InterpretML: boosted sums of bins; it predicts, and there is no copy."""
    from interpret.privacy import DPExplainableBoostingClassifier

    label = names.index(_LABEL)
    bounds = {str(k): (0, int(size) - 1) for k, size in enumerate(np.delete(sizes, label))}
    X, y = np.delete(rows, label, axis=1), rows[:, label]
    model = DPExplainableBoostingClassifier(
        epsilon=settings.epsilon,
        delta=settings.delta,
        random_state=settings.seed,
        feature_types=["nominal"] * X.shape[1],
        feature_names=list(bounds),
        privacy_bounds=bounds,
    ).fit(X.astype(str), y)
    _, real = read(settings.folder, "real")
    return np.asarray(model.predict_proba(np.delete(real, label, axis=1).astype(str))[:, 1])


RIVALS = {"aim": aim, "aim_today": aim, "mst": mst, "patectgan": patectgan, "dp_ebm": dp_ebm}
PACKAGES = ("mbi", "jax", "numpy", "scipy", "smartnoise-synth", "torch", "interpret-core")


class Settings:
    """What the command line says."""

    def __init__(self, words: list[str]) -> None:
        self.name, folder, epsilon, delta, seed, seconds, *checkout = words
        self.folder, self.checkout = Path(folder), checkout
        self.epsilon, self.delta, self.seed = float(epsilon), float(delta), int(seed)
        self.most_seconds = int(seconds)


def main(words: list[str]) -> None:
    """Run one generator, once."""
    settings = Settings(words)
    resource.setrlimit(resource.RLIMIT_CPU, (settings.most_seconds, settings.most_seconds + 10))
    for checkout in settings.checkout:
        sys.path[:0] = [f"{checkout}/src", f"{checkout}/mechanisms", checkout]
    names, rows = read(settings.folder, "codes")
    _, sizes = read(settings.folder, "sizes")
    np.random.seed(settings.seed)  # noqa: NPY002  (what these libraries draw from)
    start = time.process_time()
    table = RIVALS[settings.name](names, rows, sizes[0], settings)
    seconds = time.process_time() - start
    kind = "chances" if table.ndim == 1 else "copy"
    path = settings.folder / f"{kind}-{settings.name}-{settings.epsilon:g}-{settings.seed}.csv"
    form = "%.6g" if table.ndim == 1 else "%d"
    np.savetxt(
        path,
        table,
        fmt=form,
        delimiter=",",
        header="chance" if table.ndim == 1 else ",".join(names),
        comments="",
    )
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    print(json.dumps({"file": path.name, "seconds": seconds, "versions": versions}))


if __name__ == "__main__":
    main(sys.argv[1:])
