"""Estimators that run the whole pipeline, and the plans they follow.

In come private rows with labels, and public rows; out go a model and its record. The promise: every answer is
paid for before it is used, and nothing else depends on the private rows.

:class:`PATEFM` needs torch, so it is imported when it is first used; :class:`LabelClassifier` imports it when
it is fitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.learn.classifier import PATEClassifier as PATEClassifier
    from ostraka.learn.regressor import PATERegressor as PATERegressor
    from ostraka.learn.ways.labels import PATEFM as PATEFM
    from ostraka.learn.ways.response import LabelClassifier as LabelClassifier

__all__ = ["PATEFM", "LabelClassifier", "PATERegressor"]

__getattr__, __dir__ = face(__name__, __file__)
