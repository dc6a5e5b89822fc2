"""Defects of what reads rows: names of classes and people, files, types."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_FILES, _SCHEMA = "contracts/test_reader_contract.py::", "synth/test_schema.py::"
_LABELS, _PEOPLE = "contracts/test_label_contract.py::", "data/test_units.py::"

MUTANTS = [
    Mutant(
        "a label that nobody declared is the next class",
        "data/labels.py",
        "return np.where(self.classes[codes] == values, codes, -1)",
        "return codes",
        _LABELS + "test_a_label_that_is_not_declared_is_refused_and_has_no_code",
    ),
    Mutant(
        "an array makes numbers among text text",
        "data/labels.py",
        "array = np.array(y, dtype=object) if isinstance(y, list | tuple) and _mixed(y) else np.asarray(y)",
        "array = np.asarray(y)",
        _LABELS + "test_all_who_take_labels_agree",
    ),
    Mutant(
        "an invisible character makes two people of one",
        "data/units.py",
        "if unicodedata.category(c) not in",
        "if c not in",
        _PEOPLE + "test_a_person_is_in_one_shard_however_the_name_is_written",
    ),
    Mutant(
        "a date and its midnight are two people",
        "data/units.py",
        "    if not _TIME.fullmatch(text):\n        return text",
        "    return text",
        _PEOPLE + "test_a_person_is_in_one_shard_however_the_name_is_written",
    ),
    Mutant(
        "one float names several people",
        "data/units.py",
        "(isinstance(value, float) and abs(value) >= _LARGEST)",
        "False",
        _PEOPLE + "test_identifiers_which_are_one_for_several_people_are_refused",
    ),
    Mutant(
        "one private byte decides the encoding of all rows",
        "data/table.py",
        "(usual.encoding if not public or is_utf8(path) else",
        "(usual.encoding if is_utf8(path) else",
        _FILES + "test_a_row_of_a_file_is_read_as_it_is_alone",
    ),
    Mutant(
        "private lines decide the delimiter",
        "data/table.py",
        "lines = lines[: _LINES if public and len(lines) > 1 else 1]",
        "lines = lines[:_LINES]",
        _FILES + "test_private_lines_do_not_decide_the_delimiter",
    ),
    Mutant(
        "a quote that is not closed takes the next rows",
        "data/table.py",
        "(counts[0] == self._n - 1) & (counts[1] == 0)",
        "(counts[0] == self._n - 1)",
        _FILES + "test_a_row_of_a_file_is_read_as_it_is_alone",
    ),
    Mutant(
        "an encoding with states is taken",
        "data/table.py",
        "if self.encoding is not None and not _is_row_wise(self.encoding):",
        "if self.encoding is None:",
        _FILES + "test_an_encoding_in_which_rows_depend_on_each_other_is_refused",
    ),
    Mutant(
        "a value outside the schema ends the fit",
        "data/schema.py",
        "codes[~listed] = unlisted if fallback is None else fallback",
        "codes[~listed] = {None: unlisted}[fallback]",
        _SCHEMA + "test_each_value_has_a_public_code_whatever_it_is",
    ),
    Mutant(
        "a text among numbers makes all of them text",
        "data/table.py",
        "    if isinstance(values, list | tuple):\n        return np.fromiter",
        "    if isinstance(values, tuple):\n        return np.fromiter",
        _SCHEMA + "test_each_value_has_a_public_code_whatever_it_is",
    ),
    Mutant(
        "one missing date gives all dates another text",
        "data/table.py",
        "column.to_numpy() if plain and not column.null_count()",
        "column.to_numpy().astype(str) if not column.null_count()",
        _FILES + "test_a_missing_cell_of_a_frame_changes_no_other",
    ),
    Mutant(
        "a text among numbers changes what stands for no number",
        "data/table.py",
        "        for text in self.missing:  # -999.0",
        "        for text in () if strange.any() else self.missing:  # -999.0",
        _FILES + "test_a_text_among_numbers_changes_no_other",
    ),
    Mutant(
        "a text in a list of rows makes all cells text",
        "voters/cells.py",
        "elif isinstance(X, list | tuple) and X and",
        "elif isinstance(X, tuple) and X and",
        _FILES + "test_a_table_of_votes_moves_no_further_than_its_adjacency_says",
    ),
    Mutant(
        "a private number without end is infinite among the features",
        "data/columns.py",
        "numbers.append((at, values.clip(-_FARTHEST, _FARTHEST)))",
        "numbers.append((at, values))",
        "cli/test_data.py::test_a_private_number_far_from_all_public_ones_stays_finite",
    ),
    Mutant(
        "an identifier that repeats becomes a feature under one row",
        "data/findings.py",
        'REFUSED,\n                "looks like an identifier that repeats',
        'DOUBT,\n                "looks like an identifier that repeats',
        "cli/test_check.py::test_an_identifier_that_public_rows_have_too_never_becomes_a_feature_in_silence",
    ),
    Mutant(
        "classes that are equal but for case are two",
        "data/findings.py",
        "twins = [group for group in _alike(classes) if len(group) > 1]",
        "twins = [group for group in _alike(classes) if len(group) > 9]",
        "cli/test_check.py::test_without_the_options_nothing_is_spent",
    ),
    Mutant(
        "without a terminal to ask on, a run spends",
        "console.py",
        "    if not _is_terminal():\n",
        "    if not _is_terminal() and not sys.argv:\n",
        "cli/test_check.py::test_without_a_terminal_and_without_yes_nothing_is_spent",
    ),
    Mutant(
        "a second release of a table is not charged to its ledger",
        "data/budgets.py",
        "        if self.affords(mechanism, uses=uses):  # else",
        "        if self.affords(mechanism, uses=uses) and not self.account.units():  # else",
        "cli/test_budgets.py::test_the_total_is_that_of_both_mechanisms_composed",
    ),
    Mutant(
        "a copy of a table is another table",
        "data/budgets.py",
        "if shared.mean() > least:",
        "if shared.mean() > 1 + least:",
        "cli/test_budgets.py::test_the_total_is_that_of_both_mechanisms_composed",
    ),
    Mutant(
        "a release that protects rows counts as one that protects people",
        "data/budgets.py",
        "within = unit in _OWNERS.get(wanted_unit, ())",
        "within = True",
        "cli/test_budgets.py::test_a_release_that_protects_rows_promises_people_nothing",
    ),
    Mutant(
        "a release that protects rows promises their labels nothing",
        "data/budgets.py",
        '"label": ("row", "person")',
        '"label": ()',
        "cli/test_labels.py::test_releases_of_rows_and_people_count_for_labels",
    ),
    Mutant(
        "what hides that a unit is left out counts once for one that is replaced",
        "data/budgets.py",
        '{"replace-one": 2, "zero-out": 1}',
        '{"replace-one": 1, "zero-out": 1}',
        "cli/test_budgets.py::test_a_unit_that_is_left_out_counts_twice_for_one_that_is_replaced",
    ),
]
