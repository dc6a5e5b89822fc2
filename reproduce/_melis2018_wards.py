"""Table 4.2 of Melis 2018: medians of London's wards through a Count Sketch, by divide and conquer."""

from __future__ import annotations

import csv
import gzip

import numpy as np

from bench._data import folder

__all__ = ["median_by_halving", "rows_of", "table42"]

TABLE_42 = {  # name: median at 0.25, error in %, median at 0.05, error in %, truth; as printed
    "Population - 2015": (15143.2, 11.3, 13215.4, 2.8, 13600.0),
    "Children aged 0-15 - 2015": (2970.8, 12.1, 2627.6, 0.8, 2650.0),
    "Working-age (16-64) - 2015": (9592.0, 2.0, 8843.2, 5.9, 9400.0),
    "Older people aged 65+ - 2015": (1284.6, 11.4, 1345.0, 7.2, 1450.0),
    "% All Children aged 0-15 - 2015": (21.9, 10.7, 20.1, 1.3, 19.8),
    "% All Working-age (16-64) - 2015": (70.7, 5.0, 68.8, 2.2, 67.3),
    "% All Older people aged 65+ - 2015": (15.2, 37.1, 12.0, 7.8, 11.1),
    "Mean Age - 2013": (38.6, 8.8, 36.9, 3.8, 35.5),
    "Median Age - 2013": (37.7, 10.8, 35.7, 5.1, 34.0),
    "Population density (persons per sq km) - 2013": (10231.3, 44.8, 5792.9, 18.0, 7067.0),
    "% BAME - 2011": (45.6, 26.3, 35.7, 1.0, 36.1),
    "% Not Born in UK - 2011": (40.1, 7.6, 40.1, 7.6, 37.3),
    "Male life expectancy -2009-13": (84.1, 5.7, 79.6, 0.0, 79.6),
    "Female life expectancy -2009-13": (87.0, 3.5, 84.9, 0.9, 84.1),
    "In employment (16-64) - 2011": (6532.8, 7.0, 5843.7, 4.2, 6103.0),
    "Employment rate (16-64) - 2011": (68.5, 2.0, 70.8, 1.3, 69.9),
    "Number of properties sold - 2013": (169.3, 1.4, 149.8, 10.3, 167.0),
    "Number of Household spaces - 2011": (5619.1, 5.4, 5025.9, 5.7, 5332.0),
    "% detached houses - 2011": (2.4, 44.7, 1.6, 62.2, 4.3),
    "% semi-detached houses - 2011": (29.0, 70.6, 16.7, 1.5, 17.0),
    "% terraced houses - 2011": (29.4, 39.8, 21.1, 0.6, 21.0),
    "% Flat, maisonette or apartment - 2011": (53.1, 15.1, 49.7, 7.9, 46.1),
    "% Households Social Rented - 2011": (26.0, 27.5, 19.9, 2.4, 20.4),
    "% dwellings in council tax bands A or B - 2011": (21.2, 79.9, 10.4, 12.2, 11.8),
    "% dwellings in council tax bands C, D or E - 2011": (63.7, 7.5, 71.6, 3.9, 68.9),
    "% dwellings in council tax bands F, G or H - 2011": (0.3, 96.7, 1.4, 82.6, 8.1),
    "Claimant Rate of Incapacity Benefit - 2014": (1.8, 80.0, 0.9, 10.0, 1.0),
    "Claimant Rate of Income Support - 2014": (4.4, 119.6, 2.3, 16.8, 2.0),
    "% of lone parents not in employment - 2011": (51.9, 11.2, 47.5, 1.6, 46.7),
    "(ID2010) % of LSOAs in worst 50% nationally - 2010": (-6.4, 107.7, 99.2, 19.5, 83.0),
    "Average GCSE capped point scores - 2013": (369.0, 6.0, 349.4, 0.4, 348.0),
    "Unauthorised Absence in All Schools (%) - 2013": (1.7, 53.5, 0.8, 26.2, 1.1),
    "% with no qualifications - 2011": (20.8, 19.1, 18.8, 7.2, 17.5),
    "% with Level 4 qualifications and above - 2011": (44.4, 25.1, 39.1, 10.1, 35.5),
    "A-Level Average Point Score Per Student - 2012/13": (715.3, 5.7, 668.4, 1.3, 676.9),
    "A-Level Average Point Score Per Entry; 2012/13": (215.0, 3.1, 210.8, 1.1, 208.5),
    "Violence against the person rate - 2013/14": (1.2, 92.5, 10.5, 35.6, 16.3),
    "Robbery rate - 2013/14": (1.6, 31.8, 0.1, 94.7, 2.3),
    "Theft and Handling rate - 2013/14": (-3.5, 113.7, 11.4, 55.6, 25.6),
    "Criminal Damage rate - 2013/14": (9.1, 43.8, 5.9, 6.6, 6.3),
    "% area that is open space - 2014": (30.1, 28.3, 19.3, 17.9, 23.5),
    "Cars per household - 2011": (1.6, 99.4, 0.5, 35.0, 0.8),
    "% travel by bicycle to work - 2011": (12.0, 343.9, 3.0, 12.5, 2.7),
    "Turnout at Mayoral election - 2012": (38.1, 11.5, 35.0, 2.3, 34.2),
}
ANOTHER_YEAR = {  # the thesis's name: the nearest column of the data that we have
    "Number of properties sold - 2013": "Number of properties sold - 2014",
    "% dwellings in council tax bands A or B - 2011": "% dwellings in council tax bands A or B - 2015",
    "% dwellings in council tax bands C, D or E - 2011": "% dwellings in council tax bands C, D or E - 2015",
    "% dwellings in council tax bands F, G or H - 2011": "% dwellings in council tax bands F, G or H - 2015",
    "Average GCSE capped point scores - 2013": "Average GCSE capped point scores - 2014",
    "A-Level Average Point Score Per Student - 2012/13": "A-Level Average Point Score Per Student - 2013/14",
    "A-Level Average Point Score Per Entry; 2012/13": "A-Level Average Point Score Per Entry; 2013/14",
    "Violence against the person rate - 2013/14": "Violence against the person rate - 2014/15",
}
SKETCHES = ((2, 11), (3, 55))


