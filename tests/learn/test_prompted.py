"""Prompts as teachers of PATEClassifier: the user's own stay as they are, and repeats are refused."""

import numpy as np
import pytest

from ostraka import PATEClassifier
from ostraka.learn.ways.argmax import Prompts
from ostraka.voters import PromptEnsemble

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(40, 2)), RNG.normal(size=(12, 2))
NAMES = np.where(X[:, 0] > 0, "good", "bad")


def parrot(prompts):
    return ["good" if prompt.count("good") > prompt.count("bad") else "bad" for prompt in prompts]


def fitted(**settings):
    ensemble = PromptEnsemble(parrot, model="parrot", classes=())
    texts = Prompts(ensemble, [f"a {name} film" for name in NAMES], ["a good film", "a bad film"] * 6)
    settings = {"n_teachers": 8, "n_answers": 6, "epsilon": 40.0, "delta": 1e-3, "random_state": 0} | settings
    return ensemble, PATEClassifier(texts, student="spreading", **settings).fit(X, NAMES, X_public=PUBLIC)


def test_the_users_ensemble_stays_as_it_is_so_that_the_same_fit_costs_nothing_more():
    ensemble, model = fitted()
    assert (ensemble.n_teachers, ensemble.classes) == (100, ())
    assert not hasattr(ensemble, "manifest_")
    again = PATEClassifier(**model.get_params(deep=False)).fit(X, NAMES, X_public=PUBLIC)
    assert again.ledger_ is model.ledger_


def test_a_grid_of_numbers_does_not_say_which_texts_are_the_same():
    with pytest.raises(ValueError, match="consistent must be False for prompts, got True"):
        fitted(consistent=True)
