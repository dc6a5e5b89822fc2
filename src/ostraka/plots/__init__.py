"""Figures of a saved Result: inline SVG for light and dark pages, made from the record and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.plots import _audit, _run

if TYPE_CHECKING:
    from ostraka.report import Figure
    from ostraka.result import Result

__all__ = ["figures"]


def figures(result: Result) -> tuple[Figure, ...]:
    """Every figure the record has numbers for, public ones first.

    Raises
    ------
    ImportError
        matplotlib is not installed; the message is the command that installs it.

    Examples
    --------
    >>> from ostraka.result import Result
    >>> record = Result(kind="learn", upper={"delta": 1e-5}, series={"epsilon": [0.2, 0.3, 0.4]})
    >>> [figure.title for figure in figures(record)]
    ['Budget over time']
    """
    drawings = (
        _run.budget_over_time,
        _run.accuracy_against_epsilon,
        _run.bounds_against_answers,
        _run.bounds_of_these_votes,
        _run.consensus,
        _run.cost_of_answers,
        _run.repeated_questions,
        _audit.leak_against_order,
        _audit.leaks,
    )
    return tuple(figure for draw in drawings if (figure := draw(result)) is not None)
