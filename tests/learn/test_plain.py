"""What leaves is plain scikit-learn: it predicts the same without this library, by names of columns."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from ostraka import ABSTAIN
from ostraka.core.imports import skops_io
from ostraka.learn.handover import by_name, plain, table_model
from ostraka.learn.ways.filter import SpectrumRegressor, SpectrumStudent
from ostraka.students import AugmentedSVM, Distilled
from ostraka.voters.spectrum import Spectrum

X, Y = load_digits(return_X_y=True)
NAMES = np.array([f"class {k}" for k in range(10)])
COLUMNS = [f"pixel_{k}" for k in range(64)]


def answers(n_classes: int) -> np.ndarray:
    labels = np.full(400, ABSTAIN)
    labels[:60] = Y[:60] % n_classes
    return labels


@pytest.mark.parametrize(
    "kind",
    [
        "spreading",
        "boosting",
        pytest.param("self-training", marks=pytest.mark.slow),
        LogisticRegression(max_iter=300),
        DecisionTreeClassifier(),
    ],
)
@pytest.mark.parametrize("n_classes", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_plain_student_predicts_the_same_and_is_of_scikit_learn_alone(kind, n_classes):
    labels = answers(n_classes)
    student = Distilled(kind, random_state=0).fit(X[:400], labels, classes=NAMES[:n_classes])
    plain_student = plain(student, X[:400], labels)
    np.testing.assert_array_equal(plain_student.predict(X), student.predict(X))
    assert plain_student.classes_.tolist() == NAMES[:n_classes].tolist()
    assert plain_student.predict_proba(X[:5]).shape == (5, n_classes)
    data = skops_io().dumps(plain_student)
    named = skops_io().get_untrusted_types(data=data)  # skops knows linear models, and asks about trees
    assert all(name.startswith("sklearn.") for name in named)
    np.testing.assert_array_equal(skops_io().loads(data, trusted=named).predict(X), plain_student.predict(X))


@pytest.mark.parametrize("n_classes", [2, 10])
def test_convolutions_are_a_plain_perceptron(n_classes):
    fixmatch = pytest.importorskip("ostraka.learn.students.fixmatch", exc_type=ImportError)
    network = fixmatch.FixMatch.of_images(X[:400], (8, 8), n_steps=4)
    labels = answers(n_classes)
    student = Distilled(network, random_state=0).fit(X[:400], labels, classes=NAMES[:n_classes])
    plain_student = plain(student, X[:400], labels)
    np.testing.assert_array_equal(plain_student.predict(X), student.predict(X))
    np.testing.assert_allclose(plain_student.predict_proba(X), student.predict_proba(X), atol=1e-4)
    data = skops_io().dumps(plain_student)
    named = skops_io().get_untrusted_types(data=data)
    assert all(name.startswith("sklearn.") for name in named)
    np.testing.assert_array_equal(skops_io().loads(data, trusted=named).predict(X), plain_student.predict(X))


def test_a_network_with_pooling_is_kept_as_it_is():
    networks = pytest.importorskip("ostraka.networks")
    pytest.importorskip("torch", exc_type=ImportError)
    network = networks.TorchClassifier("convolutional", epochs=1, n_threads=1)
    labels = answers(10)
    student = Distilled(network, random_state=0).fit(X[:400], labels, classes=NAMES)
    with pytest.raises(ValueError, match="keep the student as it is"):
        plain(student, X[:400], labels)


def test_a_student_that_says_one_class_is_plain_too():
    labels = np.where(np.arange(400) < 9, 3, ABSTAIN)
    student = Distilled("spreading").fit(X[:400], labels, classes=NAMES)
    assert set(plain(student, X[:400], labels).predict(X)) == {"class 3"}


def test_the_support_vectors_of_a_student_of_counts_are_plain():
    student = AugmentedSVM(image_shape=(8, 8), invariances=("shift",)).fit(X[:200], NAMES[Y[:200]])
    student.sharpness_ = 3.0
    plain_student = plain(student, X[:400], np.full(400, ABSTAIN))
    assert type(plain_student).__module__.startswith("sklearn.")
    np.testing.assert_array_equal(plain_student.predict(X), student.predict(X))
    np.testing.assert_allclose(plain_student.predict_proba(X), student.predict_proba(X), atol=1e-12)
    assert not skops_io().get_untrusted_types(data=skops_io().dumps(plain_student))


def test_columns_are_selected_by_name_whatever_their_order():
    labels = answers(10)
    student = Distilled("spreading").fit(X[:400], labels, classes=NAMES)
    plain_student = by_name(plain(student, X[:400], labels), X[:400], columns=COLUMNS)
    frame = pd.DataFrame(X, columns=COLUMNS)
    shuffled = frame[COLUMNS[::-1]].assign(other="x")
    np.testing.assert_array_equal(plain_student.predict(shuffled), student.predict(X))
    assert plain_student.feature_names_in_.tolist() == COLUMNS
    with pytest.raises(ValueError, match="columns are missing"):
        plain_student.predict(frame.drop(columns="pixel_3"))


class TestOnnx:
    """Two-column tables of numbers, whose kernel of interactions and whose bounds ONNX has to calculate."""

    rows = np.random.default_rng(0).normal(size=(300, 2))
    cells = Spectrum(interactions=True, noise=0.001).fit(rows)
    coef = np.random.default_rng(1).normal(size=(cells.features_.shape[1], 1))

    def outputs(self, student):
        onnx = pytest.importorskip("onnx.reference")
        model = table_model(by_name(plain(student, None, np.empty(0)), None, columns=["a", "b"]))
        inputs = {name: self.rows[:, [k]] for k, name in enumerate("ab")}
        return onnx.ReferenceEvaluator(model).run(None, inputs)

    def test_interactions_of_a_classifier_are_written_in_double_precision(self):
        student = SpectrumStudent(self.cells, 3 * self.coef, np.array(["no", "yes"]))
        predicted, sure = self.outputs(student)
        np.testing.assert_allclose(sure, student.predict_proba(self.rows), atol=1e-9)
        assert (predicted == student.predict(self.rows)).all()

    def test_a_regressor_keeps_to_its_bounds(self):
        coef = 6 * self.coef
        coef[-1] = 0  # of the constant
        student = SpectrumRegressor(self.cells, coef, (2.0, 9.0), np.full(17, 1 / 17), 0.0)
        (predicted,) = self.outputs(student)
        assert {2.0, 9.0} < {*predicted.round(9).tolist()}
        np.testing.assert_allclose(predicted, student.predict(self.rows), atol=1e-9)
