"""FixMatch: equations 3 and 4 by hand, what predicts, and that nothing is lost when it goes wrong."""

import warnings

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_blobs

torch = pytest.importorskip("torch", exc_type=ImportError)

from ostraka import ABSTAIN  # noqa: E402  (needs torch)
from ostraka.learn.students.fixmatch import _Match  # noqa: E402
from ostraka.networks import TorchClassifier  # noqa: E402  (needs torch)
from ostraka.students import FixMatch, ImageAugment, TableAugment  # noqa: E402
from tests.learn.students.conftest import checks_of_scikit_learn  # noqa: E402

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
ANSWERS = np.where(np.arange(150) % 10 == 0, Y, ABSTAIN)


def network(**choices) -> TorchClassifier:
    quick = {"epochs": 5, "batch_size": 8, "learning_rate": 0.01, "n_threads": 1, "random_state": 0}
    return TorchClassifier(**{**quick, **choices})


class Marked:
    """Weak rows stay as they are, strong ones are moved: so it shows which was used where."""

    def __init__(self, *, distance=1.0):
        self.far = distance

    def weak(self, rows):
        return rows

    def strong(self, rows):
        return rows + self.far


@checks_of_scikit_learn(
    FixMatch(network(epochs=15)),
    expected_failed_checks=lambda _: {"check_classifiers_classes": "-1 means unanswered"},
)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning:sklearn")
def test_it_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)


@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.8])
@pytest.mark.parametrize("weight", [0.0, 1.0, 2.5])
def test_the_loss_is_that_of_equations_3_and_4(threshold, weight):
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    linear = torch.nn.Linear(4, 3).double()
    labelled, others = rng.normal(size=(6, 4)), 3 * rng.normal(size=(40, 4))
    targets = rng.integers(3, size=6)
    rows = {"rows": labelled, "targets": targets, "others": others}
    match = _Match(
        **{name: torch.as_tensor(values) for name, values in rows.items()},
        augment=Marked(), batch_size=6, ratio=3, threshold=threshold, weight=weight,
    )  # fmt: skip
    labelled_places, many = np.array([5, 0, 3]), np.arange(3, 30)
    got = match.loss(linear, (torch.as_tensor(labelled_places), torch.as_tensor(many)))

    matrix, bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()
    supervised = -log_softmax(labelled[labelled_places] @ matrix.T + bias, axis=1)[
        range(3), targets[labelled_places]
    ].mean()
    weak, strong = (rows @ matrix.T + bias for rows in (others[many], others[many] + 1.0))
    sure, guess = softmax(weak, axis=1).max(axis=1), weak.argmax(axis=1)
    learned = -log_softmax(strong, axis=1)[range(27), guess] * (sure >= threshold)
    assert 0 < (sure >= threshold).sum() < 27
    assert float(got.detach()) == pytest.approx(supervised + weight * learned.sum() / 27, rel=1e-12)


def test_the_gradient_is_that_of_guesses_taken_for_labels():
    linear = torch.nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[4.0, 0.0], [0.0, 4.0]]))
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0]])

    def gradient(distance):
        arguments = {
            "rows": rows,
            "targets": torch.tensor([0, 1]),
            "others": rows,
            "augment": Marked(distance=distance),
        }
        match = _Match(**arguments, batch_size=2, ratio=1, threshold=0.9, weight=1.0)
        linear.zero_grad()
        match.loss(linear, (torch.arange(2), torch.arange(2))).backward()
        return linear.weight.grad.clone()

    def by_hand(rows):  # of the mean cross-entropy with the identity as targets
        wrong = softmax(4 * rows, axis=1) - np.eye(2)
        return wrong.T @ rows / 2

    np.testing.assert_allclose(gradient(0.5), by_hand(np.eye(2)) + by_hand(np.eye(2) + 0.5), atol=1e-6)


