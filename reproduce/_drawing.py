"""Bars, points and lines for the figures of the papers. Needs matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path


def bars(path: Path, values: dict[str, np.ndarray], names: tuple[str, ...], label: str) -> None:
    """Means of groups of columns."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(7, 3.5))
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        heights = [np.asarray(cell)[:, place].mean() for cell in values.values()]
        axes.bar(np.arange(len(values)) + place * width, heights, width, label=name)
    axes.set_xticks(np.arange(len(values)) + 0.4 - width / 2, list(values))
    axes.set_ylabel(label)
    axes.legend()
    _save(figure, path)


def scatter(path: Path, points: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(5, 4))
    for name, (x, y) in points.items():
        axes.scatter(x, y, label=name, s=12)
    axes.set_xlabel("normalised L1 error")
    axes.set_ylabel("epsilon, 2018 bound")
    axes.legend()
    _save(figure, path)


def lines(path: Path, x: tuple[float, ...], values: dict[str, np.ndarray]) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6, 3.5))
    for name, y in values.items():
        axes.plot(x, y, marker="o", label=name)
    axes.set_xscale("log")
    axes.set_xlabel("sigma, votes")
    axes.set_ylabel("normalised L1 error")
    axes.legend()
    _save(figure, path)


def guesses(path: Path, records: list[dict[str, Any]]) -> None:
    """Share of right guesses among the surest, for each audited model; records as they were saved."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6, 3.5))
    chance = 1 / records[0]["bounds"]["several cuts"]["n_candidates"]
    for record in records:
        guess_counts, right = (np.array(record["surest_first"][name]) for name in ("guesses", "right"))
        enough = guess_counts >= 10  # fewer say nothing
        axes.plot(
            guess_counts[enough],
            right[enough] / guess_counts[enough],
            label=f"{record['algorithm']}, ε = {record['upper']:g}",
        )
    axes.axhline(chance, color="gray", linestyle="--", label="chance")
    axes.set_xlabel("guesses, surest first")
    axes.set_ylabel("share that is right")
    axes.set_ylim(0, None)
    axes.legend()
    _save(figure, path)


def accuracies(path: Path, cells_by_method: dict[str, dict[float, np.ndarray]]) -> None:
    """Mean and range of several runs, over epsilon."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(6, 3.5))
    for name, cells in cells_by_method.items():
        x, means = list(cells), [cell.mean() for cell in cells.values()]
        below, above = (
            [abs(edge(cell) - cell.mean()) for cell in cells.values()] for edge in (np.min, np.max)
        )
        axes.errorbar(x, means, yerr=[below, above], marker="o", markersize=4, capsize=2, label=name)
    axes.set_xlabel("ε")
    axes.set_ylabel("test accuracy, %")
    axes.legend()
    _save(figure, path)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path)
    print(f"  drawn: {path}")


def panels(path: Path, drawings: dict[str, dict[str, Any]]) -> None:
    """Panels beside each other: curves by name over the same x, with labels of both axes."""
    plt = _pyplot()
    figure, row = plt.subplots(1, len(drawings), figsize=(5 * len(drawings), 3.5), squeeze=False)
    for axes, (title, panel) in zip(row[0], drawings.items(), strict=True):
        for name, y in panel["curves"].items():
            axes.plot(panel["x"], y, marker="o", label=name)
        axes.set_xscale(panel.get("scale", "log"))
        axes.set_xlabel(panel["x label"])
        axes.set_ylabel(panel["y label"])
        axes.set_title(title)
        axes.legend()
    _save(figure, path)
