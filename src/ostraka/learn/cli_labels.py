"""``ostraka labels``: learn where features are public and each label is private."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path  # noqa: TC003  (a verb reads the types of its options)
from typing import TYPE_CHECKING

import click

from ostraka import console
from ostraka.console import argument, option, verb
from ostraka.core import imports
from ostraka.learn.cli import spend
from ostraka.learn.options import RunOptions, TableOptions
from ostraka.report import folder

if TYPE_CHECKING:
    from ostraka.data.task import Task
    from ostraka.learn.ways.response import LabelEstimator


_MOST = 40.0  # nats that an answer to a label may cost


class Method(StrEnum):
    """How private labels are learned from."""

    ALIBI = "alibi"
    LP_MST = "lp-mst"
    RESPONSE = "response"
    PATE_FM = "pate-fm"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsOptions(RunOptions, TableOptions):
    """Options of ``ostraka labels``."""

    private: Path = argument(
        ..., "Rows: public features, private labels. CSV, Excel, .npz or Parquet.", "FILE"
    )
    public: Path | None = option(None, "Rows whose labels may be known, to measure accuracy with.", "FILE")
    holdout: float | None = option(
        None, "Instead of --public: give up the privacy of this share of the labels.", "SHARE"
    )
    method: Method = option(
        Method.ALIBI,
        "alibi: every label answers once, with noise, and each step of training corrects the answers. "
        "lp-mst: the same in two stages. response: randomised response, taken as labels. pate-fm: teachers "
        "of few labels each vote, for few labels of many rows.",
    )
    epsilon: float = option(2.0, "Budget.", "NATS")
    epochs: int | None = option(None, "Of each training. Default: what suits the number of rows.", "N", min=1)
    teachers: int | None = option(None, "With pate-fm: how many. Default: 20.", "N", min=1)
    answers: int | None = option(None, "With pate-fm: labels to answer. Default: ten a class.", "N", min=1)
    sigma: float | None = option(None, "With pate-fm: noise. Default: what the budget pays for.", "VOTES")
    screen: tuple[float, float] | None = option(
        None, "With pate-fm: answer only where a noisy plurality reaches AT votes.", "AT SIGMA"
    )

    @property
    def of_teachers(self) -> dict[str, object]:
        """The options that only ``pate-fm`` has, as far as they were typed."""
        typed = {
            "teachers": self.teachers,
            "answers": self.answers,
            "sigma": self.sigma,
            "screen": self.screen,
        }
        return {f"--{name}": value for name, value in typed.items() if value is not None}


@verb()
def labels(given: LabelsOptions) -> None:
    """Learn from rows of which only the labels are private; write a model, its price and a report.

    Example: ostraka labels private.csv --label ill --epsilon 2
    """
    given.require_in_range(epsilon=given.epsilon, delta=given.delta)
    if given.label is None:
        raise click.UsageError(f"type --label and the column of {given.private} to learn")
    if (given.out / folder.RESULT).exists():
        raise folder.finished(given.out)
    if given.public is not None and given.holdout is not None:
        raise click.UsageError("--public and --holdout exclude each other: known labels come from one place")
    if given.method is not Method.PATE_FM and (typed := given.of_teachers):
        raise click.UsageError(f"{', '.join(typed)} is for --method pate-fm: type that, or leave it out")
    if given.method is not Method.PATE_FM and given.epsilon > _MOST:
        raise click.UsageError(
            f"--epsilon must be at most {_MOST:g} for answers to labels, got {given.epsilon:g}"
        )
    for path in (given.private, given.public):
        if path is not None and not path.is_dir():
            path.open("rb").close()
    click.echo(f"reading {given.private}" + (f" and {given.public}" if given.public else ""), err=True)
    with imports.uncollected():
        from ostraka.core import check
        from ostraka.data import task as data

        check.require("torch", extra="torch")
    columns = given.columns()
    task = data.labelled(given.private, given.public, columns=columns, holdout=given.holdout, seed=given.seed)
    with console.usage():
        model = _model(given, task)
        plan = model.plan(n_rows=task.n_units, n_classes=task.n_classes)
    spend(given, task, model, plan, teacher="FixMatch")


def _model(given: LabelsOptions, task: Task) -> LabelEstimator:
    """Make the estimator that the options describe."""
    from ostraka.learn.ways.response import LabelClassifier, network_for

    network = network_for(task.n_units, image_shape=task.image_shape, seed=given.seed)
    if given.epochs is not None:
        network.set_params(epochs=given.epochs)
    delta = min(1e-5, 0.1 / task.n_units) if given.delta is None else given.delta
    if given.method is not Method.PATE_FM:
        return LabelClassifier(
            method=given.method.value,
            network=network,
            epsilon=given.epsilon,
            delta=delta,
            classes=task.classes,
            random_state=given.seed,
        )
    from ostraka.core.mechanisms.argmax import GNMax
    from ostraka.core.mechanisms.screen import Threshold
    from ostraka.learn.students.fixmatch import FixMatch
    from ostraka.learn.ways.labels import PATEFM

    screen = given.screen
    return PATEFM(
        FixMatch(network, threshold=0.8),
        n_teachers=20 if given.teachers is None else given.teachers,
        mechanism=None if given.sigma is None else GNMax(sigma=given.sigma),
        screen=None if screen is None else Threshold(at=screen[0], sigma=screen[1], noise="every"),
        n_answers=given.answers,
        epsilon=given.epsilon,
        delta=delta,
        classes=task.classes,
        n_jobs=given.jobs,
        random_state=given.seed,
    )
