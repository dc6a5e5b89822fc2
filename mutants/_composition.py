"""Defects of exact composition: bounds that are not raised, answers that are not counted, laws left out."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_BY = "composition/test_exact_composition.py::"

MUTANTS = [
    Mutant(
        "outcomes between grid points are rounded to the cheaper one",
        "_composition/recursion.py",
        "share = np.clip((ratio - low) / (high - low) - 1e-12 - 1e-15 / step, 0.0, 1.0)",
        "share = np.ones_like(ratio)",
        _BY + "test_gaussian_and_pure_parts_agree_with_dp_accounting",
    ),
    Mutant(
        "a guessed bound counts without being raised",
        "_composition/smooth.py",
        "added *= np.exp(scale + (gap + _ROUNDING))",
        "pass",
        _BY + "test_no_repeated_question_exceeds_delta_and_the_best_comes_near",
    ),
    Mutant(
        "n answers cost n - 1",
        "_composition/answers.py",
        "return run.values(law.uses)",
        "return run.values(max(1, law.uses - 1))",
        _BY + "test_no_repeated_question_exceeds_delta_and_the_best_comes_near",
    ),
    Mutant(
        "answers beyond those that are followed are free",
        "_composition/tables.py",
        "rest.append(leader._replace(uses=leader.uses - _MOST))",
        "pass",
        _BY + "test_beyond_the_answers_that_are_followed_epsilon_has_no_cliff",
    ),
    Mutant(
        "a Gaussian release beside answers is free",
        "_composition/tables.py",
        "table = _averaged(table, gaussian_pair(mu_squared, table.step))",
        "pass",
        _BY + "test_a_gaussian_beside_answers_costs_more_than_either_and_less_than_two_gaussians",
    ),
]
