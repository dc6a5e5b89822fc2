"""Convert students to ONNX, those of tables in double precision.

Edges of bins are values of public rows. In 32 bits a row moves across an edge: with skl2onnx, whose bins are
in 32 bits, one prediction in eight differs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.cli._encoding import one_hot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["array_model", "columns_of", "table_model"]

_OPSET, _ML_OPSET = 20, 3
_ARRAYS = 17  # the operator set of skl2onnx
_UNKNOWN = "\0"  # a text that no public row holds


_CHECKED = 200  # rows of arrays: the reference evaluator takes them one by one


def array_model(student: Any, rows: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
    """Return an ONNX model of a student of arrays as skl2onnx converts it, and some rows to try it with."""
    from ostraka import _check

    converter = _check.require("skl2onnx", extra="onnx")
    floats = _check.require("skl2onnx.common.data_types", extra="onnx").FloatTensorType
    if student.n_features_in_ != rows.shape[1]:
        raise ValueError("its rows are sparse, and skl2onnx has no such input")
    some = rows[:_CHECKED].astype(np.float32)
    if not np.array_equal(some, rows[:_CHECKED]):
        raise ValueError("these numbers do not fit into 32 bits, in which skl2onnx calculates")
    kinds = [("X", floats([None, rows.shape[1]]))]
    made = converter.to_onnx(student, initial_types=kinds, options={"zipmap": False}, target_opset=_ARRAYS)
    return made, {"X": some}


def table_model(student: Any) -> Any:
    """Return an ONNX model of a pipeline of an encoder and a linear student, or raise ValueError.

    Its inputs are the columns, shape (n_rows, 1): doubles and texts. Its outputs are ``predicted`` and
    ``probabilities``.
    """
    if not hasattr(student, "feature_names_in_"):
        raise ValueError("this student is no plain scikit-learn model")
    graph, columns = _Graph(), student.feature_names_in_.tolist()
    if clash := {"predicted", "probabilities"} & set(columns):
        raise ValueError(f"a column has the name of an output, {min(clash)!r}")
    encoder, model = (step for _, step in student.steps)
    features = _encoded(graph, encoder, columns)
    if hasattr(model, "steps"):
        (_, bins), (_, model) = model.steps
        features = _binned(graph, bins, features)
    if type(model).__name__ != "LogisticRegression":
        raise ValueError(f"{type(model).__name__} is not linear")
    return _decided(graph, model, features)


def columns_of(cells: np.ndarray, student: Any) -> dict[str, np.ndarray]:
    """Return the inputs of the model of a table, for rows of cells."""
    encoder = student.steps[0][1]
    numbers = next(places for name, _, places in encoder.transformers_ if name == "numbers")
    used = {each for _, _, places in encoder.transformers_ for each in _each(places)}
    return {
        name: cells[:, [place]].astype(np.float64) if place in numbers else cells[:, [place]]
        for place, name in enumerate(student.feature_names_in_)
        if place in used
    }


def _each(places: Any) -> Iterator[int]:
    yield from places if isinstance(places, list) else [places]


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
            made = self.helper.make_tensor(name, TensorProto.STRING, array.shape, texts)
        else:
            made = numpy_helper.from_array(array, name)
        self.constants.append(made)
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

    def doubles(self, name: str) -> str:
        """Convert to doubles."""
        from onnx import TensorProto

        return self.add("Cast", name, to=TensorProto.DOUBLE)


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
            parts.append(_scaled(graph, step, [inputs[place] for place in places]))
        elif name == "kinds":
            parts += [_kinds(graph, step, k, inputs[place]) for k, place in enumerate(places)]
        else:
            parts.append(_beginnings(graph, step, inputs[places]))
    return graph.joined(parts)


def _scaled(graph: _Graph, step: Any, inputs: Sequence[str]) -> str:
    values, scaler = graph.joined(inputs), step
    if hasattr(step, "named_steps"):
        imputer, scaler = step.named_steps.values()
        missing = graph.add("IsNaN", values)
        values = graph.add("Where", missing, graph.constant(imputer.statistics_[None]), values)
    if not hasattr(scaler, "mean_"):  # passed through
        return values
    centred = graph.add("Sub", values, graph.constant(scaler.mean_[None]))
    return graph.add("Div", centred, graph.constant(scaler.scale_[None]))


def _kinds(graph: _Graph, encoder: Any, place: int, column: str) -> str:
    """Add a table of the encoder's own rows, one for each category and one for all other texts."""
    known = encoder.categories_[place].tolist()
    rows = one_hot([*known, _UNKNOWN], place, encoder, n_kinds=len(encoder.categories_))
    codes = {"keys_strings": known, "values_int64s": list(range(len(known))), "default_int64": len(known)}
    code = graph.add("LabelEncoder", column, domain="ai.onnx.ml", **codes)
    flat = graph.add("Reshape", code, graph.constant(np.array([-1])))
    return graph.add("Gather", graph.constant(rows), flat, axis=0)


