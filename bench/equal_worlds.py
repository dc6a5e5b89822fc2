"""Null calibration of membership statistics: AUC and rates of equal worlds, inside exact bands.

Rows differ in level and spread, and all models are certain of some. A fair coin for each row, independent of
all else, decides whether it is in the target. Then the ranks of members are random, so that the rank sum has
a known mean and variance. The number of members above the r-th highest other follows the negative
hypergeometric law, so that this number over all runs has an exact law.
Each figure is outside its band once in 10^9 runs of correct code. The command fails if one is outside.
"""

from __future__ import annotations

import time

import numpy as np
from scipy import stats

from ostraka.attacks import ReferenceModels
from ostraka.audit.attacks.membership import draw_coins

RUNS, ROWS, REFERENCES = 1_000, 2_100, (2, 4, 8, 16, 31)
METHODS = ("hierarchical", "lira", "lira-fixed", "rmia", "student-t", "loss")
RATES = (0.001, 0.01)
FALSE_ALARM = 1e-9
QUICK = {"RUNS": 3, "ROWS": 300, "REFERENCES": (4,)}


def world(rng: np.random.Generator, n_models: int, n_rows: int) -> np.ndarray:
    """Confidences of a target (first) and references that know nothing of memberships."""
    level, spread = rng.normal(1, 2, n_rows), np.exp(rng.normal(0, 0.5, n_rows))
    logits = level + spread * rng.standard_t(4, size=(n_models + 1, n_rows))
    logits[:, rng.random(n_rows) < 0.02] = np.inf  # all models are certain of these
    return np.asarray(1 / (1 + np.exp(-logits)))


def coins(rng: np.random.Generator, n_models: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are in the target, and in each of the references."""
    return rng.random(n_rows) < 0.5, draw_coins(rng, n_models, n_rows)


def detected(statistic: np.ndarray, member: np.ndarray, n_others: int, *, tie: np.ndarray) -> int:
    """Members above the (n_others + 1)-th highest other; ties are broken by lots that ignore membership."""
    order = member[np.lexsort((tie, -statistic))]
    return int(order[: np.flatnonzero(~order)[n_others]].sum())


def runs(
    n_models: int, n_runs: int, n_rows: int, *, seed: int
) -> tuple[dict[str, np.ndarray], list[tuple[int, int]]]:
    """AUC, and members detected at each rate, (n_runs, 1 + n_rates), of each method; members and others."""
    rng = np.random.default_rng((seed, n_models))
    rates: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    sizes = []
    for _ in range(n_runs):
        confidences = world(rng, n_models, n_rows)
        (member, included), tie = coins(rng, n_models, n_rows), rng.random(n_rows)
        models = ReferenceModels.from_confidences(confidences[1:], included)
        sizes.append((int(member.sum()), int((~member).sum())))
        for method in METHODS:
            statistic = models.statistics(confidences[0], method=method)
            ranks = stats.rankdata(statistic)[member].sum()
            auc = (ranks - sizes[-1][0] * (sizes[-1][0] + 1) / 2) / (sizes[-1][0] * sizes[-1][1])
            hits = [detected(statistic, member, int(rate * sizes[-1][1]), tie=tie) for rate in RATES]
            rates[method].append([auc, *hits])
    return {method: np.array(rows) for method, rows in rates.items()}, sizes


def auc_band(sizes: list[tuple[int, int]]) -> tuple[float, float]:
    """Of the mean AUC, by the rank sum's variance without ties, which ties only make smaller."""
    variance = sum((m + n + 1) / (12 * m * n) for m, n in sizes) / len(sizes) ** 2
    half = stats.norm.isf(FALSE_ALARM / 2) * np.sqrt(variance)
    return 0.5 - half, 0.5 + half


def hits_band(sizes: list[tuple[int, int]], rate: float) -> tuple[int, int]:
    """Of the members detected in all runs, by convolution of their exact laws."""
    allowed = [int(rate * n) for _, n in sizes]
    mean = sum((r + 1) * m / (n + 1) for (m, n), r in zip(sizes, allowed, strict=True))
    length = 1 << int(np.ceil(np.log2(3 * mean + 400)))  # so far above the mean that nothing wraps around
    log_law = np.zeros(length // 2 + 1, dtype=np.complex128)
    for (m, n), r in zip(sizes, allowed, strict=True):
        law = stats.nhypergeom.pmf(np.arange(min(m, length - 1) + 1), m + n, m, r + 1)
        log_law += np.log(np.fft.rfft(law, length))
    below = np.cumsum(np.fft.irfft(np.exp(log_law), length))
    low = int(np.searchsorted(below, FALSE_ALARM / 2))
    return low, int(np.searchsorted(below, 1 - FALSE_ALARM / 2))


def outside(n_models: int, n_runs: int, n_rows: int, *, seed: int, show: bool = False) -> list[str]:
    """The figures that are not inside their band, and how far."""
    rates, sizes = runs(n_models, n_runs, n_rows, seed=seed)
    bands = [auc_band(sizes), *(hits_band(sizes, rate) for rate in RATES)]
    members, wrong = sum(m for m, _ in sizes), []
    for method, rows in rates.items():
        figures = [rows[:, 0].mean(), *rows[:, 1:].sum(axis=0)]
        lines = []
        for name, value, (low, high) in zip(("AUC", *RATES), figures, bands, strict=True):
            scale = 1 if name == "AUC" else members
            text = f"{name if name == 'AUC' else f'TPR at {name:.1%}'} {value / scale:.5f}"
            lines.append(f"{text} [{low / scale:.5f}, {high / scale:.5f}]")
            if not low <= value <= high:
                wrong.append(f"{n_models} references, {method}: {lines[-1]}")
        if show:
            print(f"  {method}: {', '.join(lines)}", flush=True)
    return wrong


def main() -> None:
    """All numbers of references."""
    wrong = []
    for n_models in REFERENCES:
        start = time.process_time()
        print(f"{n_models} references, {RUNS:,} runs of {ROWS:,} rows; in brackets the band")
        wrong += outside(n_models, RUNS, ROWS, seed=0, show=True)
        print(f"  ({time.process_time() - start:.0f} s CPU)", flush=True)
    if wrong:
        raise RuntimeError("outside their bands: " + "; ".join(wrong))
    print("all inside their bands")
