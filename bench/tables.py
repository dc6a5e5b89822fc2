"""Ours against rivals on 34 real tables, with fixed splits; half of the first 24 chose the settings.

``python -m bench tables`` fetches the tables into a cache (``bench/_tables.py``), runs what is not in the
cache's ``results.jsonl`` yet, and prints every table and the paired differences. All methods get the same
rows, epsilon, delta = 1 / (10 rows) and neighbouring relation. Scores are areas under the curve; with more
than two classes the mean over classes, each against the rest.

- filter, counts: ``PATEClassifier`` with its defaults for this way.
- descent: noisy gradient descent on all rows for logistic regression, 30 rounds of rate 16, one setting for
  all tables; scales and categories from public rows.
- diffprivlib: its logistic regression, where it is installed; pure epsilon.
- ebm: the explainable boosting machine with privacy of interpret, where it is installed, for rows that are
  left out; ranges of numbers from public rows.
- opacus: its noisy gradient descent for logistic regression, where it is installed, for rows that are left
  out: 300 steps, each of about a twentieth of the rows, one rate for all tables.
- logistic, boosting: scikit-learn without privacy.

``OSTRAKA_BENCHMARK_FIGURE=ranks.svg`` draws the mean ranks, too, and which of them do not differ.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, softmax
from scipy.stats import rankdata
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from bench import _tables
from ostraka import PATEClassifier
from ostraka.accounting import calibrate
from ostraka.mechanisms import NoisyCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench._tables import Split

QUICK = {"SEEDS": 1, "EPSILONS": (1.0,), "GROUPS": {"settings": ("spam7",), "reported": ("wells",)}}
SEEDS, EPSILONS = 5, (0.25, 1.0, 3.0)
RELATIONS = ("zero-out", "replace-one")
GROUPS = {
    "settings": tuple(_tables.SETTINGS),
    "reported": tuple(_tables.REPORTED),
    "new": tuple(_tables.NEW),
}
_ROUNDS, _RATE = 30, 16.0
_EPOCHS, _SHARE, _OPACUS_RATE = 15, 1 / 20, 1.0  # the rate was chosen on spam7, mlc_churn and mpls
_ONLY = {"diffprivlib": "replace-one", "ebm": "zero-out", "opacus": "zero-out"}  # what a rival promises
_STUDENTIZED = (1.960, 2.343, 2.569, 2.728, 2.850)  # range of 2 to 6 ranks at 5 %, divided by sqrt(2)


def by_ours(method: str, rows: Split, epsilon: float, delta: float, relation: str) -> np.ndarray:
    """Probabilities of the rows to score on."""
    model = PATEClassifier(
        way=method,
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        classes=range(rows.n_classes),
        allow_overlap=True,
    )
    model.fit(rows.private, rows.y, X_public=rows.public)
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(rows.tested))
    return np.eye(rows.n_classes)[model.predict(rows.tested)]


def descent(rows: Split, epsilon: float, delta: float, relation: str, seed: int) -> np.ndarray:
    """Noisy gradient descent: rows of length 1 at most, all of them in each round."""
    private, _, tested = numeric(rows)
    lines, new = (_shortened(rows_of_part) for rows_of_part in (private, tested))
    targets = np.eye(rows.n_classes)[rows.y]
    if rows.n_classes == 2:
        targets = targets[:, 1:]
    longest = (1.0 if rows.n_classes == 2 else math.sqrt(2)) * (1 if relation == "zero-out" else 2)
    unit = 1000.0  # the exact price of Gaussian noise, from the discrete one on a fine grid
    sigma = calibrate(
        lambda s: NoisyCounts(sigma=s, l2=unit, relation=relation),
        n_answers=_ROUNDS,
        epsilon=epsilon,
        delta=delta,
    )
    noise = np.random.default_rng(seed)
    coef = np.zeros((lines.shape[1], targets.shape[1]))
    for _ in range(_ROUNDS):
        gradient = lines.T @ (targets - _sure(lines @ coef))
        gradient += longest * sigma / unit * noise.normal(size=coef.shape)
        coef += _RATE * gradient / len(lines)
    sure = _sure(new @ coef)
    return np.hstack([1 - sure, sure]) if rows.n_classes == 2 else sure


def _sure(odds: np.ndarray) -> np.ndarray:
    return np.asarray(expit(odds) if odds.shape[1] == 1 else softmax(odds, axis=1))


def _shortened(table: np.ndarray) -> np.ndarray:
    """Rows and their intercept, shortened to a length of one."""
    extended = np.hstack([table, np.ones((len(table), 1))])
    return np.asarray(extended / np.maximum(1, np.linalg.norm(extended, axis=1, keepdims=True)))


def numeric(rows: Split) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Private, public and other rows as standardised numbers and zeros and ones, all by public rows."""
    parts: list[list[np.ndarray]] = [[], [], []]
    frames = (rows.private, rows.public, rows.tested)
    for name in rows.public:
        if rows.public[name].dtype.kind in "ifu":
            columns = [frame[name].to_numpy(dtype=float) for frame in frames]
            numbers = columns[1][np.isfinite(columns[1])]
            if not len(numbers):
                continue
            low, high = np.quantile(numbers, [0.005, 0.995])
            clipped = np.clip(numbers, low, high)
            spread = max(float(clipped.std()), 1e-9)
            for part, column in zip(parts, columns, strict=True):
                filled = np.where(np.isfinite(column), np.clip(column, low, high), np.median(numbers))
                part.append((filled - clipped.mean()) / spread)
        else:
            texts = [frame[name].astype(object).map(str).to_numpy(dtype=str) for frame in frames]
            kinds, times = np.unique(texts[1], return_counts=True)
            for kind in kinds[np.argsort(-times)][:60]:
                for part, text in zip(parts, texts, strict=True):
                    part.append((text == kind) * 1.0)
    private, public, tested = (np.stack(part, axis=1) for part in parts)
    return private, public, tested


