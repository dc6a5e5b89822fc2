"""Defects of noisy counts and rounds: their noise, their price, and how far one unit moves a table."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_PRICE = "core/mechanisms/test_counts.py::TestThePrice::"
_ROWS = "voters/test_rows.py::TestSensitivity::"
_RESIDUALS = "voters/test_residuals.py::"
_ROUNDS = "learn/test_rounds.py::"
_SPECTRUM = "voters/test_spectrum.py::"

MUTANTS = [
    Mutant(
        "ballots of 256 teachers for one class are none",
        "voters/voting.py",
        "_MOST_IN_A_BYTE = 32, 255\n",
        "_MOST_IN_A_BYTE = 32, 256\n",
        "voters/test_voting.py::test_unanimous_ballots_of_many_teachers_are_counted_whole",
    ),
    Mutant(
        "row groups are counted in another order than their labels",
        "voters/rows.py",
        "in lines.rows.blocks(lines.rows.pieces):",
        "in lines.rows.blocks(lines.rows.pieces[::-1]):",
        "voters/test_parquet.py::test_tables_are_those_of_the_rows_in_memory_to_the_bit",
    ),
    Mutant(
        "a fit that was begun in memory goes on part by part, and pays again",
        "learn/cli.py",
        "return not file.read(len(_STREAMS)).startswith(_STREAMS)",
        "return file.read(0) is None",
        "cli/test_stored.py::test_a_fit_that_was_begun_in_memory_goes_on_there_and_pays_nothing_twice",
    ),
    Mutant(
        "a part of a file of text ends before its last line does",
        "data/table.py",
        "max(0, self.stop - self.file.tell())",
        "max(0, self.stop - 9 - self.file.tell())",
        "cli/test_stored.py::test_a_folder_and_a_large_file_read_in_parts_give_what_one_file_gives",
    ),
    Mutant(
        "codes of labels are those of values that do not occur",
        "data/labels.py",
        "return cls(different, looked_up(np.searchsorted(different, values), codes))",
        "return cls(different, looked_up(np.minimum(np.arange(len(values)), len(different) - 1), codes))",
        "contracts/test_label_contract.py::test_all_who_take_labels_agree",
    ),
    Mutant(
        "each block of rows begins a person's ballot anew",
        "voters/rows.py",
        "before[owners[order[firsts]]] += n_rows",
        "before[owners[order[firsts]]] += 0",
        _ROWS + "test_a_persons_parts_do_not_depend_on_other_people",
    ),
    Mutant(
        "titles above the header of a text count as rows",
        "data/task.py",
        "sum(itertools.islice(lines, form.skip or 0, None)) - 1",
        "sum(lines) - 1",
        "cli/test_learn_refused.py::test_a_delta_that_no_table_of_this_size_allows_is_refused_before_a_row_is_read",
    ),
    Mutant(
        "two spellings of a person in files are two people",
        "data/units.py",
        "return self.codes if same else looked_up(places, self.codes), names",
        "return self.codes, names",
        "data/test_units.py::test_people_as_codes_in_parts_have_the_manifest_of_their_names",
    ),
    Mutant(
        "blocks of rows in files begin where row groups do",
        "voters/rows.py",
        "n_whole = len(waiting) // ROWS * ROWS",
        "n_whole = len(waiting)",
        "voters/test_parquet.py::test_blocks_begin_at_the_same_rows_wherever_row_groups_end",
    ),
    Mutant(
        "discrete noise is priced as continuous",
        "core/mechanisms/exact.py",
        "return up(float(max(steps.max(), tail_steps.max())) + 4 * len(weights) * 2.0**-53 + 1e-13)",
        "return 1 / sigma",
        _PRICE + "test_the_unit_shift_is_the_largest_step_of_the_exact_quantiles",
    ),
    Mutant(
        "the least whole number passes for a small count",
        "core/mechanisms/counts.py",
        "values.min() >= -_MOST_COUNT and values.max() <= _MOST_COUNT",
        "np.abs(values).max() <= _MOST_COUNT",
        "core/mechanisms/test_counts.py::TestTheDoor::test_refuses_counts_that_are_not_integers_before_any_charge",
    ),
    Mutant(
        "a row may weigh more than its unit",
        "core/mechanisms/counts.py",
        "most = np.array([*(size - 1 for size in sizes), self.grain])",
        "most = np.array([*(size - 1 for size in sizes), 2**62])",
        "core/mechanisms/test_marginals.py::test_codes_and_weights_out_of_range_are_refused_without_a_value",
    ),
    Mutant(
        "undecided draws are not decided",
        "core/mechanisms/exact.py",
        "for at in np.flatnonzero(table[place] == first):",
        "for at in np.flatnonzero(table[place] < first):",
        "core/mechanisms/test_counts.py::TestTheDraws::test_every_first_and_second_number_gives_the_law_exactly",
    ),
    Mutant(
        "opposite lines of one class are forgotten",
        "voters/rows.py",
        "total += max(2 * int(size.max()), same_class)",
        "total += 2 * int(size.max())",
        "voters/test_cells.py::TestReach::test_opposite_lines_of_one_class_move_further_than_two_classes",
    ),
    Mutant(
        "every row of a person casts a ballot",
        "voters/rows.py",
        "self.ballot_ // sizes[owners] + (within < self.ballot_ % sizes[owners])",
        "np.full(len(owners), self.ballot_)",
        _ROWS + "test_shared_parts_sum_to_the_ballot_for_everybody",
    ),
    Mutant(
        "parts of a ballot are not counted in its reach",
        "voters/rows.py",
        "return parts, parts * reach(cells.codebooks_, relation)",
        "return parts, reach(cells.codebooks_, relation)",
        _ROWS + "test_a_person_with_several_rows_shares_one_ballot",
    ),
    Mutant(
        "the difference of two classes has the reach of one sum",
        "voters/rows.py",
        "return (_TWO, move * math.sqrt(2)) if",
        "return (_TWO, move) if",
        "voters/test_features.py::TestSensitivity::"
        "test_two_classes_release_their_difference_and_move_as_far_as_stated",
    ),
    Mutant(
        "a unit that is left out has a line of average length",
        "voters/rows.py",
        "            total += int(size.max())\n",
        "            total += int(size.mean())\n",
        "voters/test_cells.py::TestReach::test_is_the_largest_move_of_a_table_by_enumeration",
    ),
    Mutant(
        "features of a unit that is left out move half as far",
        "voters/rows.py",
        'move = cells.reach_ / 2 if relation == "zero-out"',
        'move = cells.reach_ / 4 if relation == "zero-out"',
        "voters/test_features.py::TestSensitivity::"
        "test_a_row_that_is_left_out_moves_the_table_by_its_own_line",
    ),
    Mutant(
        "a ledger adds prices of two promises",
        "core/private.py",
        'return unit if relation == "replace-one" else f"{unit} ({relation})"',
        "return unit",
        "core/mechanisms/test_counts.py::TestTheDoor::"
        "test_a_table_without_one_unit_has_a_mechanism_and_a_ledger_of_its_own",
    ),
    Mutant(
        "a table that hides a missing unit passes for one that hides a replaced one",
        "voters/rows.py",
        "Adjacency.vector(unit=self.unit_, l2=move, relation=self.relation)",
        "Adjacency.vector(unit=self.unit_, l2=move)",
        "voters/test_rows.py::TestLeftOut::test_tables_of_the_two_relations_are_not_taken_for_each_other",
    ),
    Mutant(
        "cells of private rows are taken",
        "voters/rows.py",
        "if cells.is_of(X):",
        "if False:",
        "voters/test_rows.py::TestRefusals::test_of_cells_fitted_on_the_private_rows",
    ),
    Mutant(
        "a neighbour's type decides how a cell is read",
        "data/table.py",
        "    if isinstance(cell, float | np.floating) and float(cell).is_integer():\n"
        "        return str(int(cell))\n",
        "",
        "voters/test_cells.py::TestQuantileCells::"
        "test_one_missing_number_turns_no_other_whole_number_into_another_category",
    ),
    Mutant(
        "residuals longer than the clip keep their length",
        "voters/rows.py",
        "length = np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), clip)",
        "length = clip",
        _RESIDUALS + "TestResiduals::test_long_residuals_are_shortened_to_the_clip",
    ),
    Mutant(
        "rounding makes a residual longer than stated",
        "voters/spectrum.py",
        'too_long = ~(np.einsum("ij,ij->i", integers, integers) <= longest**2)',
        "too_long = ~np.isfinite(integers).all(axis=1)",
        _RESIDUALS + "TestShortened::test_a_row_is_never_longer_than_stated_whatever_it_holds",
    ),
    Mutant(
        "a table of residuals states half of its reach",
        "voters/rows.py",
        'move = voter.cells.reach_ / 2 if voter.relation == "zero-out" else voter.cells.reach_',
        "move = voter.cells.reach_ / 2",
        _RESIDUALS + "TestResiduals::test_states_how_far_one_row_moves_the_table",
    ),
    Mutant(
        "a person's residuals are all of its rows'",
        "voters/rows.py",
        'labels, people = self._labels, None if self.unit_ == "row" else self._people',
        "labels, people = self._labels, None",
        _RESIDUALS + "TestResiduals::test_a_person_with_many_rows_adds_no_more_than_one_row",
    ),
    Mutant(
        "all rounds of residuals share one charge",
        "learn/ways/rounds.py",
        'key=f"{key}/{turn}"))',
        "key=key))",
        "learn/test_every_way.py::test_it_learns_and_pays_within_its_budget_and_its_plan",
    ),
    Mutant(
        "rounds of residuals begin with a ledger that cannot pay for all",
        "learn/ways/rounds.py",
        "        plan.require_affordable(ledger, key=key)\n",
        "",
        _ROUNDS + "TestRefusals::test_an_adaptive_budget_that_cannot_pay_for_all_rounds_is_not_charged",
    ),
    Mutant(
        "noise for one table of residuals is used for twelve",
        "learn/ways/rounds.py",
        "            n_answers=_ROUNDS,\n",
        "            n_answers=1,\n",
        _ROUNDS + "test_the_plan_errs_up_and_takes_coarser_lines_for_less_budget",
    ),
    Mutant(
        "a record leaves out what was planned and not asked",
        "learn/ways/argmax.py",
        "spent=session.ledger.spent() + plan.left(paid),",
        "spent=session.ledger.spent(),",
        "learn/test_every_way.py::test_it_learns_and_pays_within_its_budget_and_its_plan",
    ),
    Mutant(
        "a delta that would publish a unit is planned with",
        "core/check.py",
        "if n_units and value >= 1 / n_units:",
        "if n_units and value >= 1:",
        "learn/test_plan.py::test_numbers_out_of_range_are_refused",
    ),
    Mutant(
        "a spectrum's rows are not shortened for the model",
        "voters/spectrum.py",
        "return np.asarray(whole / np.linalg.norm(whole, axis=1, keepdims=True))",
        "return np.asarray(whole)",
        _SPECTRUM + "TestLength::test_the_model_sees_the_rows_that_are_summed",
    ),
    Mutant(
        "the model is fed rows before they are shortened",
        "voters/spectrum.py",
        "return self._of_length_one(white)",
        "return np.column_stack([white, np.full(len(white), self.constant)])",
        _SPECTRUM + "TestLength::test_the_model_sees_the_rows_that_are_summed",
    ),
    Mutant(
        "the sensitivity of the first round is used for later ones",
        "voters/rows.py",
        "return shortened(parts * balanced(sure) * apart[:, -odds.shape[1] :], parts)",
        "return np.rint(parts * balanced(0 * sure + 1 / sure.shape[1]) * apart[:, -odds.shape[1] :])",
        _SPECTRUM + "TestSensitivity::test_no_row_moves_the_table_further_by_enumeration",
    ),
    Mutant(
        "a person adds the sum of what its rows add",
        "voters/rows.py",
        "np.trunc(added / sizes).sum(axis=0)",
        "added.sum(axis=0)",
        _SPECTRUM + "TestSensitivity::test_a_person_with_many_rows_adds_no_more_than_one_row",
    ),
    Mutant(
        "the first round of the filter is linearised at equal shares",
        "learn/students/filter.py",
        "            coef = self._turned(constant)\n",
        "            pass\n",
        "learn/test_filter.py::TestTheFilter::test_the_share_of_a_rare_class_is_told_by_the_first_round",
    ),
    Mutant(
        "numbers are not clipped to the declared bounds",
        "voters/rows.py",
        "2 * ((np.clip(values, low, high) - low)",
        "2 * ((values - low)",
        "learn/test_regressor.py::test_a_number_beyond_the_bounds_counts_as_the_nearest",
    ),
    Mutant(
        "residuals of numbers are neither clipped nor checked",
        "voters/rows.py",
        "return shortened(np.clip(parts / clip * apart, -parts, parts), parts)",
        "return np.rint(np.nan_to_num(parts / clip * apart))",
        "learn/test_regressor.py::TestSensitivity::test_no_row_moves_the_sums_further_by_enumeration",
    ),
    Mutant(
        "a regression begins with a ledger that cannot pay for all",
        "learn/ways/filter.py",
        "        plan.require_affordable(ledger, key=key)\n",
        "",
        "learn/test_regressor.py::test_refusals_name_no_value_and_charge_nothing",
    ),
    Mutant(
        "every row of a person counts as far from its prediction",
        "voters/rows.py",
        "sums = (counts // np.bincount(self._people, minlength=self.n_units_)[:, None]).sum(axis=0)",
        "sums = counts.sum(axis=0)",
        "learn/test_regressor.py::TestIntervals::test_a_person_counts_once_however_many_rows_it_has",
    ),
    Mutant(
        "a row that is left out counts as if it were replaced",
        "voters/rows.py",
        '// (4 if self.relation == "zero-out" else 2)',
        "// 2",
        "learn/test_regressor.py::TestIntervals::"
        "test_no_row_moves_the_table_of_distances_further_by_enumeration",
    ),
    Mutant(
        "intervals forget the noise of their counts",
        "learn/ways/filter.py",
        "        beyond += _SURE * self.noise * np.sqrt(np.arange(n_bins, -1, -1))\n",
        "",
        "learn/test_regressor.py::TestIntervals::test_where_noise_drowns_the_counts_they_are_the_bounds",
    ),
    Mutant(
        "a student of counts is as sure of a row's class as of the likeliest one",
        "learn/ways/counts.py",
        "confidence=float(labels.probability_.mean()))",
        "confidence=float(labels.confidence_.mean()))",
        "learn/test_ways.py::TestFeatures::"
        "test_are_not_surer_than_they_are_right_where_rows_alike_are_of_different_classes",
    ),
]
