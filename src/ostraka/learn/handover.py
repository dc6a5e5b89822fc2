"""Hand a model over: a plain scikit-learn student, the code that loads it, ONNX, and a model card.

Students become models of scikit-learn, which load and predict where this library is not installed: networks
whose layers are affine between ReLUs become perceptrons, public bins and their weights a pipeline. ONNX
models of tables calculate in double precision. Edges of bins are values of public rows, and in 32 bits a row
moves across an edge: with skl2onnx, whose bins are in 32 bits, one prediction in eight differs.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import StackingClassifier
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    LabelBinarizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils import _safe_indexing

from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.data.columns import one_hot
from ostraka.learn.students.counts import AugmentedSVM, Spreading
from ostraka.learn.students.distil import Distilled
from ostraka.learn.ways.counts import BinnedStudent, linear
from ostraka.learn.ways.filter import SpectrumRegressor, SpectrumStudent
from ostraka.networks import TorchClassifier
from ostraka.report import folder as _folder
from ostraka.voters.spectrum import Dictionary, Interactions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ostraka.core.result import Result
    from ostraka.data.columns import Shown
    from ostraka.learn.students.counts import MomentLogistic
    from ostraka.voters.cells import QuantileCells

_LARGEST = float(np.finfo(np.float64).max)
_OPSET, _ML_OPSET = 20, 3
_ARRAYS = 17  # the operator set of skl2onnx
FORMS = ("sklearn", "skops", "onnx", "mlflow")
_OF_A_COLUMN = ("edges ", "categories ")  # begin the names of steps
_UNKNOWN = "\0"  # a text that no public row holds
_ALIKE = 1e-6  # of the width of bounds, by which two models of numbers may differ
_CHECKED = 200  # rows of arrays: the reference evaluator takes them one by one
# 1.234,56 is read as 1234.56
_COMMAS = r'.str.replace(r"\.(?=\d{3}(?:\.\d{3})*,\d+$)", "", regex=True).str.replace(",", ".")'


def plain(student: Any, X: Any, labels: np.ndarray) -> Any:
    """A scikit-learn classifier that predicts what the student predicts.

    Parameters
    ----------
    student : Distilled, or a student of counts
        Fitted.
    X, labels
        What it was fitted to: public rows, and class indices or ``ABSTAIN``.

    Raises
    ------
    ValueError
        The student is of another library, or a fit to the labels' names predicts something else.
    """
    if isinstance(student, SpectrumStudent | SpectrumRegressor):
        return spectral(student)
    if isinstance(student, BinnedStudent):
        return binned(student.cells, student.model)
    if isinstance(student, Pipeline):
        _require_sklearn(student)
        return student
    if isinstance(student, AugmentedSVM):
        return _machine(student)
    network = getattr(student, "network_", getattr(student, "model_", None))
    if isinstance(network, TorchClassifier) and not isinstance(student, Distilled):  # of private labels
        return perceptron(network, student.classes_)
    if not isinstance(student, Distilled):  # a student of counts, if the model inside alone decides
        inner: Any = getattr(student, "model_", None)
        ours = type(inner).__module__.partition(".")[0] != "sklearn"
        if ours or (X is not None and not np.array_equal(inner.predict(np.asarray(X)), student.predict(X))):
            raise ValueError(f"{type(student).__name__} is no scikit-learn model: keep the student as it is")
        return inner
    classes, model = student.classes_, student.model_
    if model is None:
        constant = classes[labels[labels != ABSTAIN][0]]
        rows = _safe_indexing(X, np.arange(len(classes)) % X.shape[0])
        return DummyClassifier(strategy="constant", constant=constant).fit(rows, classes)
    if isinstance(model, Spreading):
        copied = _spread(model, classes)
    elif isinstance(network := getattr(model, "model_", model), TorchClassifier):
        copied = perceptron(network, classes[network.classes_])
    elif type(model).__module__.partition(".")[0] == "sklearn":
        # the same model, fitted to names of classes instead of their indices
        answered = np.flatnonzero(labels != ABSTAIN)
        rows, named = _safe_indexing(X, answered), classes[labels[answered]]
        if isinstance(model, SelfTrainingClassifier):
            rows, named = X, np.full(len(labels), ABSTAIN, dtype=object)
            named[answered] = classes[labels[answered]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a classifier thinks of so few rows helps nobody
            copied = clone(model).fit(rows, named)
    else:
        raise ValueError(f"{type(model).__name__} is no scikit-learn model: keep the student as it is")
    if not np.array_equal(copied.predict(X), student.predict(X)):
        raise ValueError(f"{type(model).__name__} predicts something else when it is fitted again")
    return copied


def exported(model: Any, form: str, path: Path | None, *, rows: Any) -> Any:
    """A plain model in a form that other programs read: see :meth:`~ostraka.PATEClassifier.export`.

    Raises
    ------
    ValueError
        There is no such form, or the model has none.
    ImportError
        A package is missing; the message says how to install it.
    """
    from ostraka.core import check
    from ostraka.core.imports import model_bytes

    check.one_of(allowed=FORMS, form=form)
    if form == "sklearn":
        return model
    if form == "mlflow":
        if path is None:
            raise ValueError("mlflow writes a folder: pass path=")
        check.require("mlflow.sklearn", extra="mlflow").save_model(model, str(path))
        return path
    if form == "skops":
        content = model_bytes(model)
    elif hasattr(model, "feature_names_in_"):
        check.require("onnx", extra="onnx")
        content = table_model(model).SerializeToString()
    else:
        check.require("onnx", extra="onnx")
        columns = [f"x{place}" for place in range(np.shape(rows)[1])]
        try:
            content = table_model(by_name(model, rows, columns=columns)).SerializeToString()
        except ValueError:  # neither linear nor a perceptron
            content = array_model(model, np.asarray(rows, dtype=np.float64))[0].SerializeToString()
    if path is None:
        return content
    _folder.write(path, lambda at: at.write_bytes(content))
    return path


def by_name(model: Any, X: np.ndarray | None, *, columns: Sequence[str], encoder: Any = None) -> Pipeline:
    """Put a step before the model which selects its columns by name.

    Parameters
    ----------
    model : fitted classifier
        Of features, as ``encoder`` makes them of the columns.
    X : array of shape (n_rows, n_features)
        Public features; looked at only where there is no encoder.
    columns : sequence of str
    encoder : fitted ColumnTransformer, optional
        None: the columns are the features.

    Raises
    ------
    ValueError
        ``columns`` are no names, or not as many as there are features.
    """
    columns = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else [columns]
    if not all(isinstance(name, str) for name in columns):
        kinds = ", ".join(sorted({type(name).__name__ for name in columns}))
        raise ValueError(
            f"columns must be names, each a text, got {kinds}: of a data frame with several levels of names, "
            "['/'.join(map(str, levels)) for levels in frame.columns]"
        )
    if encoder is None and X is not None and len(columns) != X.shape[1]:
        raise ValueError(f"columns must name each of {X.shape[1]} features, got {len(columns)} names")
    if encoder is None:
        rows = np.zeros((1, len(columns))) if X is None else X
        encoder = ColumnTransformer([("numbers", "passthrough", list(range(len(columns))))]).fit(rows)
    named = copy.deepcopy(encoder)
    named.feature_names_in_ = np.array(columns, dtype=object)
    for _, step, places in named.transformers_:
        if isinstance(places, int):
            continue  # a step that takes one column of text, whatever its name
        for part in (step, *(getattr(step, "named_steps", None) or {}).values()):
            if hasattr(part, "n_features_in_") and not isinstance(part, Pipeline):
                part.feature_names_in_ = named.feature_names_in_[places]
                break
    return Pipeline([("columns", named), ("student", model)])


def spectral(student: SpectrumStudent | SpectrumRegressor) -> Pipeline:
    """Convert a linear model of a public spectrum to steps that scikit-learn has.

    Raises
    ------
    ValueError
        The spectrum is of a data frame, or of a transformer of another library.
    """
    cells, coef = student.cells, student.coef
    turn, first, offset = cells.whitening_, cells.transform_, np.zeros(cells.whitening_.shape[1])
    steps: list[tuple[str, Any]] = []
    if isinstance(first, Interactions):
        kernel, n_functions = first.kernel_, first.kernel_.n_features_in_
        first, functions, start = _of_functions(first.dictionary_, np.eye(n_functions))
        identity = FunctionTransformer().fit(np.zeros((1, n_functions)))
        union = FeatureUnion([("functions", identity), ("kernel", kernel)])
        steps = [*_affine("functions", functions, start), ("both", union)]
    elif isinstance(first, Dictionary):
        first, turn, offset = _of_functions(first, turn)
    offset = np.append(offset - cells.middle_ @ cells.whitening_, cells.constant)
    steps += _affine("spectrum", np.column_stack([turn, np.zeros(len(turn))]), offset)
    weights: Any
    if isinstance(student, SpectrumRegressor):
        # numbers stay between bounds: high - max(0, high - low - max(0, number - low))
        low, high = student.bounds
        weights = MLPRegressor(hidden_layer_sizes=(1, 1), activation="relu")
        weights.coefs_ = [coef * (high - low) / 2, np.array([[-1.0]]), np.array([[-1.0]])]
        weights.intercepts_ = [np.array([(low + high) / 2 - low]), np.array([high - low]), np.array([high])]
        weights.n_layers_, weights.n_outputs_, weights.out_activation_ = 4, 1, "identity"
        weights.n_features_in_ = len(coef)
    else:
        coef = np.hstack([0 * coef, coef]) if coef.shape[1] == 1 else coef
        weights = linear(coef, np.zeros(coef.shape[1]), student.classes_)
    pipeline = Pipeline([("bins", first), *steps, ("length", Normalizer()), ("weights", weights)])
    _require_sklearn(pipeline)
    return pipeline


def binned(cells: QuantileCells, model: MomentLogistic) -> Pipeline:
    """Convert a binned classifier to a pipeline: bins of numbers, categorical columns, one weight for each.

    Raises
    ------
    ValueError
        The bins are of cells that scikit-learn does not bin.
    """
    ends = np.cumsum([book.shape[1] for book in cells.codebooks_])[:-1]
    bins, coefficients, offset = _of_bins(cells, np.split(model.coef_, ends))
    weights = linear(coefficients, model.intercept_ + offset, model.classes_)
    return Pipeline([("bins", bins), ("weights", weights)])


def perceptron(network: TorchClassifier, classes: np.ndarray) -> MLPClassifier:
    """Return the same classifier, with a dense matrix for each affine part: a convolution is one, too.

    Raises
    ------
    ValueError
        The network is no sequence of layers, or is not affine between its ReLUs.
    """
    import torch
    from torch import nn

    affine = (nn.Unflatten, nn.Flatten, nn.Conv2d, nn.BatchNorm2d, nn.Linear, nn.Identity)
    module = network.module_
    layers = list(module) if isinstance(module, nn.Sequential) else []
    if not layers or not all(isinstance(layer, (*affine, nn.ReLU)) for layer in layers):
        raise ValueError(f"{type(module).__name__} is no scikit-learn model: keep the student as it is")
    parts: list[list[nn.Module]] = [[]]
    for layer in layers:
        if isinstance(layer, nn.ReLU):
            parts.append([])
        else:
            parts[-1].append(layer)
    shape: tuple[int, ...] = (network.n_features_in_,)
    weights, offsets = [], []
    for part in parts:
        run = nn.Sequential(*part).eval().cpu()
        size = int(np.prod(shape))
        with torch.inference_mode():
            zero = run(torch.zeros(1, *shape))
            units = [run(batch.reshape(-1, *shape)) - zero for batch in torch.split(torch.eye(size), 512)]
        weights.append(torch.cat(units).flatten(1).numpy())
        offsets.append(zero.flatten().numpy())
        shape = tuple(zero.shape[1:])
    if len(classes) == 2:  # scikit-learn has one output there
        weights[-1] = weights[-1][:, 1:] - weights[-1][:, :1]
        offsets[-1] = offsets[-1][1:] - offsets[-1][:1]
    model = MLPClassifier(hidden_layer_sizes=tuple(len(offset) for offset in offsets[:-1]))
    model.coefs_, model.intercepts_, model.n_layers_ = weights, offsets, len(weights) + 1
    model.n_outputs_ = len(offsets[-1])
    model.out_activation_ = "logistic" if len(classes) == 2 else "softmax"
    model.classes_, model.n_features_in_ = classes, len(weights[0])
    model._label_binarizer = LabelBinarizer().fit(classes)  # noqa: SLF001  (as its own fit does)
    return model


def _machine(student: AugmentedSVM) -> StackingClassifier | DummyClassifier:
    """Return the machine with a linear model of its scores, which gives probabilities."""
    names = student.classes_[student.present_]
    rows = np.zeros((len(names), student.n_features_in_))
    if len(names) == 1:
        return DummyClassifier(strategy="constant", constant=names[0]).fit(rows, names)
    parts = [("machine", student.model_)]
    stack = StackingClassifier(parts, LogisticRegression(), cv="prefit", stack_method="decision_function")
    stack.fit(rows, names)
    stack.named_estimators_ = dict(parts)  # a type that skops trusts
    odds = student.sharpness_ * (np.eye(len(names)) if len(names) > 2 else np.array([[0.0, 1.0]]))
    stack.final_estimator_ = linear(odds, np.zeros(len(names)), np.arange(len(names)))
    return stack


def _spread(model: Spreading, classes: np.ndarray) -> Pipeline:
    """Return kernel ridge regression and the choice of the largest score, as steps that scikit-learn has."""
    # Nystroem multiplies kernels by a matrix, here the dual coefficients; a linear classifier with
    # coefficients of one takes the largest
    ridge = model._extension  # noqa: SLF001  (its fitted parts are the model)
    names = classes[model.classes_]
    n = len(names)
    scores = Nystroem(kernel="rbf", gamma=ridge.gamma, n_components=len(ridge.X_fit_))
    scores.components_, scores.normalization_ = ridge.X_fit_, ridge.dual_coef_.T
    scores.component_indices_ = np.arange(len(ridge.X_fit_))
    scores.n_features_in_ = ridge.X_fit_.shape[1]
    positive = MinMaxScaler(feature_range=(0.0, 1e300), clip=True)  # clips at zero, and scales by one
    positive.scale_, positive.min_, positive.n_features_in_ = np.ones(n), np.zeros(n), n
    largest = SGDClassifier(loss="modified_huber")
    weights, prior = 2.0 * np.eye(n), 2e-9 * model._prior - 1.0  # noqa: SLF001
    if n == 2:  # one row decides between two classes
        weights, prior = np.array([[-1.0, 1.0]]), np.array([1e-9 * (model._prior[1] - model._prior[0])])  # noqa: SLF001
    largest.coef_, largest.intercept_, largest.classes_ = weights, prior, names
    largest.n_features_in_, largest.t_, largest.n_iter_ = n, 1.0, 1
    return make_pipeline(scores, positive, largest)


def _of_functions(
    dictionary: Dictionary, turn: np.ndarray
) -> tuple[ColumnTransformer, np.ndarray, np.ndarray]:
    """As :func:`_of_bins`, for a linear map of a dictionary's functions."""
    ends = np.cumsum([values.shape[1] for values in dictionary.values_])[:-1]
    parts = zip(dictionary.values_, np.split(turn, ends), strict=True)
    return _of_bins(dictionary.cells_, [values @ part for values, part in parts])


