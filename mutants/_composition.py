"""Defects of exact composition: bounds that are not raised, answers that are not counted, laws left out."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_LIMIT = "core/composition/test_limit.py::"
_ADAPTIVE, _RULE = "core/composition/test_adaptive.py::", "core/ledger/test_filter.py::TestInALedger::"
_MIXED = "core/composition/test_mixtures.py::"
_BY, _TABLE = "core/composition/test_exact_composition.py::", "oracles/test_table.py::"
_ENVELOPE = "core/composition/test_envelopes.py::"
_RANGE = "core/composition/test_bounded_range.py::"

_EQUIVALENT = "core/composition/test_equivalents.py::"

MUTANTS = [
    Mutant(
        "a shift between two that are tabulated is a share of the larger one's table",
        "core/laws/equivalents.py",
        "(ratio * values + (1 - ratio) * beyond)",
        "(ratio * values)",
        _EQUIVALENT + "test_a_table_of_a_larger_shift_bounds_a_smaller_one",
    ),
    Mutant(
        "a shift counts as the next smaller one that is tabulated",
        "core/laws/equivalents.py",
        "    size = _SIZES[place]\n",
        "    size = _SIZES[place - 1]\n",
        _EQUIVALENT + "test_a_table_is_nowhere_below_the_recursion_and_near_it",
    ),
    Mutant(
        "a changed file of equivalent Gaussians is used",
        "core/laws/stored.py",
        "    if hashlib.sha256(content).hexdigest() != digest:",
        "    if not content:",
        _EQUIVALENT + "test_a_file_that_was_changed_is_not_used",
    ),
    Mutant(
        "tables on disk grow without limit",
        "core/laws/stored.py",
        "        if kept > _MOST:\n",
        "        if kept < 0:\n",
        "core/composition/test_stored_tables.py::"
        "test_beyond_its_limit_the_folder_forgets_what_was_used_longest_ago",
    ),
    Mutant(
        "of many noises each is rounded to the milder node",
        "core/laws/limit.py",
        "    column += node(column) < law.size\n",
        "    column -= 1\n",
        _LIMIT + "test_a_family_that_is_rounded_up_tells_no_less",
    ),
    Mutant(
        "a sampled answer is the Gaussian of one noisy count",
        "core/mechanisms/wrapped.py",
        "(Law.sampled(sampling_rate, curve.mu_squared),)",
        "(Law.sampled(sampling_rate, curve.mu_squared / 2),)",
        "core/mechanisms/test_subsampled.py::test_one_use_is_dominated_by_the_sampled_gaussian_and_attains_it",
    ),
    Mutant(
        "budgets of questioners who may choose by a rule for fixed plans",
        "core/ledger/budget.py",
        'object.__setattr__(self, "adaptive", True)',
        'object.__setattr__(self, "adaptive", False)',
        _RULE + "test_it_refuses_what_a_fixed_plan_may_still_ask",
    ),
    Mutant(
        "outcomes between grid points are rounded to the cheaper one",
        "core/laws/cover.py",
        "share = np.clip((ratio - low) / (high - low) - 1e-12 - 1e-15 / step, 0.0, 1.0)",
        "share = np.ones_like(ratio)",
        _TABLE + "test_an_outcome_between_grid_points_is_never_counted_at_the_cheaper_one",
    ),
    Mutant(
        "a delta between grid points is that of the next one",
        "core/laws/tables.py",
        "share = max(0.0, math.expm1(within) / math.expm1(self.step) - _OUTWARD - doubt)",
        "share = 1.0",
        _TABLE + "test_delta_is_never_below_the_chord_also_where_e_to_epsilon_leaves_floats",
    ),
    Mutant(
        "an epsilon between grid points is that of the one before",
        "core/laws/tables.py",
        "math.log1p(share * math.expm1(self.step))",
        "0.0 * share",
        _TABLE + "test_epsilon_is_never_below_the_chord_also_where_e_to_epsilon_leaves_floats",
    ),
    Mutant(
        "below the grid of one direction its bound stays flat",
        "core/laws/losses.py",
        "larger = np.exp(np.minimum(x + falls, 0.0))  # e^x alone may leave float64",
        "larger = 0.0 * falls",
        _TABLE + "test_below_the_grid_of_one_direction_the_bound_rises_as_fast_as_it_may",
    ),
    Mutant(
        "a guessed bound counts without being raised",
        "core/laws/gaussian.py",
        "added *= np.exp(scale + (gap + _ROUNDING))",
        "added *= np.exp(scale)",
        _ENVELOPE + "test_a_guess_is_raised_to_all_that_one_answer_may_add",
    ),
    Mutant(
        "a pair is left out that exceeds the others only between the points where it is tried",
        "core/kernels/recursion.py",
        "most[k] = low - max(before, lacking)",
        "most[k] = low",
        _ENVELOPE + "test_a_pair_that_is_largest_only_between_the_places_where_it_is_tried_counts",
    ),
    Mutant(
        "both losses of a response have the chances of the true answer",
        "core/laws/losses.py",
        "return Cells(cells.astype(np.int64), p, p[[1, 0, 2]])",
        "return Cells(cells.astype(np.int64), p, p)",
        _MIXED + "test_responses_compose_as_by_enumeration",
    ),
    Mutant(
        "Laplace losses between the ends count as the smallest",
        "core/laws/losses.py",
        "cells = np.floor(np.concatenate([[-epsilon, epsilon], (a + b) / 2]) / step)",
        "cells = np.floor(np.concatenate([[-epsilon, epsilon], 0 * a - epsilon]) / step)",
        _MIXED + "test_masses_of_losses_add_up_and_lie_in_their_cells",
    ),
    Mutant(
        "a ballot moves one count with Laplace noise",
        "core/mechanisms/argmax.py",
        "laws=(Law(LAPLACE_COUNT, up(1 / self.scale), 2),)",
        "laws=(Law(LAPLACE_COUNT, up(1 / self.scale), 1),)",
        _MIXED + "test_mechanisms_name_their_laws",
    ),
    Mutant(
        "pure parts beyond those that are convolved are free",
        "core/laws/tables.py",
        "gaussian = _gaussian([law for law in laws if law not in pairs and law is not leader])",
        "gaussian = _gaussian([law for law in laws if not law.is_pure and law is not leader])",
        _MIXED + "test_beside_an_argmax_pure_parts_cost_no_less_than_alone_and_more_parts_cost_more",
    ),
    Mutant(
        "what the Gaussian of Skellam noise does not cover is free",
        "core/laws/limit.py",
        "delta += sum(law.uses * law.delta for law in laws)",
        "delta += 0.0",
        _MIXED + "test_what_the_gaussian_of_skellam_noise_does_not_cover_counts",
    ),
    Mutant(
        "the Gaussian that dominates a pure part loses its last digits",
        "core/laws/law.py",
        "half = erfcinv(2 * math.exp(-epsilon) / (1 + math.exp(-epsilon)))",
        "half = erfinv(1 - 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon)))",
        _MIXED + "test_the_gaussian_that_dominates_a_pure_part_is_never_the_smaller_one",
    ),
    Mutant(
        "a recorded law may have any number of classes",
        "core/laws/law.py",
        "if not (plain and 2 <= int(number) <= MOST_CLASSES):",
        "if not plain:",
        "contracts/test_curve_contract.py::test_laws_that_no_release_has_are_refused",
    ),
    Mutant(
        "between two losses of the grid nobody plays another",
        "core/laws/answers.py",
        "gap = bent * np.maximum(math.exp(size) * np.diff(up) - np.diff(down), 0.0)",
        "gap = 0.0 * bent",
        _RANGE + "test_one_use_has_a_closed_form",
    ),
    Mutant(
        "one use of a bounded range counts as the Gaussian that many come to",
        "core/laws/law.py",
        "return _of_pure(self.size / 2)",
        "return self.size * self.size / 4",
        _RANGE + "test_no_pair_tells_more_than_the_gaussian_of_half_a_response",
    ),
    Mutant(
        "a score moves one way only, so a choice counts half its range",
        "core/mechanisms/selection.py",
        "law = Law(BOUNDED_RANGE, float(self.epsilon))",
        "law = Law(BOUNDED_RANGE, float(self.epsilon) / 2)",
        _RANGE + "test_choices_of_the_worst_scores_reach_the_price",
    ),
    Mutant(
        "n answers cost n - 1",
        "core/laws/answers.py",
        "values = run.values(law.uses)",
        "values = run.values(max(1, law.uses - 1))",
        _ENVELOPE + "test_no_repeated_question_exceeds_delta_and_the_best_comes_near",
    ),
    Mutant(
        "answers beyond those that are followed are free",
        "core/laws/tables.py",
        "whole = limit.after(leader._replace(uses=leader.uses - uses), begun)",
        "whole = begun",
        _BY + "test_beyond_the_answers_that_are_followed_epsilon_has_no_cliff",
    ),
    Mutant(
        "what an answer adds to a Gaussian is a little too small",
        "core/laws/limit.py",
        "part = Part((gaussian.mu_squared - before) * (1 + _OUTWARD), gaussian.delta)",
        "part = Part((gaussian.mu_squared - before) * 0.97, gaussian.delta)",
        _LIMIT + "test_one_answer_beside_a_gaussian_tells_no_more_than_a_larger_gaussian",
    ),
    Mutant(
        "a Gaussian exceeds its function at the grid points only",
        "core/laws/limit.py",
        "ends = (height + slope * (centre - lower), height + slope * (centre - upper))",
        "ends = (height + 1.1 * slope * (centre - lower), height + 0.9 * slope * (centre - upper))",
        _LIMIT + "test_a_larger_gaussian_lies_above_its_function_between_the_grid_points_too",
    ),
    Mutant(
        "a Gaussian release beside answers is free",
        "core/laws/tables.py",
        "kernels.append(_of_gaussian(gaussian.mu_squared, table.step))",
        "pass",
        _BY + "test_a_gaussian_beside_answers_costs_more_than_either_and_less_than_two_gaussians",
    ),
    Mutant(
        "uses beside a Gaussian cost less before there is one",
        "core/laws/limit.py",
        "begin.append((start + 1) * widest)",
        "begin.append(0.5 * start * widest)",
        _ADAPTIVE + "test_levels_are_paid_from_the_end_back",
    ),
    Mutant(
        "both rules of an adaptive budget have the whole of delta",
        "core/ledger/budget.py",
        "delta=_OTHERWISE * delta",
        "delta=delta",
        _RULE + "test_what_is_charged_first_decides_the_rule",
    ),
    Mutant(
        "what is charged last decides the rule of an adaptive budget",
        "core/ledger/history.py",
        "first = self._first or price",
        "first = price",
        _RULE + "test_what_is_charged_first_decides_the_rule",
    ),
    Mutant(
        "answers decide the rule of an adaptive budget",
        "core/ledger/chain.py",
        "is_free(first) or begins(laws) == begins(theirs)",
        "True",
        _RULE + "test_answers_never_decide_the_rule",
    ),
    Mutant(
        "rows with equal votes and other guesses count as equal",
        "core/mechanisms/neighbours.py",
        "np.hstack([self._counts, self._screened])",
        "np.hstack([self._counts, self._counts])",
        "core/accounting/test_profile.py::test_each_row_keeps_its_own_guesses",
    ),
]
