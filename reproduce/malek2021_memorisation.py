"""Label memorisation as Malek et al. 2021 (arXiv:2106.03408) report it: table 1's last column, and figure 1.

``python -m reproduce.malek2021_memorisation [--draws N] [--out FOLDER]`` prints the tables from the
authors' saved confidences: their interval, computed as they do, bounds that hold, and how often each errs.
Where a folder is given, the record and the figure drawn from it are written there.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench._data import folder
from ostraka.attacks import Canaries
from ostraka.audits import one_run_lower_bound
from ostraka.core.result import Result
from reproduce import _drawing

if TYPE_CHECKING:
    from ostraka.audit.bound import Bound

AT = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # the authors' thresholds
FIGURE_AT = 0.99  # the one that the paper names
PATE_DELTA = 1e-5
QUICK: dict[str, object] = {}
QUICK_ARGUMENTS = ["--draws=1"]
SHORT = {"Very high": "HH", "High": "H", "Medium": "M", "Low": "L"}  # as saved
FIGURE_1 = ("cifar100_RR_H", "cifar100_PATE_H")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of table 1, and where its confidences are saved."""

    data: str
    level: str
    algorithm: str
    accuracy: float
    epsilon: float
    printed: tuple[float, float]

    @property
    def delta(self) -> float:
        return PATE_DELTA if self.algorithm == "PATE-FM" else 0.0

    @property
    def saved(self) -> str:
        kind = "PATE" if self.algorithm == "PATE-FM" else "RR"
        return f"{self.data.lower().replace('-', '')}_{kind}_{SHORT[self.level]}"


TABLE_1 = (
    Row("CIFAR-10", "High", "PATE-FM", 93.7, 1.6, (0.0, 0.9)),
    Row("CIFAR-10", "High", "ALIBI", 94.0, 8.0, (2.9, 4.0)),
    Row("CIFAR-10", "Medium", "PATE-FM", 86.9, 0.29, (0.0, 0.6)),
    Row("CIFAR-10", "Medium", "ALIBI", 84.2, 2.1, (1.0, 2.2)),
    Row("CIFAR-10", "Low", "PATE-FM", 73.4, 0.18, (0.0, 0.4)),
    Row("CIFAR-10", "Low", "ALIBI", 71.0, 1.0, (0.0, 2.2)),
    Row("CIFAR-100", "Very high", "ALIBI", 75.3, 8.1, (3.5, 4.5)),
    Row("CIFAR-100", "High", "PATE-FM", 69.9, 715.0, (0.4, 1.0)),
    Row("CIFAR-100", "High", "ALIBI", 71.4, 6.3, (2.8, 3.5)),
    Row("CIFAR-100", "Medium", "PATE-FM", 50.0, 16.0, (0.2, 0.7)),
    Row("CIFAR-100", "Medium", "ALIBI", 51.6, 3.0, (1.4, 2.4)),
    Row("CIFAR-100", "Low", "PATE-FM", 30.5, 7.9, (0.2, 0.6)),
    Row("CIFAR-100", "Low", "ALIBI", 31.4, 2.0, (0.6, 1.0)),
)


def saved(name: str, *, file: str = "alibi_confs") -> tuple[Canaries, np.ndarray]:
    """The canaries of one saved model, with all other wrong classes as decoys, and its confidences."""
    with np.load(folder() / "alibi_confs" / f"{file}.npz") as arrays:
        data = name.partition("_")[0]
        parts = ("canary_positions", "canary_labels", "true_labels")
        positions, labels, true = (arrays[f"{data}_{part}"].astype(np.int64) for part in parts)
        chances = arrays[name].astype(np.float64)
    wrong = np.ones(chances.shape, dtype=bool)
    wrong[np.arange(len(chances)), labels] = wrong[np.arange(len(chances)), true] = False
    decoys = np.nonzero(wrong)[1].reshape(len(chances), -1)
    return Canaries(positions=positions, labels=labels, decoys=decoys, n_classes=chances.shape[1]), chances


