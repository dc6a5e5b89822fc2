"""Membership inference against generators, by their discriminator or by their samples alone."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from ostraka import _check
from ostraka.attacks._generator_rows import Sampling, check_used, nearest, residual, unit_rows
from ostraka.attacks._membership_checks import check_duplicates, number_copies, read_members
from ostraka.scores import Scores

__all__ = ["TargetGenerator", "generator_scores", "generator_statistics"]

_KINDS = ("gan", "dcgan", "began", "vae")
_ACCESS = ("white-box", "black-box")


class TargetGenerator:
    """A small generator of rows in [0, 1]: a target for attacks, or the attacker's own.

    Parameters
    ----------
    kind : {"gan", "dcgan", "began", "vae"}
        A GAN of plain layers, a GAN of convolutions for square grey images with sides that 4 divides, a GAN
        whose discriminator is an autoencoder (BEGAN), or a variational autoencoder.
    epochs : int >= 1
    batch_size : int >= 1
    learning_rate : float > 0
    n_noise : int >= 1
        Random inputs; of a VAE the latent variables.
    width : int >= 1
        Units of a hidden layer.
    dropout : float in [0, 1)
        Of the discriminator, or of the encoder. A defence.
    weight_normalised : bool
        The discriminator's layers are. A defence.
    random_state : int or None

    Raises
    ------
    ValueError
        Rows outside [0, 1], or of another shape than the kind needs; a loss that is not finite.

    Guarantees
    ----------
    None. It is made to be attacked: no differential privacy.
    Source: Hayes et al. 2019, arXiv:1705.07663; BEGAN: Berthelot et al. 2017, arXiv:1703.10717.

    Examples
    --------
    >>> rows = np.random.default_rng(0).random((40, 6)).astype(np.float32)
    >>> target = TargetGenerator("gan", epochs=2, width=8, random_state=0).fit(rows)
    >>> target.sample(3, random_state=0).shape, target.realness(rows).shape
    ((3, 6), (40,))
    """

    def __init__(
        self,
        kind: str = "gan",
        *,
        epochs: int = 100,
        batch_size: int = 32,
        learning_rate: float = 2e-4,
        n_noise: int = 64,
        width: int = 256,
        dropout: float = 0.0,
        weight_normalised: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.kind = kind
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_noise = n_noise
        self.width = width
        self.dropout = dropout
        self.weight_normalised = weight_normalised
        self.random_state = random_state

    def fit(self, X: Any, *, fakes: Any = None, members: Any = None, delay: int = 0) -> Self:
        """Train from new weights.

        Parameters
        ----------
        X : array, shape (n_rows, n_features), in [0, 1]
            Private.
        fakes : array, shape (n_fakes, n_features), optional
            Rows that the discriminator learns to call generated: what an attacker knows not to be members.
        members : array, shape (n_members, n_features), optional
            Rows that it learns to call real beside those of ``X``, half of each batch: known members, where
            ``X`` holds samples of the target.
        delay : int >= 0
            The step from which both are used: before the last one, if there are any.
        """
        _check.require("torch", extra="torch")
        from ostraka.attacks import _adversarial  # noqa: PLC0415

        _check.one_of(kind=self.kind, allowed=_KINDS)
        sizes = {"epochs": self.epochs, "batch_size": self.batch_size, "n_noise": self.n_noise}
        _check.integer(**sizes, width=self.width, least=1)
        _check.integer(delay=delay)
        _check.positive(learning_rate=self.learning_rate)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be >= 0 and < 1, got {self.dropout!r}")
        rows = unit_rows("X", X)
        side = math.isqrt(rows.shape[1])
        if self.kind == "dcgan" and (side**2 != rows.shape[1] or side % 4):
            raise ValueError(
                f"X must hold square images with sides that 4 divides, got {rows.shape[1]} numbers each"
            )
        settings = _adversarial.Settings(
            steps=self.epochs * max(1, len(rows) // self.batch_size),
            batch_size=self.batch_size,
            rate=self.learning_rate,
            n_noise=self.n_noise,
            width=self.width,
            dropout=self.dropout,
            normed=self.weight_normalised,
        )
        seed = int(np.random.SeedSequence(self.random_state).generate_state(1)[0])
        given = {"fakes": fakes, "members": members}
        known = {name: unit_rows(name, a, width=rows.shape[1]) for name, a in given.items() if a is not None}
        if known:
            size = min(self.batch_size, len(rows))
            check_used(min(known), kind=self.kind, batch_size=size, steps=settings.steps, delay=delay)
        if self.kind == "vae":
            self.model_: Any = _adversarial.train_autoencoder(rows, settings, seed=seed)
        elif self.kind == "began":
            self.model_ = _adversarial.train_equilibrium(rows, settings, seed=seed)
        else:
            images = side if self.kind == "dcgan" else None
            self.model_ = _adversarial.train_adversarial(
                rows, settings, seed=seed, side=images, delay=delay, **known
            )
        self.n_features_in_ = rows.shape[1]
        return self

    def realness(self, X: Any) -> np.ndarray:
        """The discriminator's logit of each row; a BEGAN's error, negative; a VAE's evidence lower bound."""
        from ostraka.attacks._adversarial import realness_of  # noqa: PLC0415

        return realness_of(self.model_, unit_rows("X", X, width=self.n_features_in_))

    def sample(self, n_rows: int, *, random_state: Any = None) -> np.ndarray:
        """Generated rows, float32 (n_rows, n_features)."""
        from ostraka.attacks._adversarial import sample_of  # noqa: PLC0415

        _check.integer(n_rows=n_rows, least=1)
        seed = int(np.random.SeedSequence(random_state).generate_state(1)[0])
        return sample_of(self.model_, n_rows, seed=seed)