def test_an_epoch_sees_every_other_row_once_and_labelled_ones_alike():
    rows = {"rows": torch.zeros(5, 1), "targets": torch.zeros(5), "others": torch.zeros(53, 1)}
    match = _Match(**rows, augment=Marked(), batch_size=4, ratio=2, threshold=0.5, weight=1.0)
    batches = list(match.batches(torch.Generator().manual_seed(0)))
    assert len(batches) == match.steps == 53 // 8
    others = torch.cat([many for _, many in batches])
    assert len(others) == len(set(others.tolist())) == 48
    batch_rows = torch.cat([labelled_rows for labelled_rows, _ in batches])
    assert [len(labelled) for labelled, _ in batches] == [4] * 6
    counts = np.bincount(batch_rows, minlength=5)
    assert counts.max() - counts.min() <= 1


class Remembering(torch.optim.SGD):
    """Keeps what the weights were after each step."""

    seen: list = []  # noqa: RUF012  (emptied by the test)

    def step(self, closure=None):
        super().step(closure)
        self.seen.append([p.detach().clone() for group in self.param_groups for p in group["params"]])


@pytest.mark.parametrize("average", [0.0, 0.5, 0.9])
def test_what_predicts_is_the_moving_average_of_the_weights(average):
    Remembering.seen.clear()
    model = FixMatch(network(optimizer=Remembering), average=average).fit(X, ANSWERS)
    mean = Remembering.seen[0]
    for t, weights in enumerate(Remembering.seen[1:], start=1):
        decay = min(average, (1 + t) / (10 + t))
        mean = [decay * before + (1 - decay) * now for before, now in zip(mean, weights, strict=True)]
    assert len(Remembering.seen) == 10
    for got, expected in zip(model.model_.module_.parameters(), mean, strict=True):
        torch.testing.assert_close(got.detach(), expected)
    last = all(
        torch.equal(p, q)
        for p, q in zip(model.model_.module_.parameters(), Remembering.seen[-1], strict=True)
    )
    assert last == (average == 0)
    assert not model.model_.module_.training


def test_unlabelled_rows_are_worth_more_than_the_few_labels_alone():
    # twelve columns of noise and four that tell; blobs that few labels place badly
    rows, labels = make_blobs(900, centers=5, n_features=8, cluster_std=3.0, random_state=1)
    rows = ((rows - rows.mean(0)) / rows.std(0)).astype(np.float32)
    answers = np.where(np.arange(900) < 15, labels, ABSTAIN)
    net = network(epochs=15, batch_size=16)
    taught = FixMatch(net, augment=TableAugment(swapped=0.2), threshold=0.8).fit(
        rows, answers, classes=range(5)
    )
    alone = clone(net).set_params(epochs=100).fit(rows[:15], labels[:15])
    assert taught.score(rows[15:], labels[15:]) > alone.score(rows[15:], labels[15:]) + 0.02


@pytest.mark.parametrize("names", [NAMES, None])
def test_classes_by_index_or_as_they_are(names):
    answers = ANSWERS if names is not None else np.where(ANSWERS == ABSTAIN, None, NAMES[ANSWERS])
    student = FixMatch(network(epochs=40)).fit(X, answers, classes=names)
    assert student.classes_.tolist() == NAMES.tolist()
    assert student.score(X, NAMES[Y]) > 0.85
    np.testing.assert_allclose(student.predict_proba(X).sum(axis=1), 1)
    assert student.logits(X).shape == (150, 3)


def test_a_class_nobody_answered_is_known_and_unlikely():
    student = FixMatch(network(epochs=40)).fit(X, np.where(ANSWERS == 2, ABSTAIN, ANSWERS), classes=NAMES)
    assert student.predict_proba(X).shape == (150, 3)
    assert set(student.predict(X)) <= {"setosa", "versicolor"}


def test_rows_given_at_construction_are_learned_from():
    answered = Y[::10] > 0
    student = FixMatch(network(), threshold=0.4, unlabelled=X).fit(X[::10], answered)
    assert len(student.losses_) == 5
    assert student.losses_ != FixMatch(network(), threshold=0.4).fit(X[::10], answered).losses_


