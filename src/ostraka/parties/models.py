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
    layers = None
    with np.errstate(all="ignore"):
        if teacher.model is not None:
            layers = _read(teacher.model, (low + high) / 2, (high - low) / 2)
        if layers is not None:
            # the last layer is extended to all classes, centred; classes without rows score below all others
            weights, offsets, then = layers
            if then is None:
                reach = np.ones(len(weights))
                weights, offsets = _completed(weights, offsets, reach, teacher.present, n_classes)
            else:
                reach = np.abs(weights).sum(axis=0) + np.abs(offsets)
                then = _completed(*then, reach, teacher.present, n_classes)
            if hidden:  # as many units as were agreed; those that are not used are zero
                if then is None:
                    offsets, then = offsets - _BEHIND, (np.eye(n_classes), np.zeros(n_classes))
                spare = hidden - len(offsets)
                weights, offsets = np.pad(weights, ((0, 0), (0, spare))), np.pad(offsets, (0, spare))
                then = np.pad(then[0], ((0, spare), (0, 0))), then[1]
            layers = _Layers(weights, offsets, then)
    if layers is None or not all(
        np.isfinite(array).all() for array in (layers.weights, layers.offsets, *(layers.then or ()))
    ):
        vote = int(teacher.present[0]) if len(teacher.present) == 1 else teacher.fallback
        ones, then = np.eye(n_classes)[vote], None
        if hidden:
            ones, then = np.zeros(hidden), (np.zeros((hidden, n_classes)), ones)
        layers = _Layers(np.zeros((agreement.n_features, len(ones))), ones, then)
    weights, offsets, then = layers
    reach = np.abs(weights).sum(axis=0) + np.abs(offsets)
    if then is None:
        scale = _LARGEST / reach.max()
        return FixedModel((_whole(weights * scale / 2.0**INPUT_BITS, offsets * scale),))
    # each hidden unit is scaled separately, which the second layer compensates for
    reach[reach == 0] = 1.0
    scale = _LARGEST / reach
    first = _whole(weights * scale / 2.0**INPUT_BITS, offsets * scale)
    second, last = then[0] * reach[:, None], then[1]
    scale = _LARGEST / (np.abs(second).sum(axis=0) + np.abs(last)).max()
    return FixedModel((first, _whole(second * scale / (_LARGEST / 2.0**32), last * scale)))


def _read(model: Any, middle: float, half: float) -> _Layers | None:
    """Return a trained model's layers with its scalers merged; None if its numbers give no valid scores."""
    *scalers, last = _steps(model)
    if kind_of_model(last) == _MLP:
        (weights, second), (offsets, ahead) = last.coefs_, last.intercepts_
        if second.shape[1] == 1:  # of two classes: how far the second is ahead
            second = np.concatenate([np.zeros_like(second), second], axis=1)
            ahead = np.concatenate([np.zeros_like(ahead), ahead])
        weights, offsets = np.asarray(weights, np.float64), np.asarray(offsets, np.float64)
        then = second, ahead
    elif (scores := linear_scores(last)) is None:
        return None
    else:
        weights, offsets, then = scores[0].T.copy(), np.array(scores[1]), None
    factor, shift = np.full(len(weights), half), np.full(len(weights), middle)
    for scaler in scalers:  # each row becomes row * factor + shift
        base, stretched = (scaler.transform(np.full((1, len(weights)), value))[0] for value in (0.0, 1.0))
        factor, shift = (stretched - base) * factor, (stretched - base) * shift + base
    return _Layers(weights * factor[:, None], offsets + shift @ weights, then)


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


def _whole(weights: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    layers = [np.ascontiguousarray(np.rint(array).astype(np.int64)) for array in (weights, offsets)]
    return layers[0].view(np.uint64), layers[1].view(np.uint64)


def _steps(estimator: Any) -> list[Any]:
    return [step for _, step in estimator.steps] if kind_of_model(estimator) == _PIPELINE else [estimator]