def names(file: str) -> list[str]:
    """The models of one file."""
    with np.load(folder() / "alibi_confs" / f"{file}.npz") as arrays:
        return sorted(name for name in arrays if arrays[name].ndim == 2)


def authors_interval(planted: Canaries, chances: np.ndarray) -> tuple[float, float, float]:
    """The interval as the authors compute it: both ends, and the threshold that gave them.

    Each canary's label is compared with every other wrong class. A canary weighs as much as it has
    comparisons where one of the two is confident; the weighted share of right ones has a normal interval.
    Of seven thresholds the one with the largest lower end counts, uncorrected.
    """
    label = np.take_along_axis(chances, planted.labels[:, None], axis=1)
    decoys = np.take_along_axis(chances, planted.decoys, axis=1)
    best = (0.0, 0.0, AT[0])
    for at in AT:
        low, high = _normal_interval(label > decoys, np.maximum(label, decoys) >= at)
        if low > best[0] or (low == best[0] and best[1] < high < np.inf):
            best = (low, high, at)
    return best


def _normal_interval(right: np.ndarray, guessed: np.ndarray) -> tuple[float, float]:
    n_guesses = guessed.sum(axis=1)
    guessing = n_guesses > 0
    if not guessing.any():
        return 0.0, np.inf
    share = (right & guessed).sum(axis=1)[guessing] / n_guesses[guessing]
    weight = n_guesses[guessing] / n_guesses.sum()
    mean = float(share @ weight)
    variance = float(weight @ (share - mean) ** 2) / (1 - float(weight @ weight) + 1e-8)
    half = 1.96 * np.sqrt(variance / guessing.sum())
    mean = max(mean, 1 - mean)  # a guess that is always wrong is a good one, too
    low, high = max(0.5, mean - half), min(1.0, mean + half)
    if mean == 1:
        low = min(low, 1 - 3 / guessing.sum()) if guessing.sum() > 50 else 0.5
    return _odds(low), _odds(high)


def _odds(share: float) -> float:
    return np.inf if share >= 1 else max(0.0, float(np.log(share) - np.log1p(-share)))


def one_decoy(planted: Canaries, *, seed: int = 0) -> Canaries:
    """The game as the paper tells it: one other wrong class for each canary, drawn at random."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(planted.decoys.shape[1], size=(len(planted.decoys), 1))
    return Canaries(
        positions=planted.positions,
        labels=planted.labels,
        decoys=np.take_along_axis(planted.decoys, chosen, axis=1),
        n_classes=planted.n_classes,
    )


def bounds(planted: Canaries, chances: np.ndarray, *, delta: float) -> dict[str, Bound]:
    """Bounds that hold: at the paper's threshold, with cuts of their own, and with one decoy only."""
    scores = planted.scores(chances)
    return {
        "at 0.99": one_run_lower_bound(scores, delta=delta, at=FIGURE_AT, game="labels"),
        "several cuts": one_run_lower_bound(scores, delta=delta, game="labels"),
        "one decoy": one_run_lower_bound(one_decoy(planted).scores(chances), delta=delta, game="labels"),
    }


def surest_first(planted: Canaries, chances: np.ndarray) -> dict[str, list[float]]:
    """Right guesses among the surest 1, 2, 3, …: what figure 1 shows."""
    scores = planted.scores(chances)
    n_guesses, right = (
        (scores.members + w * scores.others)[scores.values > 0][::-1].cumsum() for w in (1, 0)
    )
    return {"guesses": n_guesses.tolist(), "right": right.tolist()}