def test_unanswered_rows_are_learned_from_beside_those_given_at_construction(monkeypatch):
    def stop(match):
        raise InterruptedError(len(match.rows), len(match.others))

    monkeypatch.setattr(_Match, "require_fitting", stop)
    student = FixMatch(network(), threshold=0.4, unlabelled=X[:60])
    with pytest.raises(InterruptedError) as numbers:
        student.fit(X, np.where(ANSWERS > 0, 1, ANSWERS))
    assert numbers.value.args == (15, 60 + 135)


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"threshold": 0.0}, "threshold must be > 0 and < 1"),
        ({"threshold": 1.0}, "threshold must be > 0 and < 1"),
        ({"threshold": float("nan")}, "threshold must be finite"),
        ({"ratio": 0}, "ratio must be an integer >= 1"),
        ({"weight": -1.0}, "weight must be >= 0"),
        ({"average": 1.0}, "average must be >= 0 and < 1"),
        ({"augment": 3}, "augment must have the methods weak and strong"),
        ({"unlabelled": X[:, :3]}, "unlabelled must have 4 features"),
        ({"unlabelled": X * np.nan}, "unlabelled contains NaN"),
        ({"augment": ImageAugment(shape=(1, 2, 2))}, "span of the pixels"),
        ({"augment": ImageAugment(shape=(1, 3, 3))}, "9 features"),
        ({"network": network(device="cuda:7")}, "device 'cuda:7' is not available"),
        ({"network": network(module=torch.nn.Sequential(torch.nn.Linear(4, 2)))}, "must return logits"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_training(choices, says):
    untrained = []
    choices = {"network": network(), **choices}
    choices["network"] = choices["network"].set_params(progress=lambda *state: untrained.append(state))
    with pytest.raises(ValueError, match=says):
        FixMatch(**choices).fit(X, ANSWERS, classes=range(3))
    assert untrained == []


def test_one_row_outside_the_range_of_the_others_is_found_before_the_first_step():
    Remembering.seen.clear()
    rows = np.linspace(0, 1, 4000, dtype=np.float32).reshape(1000, 4)
    rows[777, 1] = 255
    student = FixMatch(network(optimizer=Remembering), augment=ImageAugment(shape=(1, 2, 2)), unlabelled=rows)
    with pytest.raises(ValueError, match="span of the pixels"):
        student.fit(rows[:30], np.arange(30) % 2)
    assert not Remembering.seen


def test_one_class_and_what_is_no_network_are_refused():
    with pytest.raises(ValueError, match="one class"):
        FixMatch(network()).fit(X, np.where(ANSWERS == ABSTAIN, ABSTAIN, 1))
    with pytest.raises(TypeError, match="network must be a TorchClassifier, got str"):
        FixMatch("convolutional").fit(X, ANSWERS)


def test_nothing_is_said_while_it_trains():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FixMatch().set_params(network=network(epochs=1)).fit(X, ANSWERS)


def test_settings_for_images_learn_from_drawings_of_any_range():
    images, labels = load_digits(return_X_y=True)
    images = images / 16 * 255
    answers = np.where(np.arange(len(labels)) % 3 == 0, labels, ABSTAIN)
    student = FixMatch.of_images(images, (8, 8), n_steps=36, random_state=0)
    assert (student.ratio, student.threshold, student.augment) == (
        3, 0.9, ImageAugment(shape=(1, 8, 8), span=(0.0, 255.0), fill=0.0, strength=0.5)
    )  # fmt: skip
    settings = student.network.get_params()
    chosen = ("epochs", "batch_size", "learning_rate", "schedule", "random_state")
    assert [settings[name] for name in chosen] == [4, 64, 6e-3, "cosine", 0]
    assert FixMatch.of_images(images[:100], (8, 8), n_steps=1).network.epochs == 1
    student.network.n_threads = 1
    assert student.fit(images, answers).score(images, labels) > 0.8
    assert len(student.losses_) == 4  # epochs of nine steps
    with pytest.raises(ValueError, match="n_steps"):
        FixMatch.of_images(np.ones((3, 4)), (2, 2), n_steps=0)