def _beginnings(graph: _Graph, vectorizer: Any, column: str) -> str:
    """Add a comparison with each known prefix of a code."""
    prefixes = vectorizer.get_feature_names_out().tolist()
    found = [graph.add("RegexFullMatch", column, pattern=f"(?s){re.escape(each)}.*") for each in prefixes]
    return graph.doubles(graph.joined(found))


def _binned(graph: _Graph, bins: Any, features: str) -> str:
    """Add the bins of numbers; a number is in the bin after the last edge that it reaches."""
    parts = []
    for _, step, places in bins.transformers_:
        if not hasattr(step, "bin_edges_"):  # passed through
            parts.append(graph.add("Gather", features, graph.constant(np.array(places)), axis=1))
            continue
        for place, edges in zip(places, step.bin_edges_, strict=True):
            number = graph.add("Gather", features, graph.constant(np.array([place])), axis=1)
            one = graph.doubles(graph.add("GreaterOrEqual", number, graph.constant(np.array([[-np.inf]]))))
            inner = edges[1:-1][None]
            if inner.size == 0:
                parts.append(one)
                continue
            reached = graph.doubles(graph.add("GreaterOrEqual", number, graph.constant(inner)))
            none = graph.add("Sub", one, one)
            parts.append(graph.add("Sub", graph.joined([one, reached]), graph.joined([reached, none])))
    return graph.joined(parts)


def _decided(graph: _Graph, model: Any, features: str) -> Any:
    """Add scores, probabilities and the likeliest class, and return the whole model."""
    from onnx import TensorProto

    classes = model.classes_
    products = graph.add("MatMul", features, graph.constant(np.ascontiguousarray(model.coef_.T)))
    scores = graph.add("Add", products, graph.constant(model.intercept_[None]))
    if len(classes) == 2:
        second = graph.add("Sigmoid", scores)
        first = graph.add("Sub", graph.constant(np.ones((1, 1))), second)
        graph.add("Concat", first, second, axis=1, out="probabilities")
        above = graph.add("Greater", scores, graph.constant(np.zeros((1, 1))))
        place = graph.add("Cast", above, to=TensorProto.INT64)
        place = graph.add("Reshape", place, graph.constant(np.array([-1])))
    else:
        graph.add("Softmax", scores, axis=1, out="probabilities")
        place = graph.add("ArgMax", scores, axis=1, keepdims=0)
    text = classes.dtype.kind in "OU"
    graph.add("Gather", graph.constant(classes if text else classes.astype(np.int64)), place, out="predicted")
    kind = TensorProto.STRING if text else TensorProto.INT64
    make = graph.helper
    outputs = [
        make.make_tensor_value_info("predicted", kind, ["n_rows"]),
        make.make_tensor_value_info("probabilities", TensorProto.DOUBLE, ["n_rows", len(classes)]),
    ]
    made = make.make_graph(graph.nodes, "student", graph.inputs, outputs, graph.constants)
    opsets = [make.make_opsetid("", _OPSET), make.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    return make.make_model(made, opset_imports=opsets, producer_name="ostraka", ir_version=9)