def _affine(name: str, turn: np.ndarray, offset: np.ndarray) -> list[tuple[str, Any]]:
    """Two steps: a feature that is one, and a linear map of all."""
    ones, stacked = PolynomialFeatures(1), np.vstack([offset, turn])
    directions = PCA(stacked.shape[1])
    ones.fit(np.zeros((1, len(turn))))
    directions.mean_, directions.components_ = np.zeros(len(stacked)), stacked.T.copy()
    directions.n_features_in_, directions.n_components_ = len(stacked), stacked.shape[1]
    directions.explained_variance_ = np.ones(stacked.shape[1])  # read, not used, by scikit-learn 1.6
    return [(f"one_of_{name}", ones), (name, directions)]


def _of_bins(
    cells: QuantileCells, weights: Sequence[np.ndarray]
) -> tuple[ColumnTransformer, np.ndarray, np.ndarray]:
    """Zeros and ones for bins, the weights of each, and what a row has whatever its bins.

    Raises
    ------
    ValueError
        The bins are of cells that scikit-learn does not bin.
    """
    blocks = cells._one_hot  # noqa: SLF001  (its fitted parts are the model)
    if blocks is None:
        return _of_frame(cells, weights)
    edges: list[np.ndarray] = []
    alone: list[int] = []
    together: list[int] = []
    numbers: list[np.ndarray] = []
    kinds: list[np.ndarray] = []
    offset = np.zeros(weights[0].shape[1])
    for block, (_, bounds), weight in zip(blocks, cells._bins, weights, strict=True):  # noqa: SLF001
        if len(block) == 1:
            alone += block
            edges.append(np.nextafter(bounds, np.inf))  # a bin holds its upper end here, and its lower there
            numbers.append(weight[:-1])
        else:
            names = bounds.tolist()  # of columns with a bin of their own
            codes = [names.index(str(k)) if str(k) in names else len(names) for k in range(len(block))]
            together += block
            kinds.append(weight[codes] - weight[-1])
            offset += weight[-1]
    steps = [("bins", _discretiser(edges), alone)] if alone else []
    steps += [("kinds", "passthrough", together)] if together else []
    applied = ColumnTransformer(
        [(name, "passthrough", places) for name, _, places in steps], sparse_threshold=0
    )
    applied.fit(np.zeros((1, len(alone) + len(together))))
    applied.transformers = steps
    fitted = {name: step for name, step, _ in steps if step != "passthrough"}
    applied.transformers_ = [(name, fitted.get(name, step), at) for name, step, at in applied.transformers_]
    return applied, np.concatenate([np.empty((0, len(offset))), *numbers, *kinds]), offset


