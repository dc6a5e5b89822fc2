"""The compiled encoder computes what scikit-learn's does, to the bit, or is not used."""

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from ostraka.data.columns import CompiledEncoder

KINDS = {"handle_unknown": "infrequent_if_exist", "sparse_output": False}


def cells(n: int, *, seed: int) -> np.ndarray:
    """Numbers in columns 0 and 2, texts in 1 and 3, the second with many rare ones."""
    rng = np.random.default_rng(seed)
    table = np.empty((n, 4), dtype=object)
    table[:, 0] = rng.normal(40, 13, n)
    table[:, 1] = rng.choice(["Private", "State", "None"], n)
    table[:, 2] = rng.integers(0, 10**12, n)
    table[:, 3] = [f"code-{number}" for number in rng.geometric(0.2, n)]
    return table


def fitted(numbers, kinds=(1, 3), *, places=(0, 2), **options):
    steps = [("numbers", numbers, list(places)), ("kinds", OneHotEncoder(**KINDS | options), list(kinds))]
    return ColumnTransformer([step for step in steps if step[2]]).fit(cells(500, seed=0))


@pytest.mark.parametrize(
    "encoder",
    [
        fitted(StandardScaler()),
        fitted(make_pipeline(SimpleImputer(strategy="median"), StandardScaler())),
        fitted(StandardScaler(), max_categories=4),
        fitted(StandardScaler(), kinds=()),
        fitted(StandardScaler(), places=()),
        fitted(StandardScaler(with_mean=False)),
    ],
    ids=["scaled", "imputed", "rare together", "numbers only", "kinds only", "not centred"],
)
def test_features_are_those_of_scikit_learn_to_the_bit(encoder):
    compiled = CompiledEncoder.of(encoder, 4)
    assert compiled is not None
    for n in (1, 7, 300):
        rows = cells(n, seed=n)
        rows[0, 3] = "never seen"
        assert np.array_equal(compiled(rows.tolist()), encoder.transform(rows))


@pytest.mark.parametrize(
    "encoder",
    [
        fitted(MinMaxScaler()),
        fitted(make_pipeline(StandardScaler(), MinMaxScaler())),
        ColumnTransformer(
            [("kinds", OneHotEncoder(**KINDS), [1, 3]), ("numbers", StandardScaler(), [0])]
        ).fit(cells(500, seed=0)),
    ],
    ids=["another scaler", "a longer pipeline", "numbers last"],
)
def test_an_encoder_of_another_kind_is_left_to_scikit_learn(encoder):
    assert CompiledEncoder.of(encoder, 4) is None


def test_an_encoder_that_differs_in_one_place_is_not_taken():
    encoder = fitted(StandardScaler())
    assert CompiledEncoder.of(encoder, 4) is not None
    encoder.named_transformers_["numbers"].transform = lambda X: np.asarray(X, dtype=float) * 1.0000001
    assert CompiledEncoder.of(encoder, 4) is None
