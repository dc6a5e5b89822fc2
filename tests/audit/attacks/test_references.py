"""Training of references: in stacks as one after another, interrupted and continued."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB

from ostraka.attacks import ReferenceModels


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(80, 4)).astype(np.float32), rng.integers(0, 3, size=80)


class InterruptedTrainingError(Exception):
    pass


def stop_after(many):
    def progress(stage, done, total):
        assert (stage, total) == ("references", 6)
        if done == many:
            raise InterruptedTrainingError

    return progress


def test_networks_trained_in_a_stack_say_what_they_say_when_trained_alone(rows):
    pytest.importorskip("torch")
    from ostraka.networks import TorchClassifier

    X, y = rows
    network = TorchClassifier(epochs=3, batch_size=16, learning_rate=0.01, n_threads=1)
    models = ReferenceModels(network, n_models=3, random_state=5).fit(X, y)
    for number, chosen in enumerate(models.included):
        seeds = [
            network.set_params(random_state=seed) for seed in models.seeds_[number : number + 1].tolist()
        ]
        alone = seeds[0].fit(X[chosen], y[chosen])
        assert models.confidences_[number] == pytest.approx(
            ReferenceModels.true_label_confidences(alone, X, y), abs=1e-4
        )


def test_a_module_that_only_trains_alone_is_trained_alone(rows):
    torch = pytest.importorskip("torch")
    from ostraka.networks import TorchClassifier

    def normed(n_features, n_classes):
        return torch.nn.Sequential(torch.nn.BatchNorm1d(n_features), torch.nn.Linear(n_features, n_classes))

    X, y = rows
    network = TorchClassifier(normed, epochs=2, batch_size=16, n_threads=1)
    models = ReferenceModels(network, n_models=2, random_state=5).fit(X, y)
    alone = network.set_params(random_state=int(models.seeds_[1])).fit(*(a[models.included[1]] for a in rows))
    assert models.confidences_[1] == pytest.approx(
        ReferenceModels.true_label_confidences(alone, X, y), abs=1e-4
    )


def test_networks_that_diverge_are_counted(rows):
    pytest.importorskip("torch")
    from ostraka.core.check import TrainingDiverged
    from ostraka.networks import TorchClassifier

    X, y = rows
    network = TorchClassifier(epochs=30, batch_size=16, learning_rate=1e30, n_threads=1)
    with pytest.raises(TrainingDiverged, match="2 of 2 references diverged"):
        ReferenceModels(network, n_models=2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="give the checkpoint to ReferenceModels"):
        ReferenceModels(network.set_params(checkpoint="here"), n_models=2).fit(X, y)
    network.set_params(checkpoint=None)
    with pytest.raises(ValueError, match="X must be finite"):
        ReferenceModels(network, n_models=2).fit(X * np.inf, y)


def test_an_interrupted_training_continues_and_ends_as_one_that_was_not(rows, tmp_path):
    X, y = rows
    forest = RandomForestClassifier(3)
    reference = ReferenceModels(forest, n_models=6, random_state=1).fit(X, y)
    interrupted_fit = ReferenceModels(
        forest, n_models=6, random_state=1, checkpoint=tmp_path / "kept", progress=stop_after(4)
    )
    with pytest.raises(InterruptedTrainingError):
        interrupted_fit.fit(X, y)
    assert len(list((tmp_path / "kept").iterdir())) == 4
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0
    trained = []
    interrupted_fit.progress = lambda _stage, done, _total: trained.append(done)
    assert (interrupted_fit.fit(X, y).confidences_ == reference.confidences_).all()
    assert trained == [1, 2, 3, 4, 5, 6]


def test_networks_in_stacks_continue_too(rows, tmp_path):
    pytest.importorskip("torch")
    from ostraka.networks import TorchClassifier

    X, y = rows
    network = TorchClassifier(epochs=2, batch_size=16, n_threads=1)
    settings = {"n_models": 10, "random_state": 1, "checkpoint": tmp_path}
    reference = ReferenceModels(network, **settings).fit(X, y)
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["references-00000-00004.npz", "references-00005-00009.npz"]
    files[1].unlink()
    again = ReferenceModels(network, **settings).fit(X, y)
    assert (again.confidences_ == reference.confidences_).all()


def test_references_of_other_rows_settings_or_seeds_are_not_continued(rows, tmp_path):
    X, y = rows
    settings = {"n_models": 2, "random_state": 1, "checkpoint": tmp_path}
    ReferenceModels(RandomForestClassifier(3), **settings).fit(X, y)
    for estimator, features in ((RandomForestClassifier(4), X), (RandomForestClassifier(3), X + 1)):
        with pytest.raises(ValueError, match="belongs to other references"):
            ReferenceModels(estimator, **settings).fit(features, y)
    (tmp_path / "references-00000-00000.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="does not hold reference models"):
        ReferenceModels(RandomForestClassifier(3), **settings).fit(X, y)
    with pytest.raises(ValueError, match="integer random_state"):
        ReferenceModels(GaussianNB(), n_models=2, checkpoint=tmp_path).fit(X, y)