def _of_frame(
    cells: QuantileCells, weights: Sequence[np.ndarray]
) -> tuple[ColumnTransformer, np.ndarray, np.ndarray]:
    """As :func:`_of_bins`, of a data frame, whose columns are found by name.

    A missing number has the largest number that there is in its place, and a bin of its own.
    """
    public, steps, parts = cells._source, [], []  # noqa: SLF001
    offset = np.zeros(weights[0].shape[1])
    if not hasattr(public, "iloc"):
        raise ValueError(
            "bins of such rows are no scikit-learn model: take a data frame of pandas or an array"
        )
    for name, (kind, bounds), weight in zip(cells.columns_, cells._bins, weights, strict=True):  # noqa: SLF001
        if kind == "edges":
            inner = np.append(np.nextafter(bounds, np.inf), _LARGEST)
            numbers = public[[name]].astype(np.float64)
            doubles = StandardScaler(with_mean=False, with_std=False).fit(numbers)  # of whole numbers, too
            present = SimpleImputer(strategy="constant", fill_value=_LARGEST).fit(numbers.to_numpy())
            step = Pipeline([("numbers", doubles), ("present", present), ("bins", _discretiser([inner]))])
            parts.append(weight)
        elif len(bounds):
            listed = [np.asarray(bounds.tolist(), dtype=object)]
            step = OneHotEncoder(categories=listed, handle_unknown="ignore", sparse_output=False)
            step.fit(public[[name]].astype(object))
            parts.append(weight[:-1] - weight[-1])
            offset += weight[-1]
        else:  # one bin for whatever a cell holds
            offset += weight[-1]
            continue
        steps.append((f"{kind} {name}", step, [name]))
    spread = ColumnTransformer([(name, "drop", at) for name, _, at in steps], sparse_threshold=0).fit(public)
    spread.transformers = spread.transformers_ = steps
    spread.sparse_output_ = False
    return spread, np.concatenate(parts), offset


