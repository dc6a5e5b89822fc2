"""Attacks on generators: which rows one was trained on, and whether a release contains the canaries.

An attacker has a generator's discriminator or encoder (white box), chooses its noise (partial black box), or
has samples of it alone (black box). Canaries are rows that a coin included; they are scored by what was
released, by sums, by tables of counts, or by generated rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostraka.audit.attacks.membership import check_duplicates, number_copies, read_members
from ostraka.core import check
from ostraka.core.mechanisms.counts import count
from ostraka.core.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ostraka.core.mechanisms.adaptive import AdaptiveMarginals
    from ostraka.core.mechanisms.counts import TreeMarginals

_BLOCK = 512  # rows whose distances are computed at once
_SEARCH = 200  # steps of a search for the noise of a row
_SUCCESS = 0.2  # share of steps that should come nearer: the length of the others is adapted to it
_METHODS = {
    "realness": "realness(rows) for access='white-box'",
    "reconstruct": "reconstruct(rows) for attacker='reconstruction'",
    "decode": "decode(noise) and n_noise_ for access='partial-black-box'",
    "sample": "sample(n_rows, random_state=) for access='black-box'",
}
_SIZES = {  # random inputs, and units or channels, unless others are asked for
    "gan": (64, 256),
    "dcgan": (100, 32),
    "dcgan-vae": (100, 32),
    "began": (64, 32),
    "vae": (64, 256),
}
_IMAGES = ("dcgan", "dcgan-vae", "began")
OF_SAMPLES = ("distance", "count")  # attackers who train nothing
_ACCESS = ("white-box", "partial-black-box", "black-box")


class TargetGenerator:
    """A small generator of rows in [0, 1]: a target for attacks, or the attacker's own.

    Parameters
    ----------
    kind : {"gan", "dcgan", "dcgan-vae", "began", "vae"}
        A GAN of plain layers; a GAN of strided convolutions with batch normalisation; that and an encoder,
        whose images it copies; a GAN whose discriminator copies images (BEGAN); or a variational autoencoder
        of plain layers. The second to fourth are for square images, grey or RGB: the rows of a flat image
        are those of its first channel, then those of the next.
    epochs : int >= 1
    batch_size : int >= 1
        At least 2 for batch normalisation.
    learning_rate : float > 0
    n_noise : int >= 1, optional
        Random inputs; of a VAE the latent variables. None: 100 of a DCGAN, 64 of others.
    width : int >= 1, optional
        Units of a hidden layer, or channels of the outermost convolution. None: 256, or 32.
    dropout : float in [0, 1)
        Of the discriminator, or of the encoder. A defence.
    weight_normalised : bool
        The discriminator's layers are, in place of batch normalisation. A defence.
    device : str
        "cpu", "cuda" or "auto".
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"epochs"``. ``realness`` may be asked for then.
    random_state : int or None

    Raises
    ------
    ValueError
        Rows outside [0, 1], or of another shape than the kind needs; a device that is missing.
    TrainingDiverged
        A loss that is not finite.

    Guarantees
    ----------
    None. It is made to be attacked: no differential privacy.
    Source: Hayes et al. 2019, arXiv:1705.07663; DCGAN: Radford et al. 2016, arXiv:1511.06434; with a VAE:
    Larsen et al. 2016, arXiv:1512.09300; BEGAN: Berthelot et al. 2017, arXiv:1703.10717.

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
        n_noise: int | None = None,
        width: int | None = None,
        dropout: float = 0.0,
        weight_normalised: bool = False,
        device: str = "cpu",
        progress: Callable[[str, int, int], object] | None = None,
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
        self.device = device
        self.progress = progress
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
        check.require("torch", extra="torch")
        from ostraka.nets import adversarial  # noqa: PLC0415

        check.one_of(kind=self.kind, allowed=tuple(_SIZES))
        n_noise, width = (
            size if chosen is None else chosen
            for size, chosen in zip(_SIZES[self.kind], (self.n_noise, self.width), strict=True)
        )
        check.integer(epochs=self.epochs, n_noise=n_noise, width=width, least=1)
        check.integer(batch_size=self.batch_size, least=2 if self.kind in _IMAGES else 1)
        check.integer(delay=delay)
        check.positive(learning_rate=self.learning_rate)
        check.share(zero=True, dropout=self.dropout)
        rows = unit_rows("X", X)
        settings = adversarial.Settings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            rate=self.learning_rate,
            n_noise=n_noise,
            width=width,
            dropout=self.dropout,
            normed=self.weight_normalised,
            device=self.device,
        )
        seed = int(np.random.SeedSequence(self.random_state).generate_state(1)[0])
        extra = {"fakes": fakes, "members": members}
        extra_rows = {
            name: unit_rows(name, a, width=rows.shape[1]) for name, a in extra.items() if a is not None
        }
        if extra_rows:
            size = min(self.batch_size, len(rows))
            steps = self.epochs * max(1, len(rows) // size)
            check_used(min(extra_rows), kind=self.kind, batch_size=size, steps=steps, delay=delay)
        try:
            self.model_: Any = adversarial.new_generator(self.kind, rows.shape[1], settings, seed=seed)
        except ValueError as error:
            if self.kind not in _IMAGES:
                raise
            raise ValueError(
                f"X must be flat images, grey or RGB, whose side is 6 or more for "
                f"kind={self.kind!r}, got {rows.shape[1]} numbers a row: resize them, or type kind='gan' or "
                "kind='vae', which take any rows"
            ) from error
        self.n_features_in_, self.n_noise_ = rows.shape[1], n_noise
        adversarial.train_generator(
            self.model_, rows, settings, seed=seed, delay=delay, progress=self.progress, **extra_rows
        )
        return self

    def realness(self, X: Any) -> np.ndarray:
        """The discriminator's logit of each row; a BEGAN's error, negative; a VAE's evidence lower bound."""
        from ostraka.nets.adversarial import realness_of  # noqa: PLC0415

        return realness_of(self.model_, unit_rows("X", X, width=self.n_features_in_))

    def reconstruct(self, X: Any) -> np.ndarray:
        """What encoder and generator make of rows, float32; of the kinds "vae" and "dcgan-vae"."""
        from ostraka.nets.adversarial import copies_of  # noqa: PLC0415

        check.one_of(kind=self.kind, allowed=("vae", "dcgan-vae"))
        return copies_of(self.model_, unit_rows("X", X, width=self.n_features_in_))

    def decode(self, noise: Any) -> np.ndarray:
        """Rows of standard normal noise (n_rows, ``n_noise_``), float32."""
        from ostraka.nets.adversarial import decoded_by  # noqa: PLC0415

        return decoded_by(self.model_, np.asarray(noise, dtype=np.float32))

    def sample(self, n_rows: int, *, random_state: Any = None) -> np.ndarray:
        """Generated rows, float32 (n_rows, n_features)."""
        from ostraka.nets.adversarial import sample_of  # noqa: PLC0415

        check.integer(n_rows=n_rows, least=1)
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
        As there; no row in or none out; copies of a row on both sides.

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
    view = {"access": access, "reference": reference, "auxiliary": auxiliary, "attacker": attacker}
    statistics = generator_statistics(generator, rows, **view, n_samples=n_samples, random_state=random_state)
    return Scores.of(members=statistics[member], others=statistics[~member])


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
        Of a partial black box with ``decode(noise)`` and ``n_noise_``, too.
    candidates : array, shape (n_rows, n_features)
        Private.
    access : {"white-box", "partial-black-box", "black-box"}
        Its discriminator or its encoder; rows that it makes of noise which the attacker chooses; or samples
        only.
    reference : like ``generator``, optional
        A generator of other rows of the same kind. What it finds of a row is taken off as far as it foretells
        the target's: rows that all generators find real are no members for that.
    auxiliary : array, shape (n_known, n_features), optional
        Rows which are known not to be members (black box).
    attacker : optional
        White box: None asks ``realness``; "reconstruction" is minus the distance to a row's copy by
        ``reconstruct(rows)``. Partial black box: None, minus the distance to the nearest row that a search
        finds. Black box: None, a :class:`TargetGenerator` trained on samples, whose discriminator is asked. A
        TargetGenerator: that, with these settings. A scikit-learn classifier: it learns to tell samples of
        the target from ``auxiliary`` rows, or from samples of ``reference``, and its log odds are a density
        ratio. "distance": minus the distance to the nearest sample. "count": how many samples lie within the
        median of these distances.
    n_samples : int, optional
        Of a search the samples at which it begins. None: as many as there are candidates.
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
    Source: Hayes et al. 2019, arXiv:1705.07663, sections 3 and 4. "count" and "reconstruction": Hilprecht et
    al. 2019, PoPETs 2019.4. "distance" and the partial black box: Chen et al. 2020 (GAN-Leaks),
    arXiv:1909.03935; they take the distance to a reference's samples off in full, as ``nearest_scores`` does.

    Examples
    --------
    >>> rows = np.random.default_rng(0).random((40, 6)).astype(np.float32)
    >>> target = TargetGenerator("gan", epochs=2, width=8, random_state=0).fit(rows[:20])
    >>> generator_statistics(target, rows, access="black-box", attacker="distance", random_state=0).shape
    (40,)
    """
    check.one_of(access=access, allowed=_ACCESS)
    rows = np.asarray(candidates)
    if rows.ndim != 2 or not len(rows) or not np.isfinite(rows).all():
        raise ValueError(
            f"candidates must be finite numbers of shape (n_rows, n_features), got shape {rows.shape}"
        )
    copies = access == "white-box" and isinstance(attacker, str) and attacker == "reconstruction"
    if access != "black-box" and (auxiliary is not None or not (attacker is None or copies)):
        raise ValueError(
            "auxiliary and attacker are for access='black-box', but for attacker='reconstruction' of a "
            "white box"
        )
    n = len(rows) if n_samples is None else n_samples
    check.integer(n_samples=n, least=2)
    generators = {"generator": generator} | ({} if reference is None else {"reference": reference})
    seeds = np.random.SeedSequence(random_state).generate_state(4).tolist()
    if access == "white-box":
        verb, shape = ("reconstruct", rows.shape) if copies else ("realness", rows.shape[:1])
        answers = [_answer(part, verb, rows, shape=shape, name=name) for name, part in generators.items()]
        # of copies minus the distance: how near each row's copy is (Hilprecht et al. 2019)
        statistics = [-np.linalg.norm(copy - rows, axis=1) for copy in answers] if copies else answers
    elif access == "partial-black-box":
        statistics = [
            -nearest_found(rows, part, n_starts=n, rng=np.random.default_rng(seed))
            for part, seed in zip(generators.values(), seeds, strict=False)
        ]
    else:
        samples = [
            _answer(part, "sample", n, shape=(n, rows.shape[1]), random_state=seed)
            for part, seed in zip(generators.values(), seeds, strict=False)
        ]
        outsiders = None if auxiliary is None else np.asarray(auxiliary)
        if isinstance(attacker, str):
            check.one_of(attacker=attacker, allowed=OF_SAMPLES)
            statistics = [closeness(rows, group, attacker=attacker) for group in samples]
        elif attacker is None or isinstance(attacker, TargetGenerator):
            own = {} if attacker is None else dict(vars(attacker))
            own = {name: value for name, value in own.items() if not name.endswith("_")}
            statistics = list[np.ndarray]()
            for group, seed in zip(samples, seeds[2:], strict=False):
                imitation = TargetGenerator(**(own | {"random_state": seed}))
                steps = imitation.epochs * max(1, len(group) // imitation.batch_size)
                delay = 0 if outsiders is None else min(1000, steps // 3)
                statistics.append(imitation.fit(group, fakes=outsiders, delay=delay).realness(rows))
        else:  # log odds of "sample of the target" against other rows
            from sklearn.base import clone  # noqa: PLC0415

            others = samples[1:] if outsiders is None else [outsiders, *samples[1:]]
            if not others:
                raise ValueError("a classifier needs auxiliary rows or a reference to compare samples with")
            both = np.concatenate([samples[0], *others])
            model = clone(attacker).fit(both, np.arange(len(both)) < len(samples[0]))
            if hasattr(model, "decision_function"):
                return np.asarray(model.decision_function(rows), dtype=np.float64).ravel()
            chances = np.clip(model.predict_proba(rows)[:, 1], 1e-12, 1 - 1e-12)
            return np.asarray(np.log(chances) - np.log1p(-chances))
    return statistics[0] if reference is None else residual(*statistics)


def sum_scores(released: Any, canaries: Any, included: Any) -> Scores:
    """White box: how far the released sums lie in the direction of each canary.

    For an adversary who sees noisy sums or gradients, and knows all other rows. Canaries whose directions are
    orthogonal do not disturb each other: then each score is that of the Gaussian mechanism itself.

    Parameters
    ----------
    released : array, shape (n_columns,)
        The noisy sums, less what all other rows add to them.
    canaries : array, shape (n_canaries, n_columns)
        What each would add.
    included : bool array, shape (n_canaries,)
        Which were in; a fair coin decides, one for each canary.

    Returns
    -------
    Scores
        One a canary, for :func:`ostraka.audit.one_run_lower_bound` with ``game="inclusion"``. Its
        ``independent=True`` needs orthogonal directions, and noise that is drawn for each column.

    Raises
    ------
    ValueError
        Other shapes, numbers that are not finite, or canaries that were all in or all out.

    Examples
    --------
    >>> included = np.array([True, False, True, False])
    >>> sum_scores(included.astype(float), np.eye(4), included).auc()
    1.0
    """
    rows, coins = _checked(canaries, included)
    sums = np.asarray(released, dtype=np.float64)
    if sums.shape != rows.shape[1:] or not np.isfinite(sums).all():
        raise ValueError(f"released must be finite sums of {rows.shape[1]} columns, got shape {sums.shape}")
    centred = rows @ sums - np.einsum("ij,ij->i", rows, rows) / 2
    return Scores.of(members=centred[coins], others=centred[~coins])


def marginal_scores(
    released: Mapping[str, Any],
    mechanism: AdaptiveMarginals | TreeMarginals,
    canaries: Any,
    included: Any,
    *,
    rest: Any = None,
) -> Scores:
    """White box: how much more each canary's cells of the released tables hold than all other rows explain.

    For an adversary who sees the noisy counts of a :class:`~ostraka.synth.TableGenerator` and knows all other
    rows. Each score is the log likelihood ratio of the canary's cells for Gaussian noise: above 0, in is
    likelier. Canaries that share no cell do not disturb each other.

    Parameters
    ----------
    released : mapping of arrays
        The noisy counts by name, in rows: ``counts_`` of the generator.
    mechanism : AdaptiveMarginals or TreeMarginals
        ``mechanism_`` of the generator. Where the unit is a person, a canary is a person with one row.
    canaries : int array, shape (n_canaries, n_columns)
        Codes. No two may have a cell in common.
    included : bool array, shape (n_canaries,)
        Which were in; a fair coin decides, one for each canary.
    rest : int array, shape (n_rows, n_columns), optional
        Codes of all other rows. None: there are none.

    Returns
    -------
    Scores
        For :func:`ostraka.audit.one_run_lower_bound`, with ``independent=True``: without common cells no
        score depends on another canary's coin or noise, whichever pairs the mechanism chose.

    Raises
    ------
    ValueError
        Other shapes, codes out of range, tables of other columns, a common cell, or canaries that were all
        in or all out.

    Examples
    --------
    >>> from ostraka import Adjacency, Private
    >>> from ostraka.core.mechanisms.counts import TreeMarginals
    >>> mechanism = TreeMarginals(
    ...     sizes=(4, 4, 2), target=2, sigma_pairs=0.1, sigma_triples=0.1, select_epsilon=1.0
    ... )
    >>> canaries = np.array([[k, k, 0] for k in range(4)])
    >>> included = np.array([True, False, True, False])
    >>> rows = np.column_stack([canaries[included], np.ones(2, dtype=int)])
    >>> one_row = Adjacency(moves="row", relation="add-or-remove")
    >>> released = mechanism.release(Private(rows, one_row), rng=np.random.default_rng(0))
    >>> marginal_scores(released, mechanism, canaries, included).auc()
    1.0
    """
    codes, sizes = np.asarray(canaries), mechanism.sizes
    others = np.zeros((0, len(sizes)), dtype=np.int64) if rest is None else np.asarray(rest)
    for name, rows in (("canaries", codes), ("rest", others)):
        if rows.ndim != 2 or rows.shape[1] != len(sizes) or rows.dtype.kind not in "iu":
            raise ValueError(f"{name} must be codes of {len(sizes)} columns, got shape {rows.shape}")
        if not ((rows >= 0) & (rows < np.array(sizes))).all():
            raise ValueError(f"{name} must hold codes from 0 to one less than the size of each column")
    coins = read_members(included, name="included", n_rows=len(codes))
    weighted = np.column_stack([others, np.ones(len(others), dtype=np.int64)])
    scores = np.zeros(len(codes))
    for name, table in released.items():
        columns = tuple(int(part) for part in name.split(","))
        shape = [sizes[j] for j in columns]
        if np.shape(table) != tuple(shape):
            raise ValueError(f"released must hold a table of shape {tuple(shape)} for columns {name}")
        cells = np.ravel_multi_index(tuple(codes[:, j] for j in columns), shape)
        if len(np.unique(cells)) < len(cells):
            raise ValueError("canaries must have no cell of a released table in common")
        excess = np.asarray(table).ravel()[cells] - count(weighted, sizes, columns).ravel()[cells]
        scores += (excess - 0.5) / (mechanism.sigma_of(columns) / mechanism.grain) ** 2
    return Scores.of(members=scores[coins], others=scores[~coins])


def nearest_scores(generated: Any, canaries: Any, included: Any, *, reference: Any = None) -> Scores:
    """Black box: how near the nearest generated row is to each canary.

    Parameters
    ----------
    generated : array, shape (n_generated, n_columns)
        Rows that the generator sampled.
    canaries : array, shape (n_canaries, n_columns)
    included : bool array, shape (n_canaries,)
        Which were in; a fair coin decides, one for each canary.
    reference : array, shape (n_reference, n_columns), optional
        Rows of a generator that saw no canary: being nearer to ``generated`` than to these counts.

    Returns
    -------
    Scores
        One a canary, for :func:`ostraka.audit.one_run_lower_bound` with ``game="inclusion"``, but never
        with ``independent=True``: one generated row may be the nearest to several canaries.

    Raises
    ------
    ValueError
        Other shapes, numbers that are not finite, or canaries that were all in or all out.

    Examples
    --------
    >>> included = np.array([True, False])
    >>> nearest_scores([[0.1, 0.0]], [[0.0, 0.0], [5.0, 5.0]], included).auc()
    1.0
    """
    rows, coins = _checked(canaries, included)
    scores = -_distances(rows, generated, name="generated")
    if reference is not None:
        scores += _distances(rows, reference, name="reference")
    return Scores.of(members=scores[coins], others=scores[~coins])


def closeness(rows: np.ndarray, samples: np.ndarray, *, attacker: str) -> np.ndarray:
    """Compute what an attacker who has samples alone asks of each row; larger: more like a member.

    "distance" is minus the distance to the nearest sample, the full black box of Chen et al. 2020 (GAN-Leaks,
    arXiv:1909.03935). "count" is how many samples lie within the median of these distances, the Monte Carlo
    attack of Hilprecht et al. 2019 (PoPETs 2019.4) with its median heuristic.
    """
    distances = nearest(rows, samples)
    if attacker == "distance":
        return -distances
    radius = np.median(distances)
    near = [(np.sqrt(gaps) <= radius).sum(axis=1) for gaps in _squared_gaps(rows, samples)]
    return np.concatenate(near).astype(np.float64)


def nearest(rows: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Euclidean distance of each row to the nearest sample."""
    return np.asarray(np.sqrt(np.concatenate([gaps.min(axis=1) for gaps in _squared_gaps(rows, samples)])))


def nearest_found(rows: np.ndarray, generator: Any, *, n_starts: int, rng: np.random.Generator) -> np.ndarray:
    """Distance of each row to the nearest one that a search for its noise finds, without gradients.

    It begins at the nearest of ``n_starts`` samples. A step mixes normal noise into the best so far, and
    stays where that comes nearer.
    Source: the partial black box of Chen et al. 2020 (GAN-Leaks, arXiv:1909.03935), who search by Powell's
    method.
    """
    width = rows.shape[1]
    starts = rng.standard_normal((n_starts, getattr(generator, "n_noise_", 0)), dtype=np.float32)
    gaps = _squared_gaps(rows, _answer(generator, "decode", starts, shape=(n_starts, width)))
    noise = starts[np.concatenate([part.argmin(axis=1) for part in gaps])]
    best = ((_answer(generator, "decode", noise, shape=rows.shape) - rows) ** 2).sum(axis=1)
    length = np.full(len(rows), 0.5)
    for _ in range(_SEARCH):
        fresh = rng.standard_normal(noise.shape, dtype=np.float32)
        moved = (np.sqrt(1 - length**2)[:, None] * noise + length[:, None] * fresh).astype(np.float32)
        gap = ((_answer(generator, "decode", moved, shape=rows.shape) - rows) ** 2).sum(axis=1)
        nearer = gap < best
        noise[nearer], best[nearer] = moved[nearer], gap[nearer]
        length = np.clip(length * np.exp(0.2 * (nearer - _SUCCESS)), 1e-3, 0.999)
    return np.asarray(np.sqrt(best))


def residual(observed: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The residual of one statistic after regression on another, with a coefficient from 0 to 1."""
    centred, explained = observed - observed.mean(), expected - expected.mean()
    spread = [np.sqrt((values**2).mean()) for values in (centred, explained)]
    if not all(spread):
        return np.asarray(centred)
    centred, explained = centred / spread[0], explained / spread[1]
    return np.asarray(centred - np.clip((centred * explained).mean(), 0, 1) * explained)


def _distances(rows: np.ndarray, others: Any, *, name: str) -> np.ndarray:
    """From each row to the nearest of the others."""
    table = np.asarray(others, dtype=np.float64)
    if table.ndim != 2 or not len(table) or table.shape[1] != rows.shape[1] or not np.isfinite(table).all():
        raise ValueError(f"{name} must be finite rows of {rows.shape[1]} columns, got shape {table.shape}")
    return nearest(rows, table)


def _squared_gaps(rows: np.ndarray, samples: np.ndarray) -> Iterator[np.ndarray]:
    """Squared distances of some rows at a time to all samples."""
    rows, samples = rows.astype(np.float64), samples.astype(np.float64)
    squares = (samples**2).sum(axis=1)
    for start in range(0, len(rows), _BLOCK):
        part = rows[start : start + _BLOCK]
        yield np.maximum((part**2).sum(axis=1)[:, None] + squares - 2 * part @ samples.T, 0)


def _answer(
    generator: Any,
    verb: str,
    question: Any,
    *,
    shape: tuple[int, ...],
    name: str = "generator",
    **options: Any,
) -> np.ndarray:
    """What a generator answers: finite numbers of this shape, in double precision if they are statistics."""
    if not hasattr(generator, verb) or (verb == "decode" and not hasattr(generator, "n_noise_")):
        raise ValueError(f"{name} must have {_METHODS[verb]}, got {type(generator)}")
    answer = np.asarray(getattr(generator, verb)(question, **options))
    if answer.shape != shape or not np.isfinite(answer).all():
        raise ValueError(f"{name}.{verb} must return finite numbers of shape {shape}, got {answer.shape}")
    return answer.astype(np.float64) if verb in {"realness", "reconstruct"} else answer


def _checked(canaries: Any, included: Any) -> tuple[np.ndarray, np.ndarray]:
    rows = np.asarray(canaries, dtype=np.float64)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"canaries must be finite rows, got shape {rows.shape}")
    return rows, read_members(included, name="included", n_rows=len(rows))


def check_used(name: str, *, kind: str, batch_size: int, steps: int, delay: int) -> None:
    """Refuse settings under which no batch of the training would hold the rows of the argument ``name``."""
    if kind in {"vae", "began"}:
        raise ValueError(f"{name} must be None for kind={kind!r}, which has no discriminator for them")
    if batch_size < 2:
        raise ValueError(
            f"batch_size must be >= 2 for {name}, which are half of each batch, got {batch_size}"
        )
    if delay >= steps:
        raise ValueError(
            f"delay must be < {steps}, the number of steps, or {name} would be in no batch, got {delay}: "
            "take a smaller delay or more epochs"
        )


def unit_rows(name: str, X: Any, *, width: int | None = None) -> np.ndarray:
    """Rows of numbers in [0, 1], float32."""
    try:
        rows = np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError):  # which would quote a value: not even the context of ours may hold it
        rows = None
    if rows is None:
        kind = type(X).__name__
        raise ValueError(f"{name} must be numbers from 0 to 1, (n_rows, n_features), got a {kind}")
    if rows.ndim != 2 or len(rows) < 2 or (width is not None and rows.shape[1] != width):
        raise ValueError(f"{name} must have two rows or more of {width or 'some'} numbers, got {rows.shape}")
    if not ((rows >= 0) & (rows <= 1)).all():
        raise ValueError(f"{name} must hold numbers from 0 to 1")
    return rows
