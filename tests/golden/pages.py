"""The text of each page and label for fixed records: every word and number.

``python -m tests.golden`` writes it to ``pages.txt``, for a change that was meant.
"""

import json
import math
from collections.abc import Callable
from difflib import SequenceMatcher
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

from ostraka.collect import show
from ostraka.core.result import Result
from ostraka.report.page import Figure, attack_drawing, privacy_label, render_html, sentence
from tests.golden import samples
from tests.golden.drawings import MANY

RECORD = Path(__file__).with_name("pages.txt")
_LINES = {
    "p",
    "li",
    "h1",
    "h2",
    "h3",
    "tr",
    "caption",
    "dt",
    "dd",
    "div",
    "figcaption",
    "span",
    "title",
    "text",
}


class Text(HTMLParser):
    """What a page says, a line for each thing that stands alone, cells of a row apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines, self._hidden = [""], 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self._hidden += tag == "style"
        if tag in _LINES:
            self.lines.append("")
        if tag in {"td", "th"} and self.lines[-1]:
            self.lines[-1] += " | "
        if named.get("role") == "img":
            self.lines[-1] += f"[{named.get('aria-label', 'a drawing')}]"
        if tag == "section":
            self.lines += [f"({named.get('class', 'for all')})", ""]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag == "style"
        if tag in _LINES:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            space = " " if self.lines[-1] and data[0].isspace() else ""
            self.lines[-1] += space + " ".join(data.split()) + " " * data[-1].isspace()


def text(page: str) -> str:
    """Its lines, without those that are empty."""
    lines = [" ".join(line.split()) for line in Text(page).lines]
    return "".join(f"{line}\n" for line in lines if line)


FIGURES = (
    Figure(title="For all", caption="What to see.", alt="A line.", svg="<svg></svg>"),
    Figure(title="For one", caption="What else.", alt="Bars.", svg="<svg></svg>", owner_only=True),
)
_ANSWERS: dict[str, Callable[[show.Collected], show.Answer]] = {
    "choices": show.shares,
    "ages by a tree": show.quantile,
    "a vague tree": show.quantile,
    "a number": show.mean,
    "vectors": partial(show.mean, total=True),
    "a map": show.heat_map,
    "baskets": partial(show.similar, items=[0]),
}


def report(run: Result, *, figures: tuple[Figure, ...] = FIGURES, **head: str) -> str:
    """The page of a run, with what is for its owner, and its label."""
    label = json.dumps(privacy_label(run), indent=0, ensure_ascii=False)
    return text(render_html(run, figures=figures, **head)) + label + "\n"


def beside(page: Callable[[], str], first: Callable[[], str]) -> str:
    """What a page says that a first one does not, whose text is recorded in full, and what it lacks."""
    before, after = (each().splitlines() for each in (first, page))
    lines = []
    for _, start, end, *there in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if before[start:end] != (others := after[slice(*there)]):
            span = f"line {end}" if end - start < 2 else f"lines {start + 1} to {end}"
            word = "after" if start == end else "instead of" if others else "without"
            lines += [f"@ {word} {span}", *others]
    return "\n".join(lines) + "\n"


def claims() -> str:
    """The guarantee in words, from nothing to no protection to speak of, for each kind of unit."""
    lines = [
        sentence(epsilon=epsilon, delta=delta, unit="person")
        for epsilon, delta in (
            (0.0, 1e-5), (0.1, 0.0), (math.log(10) - 1e-9, 1e-6), (math.log(10), 0.3), (2.5, 1e-4),
            (math.log(1e6), 1e-5), (math.log(1e6) + 1e-9, 1e-5), (1e300, 1e-5), (math.inf, 1e-5),
        )
    ]  # fmt: skip
    for unit in ("row", "party"):
        lines += [
            sentence(epsilon=1.0, delta=1e-5, unit=unit, relation=r) for r in ("replace-one", "zero-out")
        ]
    return "\n".join(lines) + "\n"


def gains() -> str:
    """The bars of what an attacker gains, an element on each line, and the same in words."""
    drawing, words = attack_drawing({"epsilon": 1.0, "delta": 1e-5}, what="who it was", detected=0.1234)
    return f"{drawing.replace('><', '>' + chr(10) + '<')}\n{words}\n"


def answer(name: str) -> str:
    """The page of an answer to a collection, and what its record has for programs."""
    collected = samples.COLLECTED[name]
    told = _ANSWERS[name](collected)
    values = {key: rounded(value) for key, value in told.values.items()}
    with mock.patch.object(show, "svg", return_value="<svg></svg>"):  # drawings are recorded elsewhere
        page = show.page(told, collected, language="de" if name == "choices" else "en")
    return f"{text(page)}{values}\nto pages of clients: {rounded(show.summary(collected))}\n"


def rounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        several = [rounded(part) for part in value]
        return several if len(several) <= MANY else [*several[:3], f"{len(several)} in all"]
    return float(f"{value:.4g}") + 0.0 if isinstance(value, float) else value


def forecast(name: str, alpha: float) -> str:
    """What is said of the next round."""
    told = show.forecast(samples.ROUNDS[name], alpha=alpha)
    rows = [" | ".join(row) for row in (told.columns, *told.rows)]
    values = {key: rounded(value) for key, value in told.values.items()}
    return "\n".join([told.title, *told.sentences, *rows, told.alt, str(values)]) + "\n"


_FIRST, *_OTHERS = samples.RUNS
_FIRST_ANSWER, *_OTHER_ANSWERS = _ANSWERS
_RUN = partial(report, samples.RUNS[_FIRST], controller="St. Mary's", purpose="triage")
_ANSWER = partial(answer, _FIRST_ANSWER)

CASES: dict[str, Callable[[], str]] = {
    _FIRST: _RUN,
    "what may be passed on": partial(beside, partial(report, samples.RUNS[_FIRST].public()), _RUN),
    **{name: partial(beside, partial(report, samples.RUNS[name]), _RUN) for name in _OTHERS},
    "almost nothing": partial(beside, partial(report, Result(kind="learn"), figures=()), _RUN),
    "claims": claims,
    "what an attacker gains": gains,
    f"collected: {_FIRST_ANSWER}": _ANSWER,
    **{f"collected: {name}": partial(beside, partial(answer, name), _ANSWER) for name in _OTHER_ANSWERS},
    "forecast of a map": partial(forecast, "of a map", 0.5),
    "forecast of cells": partial(forecast, "of cells", 0.7),
}