def table_1() -> list[dict[str, Any]]:
    """Every line of table 1, printed and returned."""
    print(
        "| data | level | algorithm | ε promised | ε_m printed | ε_m computed | threshold "
        "| valid, at 0.99 | right / guesses | valid, several cuts | right / guesses | valid, one decoy |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    records = []
    for row in TABLE_1:
        planted, chances = saved(row.saved)
        low, high, at = authors_interval(planted, chances)
        certificates = bounds(planted, chances, delta=row.delta)
        ours, theirs, pair = certificates.values()
        print(
            f"| {row.data} | {row.level} | {row.algorithm} | {row.epsilon:g} "
            f"| {row.printed[0]:.1f}–{row.printed[1]:.1f} | {low:.1f}–{high:.1f} | {at:g} "
            f"| {down(ours.epsilon)} | {ours.right} / {ours.guesses} "
            f"| {down(theirs.epsilon)} | {theirs.right} / {theirs.guesses} | {down(pair.epsilon)} |"
        )
        records.append(
            {
                "data": row.data,
                "level": row.level,
                "algorithm": row.algorithm,
                "upper": row.epsilon,
                "printed": row.printed,
                "computed": (low, high),
                "bounds": {name: bound.to_dict() for name, bound in certificates.items()},
                "surest_first": surest_first(planted, chances) if row.saved in FIGURE_1 else None,
            }
        )
    return records


def others() -> None:
    """The saved models that table 1 leaves out."""
    print("\n| saved as | design | ε_m computed | threshold | valid, at 0.99 | valid, several cuts |")
    print("|---|---|---|---|---|---|")
    printed = {row.saved for row in TABLE_1}
    for file, design in (("alibi_confs", "1 × 1,000"), ("alibi_confs_10x100", "10 × 100")):
        for name in names(file):
            if file == "alibi_confs" and name in printed:
                continue
            planted, chances = saved(name, file=file)
            low, high, at = authors_interval(planted, chances)
            ours, theirs, _ = bounds(planted, chances, delta=0.0).values()
            print(
                f"| {name} | {design} | {low:.1f}–{high:.1f} | {at:g} "
                f"| {down(ours.epsilon)} | {down(theirs.epsilon)} |"
            )


def redrawn(planted: Canaries, *, rng: np.random.Generator) -> Canaries:
    """The same candidates, each with a label that is drawn again: no model was trained on it."""
    candidates = rng.permuted(np.column_stack([planted.labels, planted.decoys]), axis=1)
    return Canaries(
        positions=planted.positions,
        labels=candidates[:, 0],
        decoys=candidates[:, 1:],
        n_classes=planted.n_classes,
    )


def calibration(draws: int) -> None:
    """How often a lower end is above 0 where labels are redrawn, so that nothing was memorised."""
    print(f"\nlower ends above 0 where nothing is known, {draws} draws a line")
    print("| data | level | algorithm | the authors' | at 0.99 | several cuts |")
    print("|---|---|---|---|---|---|")
    rng, all_lines = np.random.default_rng(0), np.zeros(3)
    for row in TABLE_1:
        planted, chances = saved(row.saved)
        above = np.zeros(3)
        for _ in range(draws):
            game = redrawn(planted, rng=rng)
            scores = game.scores(chances)
            bounded = (
                one_run_lower_bound(scores, delta=0.0, at=at, game="labels").epsilon
                for at in (FIGURE_AT, None)
            )
            above += np.array([authors_interval(game, chances)[0], *bounded]) > 0
        all_lines += above / len(TABLE_1)
        cells = " | ".join(f"{share:.0%}" for share in above / draws)
        print(f"| {row.data} | {row.level} | {row.algorithm} | {cells} |", flush=True)
    print(f"| all | | | {' | '.join(f'{share:.1%}' for share in all_lines / draws)} |")


def down(value: float) -> str:
    """Two decimals, never more than the number."""
    return f"{np.floor(value * 100) / 100:.2f}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--draws", type=int, default=20, help="of labels that no model has seen, a line")
    options = parser.parse_args(arguments or [])
    records = table_1()
    others()
    calibration(options.draws)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        record = Result(kind="audit", owner={"memorisation": records})
        (options.out / "memorised_labels.json").write_text(record.to_json() + "\n", encoding="utf-8")
        read = Result.from_json((options.out / "memorised_labels.json").read_text(encoding="utf-8"))
        drawn = [each for each in read.owner["memorisation"] if each["surest_first"]]
        _drawing.guesses(options.out / "memorised_labels.svg", drawn)


if __name__ == "__main__":
    main(sys.argv[1:])