def _discretiser(edges: list[np.ndarray]) -> KBinsDiscretizer:
    """Return a fitted discretiser with these inner edges."""
    sizes = np.array([len(inner) + 1 for inner in edges])
    discretiser = KBinsDiscretizer(encode="onehot-dense", strategy="uniform", subsample=None)
    discretiser.bin_edges_ = np.empty(len(edges), dtype=object)
    discretiser.bin_edges_[:] = [np.concatenate([[-np.inf], inner, [np.inf]]) for inner in edges]
    discretiser.n_bins_, discretiser.n_features_in_ = sizes, len(edges)
    spread = OneHotEncoder(categories=[np.arange(size) for size in sizes], sparse_output=False)
    discretiser._encoder = spread.fit(np.zeros((1, len(edges))))  # noqa: SLF001  (as its own fit does)
    return discretiser


def _require_sklearn(pipeline: Pipeline) -> None:
    """Raise ValueError if a step is not of scikit-learn, or calls a function, which may be anybody's."""
    for _, step in pipeline.steps:
        if isinstance(step, Pipeline):
            _require_sklearn(step)
        elif type(step).__module__.partition(".")[0] != "sklearn" or getattr(step, "func", None):
            raise ValueError(f"{type(step).__name__} is no scikit-learn model: keep the student as it is")


