"""A simulated collaborative training, round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka._diverged import TrainingDiverged
from ostraka.attacks._masked import masked_sum
from ostraka.attacks.observations import Observations
from ostraka.attacks.parties import PartyRows, draw_batch

if TYPE_CHECKING:
    from ostraka.attacks._federated import FlatNetwork
    from ostraka.attacks.collaboration import Collaboration
    from ostraka.networks import TorchClassifier

__all__ = ["Training"]

_DIVERGED = 1e30


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
        self.codes = [np.searchsorted(classes, each.y) for each in parties]
        self.rng = np.random.default_rng(settings.random_state)
        self.now = flat.start()
        self.weights: list[np.ndarray] = []
        self.updates: list[np.ndarray] = []
        self.n_summed: list[int] = []
        self.present: list[np.ndarray] = []
        self.property_share: list[float] = []
        self.label_share: list[np.ndarray] = []

    def run(self, observer: int | str, main_weight: float | None) -> None:
        """Run all rounds and record them."""
        from ostraka.attacks._federated import PropertyHead  # noqa: PLC0415

        head = None if main_weight is None else PropertyHead(self.flat, main_weight=main_weight)
        for number in range(self.settings.n_rounds):
            present = self._present(number, observer)
            batches = [self._batches(k, number) for k in present]
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
            self._add(observer, present, batches, changes)
            if self.settings.progress is not None:
                self.settings.progress("rounds", number + 1, self.settings.n_rounds)

    def observations(self, network: TorchClassifier) -> Observations:
        """The observer's record of the run."""
        known = any(each.has_property is not None for each in self.parties)
        return Observations(
            weights=np.array(self.weights),
            updates=np.array(self.updates, dtype=np.float32),
            layout=self.flat.layout,
            n_summed=np.array(self.n_summed),
            present=np.array(self.present),
            network=network,
            classes=self.classes,
            local_steps=self.steps,
            property_share=np.array(self.property_share) if known else None,
            label_share=np.array(self.label_share),
            defence=self.settings.defence,
        )

    def _add(
        self,
        observer: int | str,
        present: list[int],
        batches: list[np.ndarray],
        changes: np.ndarray,
    ) -> None:
        """Apply the defence, change the weights, and record the observer's view beside the truth."""
        defence = self.settings.defence
        sent = changes if defence is None else defence.each(changes)
        noise = 0.0 if defence is None else defence.noise(size=changes.shape[1], rng=self.rng)
        others = [place for place, k in enumerate(present) if k != observer]
        self.weights.append(self.now)
        seen = np.zeros(len(self.parties), dtype=bool)
        seen[[present[place] for place in others]] = True
        self.present.append(seen)
        if observer == "server":
            whole = np.zeros((len(self.parties), changes.shape[1]), dtype=np.float32)
            whole[present] = sent
            self.updates.append(whole)
            self.n_summed.append(1)
        else:
            summed = masked_sum(sent) if observer == "masked-sum" else sent[others].sum(axis=0)
            self.updates.append(np.asarray(summed + noise, dtype=np.float32))
            self.n_summed.append(len(others))
        shares = [
            float(self.parties[k].has_property[batches[place]].mean())
            for place, k in enumerate(present)
            if place in others and self.parties[k].has_property is not None
        ]
        self.property_share.append(max(shares, default=0.0))
        codes = np.concatenate([self.codes[present[place]][batches[place]].ravel() for place in others])
        self.label_share.append(np.bincount(codes, minlength=len(self.classes)) / len(codes))
        self.now = np.asarray(self.now + (sent.sum(axis=0) + noise) / len(present), dtype=np.float32)

    def _present(self, number: int, observer: int | str) -> list[int]:
        """The parties that take part in a round: at least one beside the observer."""
        joined = [k for k, each in enumerate(self.parties) if number >= each.joins]
        if self.settings.participation == 1:
            return joined
        while True:
            present = [k for k in joined if self.rng.random() < self.settings.participation]
            if any(k != observer for k in present):
                return present

    def _batches(self, party: int, number: int) -> np.ndarray:
        """Row numbers of one party's steps in one round, (n_steps, batch_size)."""
        mine, size = self.parties[party], self.flat.network.batch_size
        if mine.schedule is None:
            parts: list[tuple[np.ndarray | None, int]] = [(None, size)]
        else:
            n_with = round(float(mine.schedule[number]) * size)
            having = np.flatnonzero(mine.has_property), np.flatnonzero(~mine.has_property)
            parts = [(having[0], n_with), (having[1], size - n_with)]
        return np.array(
            [
                np.concatenate(
                    [
                        draw_batch(self.rng, self.codes[party], count, n_classes=len(self.classes), pool=pool)
                        for pool, count in parts
                        if count
                    ]
                )
                for _ in range(self.steps)
            ]
        )
