"""A planted defect: a change of source text, and the test that must notice it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "ARGMAX",
    "BY_ALL",
    "BY_CONTRACT",
    "BY_CURVE",
    "BY_DOOR",
    "BY_EXACT",
    "BY_MECHANISM",
    "BY_OUTCOME",
    "BY_PLAN",
    "BY_TIGHT",
    "BY_TRIALS",
    "CALIBRATION",
    "CHECK",
    "CONVERSIONS",
    "CURVE",
    "DOOR",
    "DRAWN",
    "EXACT",
    "OUTCOME",
    "PAIRS",
    "PRIVATE",
    "SCREEN",
    "THEOREMS",
    "TIGHT",
    "TRIALS",
    "Mutant",
]

# below src/ostraka
CONVERSIONS = "core/curve.py"
CURVE, DOOR, PRIVATE, CHECK = "core/curve.py", "core/door.py", "core/private.py", "core/check.py"
ARGMAX, SCREEN, TIGHT = "core/mechanisms/argmax.py", "core/mechanisms/screen.py", "core/mechanisms/tight.py"
TRIALS = "core/mechanisms/trials.py"
OUTCOME = "core/kernels/outcome.py"
EXACT, THEOREMS, CALIBRATION = (
    "core/accounting/bounds.py",
    "core/mechanisms/argmax.py",
    "core/accounting/calibration.py",
)
PAIRS = "core/kernels/neighbours.py"

# below tests
BY_CURVE, BY_CONTRACT = "oracles/test_curve.py::", "contracts/test_curve_contract.py::"
BY_TRIALS = "core/mechanisms/test_trials.py::"
DRAWN = "core/mechanisms/exact.py"
BY_MECHANISM, BY_DOOR = "contracts/test_mechanism_contract.py::", "core/test_door.py::"
BY_EXACT, BY_OUTCOME, BY_TIGHT = (f"oracles/test_{name}.py::" for name in ("exact", "outcome", "tight"))
BY_ALL, BY_PLAN = "oracles/test_exhaustive.py::", "core/accounting/test_plan.py::"


class Mutant(NamedTuple):
    """What it is called, where it is planted (``before`` occurs once), and who must kill it."""

    name: str
    file: str
    before: str
    after: str
    killer: str

    @property
    def compiled(self) -> bool:
        """Whether the file holds compiled kernels, so that none may come from a cache."""
        return self.file in {OUTCOME, PAIRS}
