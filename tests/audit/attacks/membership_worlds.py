"""Confidences of models which have a row and of models which have not."""

import numpy as np

from ostraka.attacks import ReferenceModels
from ostraka.audit.attacks.membership import STATISTICS, draw_coins

METHODS = ("hierarchical", *STATISTICS, "rmia", "loss")


def world(rng, n_models, n_rows, *, effect):
    """Confidences and memberships of a target (first) and references; rows differ in level and spread."""
    included = np.vstack([rng.random((1, n_rows)) < 0.5, draw_coins(rng, n_models, n_rows)])
    level = rng.normal(1, 2, n_rows)
    noise = np.exp(rng.normal(0, 0.4, n_rows)) * rng.normal(size=included.shape)
    return 1 / (1 + np.exp(-(level + effect * included + noise))), included


def references(confidences, included):
    return ReferenceModels.from_confidences(confidences[1:], included[1:])