def write_student(student: Any, folder: Path, *, shown: Shown | None = None, array: str = "") -> str:
    """Write the student, and return the lines of Python that load it and predict. All of it is public."""
    from ostraka.core.imports import model_bytes, skops_io

    path, content = folder / _folder.STUDENT, model_bytes(student)
    _folder.write(path, lambda at: at.write_bytes(content))
    trusted = skops_io().get_untrusted_types(data=content)
    trust = f", trusted={trusted!r}" if trusted else ""
    load = ["import skops.io", "", f'student = skops.io.load("student.skops"{trust})']
    if array:
        lines = [
            "import numpy as np",
            *load,
            f'rows = np.load("rows.npz")["{array}"]  # of a sparse matrix: scipy.sparse.load_npz("rows.npz")',
            "print(student.predict(rows.reshape(len(rows), -1) if rows.ndim > 2 else rows))",
        ]
    else:
        reading = ['rows = pd.read_csv("rows.csv")']
        if shown is not None:  # text, numbers and dates as they were read here
            delimiter, encoding, decimal, skip, _ = shown.form
            how = "" if delimiter == "," else f", sep={delimiter!r}"
            how += "" if encoding == "utf8" else f", encoding={encoding!r}"
            how += f", skiprows={skip}" if skip else ""
            reading = [f'rows = pd.read_csv("rows.csv"{how}, dtype=str, keep_default_na=False)']
            reading.append("rows = rows.apply(lambda column: column.str.strip())")
            unless = ""
            if shown.missing:
                reading.append(f"missing = {list(shown.missing)!r}")
                unless = ".where(~column.str.lower().isin(missing))"
            if shown.numbers:
                number = f"column{'' if decimal == '.' else _COMMAS}{unless}.astype(float)"
                reading.append(f"numbers = {list(shown.numbers)!r}")
                reading.append(f"rows[numbers] = rows[numbers].apply(lambda column: {number})")
            if shown.dates:
                reading.append('start, day = pd.Timestamp("1970-01-01"), pd.Timedelta(days=1)')
            for name, form in shown.dates:
                parsed = f"pd.to_datetime(column{unless}{f', format={form!r}' if form else ''})"
                reading.append(f"column = rows[{name!r}]")
                reading.append(f"rows[{name!r}] = ({parsed} - start) / day")
        lines = [
            "import pandas as pd",
            *load,
            *reading,
            "print(student.predict(rows))  # columns are found by name; others are ignored",
        ]
    return "\n".join(lines)


