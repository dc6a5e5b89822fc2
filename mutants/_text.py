"""Defects of private text: what a document may count, what a draw costs, how a token is drawn."""

from __future__ import annotations

from mutants._mutant import Mutant

__all__ = ["MUTANTS"]

_DRAW, _CHOICE = "core/mechanisms/test_tokens.py::", "core/mechanisms/test_selection.py::"

_WRITER, _METER = "text/test_writer.py::", "text/test_meter.py::"
_ANSWERS = "text/test_answers.py::"

MUTANTS = [
    Mutant(
        "a field of a prompt may be within another, so that a document is a format",
        "voters/prompts.py",
        '    if any(spec and "{" in spec for _, _, spec, _ in parsed):\n',
        "    if False:\n",
        _WRITER + "test_templates_with_other_fields_are_refused",
    ),
    Mutant(
        "features of a document are scaled by the longest",
        "text/evolution.py",
        "[unit(counts) for counts in word_counts(some)]",
        "word_counts(some) / max(map(len, some))",
        "text/test_evolution.py::test_features_of_a_document_are_its_own",
    ),
    Mutant(
        "candidates are those of a private prompt",
        "text/writer.py",
        "[answer] = self._answers([asked], tokens)",
        "[answer] = self._answers([self._batches[0][0][0] + asked], tokens)",
        _WRITER + "test_candidates_and_public_numbers_do_not_depend_on_documents",
    ),
    Mutant(
        "a run that goes on draws its tokens again",
        "text/writer.py",
        'stored = self._log.get(f"{name} {t}")',
        "stored = None",
        _WRITER + "test_a_run_that_was_killed_goes_on_with_the_stored_tokens_and_pays_nothing_twice",
    ),
    Mutant(
        "a store that is lost is not noticed: the same key gives other tokens at no price",
        "text/writer.py",
        "documents = self._keyed(json.dumps([self._batches, self.documents_])).hex()",
        'documents = ""',
        _WRITER + "test_a_store_that_is_lost_and_other_documents_are_charged_anew",
    ),
    Mutant(
        "a batch pays for one of its texts",
        "text/writer.py",
        "uses = rounds * self.n_tokens",
        "uses = self.n_tokens",
        _WRITER + "test_disjoint_batches_cost_as_much_as_one_and_more_texts_of_a_batch_cost_more",
    ),
    Mutant(
        "a document is metered by what it tells beside the others",
        "core/mechanisms/selection.py",
        "cost = self.draw.cost(contributions)",
        "cost = self.draw.cost(contributions - contributions.mean(axis=0).astype(int))",
        _METER + "test_what_one_document_may_say_does_not_depend_on_the_others",
    ),
    Mutant(
        "a document that is over its limit goes on",
        "core/mechanisms/selection.py",
        "fits = spent + cost <= self.limit",
        "fits = spent <= self.limit",
        _METER + "test_a_greedy_document_stops_at_its_limit_and_quiet_ones_go_on",
    ),
    Mutant(
        "one document counts as much as it likes, and only the mean is in bounds",
        "core/mechanisms/selection.py",
        "within = np.clip((rows - middle) / self.clip, -1.0, 1.0)",
        "within = (rows - middle) / self.clip",
        _DRAW + "test_only_the_shape_of_a_documents_numbers_counts_and_numbers_that_are_none_count_nothing",
    ),
    Mutant(
        "a document that is replaced costs what one that is left out does",
        "core/mechanisms/selection.py",
        'return self.steps if self.relation == "zero-out" else 2 * self.steps',
        "return self.steps",
        _DRAW + "test_no_neighbour_exceeds_the_range_and_the_worst_reaches_it",
    ),
    Mutant(
        "the middle of the ranges is that of all documents",
        "core/mechanisms/selection.py",
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
    Mutant(
        "a document is near if it is nearer than others are: one that is left out moves others, too",
        "text/writer.py",
        "near = [score >= at for score in scores]",
        "near = [score >= max(at, float(np.mean(scores))) for score in scores]",
        _ANSWERS + "test_whether_a_document_is_near_depends_on_it_and_on_the_question_only",
    ),
    Mutant(
        "how many documents are near shows in the shape of the last batch",
        "text/writer.py",
        "[*part, *[asked] * (width - len(part))]",
        "part",
        _ANSWERS + "test_prompts_are_asked_in_batches_of_a_public_shape_whoever_is_near",
    ),
    Mutant(
        "an answer pays for one of its tokens",
        "text/writer.py",
        "asked.draw, asked.uses, asked.draw,",
        "asked.draw, 1, asked.draw,",
        _ANSWERS + "test_a_question_is_paid_once_and_another_one_again",
    ),
    Mutant(
        "a service writes an answer that was not paid",
        "serve/writing.py",
        "if isinstance(outcome, BudgetExceeded):",
        "if isinstance(outcome, BudgetExceeded) and not asked.uses:",
        "serve/test_writing.py::test_an_answer_is_paid_by_its_client_before_it_is_written_and_once",
    ),
]
