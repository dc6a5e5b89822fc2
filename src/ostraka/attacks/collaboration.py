"""Collaborative training of a network by several parties, and the view of one of them or of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ostraka import _check
from ostraka.attacks.parties import PartyRows, read_parties

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.attacks.defences import Defence
    from ostraka.attacks.observations import Observations
    from ostraka.networks import TorchClassifier

__all__ = ["Collaboration"]

_RULES = {"sgd": 1, "averaging": 10}  # local steps


class Collaboration:
    """Parties who train one network together, each on its own rows, and an observer among them.

    Parameters
    ----------
    network : TorchClassifier
        The module, learning rate, batch size, threads and seed. Parties take plain gradient steps.
    rule : {"sgd", "averaging"}
        In each round each party sends the change of one step ("sgd"), or of ``local_steps`` steps
        ("averaging"); the mean of all changes is added to the weights.
    n_rounds : int >= 1
    local_steps : int, optional
        None: 1 for "sgd", 10 for "averaging".
    participation : float in (0, 1]
        Chance with which each party takes part in a round, by a coin of its own. Rounds in which nobody takes
        part beside the observer are drawn again.
    defence : SharedFraction, NoisySum or another Defence, optional
    random_state : int, numpy.random.Generator or None
        Draws batches, and noise of a defence. This is a simulation.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"rounds"``.

    Raises
    ------
    ValueError
        Fewer than two parties, a party without rows or classes, a module with buffers, an unknown observer,
        no other party in the first round.
    TrainingDiverged
        A change was not finite.

    Notes
    -----
    Batches hold all classes alike, so that labels do not tell properties. All parties count the same.
    For words see :func:`words_seen`, for properties :class:`PropertyInference`. The library ``breaching``
    rebuilds rows from gradients.
    Source: Melis et al. 2019, arXiv:1805.04049, Algorithms 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> from ostraka.networks import TorchClassifier
    >>> rng = np.random.default_rng(0)
    >>> parties = [(rng.normal(size=(40, 3)), np.arange(40) % 2) for _ in range(3)]
    >>> together = Collaboration(TorchClassifier(batch_size=8), n_rounds=5, random_state=0)
    >>> together.fit(parties, observer=0)
    Observations(n_rounds=5, n_weights=386)
    """

    def __init__(
        self,
        network: TorchClassifier,
        *,
        rule: str = "sgd",
        n_rounds: int = 300,
        local_steps: int | None = None,
        participation: float = 1.0,
        defence: Defence | None = None,
        random_state: Any = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self.network = network
        self.rule = rule
        self.n_rounds = n_rounds
        self.local_steps = local_steps
        self.participation = participation
        self.defence = defence
        self.random_state = random_state
        self.progress = progress

    def fit(
        self, parties: Sequence[Any], *, observer: int | str = 0, main_weight: float | None = None
    ) -> Observations:
        """Train, and record what the observer sees.

        Parameters
        ----------
        parties : sequence of PartyRows or of (X, y)
            Private.
        observer : int, "server" or "masked-sum"
            The number of a party, which sees the sum of the others' changes; a server, which sees each
            change; or one behind the masks of secure sums, which sees the sum of all.
        main_weight : float in [0, 1], optional
            Makes a party an active observer: its own loss is ``main_weight`` times that of the main task,
            plus the rest times that of the property, of which it needs ``has_property``. None: passive.

        Returns
        -------
        Observations
        """
        from sklearn.base import clone  # noqa: PLC0415

        from ostraka.attacks._federated import FlatNetwork  # noqa: PLC0415
        from ostraka.attacks._training import Training  # noqa: PLC0415

        _check.integer(n_rounds=self.n_rounds, least=1)
        _check.one_of(rule=self.rule, allowed=tuple(_RULES))
        steps = _RULES[self.rule] if self.local_steps is None else self.local_steps
        _check.integer(local_steps=steps, least=1)
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation must be > 0 and <= 1, got {self.participation!r}")
        read, classes = read_parties(parties, n_rounds=self.n_rounds)
        _check_observer(observer, read, main_weight)
        _check_others(observer, read)
        network = clone(self.network)
        flat = FlatNetwork(network, n_features=read[0].X.shape[1], n_classes=len(classes))
        training = Training(flat, read, classes, steps, self)
        training.run(observer, main_weight)
        network.classes_, network.n_features_in_ = classes, read[0].X.shape[1]
        flat.load(training.now)
        network.module_ = flat.module
        return training.observations(network)


def _check_observer(observer: int | str, parties: list[PartyRows], main_weight: float | None) -> None:
    is_party = isinstance(observer, int) and not isinstance(observer, bool) and 0 <= observer < len(parties)
    if not is_party and observer not in ("server", "masked-sum"):
        raise ValueError(
            f'observer must be the number of one of {len(parties)} parties, "server" or "masked-sum", '
            f"got {observer!r}"
        )
    if main_weight is None:
        return
    if not 0 <= main_weight <= 1:
        raise ValueError(f"main_weight must be from 0 to 1, got {main_weight!r}")
    if not is_party or parties[int(observer)].has_property is None:
        raise ValueError("main_weight needs an observer which is a party with has_property")


def _check_others(observer: int | str, parties: list[PartyRows]) -> None:
    first = min(each.joins for number, each in enumerate(parties) if number != observer)
    if first > 0:
        raise ValueError(
            f"parties other than the observer join from round {first} on, so there is nothing to observe "
            "before: let one of them have joins=0"
        )