def without_privacy(name: str, rows: Split) -> np.ndarray:
    """Logistic regression or boosted trees on the private rows as they are."""
    private, _, tested = numeric(rows)
    model = LogisticRegression(max_iter=500) if name == "logistic" else HistGradientBoostingClassifier()
    return np.asarray(model.fit(private, rows.y).predict_proba(tested))


def by_diffprivlib(rows: Split, epsilon: float) -> np.ndarray:
    """Logistic regression by objective perturbation; with several classes they share epsilon."""
    from diffprivlib.models import LogisticRegression as PrivateLogistic

    private, _, tested = numeric(rows)
    model = PrivateLogistic(epsilon=epsilon, data_norm=1.0).fit(_shortened(private), rows.y)
    return np.asarray(model.predict_proba(_shortened(tested)))


def by_ebm(rows: Split, epsilon: float, delta: float, seed: int) -> np.ndarray:
    """DP-EBM (Nori et al. 2021, arXiv:2106.09680) with its defaults; categories are of public rows."""
    from interpret.privacy import DPExplainableBoostingClassifier

    private, public, tested = numeric(rows)
    model = DPExplainableBoostingClassifier(
        epsilon=epsilon,
        delta=delta,
        privacy_bounds=np.stack([public.min(axis=0), public.max(axis=0)], axis=1),
        feature_types=["continuous"] * private.shape[1],
        random_state=seed,
        n_jobs=1,
    )
    return np.asarray(model.fit(private, rows.y).predict_proba(tested))


def by_opacus(rows: Split, epsilon: float, delta: float, seed: int) -> np.ndarray:
    """Logistic regression by Opacus: rows of length 1 at most, Poisson batches, its own price."""
    import torch
    from opacus import PrivacyEngine

    private, _, tested = numeric(rows)
    lines, new = (torch.tensor(_shortened(table), dtype=torch.float32) for table in (private, tested))
    torch.manual_seed(seed)
    linear = torch.nn.Linear(lines.shape[1], rows.n_classes, bias=False)
    torch.nn.init.zeros_(linear.weight)
    batches = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(lines, torch.tensor(rows.y)), batch_size=int(_SHARE * len(lines))
    )
    model, optimizer, batches = PrivacyEngine(accountant="prv").make_private_with_epsilon(
        module=linear,
        optimizer=torch.optim.SGD(linear.parameters(), lr=_OPACUS_RATE),
        data_loader=batches,
        epochs=_EPOCHS,
        target_epsilon=epsilon,
        target_delta=delta,
        max_grad_norm=1.0,
    )
    for _ in range(_EPOCHS):
        for batch, labels in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), labels).backward()
            optimizer.step()
    with torch.no_grad():
        return torch.softmax(linear(new), dim=1).numpy()


