"""Chapter 4 of Melis 2018 (private statistics): its tables and figures, and where its text fails.

``python -m reproduce.melis2018_statistics [PART ...] [--quick]`` prints our numbers beside the thesis's. The
taxi data (figures 4.6 to 4.9) must never be published; they are read from the shared data sets if they are
there. Users of figure 4.5 are synthetic in the thesis, too; its exponent is not stated.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import TYPE_CHECKING

import numpy as np

from bench._data import folder
from bench.collect import adding, all_pairs
from ostraka.collect import CountMin, estimate
from reproduce._melis2018_wards import median_by_halving, rows_of, table42

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "c0" * 32
# printed in the thesis
TABLE_41 = (4896, 2448, 1638, 1224, 972, 810, 702, 612, 540, 486)
QUICK: dict[str, object] = {}
QUICK_ARGUMENTS = ["--quick", "table4.1"]


def table41(*, quick: bool) -> None:
    """Sizes of the sketch and bytes: d is 18 for 245,000 pairs, and w is e / epsilon, rounded to nearest."""
    del quick
    print("error  cells printed  cells here (rounded)  cells by definition 7 (ceiling)  bytes")
    for number, printed in enumerate(TABLE_41, start=1):
        error = number / 100
        depth = math.ceil(math.log(245_000 / 0.01))
        rounded, ceiling = depth * round(math.e / error), depth * math.ceil(math.e / error)
        print(f"{error:.2f}  {printed:>13}  {rounded:>20}  {ceiling:>31}  {4 * rounded:>5}")
    print("the tally sends 32 bytes a user: 3,200 for 100 users to 32,000 for 1,000, as printed")


def figure42(*, quick: bool) -> None:
    """Time of a user and of the tally, 700 programmes: 4,896 cells, everybody masks with everybody."""
    for n, user, tally in ((100, 2.7, 0.078), (1000, 27.0, 0.780)):
        if not quick or n == 100:
            ours, sums = all_pairs(n, 4896), adding(n, 4896)
            print(f"{n} users: user {ours:.4f} s (thesis {user}), tally {sums:.5f} s (thesis {tally})")


def figure43(*, quick: bool) -> None:
    """Time against programmes, 1,000 users: cells grow in stairs, with the logarithm of pairs."""
    n = 50 if quick else 1000
    for programmes in (100, 400, 700, 1000):
        depth = math.ceil(math.log(programmes * (programmes - 1) / 2 / 0.01))
        seconds = all_pairs(n, 272 * depth)
        print(
            f"{programmes} programmes: {272 * depth} cells, {seconds:.3f} s for {n} users (thesis 21 to 28 s)"
        )


def figure44(*, quick: bool) -> None:
    """Without a sketch, 1,000 programmes: almost 50 minutes a user in the thesis."""
    n = 20 if quick else 1000
    print(
        f"499,500 cells, {n} users: {all_pairs(n, 499_500):.2f} s a user (thesis: almost 3,000 s for 1,000)"
    )


def figure45(*, quick: bool) -> None:
    """Average error of the 50 most frequent of 245,000 pairs, by the sketch's error."""
    rng, n_users = np.random.default_rng(0), 10_000 if quick else 1_000_000
    n_items = 10_000 if quick else 245_000
    for error in (0.01, 0.05, 0.1):
        sketch = CountMin.sized(error=error, failure=0.01, items=245_000, key=KEY)
        ranks = np.arange(1, n_items + 1)
        chance = 1 / ranks / (1 / ranks).sum()
        counts = rng.multinomial(n_users, chance)
        estimates = estimated(sketch, np.arange(n_items), counts)[:50]
        wrong = np.abs(estimates - counts[:50]).mean() / counts.sum()
        print(f"error {error}: {wrong:.1e} of all for {n_users:,} users (thesis: falls with users)")


