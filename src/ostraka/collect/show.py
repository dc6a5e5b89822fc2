"""Released sums as answers: a sentence, a table and a picture, for the terminal and for a page.

Everything is computed from a record of ``ostraka collect tally`` (or ``simulate``), which is public, so
looking costs nothing. Intervals cover the noise, and not who took part.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect import estimate
from ostraka.collect.encodings import Grid, Histogram, Histograms, Pairs, Sum, Tree
from ostraka.collect.task import Task
from ostraka.core import check
from ostraka.core.axes import BLUE, RED
from ostraka.core.files import environment
from ostraka.report.figures import svg
from ostraka.report.page import Figure, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ostraka.collect.tally import Tally

_FEWEST_BARS, _MOST_BARS = 8, 40
_MOST_ROWS = 12
_VAGUE = 0.5  # an interval over more of the range says little
_USELESS = (
    "This {} is useless: its interval covers more than half of the range. Ask more people, or spend more "
    "epsilon."
)


@dataclass(frozen=True, slots=True)
class Collected:
    """A record of one round that was released. Public.

    Parameters
    ----------
    record : mapping
        With ``task``, ``sums``, ``variance``, ``n_survivors``, ``epsilon`` and ``delta``.

    Raises
    ------
    ValueError
        A field is missing, or the sums are not those of the task's encoding.
    """

    record: Mapping[str, Any]
    task: Task = field(init=False)
    sums: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        names = ("task", "sums", "variance", "n_survivors", "epsilon", "delta")
        missing = [name for name in names if name not in self.record]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}: name a file of 'ostraka collect tally --out'")
        task = Task.from_json(json.dumps(self.record["task"]))
        try:
            sums = np.asarray(self.record["sums"], np.float64)
        except TypeError:
            sums = np.empty(0)
        if sums.shape != (task.encoding.cells,) or not np.isfinite(sums).all():
            raise ValueError(f"its sums must be {task.encoding.cells} numbers, as many as the task has cells")
        check.integer(n_survivors=self.record["n_survivors"], least=1)
        check.nonnegative(variance=self.record["variance"], epsilon=self.record["epsilon"])
        check.delta(self.record["delta"])
        object.__setattr__(self, "task", task)
        object.__setattr__(self, "sums", sums)

    @classmethod
    def of_file(cls, path: Path) -> Collected:
        """Read a file of ``ostraka collect tally --out``; ValueError for anything else."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (RecursionError, ValueError):
            record = None
        try:
            return cls(record if isinstance(record, dict) else {})
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @property
    def variance(self) -> float:
        """Of the noise in each cell."""
        return float(self.record["variance"])

    @property
    def n(self) -> int:
        """Clients that are summed."""
        return int(self.record["n_survivors"])

    @property
    def options(self) -> dict[str, Any]:
        """What an estimate takes beside the sums and the task."""
        return {"n_clients": self.n, "variance": self.variance}

    def words(self, name: str, language: str = "en") -> str:
        """A text of the question in a language, or in its first one; empty without a question."""
        texts = getattr(self.task.question, name, {})
        return str(texts.get(language) or next(iter(texts.values()), ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the sums say: for people, for programs, and as a picture."""

    title: str
    sentences: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    values: Mapping[str, Any]  # for --json
    draw: Callable[[Any], None]
    alt: str


def quantile(collected: Collected, q: float = 0.5) -> Answer:
    """A quantile of numbers, with its interval; a Tree or a Histogram."""
    value, low, high = estimate.quantile(collected.sums, collected.task, q, **collected.options)
    unit = collected.words("unit")
    name = "median" if q == 0.5 else f"{100 * q:g} % quantile"
    unit_behind = f" {unit}" if unit else ""
    range_ = f"with 95 % probability it lies between {low:g} and {high:g}"
    sentences = [f"The {name} is {value:g}{unit_behind}; {range_}."]
    edges, counts, margins = _bars(collected)
    if high - low > _VAGUE * (edges[-1] - edges[0]):
        sentences.append(_USELESS.format(name))

    def draw(axes: Any) -> None:
        bars = np.maximum(counts, 0.0)
        axes.bar(edges[:-1], bars, np.diff(edges), align="edge", color=BLUE, yerr=margins, ecolor="#868c95")
        axes.axvspan(low, high, color=RED, alpha=0.2)
        axes.axvline(value, color=RED, linewidth=2)
        axes.set(xlabel=unit or "value", ylabel="people", ylim=(0, None))

    return Answer(
        title=f"The {name}",
        sentences=tuple(sentences),
        columns=("quantile", "value", "from", "to"),
        rows=((f"{q:g}", *(f"{number:g}" for number in (value, low, high))),),
        values={"quantile": q, "value": value, "low": low, "high": high, "unit": unit},
        draw=draw,
        alt=f"Bars of people by value, a line at the {name}, {value:g}, and a band from {low:g} to {high:g}.",
    )


def mean(collected: Collected, *, total: bool = False) -> Answer:
    """The mean of numbers or of vectors, or their sum, with intervals; a Sum or a Vector."""
    name = "sum" if total else "mean"
    estimator = estimate.total if total else estimate.mean
    estimates = estimator(collected.sums, collected.task, **collected.options)
    value, low, high = (np.asarray(part) for part in estimates)
    unit = collected.words("unit")
    unit_behind = f" {unit}" if unit else ""
    encoding = collected.task.encoding
    if is_number := isinstance(encoding, Sum):
        range_ = f"with 95 % probability it lies between {low[0]:.6g} and {high[0]:.6g}"
        sentences = [f"The {name} is {value[0]:.6g}{unit_behind}; {range_}."]
        span = (encoding.high - encoding.low) * (collected.n if total else 1)
        if high[0] - low[0] > _VAGUE * span:
            sentences.append(_USELESS.format(name))
    else:
        sentences = [f"The {name} of {collected.n} vectors has {len(value):,} entries."]
    rows = [
        (f"{entry}", *(f"{part[entry]:.6g}" for part in (value, low, high)))
        for entry in range(min(len(value), _MOST_ROWS))
    ]

    def draw(axes: Any) -> None:
        first = slice(0, _MOST_BARS)
        places = np.arange(len(value[first]))
        axes.errorbar(places, value[first], (high - low)[first] / 2, fmt="o", color=BLUE, ecolor="#868c95")
        axes.set(xlabel="entry", ylabel=unit or name)

    parts = {"value": value, "low": low, "high": high}
    return Answer(
        title=f"The {name}",
        sentences=tuple(sentences),
        columns=("entry", "value", "from", "to"),
        rows=tuple(rows),
        values={
            "of": name, "unit": unit,
            **{key: float(part[0]) if is_number else part.tolist() for key, part in parts.items()},
        },
        draw=draw,
        alt=f"The {name} with its interval: " + "; ".join(row[1] for row in rows) + ".",
    )  # fmt: skip


def shares(collected: Collected, language: str = "en") -> Answer:
    """How many gave each answer, with intervals; a Histogram, Histograms or a Tree."""
    encoding = collected.task.encoding
    question = collected.task.question
    if isinstance(encoding, Histograms):
        counts = collected.sums
        margins = np.full(len(counts), 1.96 * math.sqrt(collected.variance))
        names = [
            f"{number}: {low:g} to {high:g}"
            for number, (start, end, cells) in enumerate(encoding.parts, start=1)
            for low, high in itertools.pairwise(np.linspace(start, end, cells + 1))
        ]
    else:
        edges, counts, margins = _bars(collected)
        names = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
        if question is not None and question.choices and isinstance(encoding, Histogram):
            names = list(question.choices.get(language) or next(iter(question.choices.values())))
    low, high = np.maximum(counts - margins, 0.0), np.minimum(counts + margins, collected.n)
    rows = [
        (name, f"{count:.0f}", f"{below:.0f}", f"{above:.0f}", f"{100 * max(count, 0.0) / collected.n:.0f} %")
        for name, count, below, above in zip(names, counts, low, high, strict=True)
    ]
    first = int(np.argmax(counts))
    outcome = (
        f"{counts[first]:.0f} of {collected.n} people, with 95 % probability between {low[first]:.0f} and "
        f"{high[first]:.0f}"
    )

    def draw(axes: Any) -> None:
        places = np.arange(len(names))
        axes.barh(places, np.maximum(counts, 0.0), color=BLUE, xerr=margins, ecolor="#868c95")
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set(xlabel="people, with 95 % intervals", xlim=(0, None))

    return Answer(
        title="The answers",
        sentences=(f"The most frequent answer is {names[first]}: {outcome}.",),
        columns=("answer", "people", "from", "to", "share"),
        rows=tuple(rows),
        values={"answers": names, "people": counts.tolist(), "low": low.tolist(), "high": high.tolist()},
        draw=draw,
        alt="Bars: " + "; ".join(f"{row[0]}: {row[1]}" for row in rows[:_MOST_ROWS]) + ".",
    )


def heat_map(collected: Collected) -> Answer:
    """People in each cell of a map, with intervals; a Grid."""
    value, low, high = estimate.heat_map(collected.sums, collected.task, variance=collected.variance)
    return _map(collected, value, low, high, title="The map", what="were in")


def forecast(rounds: Sequence[Collected], *, alpha: float = 0.7) -> Answer:
    """The next round, as an average of the past that favours what is newest; a Grid, a Histogram or a Tree.

    ``rounds`` are in order, the oldest first, of one encoding.
    """
    newest = rounds[-1]
    if any(collected.task.encoding != newest.task.encoding for collected in rounds):
        raise ValueError("a forecast needs rounds of one encoding: name the files of one series")
    variance = max(collected.variance for collected in rounds)
    past = np.stack([collected.sums for collected in rounds])
    value, low, high = (
        np.maximum(part, 0.0) for part in estimate.forecast(past, alpha=alpha, variance=variance)
    )
    encoding, many = newest.task.encoding, f"the forecast from {len(rounds)} rounds"
    if isinstance(encoding, Grid):
        shape = encoding.shape
        parts = (part.reshape(shape) for part in (value, low, high))
        return _map(newest, *parts, title="The next round", what=f"will be, by {many}, in")
    answer = shares(Collected(dict(newest.record, sums=value.tolist(), variance=variance)))
    sentences = (f"This is {many}.", *answer.sentences)
    values = {**answer.values, "rounds": len(rounds), "alpha": alpha}
    return replace(answer, title="The next round", sentences=sentences, values=values)


def similar(collected: Collected, items: Sequence[int], *, n: int = 10) -> Answer:
    """Items to recommend to who has ``items``, best first; Pairs."""
    task, encoding = collected.task, collected.task.encoding
    if not isinstance(encoding, Pairs):
        raise ValueError(f"similar items need Pairs, got {type(encoding).__name__}")  # noqa: TRY004
    best = estimate.similar_items(collected.sums, task, list(items), n=n, **collected.options)
    if not len(best):
        raise ValueError("no item is left to recommend: all of them are there already")
    likelihood = estimate.similarity(collected.sums, encoding, collected.n, collected.variance)
    score = likelihood[list(items)].sum(axis=0)[best] if len(items) else np.diag(likelihood)[best]
    quantity = "likelihood" if items else "clients"

    def draw(axes: Any) -> None:
        axes.barh(np.arange(len(best)), score, color=BLUE)
        axes.set_yticks(np.arange(len(best)), [f"item {item}" for item in best])
        axes.invert_yaxis()
        axes.set(xlabel="likelihood beside the given items, in sum" if items else "clients with the item")

    basket = ", ".join(str(item) for item in items) or "nothing"
    rows = tuple(
        (f"{k + 1}", f"{item}", f"{chance:.3f}")
        for k, (item, chance) in enumerate(zip(best, score, strict=True))
    )
    return Answer(
        title="Similar items",
        sentences=(f"Who has {basket} is likeliest to want item {best[0]}.",),
        columns=("place", "item", quantity),
        rows=rows,
        values={"items": best.tolist(), quantity: score.tolist()},
        draw=draw,
        alt=f"Bars: {'; '.join(f'item {item}: {chance}' for _, item, chance in rows)}.",
    )


def record_of(
    tally: Tally, answer: np.ndarray, *, epsilon: float, delta: float, task: Task | None = None
) -> dict[str, Any]:
    """Return the record of a released round; ``task`` if it is not the tally's own, as in a trial.

    ``epsilon`` is what the ledger has spent in all.
    """
    return {
        "task": json.loads((task or tally.task).to_json()),
        "round": tally.round,
        "n_clients": tally.n_clients,
        "n_survivors": tally.n_survivors,
        "n_refused": tally.n_refused,
        "variance": tally.variance,
        "sums": answer.tolist(),
        "epsilon": epsilon,
        "delta": delta,
        "unit": "client",
    }


def summary(collected: Collected) -> dict[str, Any] | None:
    """Return the usual answer for pages of clients: a median, a mean, or people by answer; else None."""
    encoding, question = collected.task.encoding, collected.task.question
    if isinstance(encoding, Tree):
        return dict(quantile(collected).values)
    if isinstance(encoding, Histogram):
        return dict((shares if question is not None and question.choices else quantile)(collected).values)
    if isinstance(encoding, Sum):
        return dict(mean(collected).values)
    if isinstance(encoding, Pairs):  # pages compute what is similar themselves, from items that stay there
        counts = np.rint(collected.sums).astype(int).tolist()
        return {"sums": counts, **collected.options}
    return None


def page(answer: Answer, collected: Collected, *, language: str = "en") -> str:
    """Return the answer as a self-contained page of HTML, without scripts."""
    record = collected.record
    cost = sentence(
        epsilon=float(record["epsilon"]), delta=float(record["delta"]), unit=str(record.get("unit", "client"))
    )
    question = collected.task.question
    figure = Figure(title=answer.title, caption="", alt=answer.alt, svg=svg(answer.draw))
    return (
        environment()
        .get_template("collect.html.j2")
        .render(
            title=collected.words("title", language) or answer.title,
            question=collected.words("text", language),
            purpose=collected.words("purpose", language),
            controller="" if question is None else f"{question.controller}, {question.contact}",
            answer=answer,
            figure=figure,
            n=collected.n,
            cost=cost,
            simulation=bool(record.get("simulation")),
            fingerprint=collected.task.sha256,
        )
    )


def _map(collected: Collected, value: Any, low: Any, high: Any, *, title: str, what: str) -> Answer:
    encoding = collected.task.encoding
    if not isinstance(encoding, Grid):
        raise ValueError(f"a map needs a Grid, got {type(encoding).__name__}")  # noqa: TRY004
    busiest = np.argsort(-value, axis=None, kind="stable")[:_MOST_ROWS]
    places = [
        np.linspace(*limits, cells + 1)
        for limits, cells in ((encoding.x, encoding.shape[0]), (encoding.y, encoding.shape[1]))
    ]

    def named(cell: int) -> tuple[str, str]:
        across, up = divmod(int(cell), encoding.shape[1])
        return (
            f"{places[0][across]:.4g} to {places[0][across + 1]:.4g}",
            f"{places[1][up]:.4g} to {places[1][up + 1]:.4g}",
        )

    rows = tuple(
        (*named(cell), *(f"{part.ravel()[cell]:.0f}" for part in (value, low, high))) for cell in busiest
    )

    def draw(axes: Any) -> None:
        image = axes.pcolormesh(places[0], places[1], value.T, cmap="Blues", vmin=0.0)
        axes.set(xlabel="x", ylabel="y", aspect="auto")
        axes.figure.colorbar(image, ax=axes, label="people")

    x, y, count, below, above = rows[0]
    range_ = f"with 95 % probability between {below} and {above}"
    return Answer(
        title=title,
        sentences=(f"{count} people {what} the busiest cell (x {x}, y {y}); {range_}.",),
        columns=("x", "y", "people", "from", "to"),
        rows=rows,
        values={"people": value.tolist(), "low": low.tolist(), "high": high.tolist()},
        draw=draw,
        alt=f"A map of {encoding.shape[0]} by {encoding.shape[1]} cells; the busiest are in the table.",
    )


def _bars(collected: Collected) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return edges, counts and 95 % margins of at most 40 bars of neighbouring values."""
    encoding, n_cells, span = collected.task.encoding, len(collected.sums), 1
    if isinstance(encoding, Tree):
        # the count of a node has less noise than the sum of the numbers below it
        levels = estimate.consistent(collected.sums, encoding.sizes, encoding.fanout, total=collected.n)
        n_cells, level = encoding.sizes[-1], len(levels) - 1
        while level and len(levels[level]) > _MOST_BARS and len(levels[level - 1]) >= _FEWEST_BARS:
            level -= 1
        counts, span = levels[level], encoding.fanout ** (len(levels) - 1 - level)
    elif isinstance(encoding, Histogram):
        counts = collected.sums
    else:
        raise ValueError(f"this needs a Tree or a Histogram, got {type(encoding).__name__}")  # noqa: TRY004
    together = -(-len(counts) // _MOST_BARS)
    starts = np.arange(0, len(counts), together)
    cells = np.append(starts * span, n_cells)
    edges = encoding.low + cells * (encoding.high - encoding.low) / n_cells
    margins = 1.96 * np.sqrt(collected.variance * np.diff(np.append(starts, len(counts))))
    return edges, np.add.reduceat(counts, starts), margins
