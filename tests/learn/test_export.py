"""Models leave for scikit-learn, skops, ONNX and MLflow, from arrays and from data frames."""

import numpy as np
import pandas as pd
import pytest

from ostraka import PATEClassifier
from ostraka.core.imports import skops_io


def visits(n: int, *, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 80, n).astype(float)
    ward = rng.choice(["heart", "skin", "eye"], n)
    ill = np.where(age + 25 * (ward == "heart") + rng.normal(0, 8, n) > 60, "sick", "well")
    age[::17] = np.nan
    return pd.DataFrame({"ward": ward, "age": age, "days": rng.integers(1, 9, n)}), ill


@pytest.fixture(scope="module", params=["counts", "filter"])
def of_frame(request):
    X, y = visits(2000, seed=0)
    public, _ = visits(400, seed=1)
    return PATEClassifier(way=request.param, epsilon=4.0, random_state=0).fit(X, y, X_public=public)


@pytest.fixture(scope="module")
def of_array():
    X, y = visits(1500, seed=0)
    public, _ = visits(400, seed=1)
    numbers = [frame[["age", "days"]].fillna(50.0).to_numpy(np.float32) for frame in (X, public)]
    return PATEClassifier(way="filter", epsilon=4.0, random_state=0).fit(numbers[0], y, X_public=numbers[1])


def test_bins_of_a_data_frame_are_a_scikit_learn_model(of_frame):
    rows, _ = visits(300, seed=2)
    rows.loc[3, "ward"] = "unheard of"
    rows.loc[4, "ward"] = None
    content = of_frame.export("skops")
    assert skops_io().get_untrusted_types(data=content) == ["numpy.dtype"]  # of scikit-learn's imputer
    plain = skops_io().loads(content, trusted=["numpy.dtype"])
    np.testing.assert_array_equal(plain.predict(rows), of_frame.predict(rows))
    sure = plain.predict_proba(rows[["days", "ward", "age"]])  # columns are found by name
    np.testing.assert_allclose(sure, of_frame.predict_proba(rows), atol=0.05)
    assert (plain.predict(rows) != plain.predict(rows)[0]).any()


def test_a_data_frame_model_is_written_as_onnx(of_frame):
    reference = pytest.importorskip("onnx.reference")
    rows, _ = visits(300, seed=2)
    rows.loc[3, "ward"] = "unheard of"
    inputs = {"ward": rows[["ward"]].to_numpy(object)}
    inputs |= {name: rows[[name]].to_numpy(float) for name in ("age", "days")}
    predicted, sure = reference.ReferenceEvaluator(of_frame.export("onnx")).run(None, inputs)
    np.testing.assert_array_equal(predicted, of_frame.predict(rows))
    np.testing.assert_allclose(sure, of_frame.export("sklearn").predict_proba(rows), atol=1e-9)


def test_an_array_model_is_written_as_onnx(of_array, tmp_path):
    reference = pytest.importorskip("onnx.reference")
    path = of_array.export("onnx", tmp_path / "student.onnx")
    rows = visits(100, seed=2)[0][["age", "days"]].fillna(50.0).to_numpy(np.float32)
    inputs = {f"x{place}": rows[:, [place]].astype(float) for place in range(2)}
    predicted, sure = reference.ReferenceEvaluator(str(path)).run(None, inputs)
    assert (np.asarray(predicted) == of_array.predict(rows)).all()
    np.testing.assert_allclose(sure, of_array.export("sklearn").predict_proba(rows), atol=1e-9)


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_loads_what_was_exported(of_array, tmp_path):
    mlflow = pytest.importorskip(
        "mlflow.sklearn", reason="MLflow is not installed: pip install mlflow-skinny"
    )
    of_array.export("mlflow", tmp_path / "model")
    rows = np.array([[30.0, 2.0], [75.0, 3.0]])
    loaded = mlflow.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(rows), of_array.predict(rows))


def test_what_cannot_leave_says_why(of_array, of_frame):
    with pytest.raises(ValueError, match="form must be"):
        of_array.export("pickle")
    with pytest.raises(ValueError, match="mlflow writes a folder"):
        of_array.export("mlflow")
    with pytest.raises(ValueError, match="weight two would move twice"):
        PATEClassifier().fit([[0.0]], [0], sample_weight=[1.0])
