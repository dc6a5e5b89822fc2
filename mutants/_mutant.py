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
    "CALIBRATION",
    "CHECK",
    "CONVERSIONS",
    "CURVE",
    "DOOR",
    "DRAWN",
    "EXACT",
    "GRID",
    "NOISE",
    "OUTCOME",
    "PAIRS",
    "PRIVATE",
    "RENYI",
    "SCREEN",
    "THEOREMS",
    "TIGHT",
    "Mutant",
]

# below src/ostraka
CONVERSIONS = "_conversions.py"
CURVE, DOOR, PRIVATE, CHECK = "curve.py", "_release.py", "private.py", "_check.py"
ARGMAX, SCREEN, TIGHT = "mechanisms/argmax.py", "mechanisms/screen.py", "mechanisms/_tight.py"
GRID, NOISE, OUTCOME = "mechanisms/_grid.py", "mechanisms/_noise.py", "mechanisms/outcome.py"
EXACT, THEOREMS, CALIBRATION = "accounting/exact.py", "mechanisms/_theorems.py", "accounting/calibration.py"
PAIRS, RENYI = "mechanisms/_neighbours.py", "mechanisms/_divergence.py"

# below tests
BY_CURVE, BY_CONTRACT = "oracles/test_curve.py::", "contracts/test_curve_contract.py::"
DRAWN = "mechanisms/_exact.py"
BY_MECHANISM, BY_DOOR = "contracts/test_mechanism_contract.py::", "test_door.py::"
BY_EXACT, BY_OUTCOME, BY_TIGHT = (f"oracles/test_{name}.py::" for name in ("exact", "outcome", "tight"))
BY_ALL, BY_PLAN = "oracles/test_exhaustive.py::", "accounting/test_plan.py::"


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
        return self.file in {GRID, NOISE, OUTCOME, PAIRS, RENYI}
