"""Questions that parties cannot see: what is agreed on, and the numbers that rows become."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka import _check

if TYPE_CHECKING:
    from ostraka.secure.agreement import Agreement
    from ostraka.secure.pads import Sizes

__all__ = ["INPUT_BITS", "MOST_CLASSES", "SecretQuestions", "fixed_rows", "sizes_of"]

INPUT_BITS = 20  # of a number in a row, whose range is -1 to 1
MOST_CLASSES = 16  # the wins over others are shared modulo 16
_MOST_HIDDEN = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretQuestions:
    """The agreement of parties to vote on rows that they cannot see.

    Parameters
    ----------
    dealer : str
        Public key of the dealer: neither the asker nor a member. It sees no data and deals pads.
    input_range : (float, float)
        No number in a row is below the first or above the second. Public.
    hidden : int, 0 to 64, default 0
        ReLU units of each party's hidden layer. 0: linear models.
    max_rounds : int, default 1000
        A party answers no more rounds: it cannot notice that a row is asked twice, or is out of range.
    asker : {"curious", "cheating"}
        ``"curious"``: it keeps to the protocol. ``"cheating"``: the price holds even if it does not; a
        party then counts as moving every count of a row by one, not two of them.
    reveals : {"counts", "argmax"}, default "counts"
        What the asker sees: the noisy counts, or only which is the largest, the first of equal ones. For
        ``"argmax"`` the first party that takes part holds the sum of all parties' shares, and the asker and
        this holder compare. Then the price is the argmax's, unless the asker may cheat or parties collude.

    Raises
    ------
    ValueError
        A key that is malformed, an empty range, more than 64 units.

    Examples
    --------
    >>> from ostraka.secure.keys import Identity
    >>> SecretQuestions(dealer=Identity.fresh().public_key, input_range=(0, 1)).hidden
    0
    """

    dealer: str
    input_range: tuple[float, float]
    hidden: int = 0
    max_rounds: int = 1000
    asker: str = "curious"
    reveals: str = "counts"

    def __post_init__(self) -> None:
        if not isinstance(self.dealer, str) or not re.fullmatch(r"[0-9a-f]{64}", self.dealer):
            raise ValueError("dealer must be a public key: 64 lower-case hexadecimal digits")
        try:
            low, high = (float(each) for each in self.input_range)
        except (TypeError, ValueError):
            low = high = math.nan
        if not (math.isfinite(low) and math.isfinite(high - low) and low < high):
            raise ValueError("input_range must be two finite numbers, the smaller first")
        _check.integer(hidden=self.hidden)
        _check.integer(max_rounds=self.max_rounds, least=1)
        _check.one_of(asker=self.asker, allowed=("curious", "cheating"))
        _check.one_of(reveals=self.reveals, allowed=("counts", "argmax"))
        if self.hidden > _MOST_HIDDEN:
            raise ValueError(f"hidden must be at most {_MOST_HIDDEN}, got {self.hidden}")
        for name, value in (
            ("input_range", (low, high)),
            ("hidden", int(self.hidden)),
            ("max_rounds", int(self.max_rounds)),
        ):
            object.__setattr__(self, name, value)  # one way to write each number

    @classmethod
    def read(cls, fields: Any) -> SecretQuestions:
        """From the JSON of an agreement; ValueError for anything else."""
        if not isinstance(fields, dict) or set(fields) != set(cls.__slots__):
            raise ValueError(f"secret must have the fields {', '.join(cls.__slots__)}, and no others")
        return cls(**fields)


def sizes_of(agreement: Agreement, n_rows: int) -> Sizes:
    """The sizes of a round's computations."""
    from ostraka.secure.pads import Sizes  # noqa: PLC0415  (cipher and kernels only where they are used)

    hidden = 0 if agreement.secret is None else agreement.secret.hidden
    return Sizes(n_rows, agreement.n_features, hidden, len(agreement.classes))


def fixed_rows(rows: np.ndarray, secret: SecretQuestions) -> np.ndarray:
    """Rows as whole numbers modulo 2^64; ValueError, without the values, where they are out of range."""
    low, high = secret.input_range
    if not ((rows >= low) & (rows <= high)).all():
        raise ValueError(f"X must lie within the agreed input_range, {low!r} to {high!r}")
    middle, half = (low + high) / 2, (high - low) / 2
    scaled = np.clip((rows - middle) / half, -1.0, 1.0) * 2.0**INPUT_BITS
    return np.rint(scaled).astype(np.int64).view(np.uint64)
