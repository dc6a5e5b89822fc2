"""Checks of the settings, texts and labels of a :class:`PromptEnsemble`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.voters.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.voters.prompts import PromptEnsemble


def check_settings(ensemble: PromptEnsemble) -> None:
    """Raise if a setting is invalid."""
    check.integer(n_teachers=ensemble.n_teachers, n_shots=ensemble.n_shots, least=1)
    check_model(ensemble.endpoint, ensemble.model, max_calls=ensemble.max_calls)
    if len(ensemble.classes) < 2 or (
        ensemble.words is not None and len(ensemble.words) != len(ensemble.classes)
    ):
        raise ValueError(f"classes must be two or more, with one word each, got {len(ensemble.classes)}")
    if ensemble.prices is not None:
        prompts, answers = ensemble.prices
        check.nonnegative(prompts=prompts, answers=answers)
    if ensemble.max_cost is not None:
        check.nonnegative(max_cost=ensemble.max_cost)
        if ensemble.prices is None:
            raise ValueError(
                "max_cost needs prices=: the price of a million tokens of prompts, and of answers"
            )


def check_model(endpoint: Any, model: Any, *, max_calls: Any) -> None:
    """Raise if what names a model, or the limit on its calls, is invalid."""
    if max_calls is not None:
        check.integer(max_calls=max_calls)
    if not isinstance(model, str) or not model:
        raise ValueError(f"model must be the model's name, got {model!r}")
    if not isinstance(endpoint, str | Endpoint) and not callable(endpoint):
        raise TypeError("endpoint must be an Endpoint, a URL or a function of a list of prompts")


def check_limits(ensemble: PromptEnsemble, n_requests: int, *, price: Callable[[], float | None]) -> None:
    """Raise if a vote exceeds a limit. The message has no private number."""
    if ensemble.replay:
        raise ValueError(
            f"response_cache {ensemble.response_cache} lacks answers for this vote: "
            "vote once with replay=False"
        )
    hint = "see estimate(texts); no request was sent"
    if ensemble.max_calls is not None and n_requests > ensemble.max_calls:
        raise ValueError(f"this vote needs more calls than max_calls={ensemble.max_calls}: {hint}")
    if ensemble.max_cost is not None:
        cost = price()
        if cost is None or not cost <= ensemble.max_cost:
            raise ValueError(f"this vote may cost more than max_cost={ensemble.max_cost}: {hint}")


def check_texts(texts: Any) -> list[str]:
    """Check the texts, one for each row. The message never quotes a value."""
    found = [texts] if isinstance(texts, str) else list(texts)
    if isinstance(texts, str) or not found or not all(isinstance(text, str) for text in found):
        raise ValueError("texts must be a sequence of str, one for each row, without missing ones")
    return [str(text) for text in found]


def class_indices(labels: np.ndarray, classes: Sequence[Any]) -> list[int]:
    """The index of each label among the classes."""
    places = {label: code for code, label in enumerate(np.asarray(classes).tolist())}
    if len(places) != len(classes):
        raise ValueError(f"classes must differ, but of {len(classes)} only {len(places)} are different")
    codes = [places.get(label, ABSTAIN) for label in labels.tolist()]
    if ABSTAIN in codes:
        raise ValueError("labels must hold the declared classes only, but hold others: add them to classes=")
    return codes
