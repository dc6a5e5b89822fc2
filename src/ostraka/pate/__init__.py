"""The whole pipeline as one scikit-learn estimator, and the plan it follows."""

from ostraka.pate.classifier import PATEClassifier
from ostraka.pate.plan import Plan

__all__ = ["PATEClassifier", "Plan"]