def generator_scores(
    generator: Any,
    candidates: Any,
    included: Any,
    *,
    access: str = "white-box",
    reference: Any = None,
    auxiliary: Any = None,
    attacker: Any = None,
    n_samples: int | None = None,
    random_state: int | None = None,
) -> Scores:
    """Score rows by how much a generator seems to have been trained on them.

    Parameters
    ----------
    candidates : array, shape (n_rows, n_features)
        Private.
    included : bool array, shape (n_rows,)
        Private. Which of them the generator was trained on, by independent coins for an audit.
    generator, access, reference, auxiliary, attacker, n_samples, random_state
        Parameters as of :func:`generator_statistics`.

    Returns
    -------
    Scores
        Larger: more like a member.

    Raises
    ------
    ValueError
        As there; nobody in or nobody out; copies of a row on both sides.

    Examples
    --------
    >>> rows = np.random.default_rng(0).random((60, 64)).astype(np.float32)
    >>> included = np.arange(60) < 16
    >>> target = TargetGenerator("vae", epochs=400, width=64, learning_rate=2e-3, random_state=0)
    >>> generator_scores(target.fit(rows[included]), rows, included).auc() > 0.9
    True
    """
    rows = np.asarray(candidates)
    member = read_members(included, name="included", n_rows=len(rows))
    check_duplicates(number_copies(rows, np.zeros(len(rows), dtype=np.int64)), member)
    found = generator_statistics(
        generator,
        rows,
        access=access,
        reference=reference,
        auxiliary=auxiliary,
        attacker=attacker,
        n_samples=n_samples,
        random_state=random_state,
    )
    return Scores.of(members=found[member], others=found[~member])


