"""The agreement of fixed parties before any round: members, classes, and each party's noise.

:class:`SecretQuestions` is what is agreed on where parties vote on rows that they cannot see.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ostraka.core import check
from ostraka.core.mechanisms.argmax import GNMax
from ostraka.core.mechanisms.skellam import SkellamMax, largest_draw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostraka.secure.two_party import Sizes

INPUT_BITS = 20  # of a number in a row, whose range is -1 to 1
MOST_CLASSES = 16  # the wins over others are shared modulo 16
_MOST_HIDDEN = 64
_VERSION, _SECRET_VERSION = 1, 2  # the second only where questions are secret
_LEAST_PARTIES = 3  # of two, each would know the other's votes from the sum
_MOST_PARTIES = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DRAWS = 2**23  # thresholds behind the noise of one row: tables stay short


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
        A holder that cheats can make a round fail if a class of its choice is among the two largest; an asker
        that asks again shows it that bit. It is a function of the noisy counts, whose price is
        ``reveals="counts"``.

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
        if not check.is_hexadecimal(self.dealer):
            raise ValueError("dealer must be a public key: 64 lower-case hexadecimal digits")
        try:
            low, high = (float(end) for end in self.input_range)
        except (TypeError, ValueError):
            low = high = math.nan
        if not (math.isfinite(low) and math.isfinite(high - low) and low < high):
            raise ValueError("input_range must be two finite numbers, the smaller first")
        check.integer(hidden=self.hidden)
        check.integer(max_rounds=self.max_rounds, least=1)
        check.one_of(asker=self.asker, allowed=("curious", "cheating"))
        check.one_of(reveals=self.reveals, allowed=("counts", "argmax"))
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
        """Parse the JSON of an agreement; ValueError for anything else."""
        if not isinstance(fields, dict) or set(fields) != set(cls.__slots__):
            raise ValueError(f"secret must have the fields {', '.join(cls.__slots__)}, and no others")
        return cls(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The public agreement of fixed parties. Everybody holds the same one: compare its ``sha256``.

    Parameters
    ----------
    members : mapping of str to str
        Each party's name and its public key. Three parties or more.
    aggregator : str
        Public key of the only one who may ask.
    classes : sequence of str or of int
        Every class there may be, agreed beforehand and not learned from anybody's labels.
    n_features : int
        Numbers in a question.
    sigma : float > 0, in votes
        Standard deviation of the noise on each count.
    noise : {"aggregator", "parties"}
        Who adds it. ``"aggregator"``: it sees exact counts and is trusted to show them to nobody
        but :func:`ostraka.release`. ``"parties"``: each adds a share, so that nobody sees exact counts.
    colluding : int, default 0
        With ``noise="parties"``: the price holds against this many parties who tell their noise.
    quorum : int, optional
        A round needs this many parties. None: all of them.
    max_rows : int, default 1024
        Rows that may be asked in one round.
    secret : SecretQuestions, optional
        How parties vote on rows that they cannot see; needs ``noise="parties"`` and at most 16
        classes. None: every party sees the rows.

    Raises
    ------
    ValueError
        Names or keys that are malformed or given twice, fewer than three parties, a quorum that
        is not above ``colluding``, noise too wide for exact tables, or secret questions whose
        dealer is the asker or a member.

    Examples
    --------
    >>> from ostraka.secure.keys import Identity
    >>> keys = {name: Identity.fresh().public_key for name in ("north", "south", "west")}
    >>> me = Identity.fresh()
    >>> agreement = Agreement(members=keys, aggregator=me.public_key, classes=[0, 1], n_features=4, sigma=1.0)
    >>> Agreement.from_json(agreement.to_json()).sha256 == agreement.sha256
    True
    >>> agreement.mechanism
    GNMax(sigma=1.0)
    """

    members: Mapping[str, str]
    aggregator: str
    classes: tuple[int, ...] | tuple[str, ...]
    n_features: int
    sigma: float
    noise: Literal["aggregator", "parties"] = "aggregator"
    colluding: int = 0
    quorum: int | None = None
    max_rows: int = 1024
    secret: SecretQuestions | None = None
    sha256: str = field(init=False, repr=False, compare=False)  # compared over another channel

    def __post_init__(self) -> None:
        members = dict(sorted(dict(self.members).items()))
        keys = [*members.values(), self.aggregator]
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in members):
            raise ValueError("names of members must be 1 to 64 letters, digits, dots, hyphens or underscores")
        if not all(check.is_hexadecimal(key) for key in keys):
            raise ValueError("public keys must be 64 lower-case hexadecimal digits: Identity.public_key")
        if len(set(keys)) < len(keys):
            raise ValueError("every member, and the aggregator, must have a key of its own")
        if not _LEAST_PARTIES <= len(members) <= _MOST_PARTIES:
            raise ValueError(f"members must be {_LEAST_PARTIES} to {_MOST_PARTIES:,}, got {len(members)}")
        quorum = len(members) if self.quorum is None else self.quorum
        object.__setattr__(self, "members", members)
        # plain values of one type, sorted as votes' columns are
        values = [value.item() if hasattr(value, "item") else value for value in self.classes]
        if {type(value) for value in values} not in ({int}, {str}):
            raise ValueError("classes must be all whole numbers or all text")
        if len(set(values)) < len(values) or not 2 <= len(values) <= 1000:
            raise ValueError(f"classes must be 2 to 1,000 different ones, got {len(values)}")
        object.__setattr__(self, "classes", tuple(sorted(values)))
        check.integer(n_features=self.n_features, max_rows=self.max_rows, least=1)
        check.integer(colluding=self.colluding)
        check.positive(sigma=self.sigma)
        check.one_of(noise=self.noise, allowed=("aggregator", "parties"))
        check.integer(quorum=quorum, least=_LEAST_PARTIES)
        object.__setattr__(self, "quorum", int(quorum))
        for name, kind in (("n_features", int), ("max_rows", int), ("colluding", int), ("sigma", float)):
            object.__setattr__(self, name, kind(getattr(self, name)))  # one way to write each number
        if quorum > len(self.members):
            raise ValueError(f"quorum must be at most {len(self.members)} members, got {quorum}")
        if self.colluding and self.noise == "aggregator":
            raise ValueError(
                "colluding must be 0 where the aggregator adds the noise: parties know none of it"
            )
        if self.colluding >= quorum:
            raise ValueError(f"colluding must be below the quorum of {quorum}, got {self.colluding}")
        if self.noise == "parties":
            SkellamMax(sigma=self.sigma)
            if len(self.members) * len(self.classes) * 2 * (largest_draw(self.share) + 1) > _DRAWS:
                raise ValueError(
                    f"noise='parties' needs tables too long for {len(self.members)} parties, "
                    f"{len(self.classes)} classes and sigma={self.sigma!r}: use a smaller sigma"
                )
        if self.secret is not None:
            self._check_secret(self.secret)
        object.__setattr__(self, "sha256", hashlib.sha256(self.to_json().encode()).hexdigest())

    def _check_secret(self, secret: SecretQuestions) -> None:
        if self.noise != "parties":
            raise ValueError("secret questions need noise='parties', got noise='aggregator'")
        if len(self.classes) > MOST_CLASSES:
            raise ValueError(
                f"secret questions allow at most {MOST_CLASSES} classes, got {len(self.classes)}"
            )
        if secret.reveals == "argmax":
            SkellamMax(sigma=self.sigma, reveals="argmax")
        if secret.dealer in {*self.members.values(), self.aggregator}:
            raise ValueError("the dealer must be neither the asker nor a member")

    def __hash__(self) -> int:
        return hash(self.sha256)

    @property
    def mechanism(self) -> GNMax | SkellamMax:
        """The mechanism that releases the votes; parties charge its price to their own ledgers."""
        if self.noise == "aggregator":
            return GNMax(sigma=self.sigma)
        if self.secret is not None and self.secret.asker == "cheating":
            return SkellamMax(sigma=self.sigma, changed=len(self.classes))
        if self.argmax_only and not self.colluding:  # a holder who colludes can show the counts
            return SkellamMax(sigma=self.sigma, reveals="argmax")
        return SkellamMax(sigma=self.sigma)

    @property
    def argmax_only(self) -> bool:
        """Whether the asker sees the noisy argmax, and not the noisy counts."""
        return self.secret is not None and self.secret.reveals == "argmax"

    @property
    def least(self) -> int:
        """The quorum as a number."""
        return len(self.members) if self.quorum is None else self.quorum

    @property
    def share(self) -> float:
        """Variance that each party adds: the honest ones of a bare quorum reach ``sigma`` squared."""
        return 0.0 if self.noise == "aggregator" else self.sigma**2 / (self.least - self.colluding)

    def to_json(self) -> str:
        """Everything, in one canonical form."""
        version = _VERSION if self.secret is None else _SECRET_VERSION
        fields = {name: getattr(self, name) for name in _fields(version)}
        if self.secret is not None:
            fields["secret"] = asdict(self.secret)
        return canonical({"ostraka_agreement": version, **fields})

    @classmethod
    def from_json(cls, text: str) -> Agreement:
        """An agreement as :meth:`to_json` wrote it; ValueError for anything else."""
        fields = check.parsed(text)
        version = fields.pop("ostraka_agreement", None) if isinstance(fields, dict) else None
        if version not in (_VERSION, _SECRET_VERSION):
            raise ValueError(f"not an agreement of version {_VERSION} or {_SECRET_VERSION}")
        names = _fields(version)
        if set(fields) != set(names):
            raise ValueError(f"an agreement has the fields {', '.join(names)}, and no others")
        if version == _SECRET_VERSION:
            fields["secret"] = SecretQuestions.read(fields["secret"])
        try:
            return cls(**fields)
        except TypeError:
            raise ValueError("a field of the agreement is of the wrong kind") from None


def _fields(version: int) -> list[str]:
    """Names of the fields that an agreement of this version is written with."""
    left_out = {"sha256"} if version == _SECRET_VERSION else {"sha256", "secret"}
    return [name for name in Agreement.__slots__ if name not in left_out]


def canonical(value: Any) -> str:
    """JSON in one canonical form: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sizes_of(agreement: Agreement, n_rows: int) -> Sizes:
    """The sizes of a round's computations."""
    from ostraka.secure.two_party import Sizes  # noqa: PLC0415  (cipher and kernels only where they are used)

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
