"""Defects of private text: what a document may count, what a draw costs, how a token is drawn."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_DRAW, _CHOICE = "mechanisms/test_tokens.py::", "mechanisms/test_selection.py::"

MUTANTS = [
    Mutant(
        "one document counts as much as it likes, and only the mean is in bounds",
        "core/mechanisms/tokens.py",
        "within = np.clip((rows - middle) / self.clip, -1.0, 1.0)",
        "within = (rows - middle) / self.clip",
        _DRAW + "test_only_the_shape_of_a_documents_numbers_counts_and_numbers_that_are_none_count_nothing",
    ),
    Mutant(
        "a document that is replaced costs what one that is left out does",
        "core/mechanisms/tokens.py",
        'return self.steps if self.relation == "zero-out" else 2 * self.steps',
        "return self.steps",
        _DRAW + "test_no_neighbour_exceeds_the_range_and_the_worst_reaches_it",
    ),
    Mutant(
        "the middle of the ranges is that of all documents",
        "core/mechanisms/tokens.py",
        "middle = (rows.max(axis=-1, keepdims=True) + rows.min(axis=-1, keepdims=True)) / 2",
        "middle = (rows.max() + rows.min()) / 2",
        _DRAW + "test_a_document_counts_the_same_whatever_the_others_are",
    ),
    Mutant(
        "where floats do not decide a choice it is accepted",
        "core/mechanisms/selection.py",
        "accepted[place] = is_below(int(drawn[place]), exponent, rng)",
        "accepted[place] = True",
        _CHOICE + "test_floats_decide_only_beside_their_error",
    ),
]
