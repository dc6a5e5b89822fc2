"""Property inference: whether others' batches have a property that is not the task, and which party's do.

The observer trains on changes that its own rows make. Where parties take part in changing subsets, sums are
split into what each party contributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostraka.audit.attacks.membership import number_copies
from ostraka.audit.attacks.parties import PartyRows, draw_mixed
from ostraka.core import check, files
from ostraka.core.released import to_bytes
from ostraka.core.scores import Scores

if TYPE_CHECKING:
    import os

    from ostraka.audit.attacks.federated import FlatNetwork
    from ostraka.audit.attacks.parties import Observations

_FALSE_ALARM_Z = 6.5  # standard errors: a chance of 1e-10
_FINE = 20_000  # weights; of larger networks the largest change of each output and each input is kept
_TELLABLE = 1e-8  # largest part of another party in an estimate
_CLEARLY = 4.0  # standard errors: by chance 3 times in 100,000
_EXACT = 1e-6  # of the largest entry: sums that fit no better are noisy
_FOUND, _NONE = 0, 2  # what scipy's solver says where it is done


class PropertyInference:
    """A classifier of observed changes, which an observer trains on batches of its own rows.

    Parameters
    ----------
    classifier : scikit-learn classifier with ``predict_proba``
        Copied. A random forest for networks of few weights; logistic regression for embeddings.
    n_batches : int >= 1
        Batches of each kind for each observed round.
    share : float in (0, 1]
        Share of rows with the property in the observer's batches with it. Of a property that occurs in one
        of two classes only, such as a person in a classifier of gender, at most a half.
    random_state : int, numpy.random.Generator or None

    Attributes
    ----------
    classifier_ : the fitted copy

    Raises
    ------
    ValueError
        Rows of no class of the main task, a class missing, copies of a row on both sides.

    Guarantees
    ----------
    None: a weak attack proves nothing. Where batches with and without the property are drawn alike, scores of
    rounds with it are larger as often as not.
    Source: Melis et al. 2019, arXiv:1805.04049, Algorithm 3.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from ostraka.audit.attacks import Collaboration
    >>> from ostraka.audit.attacks.parties import PartyRows
    >>> from ostraka.networks import TorchClassifier
    >>> rng = np.random.default_rng(0)
    >>> def rows(n):  # the property moves a feature that the task does not need
    ...     has, y = rng.random(n) < 0.5, np.arange(n) % 2
    ...     return np.c_[y + rng.normal(size=n), has + 0.3 * rng.normal(size=n)], y, has
    >>> (X, y, has), (X1, y1, has1) = rows(200), rows(200)
    >>> target = PartyRows(X=X, y=y, has_property=has, schedule=np.arange(60) % 2)
    >>> network = TorchClassifier(batch_size=16, learning_rate=0.1, random_state=0)
    >>> run = Collaboration(network, n_rounds=60, random_state=0).fit([(X1, y1), target], observer=0)
    >>> attack = PropertyInference(RandomForestClassifier(20, random_state=0), n_batches=4, random_state=0)
    >>> attack.fit(run, (X1[has1], y1[has1]), (X1[~has1], y1[~has1])).scores(run).auc() > 0.9
    True
    """

    def __init__(
        self, classifier: Any, *, n_batches: int = 8, share: float = 1.0, random_state: Any = None
    ) -> None:
        self.classifier = classifier
        self.n_batches = n_batches
        self.share = share
        self.random_state = random_state

    def fit(
        self,
        observations: Observations,
        with_property: tuple[Any, Any],
        without: tuple[Any, Any],
        *,
        others: tuple[Any, Any] | None = None,
    ) -> Self:
        """Compute changes of the observed networks on own batches, and learn to tell them apart.

        Parameters
        ----------
        observations : Observations
        with_property, without : (X, y)
            Rows of the observer, with the labels of the main task. Not rows of the parties.
        others : (X, y), optional
            Rows like those of the parties whose changes are in the observed sum beside the target's. None:
            ``without``.

        Returns
        -------
        PropertyInference
        """
        from sklearn.base import clone  # noqa: PLC0415

        changes = self._own_changes(observations, with_property, without, others)
        labels = np.tile(np.repeat([True, False], self.n_batches), len(changes) // 2)
        self.classifier_ = clone(self.classifier).fit(np.concatenate(changes), labels)
        return self

    def save_changes(
        self,
        file: str | os.PathLike[str],
        observations: Observations,
        with_property: tuple[Any, Any],
        without: tuple[Any, Any],
        *,
        others: tuple[Any, Any] | None = None,
    ) -> None:
        """Write the ``.npz`` file that ``ostraka attack property`` reads: observed changes, and own ones.

        Parameters
        ----------
        file : path
            Private, as the changes are. Only its owner can read it. A file of this name is replaced.
        observations : Observations
            With ``property_share``, and one sum a round.
        with_property, without, others
            As for :meth:`fit`, which need not be called before.

        Raises
        ------
        ValueError
            As :meth:`fit` and :meth:`scores`; a folder that does not exist.

        Notes
        -----
        The file holds ``observed``, float32 (n_rounds, width): the sizes of the changes in each round, at
        unit norm (of networks of more than 20,000 weights the largest of each output and each input);
        ``has_property``, bool (n_rounds,): whether another party's batch held rows with the property; and
        ``with_property`` and ``without``, float32 (n_rounds * n_batches, width): the same of the observer's
        own changes, in the order of the rounds. ``observed`` holds zeros for a round without any change.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.dummy import DummyClassifier
        >>> from ostraka.audit.attacks import Collaboration
        >>> from ostraka.audit.attacks.parties import PartyRows
        >>> from ostraka.networks import TorchClassifier
        >>> X, y, has = np.random.default_rng(0).normal(size=(80, 2)), np.arange(80) % 2, np.arange(80) < 40
        >>> target = PartyRows(X=X + 1, y=y, has_property=has, schedule=[0, 1, 0, 1])
        >>> network = TorchClassifier(batch_size=8, random_state=0)
        >>> run = Collaboration(network, n_rounds=4, random_state=0).fit([(X, y), target], observer=0)
        >>> attack = PropertyInference(DummyClassifier(), random_state=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "rounds.npz"
        ...     attack.save_changes(file, run, (X[has], y[has]), (X[~has], y[~has]))
        ...     with np.load(file) as saved:
        ...         saved["observed"].shape, saved["with_property"].shape
        ((4, 322), (32, 322))
        """
        if not Path(file).resolve().parent.is_dir():
            raise ValueError(
                f"file must be in a folder that exists, got {str(file)!r}: create the folder first"
            )
        has = check_truth(observations)
        changes = self._own_changes(observations, with_property, without, others)
        arrays = {
            "observed": changed_sizes(observations.updates, observations.layout).astype(np.float32),
            "has_property": has,
            "with_property": np.concatenate(changes[::2]).astype(np.float32),
            "without": np.concatenate(changes[1::2]).astype(np.float32),
        }
        files.write(file, to_bytes(arrays), private=True)

    def _own_changes(
        self,
        observations: Observations,
        with_property: tuple[Any, Any],
        without: tuple[Any, Any],
        others: tuple[Any, Any] | None,
    ) -> list[np.ndarray]:
        """Sizes of own changes: for each round those with the property, then those without it."""
        check.integer(n_batches=self.n_batches, least=1)
        check.share(one=True, share=self.share)
        flat, worlds = own_worlds(observations, with_property, without, others or without)
        rng = np.random.default_rng(self.random_state)
        sizes = []
        for number, weights in enumerate(observations.weights):
            sums = own_sums(
                rng,
                flat,
                observations,
                weights,
                worlds=worlds,
                n_summed=int(observations.n_summed[number]),
                n_batches=self.n_batches,
                share=self.share,
            )
            sizes += [changed_sizes(batch_sums, observations.layout) for batch_sums in sums]
        return sizes

    def statistics(self, observations: Observations) -> np.ndarray:
        """The classifier's probability of the property for each observed change, one for each round.

        Parameters
        ----------
        observations : Observations

        Returns
        -------
        float64 array, shape (n_rounds,), or (n_rounds, n_parties) for a server
            The mean over rounds is the score of a whole data set; its course over rounds says when.
        """
        if not hasattr(self, "classifier_"):
            raise ValueError("PropertyInference must be fitted first: call fit(run, with_property, without)")
        shape = observations.updates.shape
        rows = changed_sizes(observations.updates.reshape(-1, shape[-1]), observations.layout)
        chances = np.asarray(self.classifier_.predict_proba(rows), dtype=np.float64)[:, 1]
        return chances.reshape(shape[:-1])

    def scores(self, observations: Observations) -> Scores:
        """Score each round of a simulated collaboration, for an audit or for its rates.

        Rounds whose changes are all 0 are left out: the observer saw nothing there.

        Parameters
        ----------
        observations : Observations
            With ``property_share``, and one sum a round.

        Returns
        -------
        Scores
            Members are rounds in which a party's batch held rows with the property.

        Raises
        ------
        ValueError
            The truth is not known; the property is in every round, or in none; labels of rounds with the
            property differ from those of the others, which alone would tell them apart.
        """
        has = check_truth(observations)
        changed = observations.updates.any(axis=1)
        statistics = self.statistics(observations)
        return Scores.of(members=statistics[has & changed], others=statistics[~has & changed])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class PartyMeans:
    """What each party contributes to the sums on average. Private.

    Attributes
    ----------
    mean : float64 array, shape (n_parties, ...)
        NaN for a party that the sums do not tell from others, such as two that always take part together.
    standard_error : float64 array, of the same shape
        Right if contributions vary independently from round to round, alike for all parties, and about as
        many parties take part in each round. NaN where there are no more rounds than parties.
    n_rounds : int64 array, shape (n_parties,)
        In how many rounds each party takes part.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    n_rounds: np.ndarray

    def __repr__(self) -> str:
        return f"PartyMeans(n_parties={len(self.mean)})"


def disaggregate(sums: Any, present: Any) -> PartyMeans:
    """Split sums of changing subsets of parties into the mean contribution of each party, by least squares.

    Parameters
    ----------
    sums : array, shape (n_rounds,) or (n_rounds, width)
        What a server sees behind the masks of secure sums in each round, or a linear statistic of it.
    present : bool array, shape (n_rounds, n_parties)
        Which parties take part in each round.

    Returns
    -------
    PartyMeans

    Raises
    ------
    ValueError
        Other shapes, sums that are not finite, no round with a party.

    Guarantees
    ----------
    None. The estimate is exact if each party contributes the same in every round.
    Source: Kerkouche, Ács and Fritz 2023, arXiv:2303.03908, section 4.

    Examples
    --------
    >>> present = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    >>> disaggregate([3.0, 5.0, 4.0], np.array(present, dtype=bool)).mean.round(9)
    array([1., 2., 3.])
    """
    totals = np.asarray(sums, dtype=np.float64)
    took_part, n_rounds = np.asarray(present), len(totals) if totals.ndim else 0
    if took_part.dtype != bool or took_part.ndim != 2 or len(took_part) != n_rounds or not took_part.any():
        raise ValueError(
            f"present must be bool (n_rounds, n_parties) for {n_rounds} rounds, with a party in one or more, "
            f"got {took_part.dtype} of shape {took_part.shape}"
        )
    if totals.ndim not in (1, 2) or not np.isfinite(totals).all():
        raise ValueError("sums must be finite numbers, (n_rounds,) or (n_rounds, width)")
    flat = totals.reshape(len(totals), -1)
    design = took_part.astype(np.float64)
    inverse = np.linalg.pinv(design)
    others = np.abs(inverse @ design - np.eye(design.shape[1])).max(axis=1)
    mean = inverse @ flat
    mean[others > _TELLABLE] = np.nan
    spare = len(flat) - int(np.linalg.matrix_rank(design))
    residuals = flat - design @ (inverse @ flat)
    variance = (residuals**2).sum(axis=0) / spare if spare else np.full(flat.shape[1], np.nan)
    error = np.sqrt((inverse**2).sum(axis=1)[:, None] * variance)
    error[np.isnan(mean)] = np.nan
    shape = (design.shape[1], *totals.shape[1:])
    return PartyMeans(
        mean=mean.reshape(shape), standard_error=error.reshape(shape), n_rounds=took_part.sum(axis=0)
    )


def infer_participation(sums: Any, times: Any) -> np.ndarray:
    """Find which party took part in which round, from the sums and from how often each one took part.

    Parameters
    ----------
    sums : array, shape (n_rounds, width)
        More rounds than parties. ``width`` at least the number of parties.
    times : int array, shape (n_groups, n_parties)
        How many times each party took part in each group of ``n_rounds / n_groups`` consecutive rounds, for
        instance from usage statistics of devices. Two parties with the same times are refused.

    Returns
    -------
    bool array, shape (n_rounds, n_parties)
        For :func:`disaggregate`.

    Raises
    ------
    ValueError
        Other shapes; sums that determine no participation, with the number of parties that remain unknown; a
        solver that gave up.

    Guarantees
    ----------
    None. The solution is the only one if each party contributes the same in every round; otherwise the sums
    are refused.
    Source: Lam et al. 2021, arXiv:2106.06089, section 4.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> present = rng.random((16, 3)) < 0.5
    >>> updates = rng.normal(size=(3, 5))
    >>> times = present.reshape(4, 4, 3).sum(axis=1)  # in groups of four rounds
    >>> bool((infer_participation(present @ updates, times) == present).all())
    True
    """
    totals, counts = np.asarray(sums, dtype=np.float64), np.asarray(times)
    if totals.ndim != 2 or not np.isfinite(totals).all():
        raise ValueError("sums must be finite numbers, (n_rounds, width)")
    if counts.ndim != 2 or counts.dtype.kind not in "iu" or not len(counts) or len(totals) % len(counts):
        raise ValueError(
            f"times must be whole numbers (n_groups, n_parties) with n_groups a divisor of {len(totals)} "
            f"rounds, got shape {counts.shape}"
        )
    largest = np.abs(totals).max(initial=0.0)
    basis, sizes, _ = np.linalg.svd(totals)
    rank = int((sizes > _EXACT * max(sizes.max(initial=0.0), 1e-300)).sum())
    if rank != counts.shape[1] or not largest:
        raise ValueError(
            f"sums of {counts.shape[1]} parties that contribute the same in every round have rank "
            f"{counts.shape[1]}, these have {rank}: there must be more rounds and entries than "
            "parties, and no noise"
        )
    null, columns = basis[:, rank:].T, []
    for times_of_one in counts.T:
        # the only 0-1 vector that null takes to 0 and that has these sums of groups
        first = _solve(null, times_of_one, without=None)
        only = first is not None and _solve(null, times_of_one, without=first) is None
        columns.append(first if only else None)
    unknown = sum(column is None for column in columns)
    if unknown:
        raise ValueError(
            f"sums must determine which parties took part, but leave {unknown} of {len(columns)} parties "
            "open: give more rounds, or times in shorter groups"
        )
    return np.array(columns, dtype=bool).T


def party_properties(
    observations: Observations,
    with_property: tuple[Any, Any],
    without: tuple[Any, Any],
    *,
    n_batches: int = 8,
    random_state: Any = None,
) -> PartyMeans:
    """Infer from sums which parties' batches have a property, by a linear statistic of the sums.

    The statistic of a batch is about 1 if all its rows have the property and about 0 if none has, whatever
    the round; so that of a sum is about the number of parties with it, and :func:`disaggregate` splits it.

    Parameters
    ----------
    observations : Observations
        Sums, as ``observer="masked-sum"`` or a party sees, of a collaboration with ``participation`` below 1.
    with_property, without : (X, y)
        Rows of the observer, with the labels of the main task. Not rows of the parties.
    n_batches : int >= 2
        Batches of each kind for each round. Half of them choose the statistic, the others scale it.
    random_state : int, numpy.random.Generator or None

    Returns
    -------
    PartyMeans
        Each party's share of rows with the property, up to ``standard_error`` and to how unlike the
        observer's rows the party's are.

    Raises
    ------
    ValueError
        A server's changes of each party, an unknown participation, rows as for :class:`PropertyInference`.

    Guarantees
    ----------
    None. Finds properties that move the changes of many rounds in one direction.
    Source: Kerkouche, Ács and Fritz 2023, arXiv:2303.03908. There the linear statistic is learned; here it is
    the difference of means over variances, of the observer's own changes.

    Examples
    --------
    >>> from ostraka.audit.attacks import Collaboration
    >>> from ostraka.audit.attacks.parties import PartyRows
    >>> from ostraka.networks import TorchClassifier
    >>> rng = np.random.default_rng(0)
    >>> def rows(n, share):  # for rows with the property, the first feature says the opposite
    ...     has, y = rng.random(n) < share, np.arange(n) % 2
    ...     centre = (y - 0.5) * np.where(has, -2.0, 4.0)
    ...     return np.c_[centre, np.ones(n)] + 0.5 * rng.normal(size=(n, 2)), y, has
    >>> parties = [PartyRows(X=X, y=y) for X, y, _ in (rows(80, share) for share in (1.0, 1.0, 0.0, 0.0))]
    >>> network = TorchClassifier(batch_size=16, learning_rate=0.02, random_state=0)
    >>> together = Collaboration(network, n_rounds=80, participation=0.5, random_state=0)
    >>> run = together.fit(parties, observer="masked-sum")
    >>> X, y, has = rows(200, 0.5)
    >>> found = party_properties(run, (X[has], y[has]), (X[~has], y[~has]), random_state=0)
    >>> found.mean > 0.5
    array([ True,  True, False, False])
    """
    check.integer(n_batches=n_batches, least=2)
    if observations.present is None:
        raise ValueError(
            "observations must know which parties took part: set present, or see infer_participation"
        )
    if observations.updates.ndim != 2:
        raise ValueError("observations must be sums: a server which sees each change needs no disaggregation")
    flat, worlds = own_worlds(observations, with_property, without, without)
    rng = np.random.default_rng(random_state)
    settings: dict[str, Any] = {"worlds": worlds, "n_summed": 1, "n_batches": n_batches}
    own = np.array([own_sums(rng, flat, observations, w, **settings) for w in observations.weights])
    # half of the own changes (round, with and without, batch, weight) say in which direction both differ
    learned, scaled = np.split(own.swapaxes(0, 1), [n_batches // 2], axis=2)
    apart = (learned[0] - learned[1]).mean(axis=(0, 1))
    spread = np.mean([group.var(axis=(0, 1)) for group in learned], axis=0)
    direction = apart / (spread + 1e-3 * spread.mean() + 1e-300)
    with_it, without_it = (scaled @ direction).reshape(2, -1)
    gap = with_it.mean() - without_it.mean()
    error = np.sqrt((with_it.var() + without_it.var()) / len(with_it))
    if not gap > _CLEARLY * error:
        raise ValueError(
            "with_property and without must differ in the changes they make, which these do not: give more "
            "rows, or a larger n_batches"
        )
    scores = observations.updates.astype(np.float64) @ direction - observations.n_summed * without_it.mean()
    return disaggregate(scores / gap, observations.present)


def own_worlds(
    observations: Observations,
    with_property: tuple[Any, Any],
    without: tuple[Any, Any],
    others: tuple[Any, Any],
) -> tuple[FlatNetwork, list[PartyRows]]:
    """The observed network, and the observer's rows with the property, without it, and like the others'."""
    from ostraka.audit.attacks.federated import FlatNetwork  # noqa: PLC0415

    named = (("with_property", with_property), ("without", without), ("others", others))
    worlds, classes = [], observations.classes
    for name, rows in named:
        world = PartyRows(X=rows[0], y=rows[1])
        unknown = int((~np.isin(world.y, classes)).sum())
        whole = name != "with_property" and observations.stratified
        lacking = int((~np.isin(classes, world.y)).sum()) if whole else 0
        if unknown or lacking:
            raise ValueError(
                f"{name} must have rows of each of the {len(classes)} classes of the main task, and no "
                f"others: {lacking} classes are missing, {unknown} rows have another"
            )
        worlds.append(world)
    check_copies(worlds[0], worlds[1])
    flat = FlatNetwork(
        observations.network, n_features=worlds[0].X.shape[1], n_classes=len(observations.classes)
    )
    if flat.layout != observations.layout:
        raise ValueError("observations must be of a network for rows with as many features")
    return flat, worlds


def own_sums(
    rng: np.random.Generator,
    flat: FlatNetwork,
    observations: Observations,
    weights: np.ndarray,
    *,
    worlds: list[PartyRows],
    n_summed: int,
    n_batches: int,
    share: float = 1.0,
) -> list[np.ndarray]:
    """Sums like the observed one at these weights: some with the property, then as many without it."""
    many, size, steps = n_batches, flat.network.batch_size, observations.local_steps
    n_with = round(share * size)
    pool = 0 if n_summed == 1 else max(many, 2 * (n_summed - 1))

    codes = [np.searchsorted(observations.classes, world.y) for world in worlds]

    def drawn(other: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """So many rows with the property, and the rest of this world."""
        places = draw_mixed(
            rng,
            (codes[0], codes[other]),
            count,
            size,
            n_classes=len(observations.classes),
            stratified=observations.stratified,
        )
        pairs = [(worlds[w].X[rows], codes[w][rows]) for w, rows in zip((0, other), places, strict=True)]
        return np.concatenate([X for X, _ in pairs]), np.concatenate([y for _, y in pairs])

    batches = []
    for number in range(2 * many + pool):
        kind = (1 if number < 2 * many else 2, n_with if number < many else 0)
        batches += [drawn(*kind) for _ in range(steps)]
    X = np.array([rows for rows, _ in batches]).reshape(2 * many + pool, steps, size, -1)
    y = np.array([codes for _, codes in batches]).reshape(2 * many + pool, steps, size)
    changes = flat.changes(weights, X, y, seed=int(rng.integers(2**31)))
    defence = observations.defence
    if defence is not None:
        changes = defence.each(changes)
    sums = changes[: 2 * many].astype(np.float64)
    for number in range(2 * many):
        if pool:
            sums[number] += changes[2 * many + rng.permutation(pool)[: n_summed - 1]].sum(axis=0)
        if defence is not None:
            sums[number] += defence.noise(size=sums.shape[1], rng=rng)
    return [sums[:many], sums[many:]]


def changed_sizes(changes: np.ndarray, layout: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> np.ndarray:
    """Features for a classifier of changes: absolute values, scaled to unit norm, one row for each change.

    With the ``layout`` of a large network only the largest change of each output is kept, and of each input
    of a linear layer, such as a word.
    """
    sizes = np.abs(changes)
    if layout and changes.shape[1] > _FINE:
        parts, start = [], 0
        for _, shape in layout:
            stop = start + int(np.prod(shape))
            table = sizes[:, start:stop].reshape(len(sizes), shape[0], -1)
            parts += [table.max(axis=2), table.max(axis=1)] if len(shape) == 2 else [table.max(axis=2)]
            start = stop
        sizes = np.concatenate(parts, axis=1)
    return np.asarray(sizes / np.maximum(np.linalg.norm(sizes, axis=1, keepdims=True), 1e-30))


def check_copies(one: PartyRows, other: PartyRows) -> None:
    """Refuse rows that are on both sides, which would teach the classifier nothing but noise."""
    numbers = number_copies(np.concatenate([one.X, other.X]), np.concatenate([one.y, other.y]))
    shared = np.isin(numbers[: one.n_rows], numbers[one.n_rows :])
    if shared.all():
        raise ValueError(f"all {one.n_rows} rows of with_property are among those of without")


def check_truth(observations: Observations) -> np.ndarray:
    """Which rounds have the property, if rounds with it and rounds without it were seen, one sum each."""
    if observations.property_share is None:
        raise ValueError("observations must know the truth: give a party has_property and a schedule")
    if observations.updates.ndim != 2:
        raise ValueError("scores need one sum a round: for a server use statistics of the party you look at")
    has, changed = np.asarray(observations.property_share > 0), observations.updates.any(axis=1)
    if not changed.any():
        raise ValueError("observations must hold a round in which others changed something, but all are 0")
    if has[changed].all() or not has[changed].any():
        raise ValueError(
            f"the property is in {'every' if has[changed].all() else 'no'} round: scores need rounds with it "
            "and rounds without it"
        )
    shares = observations.label_share
    if shares is not None and len(shares) >= 4 and observations.stratified:
        inside, outside = shares[has], shares[~has]
        spread = inside.var(axis=0) / len(inside) + outside.var(axis=0) / len(outside)
        gap = np.abs(inside.mean(axis=0) - outside.mean(axis=0))
        if (gap > _FALSE_ALARM_Z * np.sqrt(spread) + 1e-9).any():
            raise ValueError(
                "labels of rounds with the property differ from those of the others, which alone would tell "
                "them apart: draw batches with all classes alike"
            )
    return has


def _solve(null: np.ndarray, times: np.ndarray, *, without: np.ndarray | None) -> np.ndarray | None:
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415

    n_rounds = null.shape[1]
    groups = np.kron(np.eye(len(times)), np.ones(n_rounds // len(times)))
    limits = [LinearConstraint(null, -_EXACT, _EXACT), LinearConstraint(groups, times, times)]
    if without is not None:  # at least one round differs
        sign = np.where(without, -1.0, 1.0)
        limits.append(LinearConstraint(sign, 1.0 - without.sum(), np.inf))
    solution = milp(
        np.zeros(n_rounds), constraints=limits, integrality=np.ones(n_rounds), bounds=Bounds(0, 1)
    )
    if solution.status not in (_FOUND, _NONE):  # whether there is a solution is not known
        raise ValueError(f"sums must be split by scipy.optimize.milp, which gave up: {solution.message}")
    return np.rint(solution.x) > 0 if solution.status == _FOUND else None
