"""LP-MST: each label asked in one stage, one charge for all, and nothing seen before answers are stored."""

import numpy as np
import pytest
import torch

from ostraka.core.mechanisms.wrapped import NOT_YET
from ostraka.learn.students import labels as multistage
from ostraka.mechanisms import PriorResponse, RandomizedResponse
from ostraka.networks import TorchClassifier
from ostraka.students import MultiStage
from tests.learn.students.label_learners import MOST, QUICK, X, Y, book, network

pytestmark = pytest.mark.usefixtures("same_draws")  # what is learned from noisy labels is a matter of luck


@pytest.mark.parametrize("shares", [(1.0,), (0.6, 0.4), (0.5, 0.2, 0.3)])
def test_all_stages_together_cost_one_epsilon(shares):
    with book() as ledger:
        model = MultiStage(network(), epsilon=1.5, shares=shares, ledger=ledger).fit(X, Y)
        assert (ledger.count(), ledger.unit) == (1, "label")
        assert model.curve_ == PriorResponse(prior=[[0.5, 0.5]], epsilon=1.5).curve()
        assert model.curve_.rdp[-1] == 1.5
        assert ledger.epsilon() <= 1.5 * (1 + 1e-9)
        sizes = np.bincount(model.stage_) / len(X)
        np.testing.assert_allclose(sizes, shares, atol=1 / len(X))
        assert model.answers_.min() >= 0


def test_one_stage_is_ordinary_training_on_randomised_response():
    model = MultiStage(network(), epsilon=2.0, shares=[1.0]).fit(X, Y)
    plain = network().fit(X.astype(np.float32), model.answers_)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), rtol=1e-6)


def test_without_noise_the_last_network_is_trained_on_all_labels():
    model = MultiStage(network(epochs=10), epsilon=MOST, shares=(0.7, 0.3)).fit(X, Y)
    first = model.stage_ == 0
    np.testing.assert_array_equal(model.answers_[first], Y[first])
    plain = network(epochs=10).fit(X.astype(np.float32), model.answers_)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), rtol=1e-6)


def test_later_stages_are_advised_by_a_network_trained_on_earlier_answers_only(monkeypatch):
    priors = []
    inner = PriorResponse.__post_init__
    monkeypatch.setattr(
        PriorResponse, "__post_init__", lambda self: (priors.append(np.array(self.prior)), inner(self))[1]
    )
    model = MultiStage(network(epochs=8), epsilon=3.0, shares=(0.5, 0.5), temperature=0.5).fit(X, Y)
    rows = np.flatnonzero(model.stage_ == 0)
    before = TorchClassifier(**QUICK | {"epochs": 8}).fit(X[rows].astype(np.float32), model.answers_[rows])
    logits = before.logits(X[model.stage_ == 1].astype(np.float32))
    expected = np.exp(2 * logits) / np.exp(2 * logits).sum(axis=1, keepdims=True)
    (advice,) = [prior for prior in priors if len(prior)]
    np.testing.assert_allclose(advice, expected, rtol=1e-5, atol=1e-12)


@pytest.mark.statistical
def test_advised_answers_are_right_more_often():
    """At epsilon 2 a plain answer is right in 45 % of rows: six standard errors of 700 rows are 11 %."""
    model = MultiStage(network(epochs=30, learning_rate=3e-3), epsilon=2.0).fit(X, Y)
    right = model.answers_ == Y
    assert right[model.stage_ == 1].mean() > right[model.stage_ == 0].mean() + 0.1
    chance = np.exp(RandomizedResponse(n_classes=10, epsilon=2.0).log_likelihood([0])[0, 0])
    assert abs(right[model.stage_ == 0].mean() - chance) < 6.2 * np.sqrt(0.25 / (model.stage_ == 0).sum())


def test_answers_that_the_adviser_finds_unlikely_can_be_left_out():
    model = MultiStage(network(epochs=8), epsilon=2.0, filtered=True).fit(X, Y)
    rows = np.flatnonzero(model.stage_ == 0)
    before = network(epochs=8).fit(X[rows].astype(np.float32), model.answers_[rows])
    prior = before.predict_proba(X[model.stage_ == 1].astype(np.float32))
    k = int(PriorResponse(prior=prior, epsilon=2.0).kept.mean())
    likeliest = np.argsort(-before.logits(X[rows].astype(np.float32)), axis=1)[:, :k]
    mask = np.ones(len(X), dtype=bool)
    mask[rows] = (likeliest == model.answers_[rows][:, None]).any(axis=1)
    assert 0 < mask.sum() < len(X)
    plain = network(epochs=8).fit(X[mask].astype(np.float32), model.answers_[mask])
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), rtol=1e-4, atol=1e-6)
    single_stage = MultiStage(network(), epsilon=2.0, shares=(1.0,), filtered=True).fit(X, Y)
    np.testing.assert_array_equal(single_stage.stage_, 0)


def test_a_crash_between_stages_is_not_paid_twice_and_leaves_nothing_behind(tmp_path, monkeypatch, capfd):
    """What the first draw answered must not outlive the process, for the second draw is another release."""
    weights, priors = tmp_path / "weights", []
    inner = TorchClassifier.minimise

    def crash(self, *arguments, **named):
        inner(self, *arguments, **named)
        priors.append(self)
        raise KeyboardInterrupt

    with book(where=tmp_path / "ledger") as ledger, monkeypatch.context() as patched:
        patched.setattr(TorchClassifier, "minimise", crash)
        model = MultiStage(network(checkpoint=weights), epsilon=3.0, ledger=ledger)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
        assert len(priors) == 1
        assert ledger.count() == 1
        assert ledger.answer(1) is None
        assert not hasattr(model, "network_")
        assert not hasattr(model, "answers_")
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"ledger"}
    assert capfd.readouterr() == ("", "")
    with book(where=tmp_path / "ledger") as ledger:
        model = MultiStage(network(checkpoint=weights), epsilon=3.0, ledger=ledger).fit(X, Y)
        assert ledger.count() == 1
        np.testing.assert_array_equal(ledger.answer(1), model.answers_)
    assert weights.exists()  # of the last training, whose answers are stored


def test_a_stage_that_diverges_says_so_only_when_the_answers_are_stored(monkeypatch):
    events = []
    inner = multistage._learn

    def learn(model, rows, answers):
        events.append(ledger.answer(1))
        if (answers == NOT_YET).any():
            model.set_params(learning_rate=1e30, optimizer=torch.optim.SGD)
        inner(model, rows, answers)

    monkeypatch.setattr(multistage, "_learn", learn)
    with book() as ledger:
        model = MultiStage(network(epochs=3), epsilon=3.0, ledger=ledger)
        with pytest.warns(RuntimeWarning, match="before stage 1 diverged"):
            model.fit(X, Y)
    assert events[0] is None
    np.testing.assert_array_equal(events[1], model.answers_)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 41.0}, "epsilon must be at most 40"),
        ({"shares": (0.5, 0.6)}, "shares must be > 0 and sum to 1"),
        ({"shares": (1.5, -0.5)}, "shares must be > 0 and sum to 1"),
        ({"shares": (float("nan"), 1.0)}, "shares must be > 0 and sum to 1"),
        ({"shares": 1.0}, "shares must be > 0 and sum to 1"),
        ({"shares": (0.9999, 0.0001)}, "leave a stage empty for n_samples=1797 rows"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_charged(settings, message):
    with book(100.0) as ledger:
        with pytest.raises(ValueError, match=message):
            MultiStage(**{"network": network(), "epsilon": 1.0, "ledger": ledger} | settings).fit(X, Y)
        assert ledger.count() == 0