def generator_statistics(
    generator: Any,
    candidates: Any,
    *,
    access: str = "white-box",
    reference: Any = None,
    auxiliary: Any = None,
    attacker: Any = None,
    n_samples: int | None = None,
    random_state: int | None = None,
) -> np.ndarray:
    """Compute one number for each row, larger for rows which a generator seems to have been trained on.

    Parameters
    ----------
    generator : object with ``realness(rows)`` (white box) or ``sample(n_rows, random_state=)`` (black box)
        The target, such as a :class:`TargetGenerator`; for tables of codes any object with such a ``sample``.
    candidates : array, shape (n_rows, n_features)
        Private.
    access : {"white-box", "black-box"}
        Its discriminator, or samples only.
    reference : like ``generator``, optional
        A generator of other rows of the same kind. What it finds of a row is taken off as far as it foretells
        the target's: rows that all generators find real are no members for that.
    auxiliary : array, shape (n_known, n_features), optional
        Rows which are known not to be members (black box).
    attacker : optional
        Black box. None: a :class:`TargetGenerator` trained on samples, whose discriminator is asked.
        A TargetGenerator: that, with these settings. A scikit-learn classifier: it learns to tell samples of
        the target from ``auxiliary`` rows, or from samples of ``reference``, and its log odds are a density
        ratio. "distance": minus the distance to the nearest sample.
    n_samples : int, optional
        None: as many as there are candidates.
    random_state : int or None

    Returns
    -------
    float64 array, shape (n_rows,)

    Raises
    ------
    ValueError
        A generator without what ``access`` needs, a classifier with nothing to compare with, values that are
        not finite.

    Guarantees
    ----------
    Which rows were in the target is not read.
    Source: Hayes et al. 2019, arXiv:1705.07663, sections 3 and 4; the calibration is ours.

    Examples
    --------
    >>> rows = np.random.default_rng(0).random((40, 6)).astype(np.float32)
    >>> target = TargetGenerator("gan", epochs=2, width=8, random_state=0).fit(rows[:20])
    >>> generator_statistics(target, rows, access="black-box", attacker="distance", random_state=0).shape
    (40,)
    """
    _check.one_of(access=access, allowed=_ACCESS)
    rows = np.asarray(candidates)
    if rows.ndim != 2 or not len(rows) or not np.isfinite(rows).all():
        raise ValueError(
            f"candidates must be finite numbers of shape (n_rows, n_features), got shape {rows.shape}"
        )
    if access == "white-box":
        if auxiliary is not None or attacker is not None:
            raise ValueError("auxiliary and attacker are for access='black-box'")
        found = _realness(generator, rows, name="generator")
        return found if reference is None else residual(found, _realness(reference, rows, name="reference"))
    n = len(rows) if n_samples is None else n_samples
    _check.integer(n_samples=n, least=2)
    seeds = np.random.SeedSequence(random_state).generate_state(4).tolist()
    samples = _samples(generator, n, seeds[0], rows.shape[1])
    other = None if reference is None else _samples(reference, n, seeds[1], rows.shape[1])
    known = None if auxiliary is None else np.asarray(auxiliary)
    if isinstance(attacker, str):
        _check.one_of(attacker=attacker, allowed=("distance",))
        found = -nearest(rows, samples)
        return found if other is None else residual(found, -nearest(rows, other))
    if attacker is None or isinstance(attacker, TargetGenerator):
        found = _by_own_generator(attacker, samples, rows, known, seeds[2])
        if other is None:
            return found
        return residual(found, _by_own_generator(attacker, other, rows, known, seeds[3]))
    return _density_ratio(attacker, samples, rows, [each for each in (known, other) if each is not None])


def _by_own_generator(
    attacker: TargetGenerator | None,
    samples: np.ndarray,
    rows: np.ndarray,
    known: np.ndarray | None,
    seed: int,
) -> np.ndarray:
    settings = {} if attacker is None else dict(vars(attacker))
    settings = {name: value for name, value in settings.items() if not name.endswith("_")}
    own = TargetGenerator(**(settings | {"random_state": seed}))
    delay = 0 if known is None else min(1000, own.epochs * max(1, len(samples) // own.batch_size) // 3)
    return own.fit(samples, fakes=known, delay=delay).realness(rows)


def _density_ratio(
    attacker: Any, samples: np.ndarray, rows: np.ndarray, others: list[np.ndarray]
) -> np.ndarray:
    """Log odds of "sample of the target" against other rows."""
    from sklearn.base import clone  # noqa: PLC0415

    if not others:
        raise ValueError("a classifier needs auxiliary rows or a reference to compare samples with")
    against = np.concatenate(others)
    labels = np.arange(len(samples) + len(against)) < len(samples)
    model = clone(attacker).fit(np.concatenate([samples, against]), labels)
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(rows), dtype=np.float64).ravel()
    chances = np.clip(model.predict_proba(rows)[:, 1], 1e-12, 1 - 1e-12)
    return np.asarray(np.log(chances) - np.log1p(-chances))


def _realness(generator: Any, rows: np.ndarray, *, name: str) -> np.ndarray:
    if not hasattr(generator, "realness"):
        raise ValueError(f"{name} must have realness(rows) for access='white-box', got {type(generator)}")
    found = np.asarray(generator.realness(rows), dtype=np.float64)
    if found.shape != rows.shape[:1] or not np.isfinite(found).all():
        raise ValueError(f"{name}.realness must return one finite number for each of {len(rows)} rows")
    return found


def _samples(generator: Any, n_samples: int, seed: int, width: int) -> np.ndarray:
    if not isinstance(generator, Sampling):
        raise ValueError(  # noqa: TRY004  (as every other wrong parameter)
            f"a generator must have sample(n_rows, random_state=), got {type(generator)}"
        )
    found = np.asarray(generator.sample(n_samples, random_state=seed))
    if found.shape != (n_samples, width) or not np.isfinite(found).all():
        raise ValueError(f"samples must be finite numbers of shape {(n_samples, width)}, got {found.shape}")
    return found
