"""Mixture: noisy clusters, and a network on the rows of each, as one mechanism."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ostraka.synth import _fitting
from ostraka.synth.networks import logits_of

if TYPE_CHECKING:
    from ostraka.curve import Curve
    from ostraka.private import Adjacency, Private
    from ostraka.synth._lloyd import NoisyLloyd
    from ostraka.synth.sgd import PrivateSGD

__all__ = ["Mixture"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Clusters, then training: rows of a class share a network; without classes, those of a cluster do.

    Parameters
    ----------
    clusters : NoisyLloyd
        Gives centres and sizes.
    training : PrivateSGD
        ``expected_rows`` is replaced by the noisy sizes.

    Guarantees
    ----------
    The price is the sum of both: the training may depend on the clusters (adaptive composition). Which
    network a row belongs to follows from the row and from public centres.
    """

    clusters: NoisyLloyd
    training: PrivateSGD

    @property
    def promise(self) -> Adjacency:
        """One row, which is there or not."""
        return self.clusters.promise

    def curve(self) -> Curve:
        """Cost of clusters and training."""
        return self.clusters.curve() + self.training.curve()

    def uses(self, private: Private) -> int:
        """One use for all of it. The training needs rows with a whole share: of a person, one."""
        _fitting.check_whole(private)
        return self.clusters.uses(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The release of :class:`NoisyLloyd`, and the weights of every network."""
        _fitting.check_whole(private)
        found, rows, member = self.clusters.release_and_assign(private, rng=rng)
        owners = self.clusters.owners()
        expected = np.zeros(owners.max() + 1)
        np.add.at(expected, owners, np.maximum(found["sizes"], 0.0))
        centres = np.clip(found["rows"], 0.0, 1.0)
        training = replace(self.training, expected_rows=tuple(np.maximum(expected, 1.0).tolist()))
        both = np.concatenate([np.clip(rows, 0.0, 1.0), logits_of(centres)[member]], axis=1)

        def start(module: object, number: int) -> None:
            weights = np.maximum(found["sizes"][owners == number], 1.0)
            middle = np.average(centres[owners == number], axis=0, weights=weights)
            self.training.network.start(module, middle)

        return found | training.trained(both, owners[member], rng=rng, start=start)

    def sampled(
        self,
        weights: dict[str, np.ndarray],
        centres: np.ndarray,
        owners: np.ndarray,
        *,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Means of new rows, each by the network that its centre belongs to."""
        import torch  # noqa: PLC0415  (an extra, slow to import)

        network, rows = self.training.network, np.empty_like(centres)
        for number, module in enumerate(network.modules(self.clusters.owners().max() + 1, seed=0)):
            prefix = f"{number}/"
            module.load_state_dict(
                {
                    name.removeprefix(prefix): torch.from_numpy(table)
                    for name, table in weights.items()
                    if name.startswith(prefix)
                }
            )
            own = np.flatnonzero(owners == number)
            if own.size:
                rows[own] = network.sampled(module, centres[own], seed=int(rng.integers(2**31)))
        return rows
