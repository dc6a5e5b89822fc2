"""Models with whole-number weights, for votes on rows which the model's owner cannot see.

Scores are compared, so their unit does not matter: each model is scaled so that whatever the agreed input
range allows stays within 62 bits. No sum can overflow, and no bit is wasted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ostraka.secure.agreement import INPUT_BITS
from ostraka.secure.two_party import FixedModel
from ostraka.voters.kinds import LINEAR, kind_of_model, linear_scores

if TYPE_CHECKING:
    from ostraka.secure.agreement import Agreement
    from ostraka.voters.voting import Teacher

_MLP = "sklearn.neural_network._multilayer_perceptron.MLPClassifier"
_SCALERS = {"sklearn.preprocessing._data.MinMaxScaler", "sklearn.preprocessing._data.StandardScaler"}
_PIPELINE = "sklearn.pipeline.Pipeline"
_LARGEST = 2.0**62 * 0.9  # of a scaled score: twice as much still fits a signed number of 64 bits
_BEHIND = -1.5  # the score of a class that a model never saw, where 1 is the largest of all others


class _Layers(NamedTuple):
    """Weights and offsets of both layers; the second pair is None for a linear model."""

    weights: np.ndarray
    offsets: np.ndarray
    then: tuple[np.ndarray, np.ndarray] | None = None


def check_supported(estimator: Any, agreement: Agreement) -> None:
    """Raise ValueError for an estimator whose votes cannot be computed on hidden rows."""
    secret = agreement.secret
    if secret is None:
        return
    *scalers, last = _steps(estimator)
    linear, network = kind_of_model(last) in LINEAR, kind_of_model(last) == _MLP
    if not all(
        kind_of_model(scaler) in _SCALERS and not getattr(scaler, "clip", False) for scaler in scalers
    ) or not (linear or network):
        raise ValueError(
            "with secret questions the estimator must be LogisticRegression, RidgeClassifier, SGDClassifier, "
            "LinearSVC or MLPClassifier, or a Pipeline of StandardScaler or MinMaxScaler and one of these; "
            f"got {type(estimator).__name__}"
        )
    if network:
        units = tuple(np.atleast_1d(last.hidden_layer_sizes).tolist())
        if len(units) != 1 or units[0] > secret.hidden or last.activation != "relu":
            raise ValueError(
                f"with secret questions an MLPClassifier must have activation='relu' and one hidden layer of "
                f"at most {secret.hidden} units, as agreed; got activation={last.activation!r} and {units}"
            )
    elif 0 < secret.hidden < len(agreement.classes):
        raise ValueError(
            f"a linear estimator needs as many hidden units as classes, {len(agreement.classes)}; "
            f"agreed are {secret.hidden}"
        )


def fixed_model(teacher: Teacher, agreement: Agreement) -> FixedModel:
    """Convert a teacher's model to the agreed sizes; a failed teacher always votes its fallback class."""
    if agreement.secret is None:
        raise ValueError("the agreement has no secret questions")
    (low, high), hidden = agreement.secret.input_range, agreement.secret.hidden
    n_classes = len(agreement.classes)
    with np.errstate(all="ignore"):
        layers = None if teacher.model is None else _read(teacher.model, (low + high) / 2, (high - low) / 2)
        if layers is not None:
            layers = _all_classes(layers, teacher.present, n_classes)
            layers = _embedded(layers, hidden) if hidden else layers
    if layers is None or not all(
        np.isfinite(array).all() for array in (layers.weights, layers.offsets, *(layers.then or ()))
    ):
        vote = int(teacher.present[0]) if len(teacher.present) == 1 else teacher.fallback
        layers = _constant(vote, agreement.n_features, hidden, n_classes)
    return _scaled(layers) if layers.then is None else _scaled_network(layers)


def _constant(vote: int, n_features: int, hidden: int, n_classes: int) -> _Layers:
    offsets = np.eye(n_classes)[vote]
    if not hidden:
        return _Layers(np.zeros((n_features, n_classes)), offsets)
    return _Layers(np.zeros((n_features, hidden)), np.zeros(hidden), (np.zeros((hidden, n_classes)), offsets))