def rows_of(low: float, high: float, values: np.ndarray, *, depth: int, width: int, seed: int) -> np.ndarray:
    """Chapter 4.3's counts of 1,000 numbers: a cell less its neighbour, summed over the rows of the sketch.

    Cells are random: with ``(a x + b) mod p mod w`` neighbouring numbers collide alike, and errors are far
    larger.
    """
    rng = np.random.default_rng(seed)
    numbers = np.clip((values - low) / (high - low) * 1000, 0, 999).astype(int)
    total = np.zeros(1000)
    for _ in range(depth):
        place = rng.integers(0, width, 1000)
        row = np.bincount(place[numbers], minlength=width).astype(float)
        total += row[place] - row[np.where(place % 2 == 0, place + 1, place - 1) % width]
    return total


def median_by_halving(
    counts: np.ndarray, n: int, *, depth: int, scale: float, rng: np.random.Generator
) -> int:
    """The divide and conquer of chapter 4.3: ten sums of ranges, each with Laplace noise of this scale."""
    first, last, below = 0, 1000, 0.0
    while last - first > 1:
        middle = (first + last) // 2
        share_left = (counts[first:middle].sum() + (rng.laplace(scale=scale) if scale else 0.0)) / depth
        if below + share_left >= n / 2:
            last = middle
        else:
            first, below = middle, below + share_left
    return first


def wards() -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and the rows of the 625 wards."""
    with gzip.open(folder() / "london_wards" / "ward-profiles-excel-version.csv.gz", "rt") as file:
        table = list(csv.reader(file))
    return [name.strip() for name in table[0]], table[1:626]


def estimates(values: np.ndarray, *, depth: int, width: int, repeats: int) -> np.ndarray:
    """Medians through the sketch, for so many draws of its cells."""
    low, high = min(0.0, float(values.min())), float(values.max()) * 1.0001
    medians = []
    for seed in range(repeats):
        counts = rows_of(low, high, values, depth=depth, width=width, seed=seed)
        rng = np.random.default_rng(0)
        place = median_by_halving(counts, len(values), depth=depth, scale=0.0, rng=rng)
        medians.append(low + (place + 0.5) * (high - low) / 1000)
    return np.array(medians)


def table42(*, quick: bool) -> None:
    """Medians of London's wards through both sketches, beside the printed ones."""
    head, rows = wards()
    repeats, n_same, within, ours = 3 if quick else 40, 0, np.zeros(2, dtype=int), []
    names = [name for name in TABLE_42 if ANOTHER_YEAR.get(name, name) in head]
    print("truth (printed); for each sketch our median and 5 to 95 % of draws (printed)")
    for name in names:
        printed, column = TABLE_42[name], head.index(ANOTHER_YEAR.get(name, name))
        texts = [row[column].replace(",", "") for row in rows]
        values = np.array([float(text) for text in texts if text not in {"", "n/a", "#"}])
        truth, printed_values = float(np.median(values)), []
        n_same += name in head and abs(truth - printed[4]) < 0.05 + 1e-9
        for number, (depth, width) in enumerate(SKETCHES):
            medians = estimates(values, depth=depth, width=width, repeats=repeats)
            low, middle, high = np.quantile(medians, [0.05, 0.5, 0.95])
            within[number] += low <= printed[2 * number] <= high
            typical = float(np.median(np.abs(medians - truth))) / abs(truth)
            ours.append((number, typical, printed[2 * number + 1] / 100))
            printed_values.append(f"{middle:,.1f} [{low:,.1f}, {high:,.1f}] ({printed[2 * number]:,.1f})")
        year = "" if name in head else f" [{ANOTHER_YEAR[name].split()[-1]}]"
        print(f"{name}{year}: {truth:,.1f} ({printed[4]:,.1f}); {'; '.join(printed_values)}")
    print(f"{len(names)} of {len(TABLE_42)} columns are in the data; truths equal as printed: {n_same}")
    for number, (depth, width) in enumerate(SKETCHES):
        mine, theirs = np.median([row[1:] for row in ours if row[0] == number], axis=0)
        print(
            f"d {depth}, w {width}: printed medians within our 5 to 95 %: {within[number]} of {len(names)}; "
            f"error of a draw, median over columns, {mine:.1%} (printed {theirs:.1%})"
        )