def write_onnx(student: Any, folder: Path, *, original: Any, shown: Shown | None, rows: np.ndarray) -> str:
    """Write the student as ONNX if it predicts public rows as the original does; else return why not.

    Nothing is written, and nothing is said, where onnx is not installed.

    Parameters
    ----------
    student
        As it is written for scikit-learn.
    folder : Path
    original : classifier
        The student of the run.
    shown : Shown or None
        None: the student takes the features as they are.
    rows : array of shape (n_public, n_features)
        Public features.
    """
    try:
        import onnx
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        return ""

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the converter's own code
            if shown is None:
                model, inputs = array_model(student, rows)
            else:
                model, inputs = table_model(student), columns_of(shown.cells, student)
            onnx.checker.check_model(model)
            outputs: Any = ReferenceEvaluator(model).run(None, inputs)
            predicted = np.asarray(outputs[0])
    except Exception as error:  # noqa: BLE001  (the run is paid for, and whole without this file)
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "  # not one of our reasons
        first, *_ = f"{error}".splitlines() or [""]
        return f"{_folder.ONNX} is not written: {kind}{first}"
    expected, n = np.asarray(original.predict(rows[: len(predicted)])), len(predicted)
    if isinstance(original, SpectrumRegressor):
        low, high = original.bounds
        wrong = int((np.abs(predicted.ravel() - expected) > _ALIKE * (high - low)).sum())
    else:
        wrong = int((predicted.astype(str) != expected.astype(str)).sum())
    if wrong:
        return f"{_folder.ONNX} is not written: it predicts {wrong:,} of {n:,} public rows differently"
    _folder.write(folder / _folder.ONNX, model.SerializeToString())
    return ""


