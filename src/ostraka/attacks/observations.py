"""An observer's record of a collaborative training, simulated or recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka import _check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.attacks.defences import Defence
    from ostraka.networks import TorchClassifier

__all__ = ["Observations", "words_seen"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Observations:
    """The record of an observer of a collaboration. Private, as are the rows behind it.

    Attributes
    ----------
    weights : float32 array, shape (n_rounds, n_weights)
        The network at the beginning of each round.
    updates : float32 array, shape (n_rounds, n_weights) or (n_rounds, n_parties, n_weights)
        The sum of the changes that the observer did not make itself; for a server, the change of each party.
    layout : tuple of (str, tuple of int)
        Name and shape of each parameter, in the order of the weights.
    n_summed : int64 array, shape (n_rounds,)
        How many parties' changes are in each sum; 1 for a server.
    present : bool array, shape (n_rounds, n_parties), or None
        Whose changes are in each sum, or among those that a server sees. None: not known.
    network : TorchClassifier
        The fitted network, if the collaboration was simulated; else its settings.
    classes : array
        The classes of the main task.
    local_steps : int
        Steps of a party in a round.
    property_share : float64 array, shape (n_rounds,), or None
        The truth, where it is known: the largest share of rows with the property in a party's batches.
    label_share : float64 array, shape (n_rounds, n_classes), or None
        Of the batches that the observer did not draw.
    defence : Defence or None

    Raises
    ------
    ValueError
        Arrays of other shapes, changes that are not finite.

    Examples
    --------
    >>> from ostraka.attacks import Collaboration
    >>> from ostraka.networks import TorchClassifier
    >>> parties = [(np.eye(4), [0, 1, 0, 1]), (np.eye(4), [1, 0, 1, 0])]
    >>> network = TorchClassifier(batch_size=4, random_state=0)
    >>> run = Collaboration(network, n_rounds=2, random_state=0).fit(parties, observer="server")
    >>> run.updates.shape, run.parameter("0.weight").shape
    ((2, 2, 450), (2, 2, 64, 4))
    """

    weights: np.ndarray
    updates: np.ndarray
    layout: tuple[tuple[str, tuple[int, ...]], ...]
    n_summed: np.ndarray
    network: TorchClassifier
    classes: np.ndarray
    local_steps: int = 1
    present: np.ndarray | None = None
    property_share: np.ndarray | None = None
    label_share: np.ndarray | None = None
    defence: Defence | None = None

    def __post_init__(self) -> None:
        size = sum(int(np.prod(shape)) for _, shape in self.layout)
        if self.weights.shape != (len(self.updates), size) or self.updates.shape[-1] != size:
            raise ValueError(
                f"weights and updates must be {size} numbers a round, got {self.weights.shape} and "
                f"{self.updates.shape}"
            )
        wrong = int((~np.isfinite(self.updates).all(axis=-1)).sum())
        if wrong:
            raise ValueError(f"updates must be finite, which {wrong} are not: that training diverged")

    def __repr__(self) -> str:
        return f"Observations(n_rounds={len(self.weights)}, n_weights={self.weights.shape[1]})"

    def parameter(self, name: str) -> np.ndarray:
        """The observed changes of one parameter: axes for rounds, for parties (server only), then its own."""
        start = 0
        for each, shape in self.layout:
            stop = start + int(np.prod(shape))
            if each == name:
                return self.updates[..., start:stop].reshape(*self.updates.shape[:-1], *shape)
            start = stop
        names = ", ".join(each for each, _ in self.layout)
        raise ValueError(f"parameter must be one of {names}, got {name!r}")

    @classmethod
    def from_rounds(
        cls,
        network: TorchClassifier,
        rounds: Sequence[Sequence[Any]],
        *,
        n_parties: int,
        n_features: int,
        classes: Any,
        own: Sequence[Sequence[Any]] | None = None,
        local_steps: int = 1,
    ) -> Observations:
        """Read a recorded training. For Flower see :class:`ostraka.attacks.flower.FlowerRecorder`.

        Parameters
        ----------
        network : TorchClassifier
            The module that was trained, its learning rate and batch size.
        rounds : sequence of sequences of arrays
            The parameters at the beginning of each round, in the order of ``module.parameters()``, and after
            the last round.
        n_parties : int >= 2
            How many take part in each round, and count the same.
        n_features : int
        classes : array
        own : sequence of sequences of arrays, optional
            The parameters that the observer sent back after each round. None: it sent none.
        local_steps : int
            Steps of a party in a round.

        Returns
        -------
        Observations
            ``updates`` are the sums of the others' changes; truth is not known.

        Raises
        ------
        ValueError
            Fewer than two rounds, or shapes that are not those of the module.

        Examples
        --------
        >>> from ostraka.networks import TorchClassifier
        >>> layers = [[np.full((2, 3), r), np.zeros(2)] for r in (0.0, 1.0, 1.5)]
        >>> import torch
        >>> network = TorchClassifier(torch.nn.Linear(3, 2))
        >>> seen = Observations.from_rounds(network, layers, n_parties=2, n_features=3, classes=[0, 1])
        >>> seen.updates[:, 0]
        array([2., 1.], dtype=float32)
        """
        from ostraka.attacks._federated import FlatNetwork, flat  # noqa: PLC0415

        _check.integer(n_parties=n_parties, least=2)
        layout = FlatNetwork(network, n_features=n_features, n_classes=len(classes)).layout
        expected = [shape for _, shape in layout]
        for each in (*rounds, *(own or ())):
            if [np.shape(part) for part in each] != expected:
                raise ValueError(f"each round must hold arrays of shapes {expected}")
        if len(rounds) < 2 or (own is not None and len(own) != len(rounds) - 1):
            raise ValueError("rounds must be two or more, and one more than those in own")
        weights = np.array([flat(list(each)) for each in rounds])
        moved = np.diff(weights, axis=0) * np.float32(n_parties)
        if own is not None:
            moved = moved - (np.array([flat(list(each)) for each in own]) - weights[:-1])
        return cls(
            weights=weights[:-1],
            updates=moved,
            layout=layout,
            n_summed=np.full(len(moved), n_parties - (own is not None)),
            network=network,
            classes=np.asarray(classes),
            local_steps=local_steps,
        )


def words_seen(
    observations: Observations, parameter: str, *, axis: int = 0, tolerance: float = 0.0
) -> np.ndarray:
    """Read off which words were in the others' batches: rows of an embedding that moved.

    Parameters
    ----------
    observations : Observations
    parameter : str
        Name of a matrix of weights with a row, or a column, for each word.
    axis : int
        0 for an embedding, (n_words, width); 1 for a linear layer of word counts, (width, n_words).
    tolerance : float
        A row whose largest change is no larger did not move. Recorded trainings need more than 0, since their
        changes are differences of float32 numbers.

    Returns
    -------
    bool array, shape (n_rounds, n_words), or (n_rounds, n_parties, n_words) for a server
        A row of text whose words are not all among them was in no batch of that round.

    Raises
    ------
    ValueError
        No such parameter, or one that is not a table of words.

    Guarantees
    ----------
    None. A word without a gradient, as behind a dead unit, is missed.
    Source: Melis et al. 2019, arXiv:1805.04049, section 4.1.

    Examples
    --------
    >>> from ostraka.attacks import Collaboration
    >>> from ostraka.networks import TorchClassifier
    >>> import torch
    >>> bags = torch.nn.Linear(4, 2)  # of counts of four words
    >>> X = np.array([[1, 0, 0, 0], [0, 1, 0, 0]] * 5, dtype=float)
    >>> parties = [(X, [0, 1] * 5), (X[:, ::-1], [0, 1] * 5)]
    >>> run = Collaboration(TorchClassifier(bags, batch_size=4), n_rounds=3, random_state=0).fit(parties)
    >>> words_seen(run, "weight", axis=1)[0]
    array([False, False,  True,  True])
    """
    _check.nonnegative(tolerance=tolerance)
    moved = observations.parameter(parameter)
    if moved.ndim != observations.updates.ndim + 1 or axis not in (0, 1):
        raise ValueError(f"parameter must be a matrix with words on axis 0 or 1, got {parameter!r}, {axis!r}")
    return np.asarray(np.abs(moved).max(axis=-1 if axis == 0 else -2) > tolerance)
