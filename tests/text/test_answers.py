"""Answers: a document is near by itself, counts one ballot, and the ledger pays for each question once."""

import numpy as np
import pytest

from ostraka import BudgetExceeded, Ledger
from ostraka.text import writer as writers
from tests.text.test_writer import budget, rng

NOTES = [f"the {word} is {'warm' if i % 3 else 'dull'}" for i in range(9) for word in ("plot", "acting")]
QUESTION = "is the plot warm"
NEAR = {"retrieve": 4, "at": 0.6}


@pytest.fixture
def answering(written):
    """A writer with notes of one class."""

    def make(model=None, notes=NOTES, **settings):
        labels = ["bad"] * len(notes)
        return written(model, texts=list(notes), labels=labels, classes=["bad"], n_tokens=4, **settings)

    return make


def near(writer, at=NEAR["at"]):
    return sorted(writer._near(writers.unit(writer.features(QUESTION)), at))


def test_whether_a_document_is_near_depends_on_it_and_on_the_question_only(answering):
    choice = near(answering())
    assert choice == sorted(note for note in NOTES if note != "the acting is dull")
    for left_out in range(0, len(NOTES), 5):
        choice_without = near(answering(notes=NOTES[:left_out] + NOTES[left_out + 1 :]))
        was = [NOTES[left_out]] if NOTES[left_out] in choice else []
        assert sorted(choice_without + was) == choice
    closer = near(answering(notes=[*NOTES, *[QUESTION] * 40]))
    assert [note for note in closer if note != QUESTION] == choice  # many that are nearer push nobody out


def test_a_document_that_is_left_out_moves_a_draw_by_one_ballot_however_many_are_near(answering):
    writer = answering()
    draw = writer._draw(0.3, n_documents=4)
    documents = near(writer)
    assert len(documents) > 2 * NEAR["retrieve"]
    for tokens in ([], writer.model.tokens("the"), writer.model.tokens("the plot is")):
        place = writer._read(writer.asking, QUESTION, documents, tokens, width=4)
        counted, mechanism = draw.contributions(place.differences), draw.at(place.public)
        laws = [
            mechanism.log_outcomes(np.delete(counted, k, axis=0).sum(axis=0)) for k in range(len(documents))
        ]
        whole = mechanism.log_outcomes(counted.sum(axis=0))
        moved = [np.ptp(whole - law) for law in laws]
        assert max(moved) <= draw.range * (1 + 1e-9)
    assert max(moved) > 0.9 * draw.range


def test_a_question_is_paid_once_and_another_one_again(answering, asked, tmp_path):
    model = asked()
    with Ledger(tmp_path / "ledger", budget=budget(90.0)) as ledger:
        writer = answering(model, store=tmp_path / "store")
        first = writer.answer(QUESTION, **NEAR, ledger=ledger, rng=rng(0))
        assert ledger.epsilon() == pytest.approx(first.epsilon)
        assert 29.9 < first.epsilon <= 30.0
        calls = len(model.calls)
        again = answering(model, store=tmp_path / "store").answer(QUESTION, **NEAR, ledger=ledger, rng=rng(1))
        assert (again, len(ledger.entries())) == (first, 1)
        assert {len(prompts) for prompts, _ in model.calls[calls:]} == {1}
        writer.answer("is the acting dull", **NEAR, ledger=ledger, rng=rng(0))
        assert (len(ledger.entries()), ledger.unit) == (2, "document (zero-out)")


def test_prompts_are_asked_in_batches_of_a_public_shape_whoever_is_near(answering, asked):
    for notes in (NOTES, NOTES[:1], ["quartz"]):
        model = asked()
        answering(model, notes=notes).answer(QUESTION, **NEAR, rng=rng())
        shapes = [len(prompts) for prompts, _ in model.calls if prompts[0].startswith(notes[0][:4])]
        assert set(shapes) == ({NEAR["retrieve"]} if notes[0] in NOTES else set())


def test_answers_say_what_the_notes_near_the_question_say(answering):
    def score(writer):
        place = writer._read(writer.asking, QUESTION, near(writer), writer.model.tokens("plot is"), width=4)
        draw = writer._draw(20.0, n_documents=4).at(place.public)
        law = draw.log_outcomes(draw.contributions(place.differences).sum(axis=0))
        pieces = [token.piece for token in place.candidates]
        return law[pieces.index(b" warm")] - law[pieces.index(b" dull")]

    others = [note.replace("plot is warm", "plot is dull") for note in NOTES]
    assert score(answering()) > 1 > -1 > score(answering(notes=others))


def test_an_answer_that_was_killed_goes_on_and_pays_nothing_twice(answering, asked, tmp_path):
    with Ledger(tmp_path / "ledger", budget=budget()) as ledger:
        with pytest.raises(KeyboardInterrupt):
            answering(asked(fails_after=3), store=tmp_path / "s").answer(
                QUESTION, **NEAR, ledger=ledger, rng=rng(1)
            )
        model = asked()
        answering(model, store=tmp_path / "s").answer(QUESTION, **NEAR, ledger=ledger, rng=rng(1))
        assert len(ledger.entries()) == 1
        private = [tokens for prompts, tokens in model.calls if len(prompts) > 1]
        assert all(tokens for tokens in private)  # the first token is not drawn again


def test_what_cannot_be_paid_or_is_paid_by_meters_is_refused_before_any_private_prompt(answering, asked):
    model = asked()
    with Ledger(":memory:", budget=budget(5.0)) as ledger, pytest.raises(BudgetExceeded):
        answering(model).answer(QUESTION, **NEAR, ledger=ledger, rng=rng())
    with pytest.raises(ValueError, match="retrieve must be"):
        answering(model).answer(QUESTION, retrieve=0, at=0.6, rng=rng())
    with pytest.raises(ValueError, match="paid must be None"):
        answering(model, paid=2).answer(QUESTION, **NEAR)
    assert {len(prompts) for prompts, _ in model.calls} == {1}


def test_a_document_without_features_is_near_to_nothing_and_nobody_is_told(answering):
    def features(text):
        if "quartz" in text:
            raise ValueError(f"canary {text}")
        return np.full(2, np.nan) if "acting" in text else np.ones(2)

    notes = [*NOTES, "quartz plot"]
    assert near(answering(notes=notes, features=features)) == [n for n in sorted(NOTES) if "plot" in n]
    answering(notes=notes, features=features).answer(QUESTION, **NEAR, rng=rng())