def estimated(sketch: CountMin, items: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """What the sketch of these counts says of each item."""
    sums = np.zeros(sketch.cells)
    places = sketch.places(items)
    np.add.at(sums, places, np.broadcast_to(counts, places.shape))
    return sketch.estimate(sums, items)


def taxis() -> np.ndarray:
    """Counts an hour and cell, (576, 10000)."""
    with np.load(folder() / "cabspotting" / "hourly_cell_counts.npz") as file:
        return np.asarray(file[file.files[0]]).reshape(576, -1).astype(float)


def figure46(*, quick: bool) -> None:
    """Locations over time."""
    del quick
    totals = taxis().sum(axis=1)
    print(f"peak {totals.max():,.0f} an hour (thesis: roughly 25,000), {len(totals)} hours")


def figure47(*, quick: bool) -> None:
    """Error of the sketch over the 100 busiest cells of each hour, of all."""
    hours = taxis()[: 24 if quick else None]
    sketch = CountMin(width=272, depth=14, key=KEY)
    wrong = []
    for counts in hours[hours.sum(axis=1) > 0]:
        top = np.argsort(-counts)[:100]
        wrong.append(
            np.abs(estimated(sketch, np.arange(10_000), counts)[top] - counts[top]).mean() / counts.sum()
        )
    print(f"mean {np.mean(wrong):.1e}, largest {np.max(wrong):.1e} (thesis: infinitesimal)")


def busiest(hours: np.ndarray) -> np.ndarray:
    """The 12 consecutive hours with most locations."""
    totals = np.convolve(hours.sum(axis=1), np.ones(12), "valid")
    return np.arange(12) + int(totals[24:].argmax()) + 24


def figure48(*, quick: bool) -> None:
    """Mean absolute error of forecasts from 24 hours, by alpha: lower is worse, not better."""
    del quick
    hours = taxis()
    for alpha in (0.1, 0.3, 0.5, 0.7, 0.9):
        plain, scaled = [], []
        for hour in busiest(hours):
            top = np.argsort(-hours[hour])[:100]
            past = hours[hour - 24 : hour][:, top]
            weights = alpha * (1 - alpha) ** np.arange(23, -1, -1)
            plain.append(np.abs(weights @ past - hours[hour][top]).mean())
            scaled.append(np.abs(estimate.forecast(past, alpha=alpha).value - hours[hour][top]).mean())
        print(
            f"alpha {alpha}: {np.mean(plain):.1f} by the formula, {np.mean(scaled):.1f} with scaled weights"
        )


def figure49(*, quick: bool) -> None:
    """Error that the sketch adds to the forecast, alpha 0.1."""
    hours, sketch = taxis(), CountMin(width=272, depth=14, key=KEY)
    for hour in busiest(hours)[: 1 if quick else None]:
        top = np.argsort(-hours[hour])[:100]
        past = hours[hour - 24 : hour]
        rough = np.array([estimated(sketch, np.arange(10_000), counts) for counts in past])
        exact = estimate.forecast(past, alpha=0.1).value
        added = np.abs(estimate.forecast(rough, alpha=0.1).value - exact)[top].mean()
        print(f"hour {hour}: {added:.2f}")


def reference(rng: np.random.Generator, *, spread: tuple[float, float] = (25, 200)) -> np.ndarray:
    """The problem of chapter 4.3: 1,200 values."""
    values = np.concatenate([rng.normal(300, spread[0], 1000), rng.normal(500, spread[1], 200)])
    return np.clip(values, 0, 999.999)


def median_errors(error: float, repeats: int, spread: tuple[float, float]) -> float:
    """Mean relative error of the median, d = ln(1 / error) and w = e / error."""
    depth, width, wrong = math.ceil(math.log(1 / error)), math.ceil(math.e / error), []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        values = reference(rng, spread=spread)
        counts = rows_of(0, 1000, values, depth=depth, width=width, seed=seed + 1000)
        median = median_by_halving(counts, len(values), depth=depth, scale=0.0, rng=rng)
        wrong.append(abs(median - np.median(values)) / np.median(values))
    return float(np.mean(wrong))


def figure410(*, quick: bool) -> None:
    """Size against quality: the figure appears if the stated variances are standard deviations."""
    for error, printed in ((0.01, "–"), (0.025, "no saving"), (0.05, "good"), (0.15, "> 20 %")):
        sd = median_errors(error, 5 if quick else 40, (25, 200))
        variance = median_errors(error, 5 if quick else 40, (5, math.sqrt(200)))
        print(f"{error}: {sd:.1%} as deviations, {variance:.1%} as variances (thesis: {printed})")


def sensitivity(n_draws: int) -> np.ndarray:
    """By how much one value moves the sum over [0, 500), for each draw of the cells: d = 3, w = 55."""
    moves = []
    for seed in range(n_draws):
        sums = [
            rows_of(0, 1000, np.array([value + 0.5]), depth=3, width=55, seed=seed)[:500].sum()
            for value in range(1000)
        ]
        moves.append(np.abs(sums).max())
    return np.array(moves)


def figure411(*, quick: bool) -> None:
    """Error against epsilon, with the claimed sensitivity d = 3 and with the real one; and ours."""
    from bench.collect import median_error

    moves = sensitivity(2 if quick else 40)
    print(f"one value moves a range by {moves.min():.0f} to {moves.max():.0f} (thesis: at most d = 3)")
    real = float(np.median(moves))
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        wrong = {}
        for name, moved in (("claimed", 3.0), ("repaired", real)):
            errors = []
            for seed in range(5 if quick else 40):
                rng = np.random.default_rng(seed)
                values = reference(rng)
                counts = rows_of(0, 1000, values, depth=3, width=55, seed=seed)
                found_median = median_by_halving(counts, 1200, depth=3, scale=10 * moved / epsilon, rng=rng)
                errors.append(abs(found_median - np.median(values)))
            wrong[name] = float(np.mean(errors))
        ours, repaired = median_error(epsilon, repeats=5 if quick else 100), wrong["repaired"]
        print(f"epsilon {epsilon}: {wrong['claimed']:.1f} claimed, {repaired:.1f} repaired, {ours:.1f} ours")


PARTS: dict[str, Callable[..., None]] = {
    "table4.1": table41,
    "figure4.2": figure42,
    "figure4.3": figure43,
    "figure4.4": figure44,
    "figure4.5": figure45,
    "figure4.6": figure46,
    "figure4.7": figure47,
    "figure4.8": figure48,
    "figure4.9": figure49,
    "figure4.10": figure410,
    "figure4.11": figure411,
    "table4.2": table42,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="small numbers of repeats and users")
    options = parser.parse_args(arguments)
    for name in options.parts or PARTS:
        print(f"\n## {name}: {(PARTS[name].__doc__ or '').splitlines()[0]}")
        start = time.perf_counter()
        try:
            PARTS[name](quick=options.quick)
        except FileNotFoundError as error:
            print(f"left out: {error.filename} is not there")
        print(f"({time.perf_counter() - start:.1f} s)")


if __name__ == "__main__":
    main()