def methods() -> dict[str, Callable[..., np.ndarray]]:
    """What is compared; a function of rows, epsilon, delta, relation and seed."""
    by_name: dict[str, Callable[..., np.ndarray]] = {
        "filter": lambda rows, epsilon, delta, relation, _: by_ours("filter", rows, epsilon, delta, relation),
        "counts": lambda rows, epsilon, delta, relation, _: by_ours("counts", rows, epsilon, delta, relation),
        "descent": descent,
    }
    if importlib.util.find_spec("diffprivlib"):
        by_name["diffprivlib"] = lambda rows, epsilon, *_: by_diffprivlib(rows, epsilon)
    if importlib.util.find_spec("interpret"):
        by_name["ebm"] = lambda rows, epsilon, delta, _, seed: by_ebm(rows, epsilon, delta, seed)
    if importlib.util.find_spec("opacus"):
        by_name["opacus"] = lambda rows, epsilon, delta, _, seed: by_opacus(rows, epsilon, delta, seed)
    return by_name


def runs() -> Iterator[tuple[str, int, float, str, str]]:
    """Table, seed, epsilon, relation and method of everything that is measured."""
    for names in GROUPS.values():
        for name in names:
            for seed in range(SEEDS):
                for method in ("logistic", "boosting"):
                    yield name, seed, math.inf, "none", method
                for epsilon in EPSILONS:
                    for relation in RELATIONS:
                        for method in methods():
                            if relation == _ONLY.get(method, relation):
                                yield name, seed, epsilon, relation, method


def measured(name: str, seed: int, epsilon: float, relation: str, method: str) -> dict[str, Any]:
    """One run: area, accuracy, log loss and seconds of processor."""
    rows = _tables.split(name, seed)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if relation == "none":
            sure = without_privacy(method, rows)
        else:
            sure = methods()[method](rows, epsilon, 1 / (10 * len(rows.y)), relation, seed)
    seconds = time.process_time() - start
    truth, kinds = rows.truth, range(rows.n_classes)
    area = np.mean([roc_auc_score(truth == k, sure[:, k]) for k in kinds])
    return {
        "auc": round(float(area), 4),
        "accuracy": round(float((sure.argmax(axis=1) == truth).mean()), 4),
        "log_loss": round(float(log_loss(truth, np.clip(sure, 1e-6, 1), labels=list(kinds))), 4),
        "seconds": round(seconds, 2),
    }