def write_card(result: Result, lines: str, folder: Path, *, onnx: bool) -> None:
    """A model card in Hugging Face's format, from the public record."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from ostraka.report.page import privacy_label, summary_table

    environment = Environment(  # noqa: S701  (Markdown, not HTML)
        loader=PackageLoader("ostraka"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    public = result.public()
    card = environment.get_template("model-card.md.j2").render(
        label=privacy_label(public), rows=summary_table(public), result=public, lines=lines, onnx=onnx
    )
    _folder.write(folder / _folder.CARD, card)


def table_model(student: Any) -> Any:
    """Return an ONNX model of a pipeline of an encoder and a linear student, or raise ValueError.

    Its inputs are the columns, shape (n_rows, 1): doubles and texts. Its outputs are ``predicted`` and, of
    classes, ``probabilities``.
    """
    if not hasattr(student, "feature_names_in_"):
        raise ValueError("this student is no plain scikit-learn model")
    if not hasattr(student.steps[0][1], "transformers_"):
        raise ValueError("its columns are encoded by a step of its own, which ONNX does not have")
    graph, columns = _Graph(), student.feature_names_in_.tolist()
    if clash := {"predicted", "probabilities"} & set(columns):
        raise ValueError(f"a column has the name of an output, {min(clash)!r}")
    first = student.steps[0][1]
    parts: list[str] = []
    if all(name.startswith(_OF_A_COLUMN) for name, _, _ in first.transformers_):
        # the bins of a data frame's columns, each of which is an input
        for name, step, (column,) in first.transformers_:
            if name.startswith(_OF_A_COLUMN[0]):
                number = graph.column(column, text=False)
                largest = graph.constant(np.array([[_LARGEST]]))
                number = graph.add("Where", graph.add("IsNaN", number), largest, number)
                parts.append(_bin(graph, number, step.named_steps["bins"].bin_edges_[0]))
            elif all(isinstance(kind, str) for kind in step.categories_[0].tolist()):
                parts.append(_kinds(graph, step, 0, graph.column(column, text=True)))
            else:
                raise ValueError(f"column {column!r} holds kinds that are no text, which ONNX cannot look up")
        return _finished(graph, student.steps[1:], graph.joined(parts))
    encoder, model = (step for _, step in student.steps)
    features = _encoded(graph, encoder, columns)
    if not hasattr(model, "steps"):
        return _finished(graph, [("weights", model)], features)
    (_, bins), *steps = model.steps
    for _, step, places in bins.transformers_:
        if not hasattr(step, "bin_edges_"):  # passed through
            parts.append(graph.add("Gather", features, graph.constant(np.array(places)), axis=1))
            continue
        for place, edges in zip(places, step.bin_edges_, strict=True):
            number = graph.add("Gather", features, graph.constant(np.array([place])), axis=1)
            parts.append(_bin(graph, number, edges))
    return _finished(graph, steps, graph.joined(parts))


def array_model(student: Any, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """Return an ONNX model of a student of arrays as skl2onnx converts it, and some rows to try it with."""
    from ostraka.core import check

    converter = check.require("skl2onnx", extra="onnx")
    floats = check.require("skl2onnx.common.data_types", extra="onnx").FloatTensorType
    if student.n_features_in_ != rows.shape[1]:
        raise ValueError("its rows are sparse, and skl2onnx has no such input")
    sample = rows[:_CHECKED].astype(np.float32)
    if not np.array_equal(sample, rows[:_CHECKED]):
        raise ValueError("these numbers do not fit into 32 bits, in which skl2onnx calculates")
    kinds = [("X", floats([None, rows.shape[1]]))]
    model = converter.to_onnx(student, initial_types=kinds, options={"zipmap": False}, target_opset=_ARRAYS)
    return model, {"X": sample}


def columns_of(cells: np.ndarray, student: Any) -> dict[str, np.ndarray]:
    """Return the inputs of the model of a table, for rows of cells."""
    encoder = student.steps[0][1]
    numbers = next(places for name, _, places in encoder.transformers_ if name == "numbers")
    inputs = {place for _, _, places in encoder.transformers_ for place in _each(places)}
    return {
        name: cells[:, [place]].astype(np.float64) if place in numbers else cells[:, [place]]
        for place, name in enumerate(student.feature_names_in_)
        if place in inputs
    }


class _Graph:
    """Nodes, constants and inputs of a model."""

    def __init__(self) -> None:
        from onnx import helper

        self.helper = helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def add(self, operator: str, *inputs: str, out: str = "", domain: str = "", **settings: Any) -> str:
        """Add a node, and return the name of its output."""
        name = out or f"/{operator}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, list(inputs), [name], domain=domain, **settings))
        return name

    def constant(self, values: Any) -> str:
        """Add an array of doubles, whole numbers or texts."""
        from onnx import TensorProto, numpy_helper

        array, name = np.asarray(values), f"/constant_{len(self.constants)}"
        if array.dtype.kind in "OU":
            texts = [text.encode() for text in array.ravel().tolist()]
            tensor = self.helper.make_tensor(name, TensorProto.STRING, array.shape, texts)
        else:
            tensor = numpy_helper.from_array(array, name)
        self.constants.append(tensor)
        return name

    def column(self, name: str, *, text: bool) -> str:
        """Add an input."""
        from onnx import TensorProto

        kind = TensorProto.STRING if text else TensorProto.DOUBLE
        self.inputs.append(self.helper.make_tensor_value_info(name, kind, ["n_rows", 1]))
        return name

    def joined(self, parts: Sequence[str]) -> str:
        """Put matrices side by side."""
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=1)

    def model(self, outputs: list[Any]) -> Any:
        """The whole model."""
        make = self.helper
        body = make.make_graph(self.nodes, "student", self.inputs, outputs, self.constants)
        opsets = [make.make_opsetid("", _OPSET), make.make_opsetid("ai.onnx.ml", _ML_OPSET)]
        return make.make_model(body, opset_imports=opsets, producer_name="ostraka", ir_version=9)

    def doubles(self, name: str) -> str:
        """Convert to doubles."""
        from onnx import TensorProto

        return self.add("Cast", name, to=TensorProto.DOUBLE)


def _finished(graph: _Graph, steps: list[tuple[str, Any]], features: str) -> Any:
    """Add the steps after the encoding of a table, and return the whole model."""
    from onnx import TensorProto

    add, constant, value = graph.add, graph.constant, graph.helper.make_tensor_value_info
    *turns, (_, model) = steps
    for name, step in turns:
        if name == "both":  # the Gaussian kernels of each row with some public rows, beside the features
            kernel = dict(step.transformer_list)["kernel"]
            centres, axis = kernel.components_, constant(np.array([1]))
            squares = add("ReduceSumSquare", features, axis, keepdims=1)
            squares = add("Add", squares, constant((centres**2).sum(axis=1)[None]))
            products = add("MatMul", features, constant(np.ascontiguousarray(2 * centres.T)))
            apart = add("Relu", add("Sub", squares, products))
            kernels = add("Exp", add("Mul", apart, constant(np.array([[-float(kernel.gamma)]]))))
            features = graph.joined([features, kernels])
        elif name == "length":
            length = add("ReduceL2", features, constant(np.array([1])), keepdims=1)
            features = add("Div", features, length)
        elif hasattr(step, "components_"):  # after a step that puts a one before the features
            turn = step.components_.T
            turned = add("MatMul", features, constant(np.ascontiguousarray(turn[1:])))
            features = add("Add", turned, constant(turn[:1]))
    if isinstance(model, MLPRegressor | MLPClassifier):
        layers = list(zip(model.coefs_, model.intercepts_, strict=True))
    elif isinstance(model, LogisticRegression):
        layers = [(model.coef_.T, model.intercept_)]
    else:
        why = f"{type(model).__name__} is neither linear nor a perceptron"
        raise ValueError(why)  # noqa: TRY004  (all reasons are of one type)
    for place, (weights, offsets) in enumerate(layers):
        features = add("Relu", features) if place else features
        features = add("MatMul", features, constant(np.ascontiguousarray(weights, dtype=np.float64)))
        features = add("Add", features, constant(np.asarray(offsets[None], dtype=np.float64)))
    if isinstance(model, MLPRegressor):
        add("Reshape", features, constant(np.array([-1])), out="predicted")
        return graph.model([value("predicted", TensorProto.DOUBLE, ["n_rows"])])
    classes = model.classes_
    if len(classes) == 2:
        second = add("Sigmoid", features)
        add("Concat", add("Sub", constant(np.ones((1, 1))), second), second, axis=1, out="probabilities")
        above = add("Cast", add("Greater", features, constant(np.zeros((1, 1)))), to=TensorProto.INT64)
        likeliest = add("Reshape", above, constant(np.array([-1])))
    else:
        add("Softmax", features, axis=1, out="probabilities")
        likeliest = add("ArgMax", features, axis=1, keepdims=0)
    text = classes.dtype.kind in "OU"
    add("Gather", constant(classes if text else classes.astype(np.int64)), likeliest, out="predicted")
    kind = TensorProto.STRING if text else TensorProto.INT64
    probabilities = value("probabilities", TensorProto.DOUBLE, ["n_rows", len(classes)])
    return graph.model([value("predicted", kind, ["n_rows"]), probabilities])


def _each(places: Any) -> Iterator[int]:
    yield from places if isinstance(places, list) else [places]


def _encoded(graph: _Graph, encoder: Any, columns: Sequence[str]) -> str:
    """Add the encoder's steps."""
    parts: list[str] = []
    inputs: dict[int, str] = {}
    for name, step, places in encoder.transformers_:
        if name.startswith("text "):
            raise ValueError(f"column {columns[places]!r} holds sentences, and ONNX cannot hash words")
        if name == "remainder" or places == []:
            continue
        for place in _each(places):
            if place not in inputs:
                inputs[place] = graph.column(columns[place], text=name != "numbers")
        if name == "numbers":
            values, scaler = graph.joined([inputs[place] for place in places]), step
            if hasattr(step, "named_steps"):
                imputer, scaler = step.named_steps.values()
                missing = graph.add("IsNaN", values)
                values = graph.add("Where", missing, graph.constant(imputer.statistics_[None]), values)
            if hasattr(scaler, "mean_"):  # else the numbers are passed through
                centred = graph.add("Sub", values, graph.constant(scaler.mean_[None]))
                values = graph.add("Div", centred, graph.constant(scaler.scale_[None]))
            parts.append(values)
        elif name == "kinds":
            parts += [_kinds(graph, step, k, inputs[place]) for k, place in enumerate(places)]
        else:
            patterns = [f"(?s){re.escape(prefix)}.*" for prefix in step.get_feature_names_out().tolist()]
            matches = [graph.add("RegexFullMatch", inputs[places], pattern=pattern) for pattern in patterns]
            parts.append(graph.doubles(graph.joined(matches)))
    return graph.joined(parts)