def _read(model: Any, middle: float, half: float) -> _Layers | None:
    """Return a trained model's layers with its scalers merged; None if its numbers give no valid scores."""
    *scalers, last = _steps(model)
    if kind_of_model(last) == _MLP:
        weights, offsets, then = _network(last)
    elif (scores := linear_scores(last)) is None:
        return None
    else:
        weights, offsets, then = scores[0].T.copy(), np.array(scores[1]), None
    factor, shift = np.full(len(weights), half), np.full(len(weights), middle)
    for scaler in scalers:  # each row becomes row * factor + shift
        base, stretched = (scaler.transform(np.full((1, len(weights)), value))[0] for value in (0.0, 1.0))
        factor, shift = (stretched - base) * factor, (stretched - base) * shift + base
    return _Layers(weights * factor[:, None], offsets + shift @ weights, then)


def _network(model: Any) -> _Layers:
    (first, second), (offsets, last) = model.coefs_, model.intercepts_
    if second.shape[1] == 1:  # of two classes: how far the second is ahead
        second = np.concatenate([np.zeros_like(second), second], axis=1)
        last = np.concatenate([np.zeros_like(last), last])
    return _Layers(np.asarray(first, np.float64), np.asarray(offsets, np.float64), (second, last))


def _all_classes(layers: _Layers, present: np.ndarray, n_classes: int) -> _Layers:
    """Extend the last layer to all classes, centred; classes without rows score below all others."""
    if layers.then is None:
        reach = np.ones(len(layers.weights))
        return _Layers(*_completed(layers.weights, layers.offsets, reach, present, n_classes))
    reach = np.abs(layers.weights).sum(axis=0) + np.abs(layers.offsets)
    return layers._replace(then=_completed(*layers.then, reach, present, n_classes))


def _completed(
    weights: np.ndarray, offsets: np.ndarray, reach: np.ndarray, present: np.ndarray, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Scale scores to at most 1 in size, or 1.5 for classes without rows."""
    weights = weights - weights.mean(axis=1, keepdims=True)
    offsets = offsets - offsets.mean()
    largest = float((np.abs(weights) * reach[:, None]).sum(axis=0).max() + np.abs(offsets).max()) or 1.0
    all_weights, all_offsets = np.zeros((len(weights), n_classes)), np.full(n_classes, _BEHIND)
    all_weights[:, present], all_offsets[present] = weights / largest, offsets / largest
    return all_weights, all_offsets


def _embedded(layers: _Layers, hidden: int) -> _Layers:
    """Embed a model in the agreed number of hidden units; unused units are zero."""
    weights, offsets, then = layers
    if then is None:
        n_classes = len(offsets)
        offsets, then = offsets - _BEHIND, (np.eye(n_classes), np.zeros(n_classes))
    spare = hidden - len(offsets)
    return _Layers(
        np.pad(weights, ((0, 0), (0, spare))),
        np.pad(offsets, (0, spare)),
        (np.pad(then[0], ((0, spare), (0, 0))), then[1]),
    )


def _scaled(layers: _Layers) -> FixedModel:
    reach = (np.abs(layers.weights).sum(axis=0) + np.abs(layers.offsets)).max()
    scale = _LARGEST / reach
    return FixedModel((_whole(layers.weights * scale / 2.0**INPUT_BITS, layers.offsets * scale),))


def _scaled_network(layers: _Layers) -> FixedModel:
    """Scale each hidden unit separately, and compensate for it in the second layer."""
    weights, offsets, then = layers
    reach = np.abs(weights).sum(axis=0) + np.abs(offsets)
    reach[reach == 0] = 1.0
    scale = _LARGEST / reach
    first = _whole(weights * scale / 2.0**INPUT_BITS, offsets * scale)
    second, last = then if then is not None else (np.zeros(0), np.zeros(0))
    second = second * reach[:, None]
    scale = _LARGEST / (np.abs(second).sum(axis=0) + np.abs(last)).max()
    return FixedModel((first, _whole(second * scale / (_LARGEST / 2.0**32), last * scale)))


def _whole(weights: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    layers = [np.ascontiguousarray(np.rint(array).astype(np.int64)) for array in (weights, offsets)]
    return layers[0].view(np.uint64), layers[1].view(np.uint64)


def _steps(estimator: Any) -> list[Any]:
    return [step for _, step in estimator.steps] if kind_of_model(estimator) == _PIPELINE else [estimator]