def main() -> None:
    """Run what is missing, and print all of it."""
    path = _tables.folder() / ("quick.jsonl" if len(EPSILONS) == 1 else "results.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    areas: dict[tuple[Any, ...], dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            run, result = json.loads(line)
            areas[tuple(run)] = result
    for run in runs():
        if run not in areas:
            areas[run] = measured(*run)
            with path.open("a") as file:
                file.write(json.dumps([run, areas[run]]) + "\n")
            print(*run, areas[run], file=sys.stderr, flush=True)
    show(areas)


def show(areas_by_case: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    """Print areas of every table, and differences from ours over tables with their standard errors."""
    means: dict[tuple[Any, ...], float] = {}
    seeds = defaultdict(list)
    ranked: dict[str, tuple[dict[str, float], float]] = {}
    for (name, _, *what), result in areas_by_case.items():
        seeds[(name, *what)].append(result["auc"])
    means = {run: float(np.mean(areas)) for run, areas in seeds.items()}
    for relation in RELATIONS:
        names = [method for method in methods() if any(run[2:] == (relation, method) for run in means)]
        print(f"\n{relation}: areas at epsilon {', '.join(map(str, EPSILONS))}\n")
        print("| table | " + " | ".join(names) + " | logistic, boosting without privacy |")
        print("|---" * (len(names) + 2) + "|")
        for group, tables in GROUPS.items():
            for name in tables:
                if (name, EPSILONS[0], relation, "filter") not in means:
                    continue
                cells = [" ".join(_area(means, name, e, relation, m) for e in EPSILONS) for m in names]
                alone = " ".join(_area(means, name, math.inf, "none", m) for m in ("logistic", "boosting"))
                print(f"| {name} ({group}) | " + " | ".join([*cells, alone]) + " |")
        print(
            f"\n{relation}: the filter less each rival, mean ± standard error over tables; ahead or level\n"
        )
        print("| tables | epsilon | " + " | ".join(names[1:]) + " | best rival |")
        print("|---" * (len(names) + 2) + "|")
        for group, tables in (*GROUPS.items(), ("settings and reported", sum(list(GROUPS.values())[:2], ()))):
            for epsilon in EPSILONS:
                ours = np.array([means.get((t, epsilon, relation, "filter"), np.nan) for t in tables])
                rivals = np.array(
                    [[means.get((t, epsilon, relation, m), np.nan) for t in tables] for m in names[1:]]
                )
                complete = np.isfinite(ours) & np.isfinite(rivals).all(axis=0)
                if not complete.any():
                    continue
                ours, rivals = ours[complete], rivals[:, complete]
                differences = [_difference(ours - rival) for rival in (*rivals, rivals.max(axis=0))]
                print(f"| {group} | {epsilon:g} | " + " | ".join(differences) + " |")
        for epsilon in EPSILONS:
            areas = np.array(
                [
                    [means.get((t, epsilon, relation, m), np.nan) for m in names]
                    for t in sum(GROUPS.values(), ())
                ]
            )
            rank, apart, n_tables = ranks(areas)
            if n_tables:
                listed = ", ".join(f"{names[k]} {rank[k]:.2f}" for k in np.argsort(rank))
                print(
                    f"\n{relation}, epsilon {epsilon:g}: mean ranks {listed} over {n_tables} tables; "
                    f"{apart:.2f} apart is significant"
                )
                ranked[f"{relation}, ε = {epsilon:g}"] = dict(zip(names, rank, strict=True)), apart
    if (figure := os.environ.get("OSTRAKA_BENCHMARK_FIGURE")) and ranked:
        draw(ranked, Path(figure))


def ranks(areas: np.ndarray) -> tuple[np.ndarray, float, int]:
    """Mean ranks of methods over tables that have all of them, how far two must be apart, and these tables.

    The distance is significant at 5 % (Nemenyi's test).
    Source: Demšar 2006, https://jmlr.org/papers/v7/demsar06a.html, Sec. 3.2.2.

    >>> rank, apart, n_tables = ranks(np.array([[0.9, 0.8], [0.9, 0.7], [0.8, 0.9], [0.9, 0.1]]))
    >>> rank.tolist(), round(apart, 2), n_tables
    ([1.25, 1.75], 0.98, 4)
    """
    complete = areas[np.isfinite(areas).all(axis=1)]
    n_methods, n_tables = areas.shape[1], len(complete)
    if not 2 <= n_methods <= len(_STUDENTIZED) + 1 or not n_tables:
        return np.full(n_methods, np.nan), math.nan, 0
    apart = _STUDENTIZED[n_methods - 2] * math.sqrt(n_methods * (n_methods + 1) / (6 * n_tables))
    return rankdata(-complete, axis=1).mean(axis=0), apart, n_tables


def draw(ranked: dict[str, tuple[dict[str, float], float]], path: Path) -> None:
    """Mean ranks, a line for each setting; bars join methods that do not differ significantly."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        len(ranked), 1, figsize=(8, 1.5 * len(ranked)), layout="constrained", squeeze=False
    )
    for (setting, (rank, apart)), axis in zip(ranked.items(), axes[:, 0], strict=True):
        order = sorted(rank, key=rank.__getitem__)
        for place, name in enumerate(order):
            axis.plot(rank[name], 0, "o", color="#123a5c")
            above = 8 + 13 * (place % 2)  # names of near ranks do not cover each other
            label = f"{name} {rank[name]:.2f}"
            axis.annotate(label, (rank[name], 0), (0, above), textcoords="offset points", ha="center")
        depth, last = 0.0, -1
        for first, name in enumerate(order):
            end = max(k for k in range(len(order)) if rank[order[k]] - rank[name] < apart)
            if end > max(first, last):
                depth, last = depth - 0.5, end
                axis.plot([rank[name], rank[order[end]]], [depth, depth], color="#b03a2e", linewidth=4)
        axis.set(
            title=f"{setting}: {apart:.2f} apart is significant",
            xlim=(0.8, len(order) + 0.2),
            ylim=(-1.8, 3),
        )
        axis.set_yticks([])
        axis.spines[["left", "right", "top"]].set_visible(False)
    axes[-1, 0].set_xlabel("mean rank over tables: 1 is best")
    figure.savefig(path)


def _area(means: dict[tuple[Any, ...], float], *run: Any) -> str:
    return f"{means[run]:.3f}" if run in means else "–"


def _difference(apart: np.ndarray) -> str:
    error = apart.std(ddof=1) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
    level = int((apart >= -0.005).sum())
    return f"{apart.mean():+.3f} ± {error:.3f}; {level} of {len(apart)}"