def _kinds(graph: _Graph, encoder: Any, place: int, column: str) -> str:
    """Add a table of the encoder's own rows, one for each category and one for all other texts."""
    names = encoder.categories_[place].tolist()
    encoder = copy.copy(encoder)
    vars(encoder).pop("feature_names_in_", None)  # its rows here have no names
    rows = one_hot([*names, _UNKNOWN], place, encoder, n_kinds=len(encoder.categories_))
    codes = {"keys_strings": names, "values_int64s": list(range(len(names))), "default_int64": len(names)}
    code = graph.add("LabelEncoder", column, domain="ai.onnx.ml", **codes)
    flat = graph.add("Reshape", code, graph.constant(np.array([-1])))
    return graph.add("Gather", graph.constant(rows), flat, axis=0)


def _bin(graph: _Graph, number: str, edges: np.ndarray) -> str:
    """Add the bins of one column."""
    real = graph.doubles(graph.add("GreaterOrEqual", number, graph.constant(np.array([[-np.inf]]))))
    inner = edges[1:-1][None]
    if inner.size == 0:
        return real
    reached = graph.doubles(graph.add("GreaterOrEqual", number, graph.constant(inner)))
    zero = graph.add("Sub", real, real)
    return graph.add("Sub", graph.joined([real, reached]), graph.joined([reached, zero]))
