"""The error of a training whose loss is not finite. This module does not need torch."""

from __future__ import annotations


class TrainingDiverged(FloatingPointError):  # noqa: N818  (as BudgetExceeded)
    """A loss was not finite. The modules and the checkpoint hold the state after the last good epoch."""

    __module__ = "ostraka.networks"
