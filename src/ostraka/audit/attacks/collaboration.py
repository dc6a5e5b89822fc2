"""A simulated collaborative training of one network, and the view of a party, a server or a masked sum."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.audit.attacks.parties import Observations, PartyRows, draw_mixed, pools_of, read_parties
from ostraka.core import check
from ostraka.core.check import TrainingDiverged
from ostraka.secure.keys import new_secret
from ostraka.secure.masks import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.audit.attacks.federated import FlatNetwork
    from ostraka.audit.attacks.parties import Defence
    from ostraka.networks import TorchClassifier

_RULES = {"sgd": 1, "averaging": 10}  # local steps
_MODULUS_BITS = 32
_SPARE_BITS = 1  # for the sign
_DIVERGED = 1e30


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
    stratified : bool
        Batches hold all classes alike, so that labels do not tell properties. False: rows are drawn without
        looking at labels, as parties may do; then a property that goes with a class is told by labels alone,
        and an attack may find no more than these.
    defence : SharedFraction, NoisySum or another Defence, optional
    random_state : int, numpy.random.Generator or None
        Draws batches, and noise of a defence. This is a simulation.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"rounds"``.

    Raises
    ------
    ValueError
        Fewer than two parties, a party without rows or classes, a module with buffers, an unknown observer,
        a round without a party beside the observer; more rows with a property of one class only than that
        class has in a batch.
    TrainingDiverged
        A change was not finite.

    Notes
    -----
    All parties count the same. Batch normalisation uses each batch's own statistics, in predictions, too:
    parties share weights, and no running averages.
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
        stratified: bool = True,
        defence: Defence | None = None,
        random_state: Any = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self.network = network
        self.rule = rule
        self.n_rounds = n_rounds
        self.local_steps = local_steps
        self.participation = participation
        self.stratified = stratified
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

        from ostraka.audit.attacks.federated import FlatNetwork  # noqa: PLC0415

        check.integer(n_rounds=self.n_rounds, least=1)
        check.one_of(rule=self.rule, allowed=tuple(_RULES))
        steps = _RULES[self.rule] if self.local_steps is None else self.local_steps
        check.integer(local_steps=steps, least=1)
        check.share(one=True, participation=self.participation)
        read, classes = read_parties(
            parties,
            n_rounds=self.n_rounds,
            batch_size=self.network.batch_size,
            stratified=self.stratified,
        )
        is_party = type(observer) is int and 0 <= observer < len(read)
        if not is_party and observer not in ("server", "masked-sum"):
            raise ValueError(
                f'observer must be the number of one of {len(read)} parties, "server" or "masked-sum", '
                f"got {observer!r}"
            )
        if main_weight is not None:
            check.share(zero=True, one=True, main_weight=main_weight)
            if not is_party or read[int(observer)].has_property is None:
                raise ValueError("main_weight needs an observer which is a party with has_property")
        there = np.zeros(self.n_rounds, dtype=bool)
        for number, party in enumerate(read):
            if number != observer:
                there[party.joins : party.leaves] = True
        if not there.all():
            raise ValueError(
                f"no party other than the observer takes part in round {int(np.argmin(there))}, so there is "
                "nothing to observe: let one of them have joins=0 and no leaves"
            )
        network = clone(self.network)
        flat = FlatNetwork(network, n_features=read[0].X.shape[1], n_classes=len(classes))
        training = Training(flat, read, classes, steps, self)
        training.run(observer, main_weight)
        network.classes_, network.n_features_in_ = classes, read[0].X.shape[1]
        flat.load(training.now)
        network.module_ = flat.module
        return training.observations(network)


class Training:
    """One simulated training: draws batches, adds up changes, and records the observer's view."""

    def __init__(
        self,
        flat: FlatNetwork,
        parties: list[PartyRows],
        classes: np.ndarray,
        steps: int,
        settings: Collaboration,
    ) -> None:
        self.flat, self.parties, self.classes = flat, parties, classes
        self.steps, self.settings = steps, settings
        self.codes = [np.searchsorted(classes, party.y) for party in parties]
        self.rng = np.random.default_rng(settings.random_state)
        self.now = flat.start()
        self.rounds: list[tuple[Any, ...]] = []

    def run(self, observer: int | str, main_weight: float | None) -> None:
        """Run all rounds and record them."""
        from ostraka.audit.attacks.federated import PropertyHead  # noqa: PLC0415

        head = None if main_weight is None else PropertyHead(self.flat, main_weight=main_weight)
        for number in range(self.settings.n_rounds):
            # the parties that take part: at least one beside the observer
            present = joined = [
                k
                for k, party in enumerate(self.parties)
                if party.joins <= number < (party.leaves or math.inf)
            ]
            while self.settings.participation < 1:
                present = [k for k in joined if self.rng.random() < self.settings.participation]
                if any(k != observer for k in present):
                    break
            batches = []  # row numbers of each party's steps, (n_steps, batch_size)
            for k in present:
                mine, size, codes = self.parties[k], self.flat.network.batch_size, self.codes[k]
                share = 0.0 if mine.schedule is None else float(mine.schedule[number])
                pools, steps = pools_of(mine), []
                for _ in range(self.steps):
                    places = draw_mixed(
                        self.rng,
                        (codes[pools[0]], codes[pools[1]]),
                        round(share * size),
                        size,
                        n_classes=len(self.classes),
                        stratified=self.settings.stratified,
                    )
                    rows = [pool[at] for pool, at in zip(pools, places, strict=True)]
                    steps.append(np.concatenate(rows))
                batches.append(np.array(steps))
            changes = self.flat.changes(
                self.now,
                np.array([self.parties[k].X[b] for k, b in zip(present, batches, strict=True)]),
                np.array([self.codes[k][b] for k, b in zip(present, batches, strict=True)]),
                seed=int(self.rng.integers(2**31)),
            )
            if head is not None and observer in present:
                place = present.index(int(observer))
                mine, rows = self.parties[int(observer)], batches[place][0]
                changes[place] = head.change(
                    self.now, mine.X[rows], self.codes[int(observer)][rows], mine.has_property[rows]
                )
            if not (np.abs(changes) < _DIVERGED).all():  # True for NaN, too
                raise TrainingDiverged(
                    f"round {number}: a party's change is not finite, try a smaller learning_rate"
                )
            # apply the defence, change the weights, and record the observer's view beside the truth
            defence = self.settings.defence
            sent = changes if defence is None else defence.each(changes)
            noise = 0.0 if defence is None else defence.noise(size=changes.shape[1], rng=self.rng)
            others = [place for place, k in enumerate(present) if k != observer]
            senders = np.zeros(len(self.parties), dtype=bool)
            senders[[present[place] for place in others]] = True
            if observer == "server":
                n_summed, update = 1, np.zeros((len(self.parties), changes.shape[1]), dtype=np.float32)
                update[present] = sent
            else:
                summed = masked_sum(sent) if observer == "masked-sum" else sent[others].sum(axis=0)
                n_summed, update = len(others), np.asarray(summed + noise, dtype=np.float32)
            shares = [
                float(self.parties[k].has_property[batches[place]].mean())
                for place, k in enumerate(present)
                if place in others and self.parties[k].has_property is not None
            ]
            codes = np.concatenate([self.codes[present[place]][batches[place]].ravel() for place in others])
            labels = np.bincount(codes, minlength=len(self.classes)) / len(codes)
            self.rounds.append((self.now, update, n_summed, senders, max(shares, default=0.0), labels))
            self.now = np.asarray(self.now + (sent.sum(axis=0) + noise) / len(present), dtype=np.float32)
            if self.settings.progress is not None:
                self.settings.progress("rounds", number + 1, self.settings.n_rounds)

    def observations(self, network: TorchClassifier) -> Observations:
        """The observer's record of the run."""
        has_truth = any(party.has_property is not None for party in self.parties)
        weights, updates, n_summed, present, shares, labels = map(np.array, zip(*self.rounds, strict=True))
        return Observations(
            weights=weights,
            updates=updates,
            layout=self.flat.layout,
            n_summed=n_summed,
            present=present,
            network=network,
            classes=self.classes,
            local_steps=self.steps,
            stratified=self.settings.stratified,
            property_share=shares if has_truth else None,
            label_share=labels,
            defence=self.settings.defence,
        )


def masked_sum(changes: np.ndarray) -> np.ndarray:
    """Each change in fixed point, plus masks that cancel in the sum. Rounding: 2**-30 of the largest sum."""
    largest = float(np.abs(changes).max()) * len(changes)
    scale = (2.0 ** (_MODULUS_BITS - _SPARE_BITS) - len(changes)) / largest if largest else 1.0
    hidden = np.rint(changes.astype(np.float64) * scale).astype(np.int64).astype(np.uint32)
    for first, second in itertools.combinations(range(len(changes)), 2):
        stream = mask(new_secret(), size=changes.shape[1])
        hidden[first] += stream
        hidden[second] -= stream
    total = hidden.sum(axis=0, dtype=np.uint32).view(np.int32)
    return np.asarray(total / scale)
