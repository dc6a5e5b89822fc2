"""Language models for public prompts, and an evolution that varies texts by one."""

import numpy as np
import pytest

from ostraka import Budget, Ledger
from ostraka.synth import Evolution
from ostraka.voters.endpoint import EndpointError
from ostraka.voters.prompts import PromptModel

LETTERS = "abc"


class Writer:
    """In place of a language model: it changes letters of a text, by the number before it."""

    def __init__(self):
        self.asked = []

    def __call__(self, prompts):
        self.asked += prompts
        return [self.varied(prompt) for prompt in prompts]

    def varied(self, prompt):
        number, text = prompt.removeprefix("Variation ").split(": ")
        rng = np.random.default_rng(int(number))
        return "".join(LETTERS[rng.integers(3)] if rng.random() < 0.4 else letter for letter in text)


def embed(texts):
    return np.array([[str(text).count(letter) for letter in LETTERS] for text in texts], dtype=float)


def varied_by(model):
    """Every variation has a number of its own, so that one text can have several."""

    def vary(winners, rng):
        numbers = rng.integers(2**31, size=len(winners))
        return np.array(model([f"Variation {n}: {text}" for n, text in zip(numbers, winners, strict=True)]))

    return vary


def evolved(model, ledger=None):
    private = np.tile([3.0, 0.0, 1.0], (2000, 1))  # as "aaac"
    first = np.array(["bbbb", "abab", "cccc", "bcbc"] * 3, dtype="U8")
    return Evolution(first, vary=varied_by(model), embed=embed, n_rounds=12, epsilon=2.0).fit(
        private, ledger=ledger, rng=np.random.default_rng(0)
    )


def test_texts_evolve_by_a_language_model_which_sees_candidates_only(tmp_path):
    writer = Writer()
    texts = evolved(PromptModel(writer, model="writer", response_cache=tmp_path / "answers"))
    counts = embed(texts.sample(100, random_state=0)).mean(axis=0)
    assert np.abs(counts - [3, 0, 1]).max() < 0.6
    assert len(writer.asked) == len(set(writer.asked))


def test_a_run_from_the_cache_is_the_same_and_asks_nothing(tmp_path):
    path, writer = tmp_path / "answers", Writer()
    first = evolved(PromptModel(writer, model="writer", response_cache=path))
    n_asked = len(writer.asked)
    again = evolved(PromptModel(writer, model="writer", response_cache=path, replay=True))
    assert len(writer.asked) == n_asked > 0
    assert again.candidates_.tolist() == first.candidates_.tolist()


def test_a_model_that_fails_is_noticed_before_the_charge():
    def broken(prompts):
        raise RuntimeError(prompts[0])

    with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5, adaptive=False)) as ledger:
        with pytest.raises(EndpointError, match="RuntimeError") as error:
            evolved(PromptModel(broken, model="broken"), ledger)
        assert ledger.epsilon() == 0
    assert "bbbb" not in str(error.value)


def test_prompts_beyond_the_limit_and_unknown_ones_in_a_replay_are_refused_before_a_request():
    writer = Writer()
    with pytest.raises(ValueError, match="max_calls must be at least 2"):
        PromptModel(writer, model="m", max_calls=1)(["Variation 1: a", "Variation 2: a"])
    with pytest.raises(ValueError, match="1 prompts are not in the cache"):
        PromptModel(writer, model="m", replay=True)(["Variation 1: a"])
    assert writer.asked == []


def test_answers_of_two_models_are_kept_apart(tmp_path):
    path = tmp_path / "answers"
    for name in ("one", "two"):
        model = PromptModel(lambda prompts, n=name: [n] * len(prompts), model=name, response_cache=path)
        assert model(["which?"]) == [name]
    assert model([]) == []


def test_a_prompt_without_an_answer_gives_the_empty_text():
    def picky(prompts):
        return ["yes" if prompt != "bad" else None for prompt in prompts]

    assert PromptModel(picky, model="m")(["good", "bad"]) == ["yes", ""]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": ""}, "model must be"),
        ({"endpoint": "http://models.example/v1"}, "url must be https"),
        ({"max_calls": -1}, "max_calls must"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        PromptModel(**{"endpoint": Writer(), "model": "m"} | settings)


def test_what_is_no_endpoint_is_refused():
    with pytest.raises(TypeError, match="endpoint must be"):
        PromptModel(3, model="m")
