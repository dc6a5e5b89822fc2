"""The parties of a collaborative training, defences, and an observer's record, also of Flower deployments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ostraka.core import check, files
from ostraka.core.curve import Curve
from ostraka.core.released import to_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from ostraka.networks import TorchClassifier


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class PartyRows:
    """One party of a simulated collaboration.

    Parameters
    ----------
    X : array, shape (n_rows, n_features)
        Private.
    y : array, shape (n_rows,)
        Private. Labels of the main task.
    has_property : bool array, shape (n_rows,), optional
        Private. Which rows have the property that an attacker looks for.
    schedule : float array, shape (n_rounds,), in [0, 1], optional
        The share of rows with the property in the batches of each round. None: rows are drawn without
        looking at it.
    joins : int
        The first round in which the party takes part.
    leaves : int, optional
        The first round in which it no longer does. None: it stays.

    Raises
    ------
    ValueError
        No rows, other shapes, shares outside [0, 1], a schedule without ``has_property``.

    Examples
    --------
    >>> PartyRows(X=[[0.0], [1.0]], y=[0, 1], joins=10).n_rows
    2
    """

    X: Any
    y: Any
    has_property: Any = None
    schedule: Any = None
    joins: int = 0
    leaves: int | None = None

    def __post_init__(self) -> None:
        rows, labels = np.asarray(self.X, dtype=np.float32), np.asarray(self.y)
        if rows.ndim != 2 or labels.shape != rows.shape[:1] or not len(rows):
            raise ValueError(
                "a party must have rows (n_rows, n_features) and a label each, got "
                f"{rows.shape} and {labels.shape}"
            )
        if not np.isfinite(rows).all():
            raise ValueError("a party's X must be finite")
        check.integer(joins=self.joins)
        if self.leaves is not None:
            check.integer(leaves=self.leaves, least=self.joins + 1)
        object.__setattr__(self, "X", rows)
        object.__setattr__(self, "y", labels)
        if self.has_property is not None:
            has = np.asarray(self.has_property)
            if has.dtype != bool or has.shape != labels.shape:
                raise ValueError(f"has_property must be bool of shape {labels.shape}, got {has.shape}")
            object.__setattr__(self, "has_property", has)
        if self.schedule is not None:
            shares = np.asarray(self.schedule, dtype=np.float64)
            if shares.ndim != 1 or not ((shares >= 0) & (shares <= 1)).all():
                raise ValueError("schedule must be shares from 0 to 1, one a round")
            if self.has_property is None:
                raise ValueError("schedule needs has_property, which says what it is a share of")
            object.__setattr__(self, "schedule", shares)

    @property
    def n_rows(self) -> int:
        """The party's number of rows."""
        return len(self.y)

    def __repr__(self) -> str:
        return f"PartyRows(joins={self.joins}{'' if self.leaves is None else f', leaves={self.leaves}'})"


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
    stratified : bool
        Whether batches hold all classes alike.
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
    >>> from ostraka.audit.attacks import Collaboration
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
    stratified: bool = True
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
        for label, shape in self.layout:
            stop = start + int(np.prod(shape))
            if label == name:
                return self.updates[..., start:stop].reshape(*self.updates.shape[:-1], *shape)
            start = stop
        names = ", ".join(label for label, _ in self.layout)
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
        """Read a recorded training. For Flower see :class:`ostraka.audit.attacks.parties.FlowerRecorder`.

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
        from ostraka.audit.attacks.federated import FlatNetwork, flat  # noqa: PLC0415

        check.integer(n_parties=n_parties, least=2)
        layout = FlatNetwork(network, n_features=n_features, n_classes=len(classes)).layout
        expected = [shape for _, shape in layout]
        for arrays in (*rounds, *(own or ())):
            if [np.shape(part) for part in arrays] != expected:
                raise ValueError(f"each round must hold arrays of shapes {expected}")
        if len(rounds) < 2 or (own is not None and len(own) != len(rounds) - 1):
            raise ValueError("rounds must be two or more, and one more than those in own")
        weights = np.array([flat(list(arrays)) for arrays in rounds])
        moved = np.diff(weights, axis=0) * np.float32(n_parties)
        if own is not None:
            moved = moved - (np.array([flat(list(arrays)) for arrays in own]) - weights[:-1])
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
    >>> from ostraka.audit.attacks import Collaboration
    >>> from ostraka.networks import TorchClassifier
    >>> import torch
    >>> bags = torch.nn.Linear(4, 2)  # of counts of four words
    >>> X = np.array([[1, 0, 0, 0], [0, 1, 0, 0]] * 5, dtype=float)
    >>> parties = [(X, [0, 1] * 5), (X[:, ::-1], [0, 1] * 5)]
    >>> run = Collaboration(TorchClassifier(bags, batch_size=4), n_rounds=3, random_state=0).fit(parties)
    >>> words_seen(run, "weight", axis=1)[0]
    array([False, False,  True,  True])
    """
    check.nonnegative(tolerance=tolerance)
    moved = observations.parameter(parameter)
    if moved.ndim != observations.updates.ndim + 1 or axis not in (0, 1):
        raise ValueError(f"parameter must be a matrix with words on axis 0 or 1, got {parameter!r}, {axis!r}")
    return np.asarray(np.abs(moved).max(axis=-1 if axis == 0 else -2) > tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFraction:
    """Each party sends the largest entries of its change only; the others are 0.

    Parameters
    ----------
    share : float in (0, 1]
        Of the entries.

    Guarantees
    ----------
    None.
    Source: Shokri and Shmatikov 2015, doi:10.1145/2810103.2813687.

    Examples
    --------
    >>> SharedFraction(share=0.5).each(np.array([[1.0, -4.0, 2.0, 0.5]]))
    array([[ 0., -4.,  2.,  0.]])
    """

    share: float

    def __post_init__(self) -> None:
        check.share(one=True, share=self.share)

    def each(self, changes: np.ndarray) -> np.ndarray:
        """The largest entries of each change."""
        drop = changes.shape[1] - max(1, int(np.ceil(self.share * changes.shape[1])))
        sparse = changes.copy()
        if drop:
            least = np.argpartition(np.abs(changes), drop - 1, axis=1)[:, :drop]
            np.put_along_axis(sparse, least, 0, axis=1)
        return sparse

    def noise(self, *, size: int, rng: np.random.Generator) -> np.ndarray | float:
        """No noise: 0."""
        del size, rng
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySum:
    """Each party's change is clipped, and Gaussian noise is added to their sum: privacy for a whole party.

    Parameters
    ----------
    clip : float > 0
        Largest L2 norm of a change.
    noise_multiplier : float > 0
        Standard deviation of the noise, over ``clip``.

    Guarantees
    ----------
    ``n_rounds * curve()`` bounds what all rounds say about one party, added or removed. This class simulates:
    its noise comes from a seeded generator of floats.
    Source: McMahan et al. 2018, arXiv:1710.06963.

    Examples
    --------
    >>> round((100 * NoisySum(clip=1.0, noise_multiplier=10.0).curve()).epsilon(delta=1e-5), 2)
    4.38
    """

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        check.positive(clip=self.clip, noise_multiplier=self.noise_multiplier)

    def curve(self) -> Curve:
        """The cost of one round, for one party added or removed."""
        return Curve.gaussian(sensitivity=1.0, sigma=self.noise_multiplier)

    def each(self, changes: np.ndarray) -> np.ndarray:
        """Changes of norm at most ``clip``."""
        norms = np.linalg.norm(changes.astype(np.float64), axis=1, keepdims=True)
        return np.asarray(changes * np.minimum(1.0, self.clip / np.maximum(norms, 1e-300)))

    def noise(self, *, size: int, rng: np.random.Generator) -> np.ndarray | float:
        """Gaussian noise for the sum."""
        return rng.normal(0, self.clip * self.noise_multiplier, size)


class Defence(Protocol):
    """A change of the parties' updates before they are added up, and noise for their sum."""

    def each(self, changes: np.ndarray) -> np.ndarray:
        """The changes that parties send, from those they computed, (n_parties, n_weights)."""
        ...

    def noise(self, *, size: int, rng: np.random.Generator) -> np.ndarray | float:
        """Noise for the sum of all parties' changes."""
        ...


class FlowerRecorder:
    """Writes the rounds that a Flower client or server sees to a folder, and reads them as observations.

    Parameters
    ----------
    folder : path
        Private. Only its owner can read the files. They can be read on any machine that has the same module.
        Use a new folder for each run: a file does not say to which run its round belongs.

    Raises
    ------
    ValueError
        No rounds in the folder or none with an answer, arrays that are not the module's, a client without two
        rounds in a row.

    Notes
    -----
    For Flower's message API (``flwr.clientapp``, ``flwr.serverapp``; tried with flwr 1.41). A client records
    with ``ClientApp(mods=[recorder.client_mod])``, a server with ``strategy = recorder.watch(FedAvg(…))``.
    Flower is not needed to read a folder, nor to import this. All clients must count the same: give each the
    same number of examples.

    Examples
    --------
    A record that a client has written with Flower, read without it:

    >>> import tempfile, torch
    >>> from types import SimpleNamespace as Message
    >>> from ostraka.networks import TorchClassifier
    >>> def message(value, number):  # in place of Flower's
    ...     record = Message(to_numpy_ndarrays=lambda: [np.full((2, 3), value), np.zeros(2)])
    ...     config = {"config": {"server-round": number}}
    ...     content = Message(array_records={"arrays": record}, config_records=config)
    ...     return Message(content=content, has_error=lambda: False)
    >>> recorder, me = FlowerRecorder(tempfile.mkdtemp()), Message(node_id=7)
    >>> for number, value in ((1, 0.0), (2, 1.0)):
    ...     _ = recorder.client_mod(message(value, number), me, lambda got, context: message(0.5, None))
    >>> network = TorchClassifier(torch.nn.Linear(3, 2))
    >>> seen = recorder.observations(network, observer=7, n_parties=2, n_features=3, classes=[0, 1])
    >>> seen.updates[:, 0]  # two parties moved the mean by 1, of which the client sent 0.5
    array([1.5], dtype=float32)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"FlowerRecorder({str(self.folder)!r})"

    def client_mod(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        """Record one round of a client; a mod of ``flwr.clientapp.ClientApp``.

        Parameters
        ----------
        message : flwr.app.Message
        context : flwr.app.Context
        call_next : callable

        Returns
        -------
        flwr.app.Message
            The client's own answer, unchanged.
        """
        got = _arrays(message)  # before the client can change them
        reply = call_next(message, context)
        # the server's round, which its strategies send with the weights
        configs = message.content.config_records.values()
        rounds = (int(config["server-round"]) for config in configs if "server-round" in config)
        number = next(rounds, None)
        sent = [] if reply.has_error() else _arrays(reply)
        if got and sent and number is not None:
            self._write(f"client-{context.node_id}-{number}", {"got": got, "sent": sent})
        return reply

    def watch(self, strategy: Any) -> Any:
        """Record each round of a server.

        Parameters
        ----------
        strategy : flwr.serverapp.strategy.Strategy

        Returns
        -------
        flwr.serverapp.strategy.Strategy
            The same object, whose ``configure_train`` and ``aggregate_train`` now record, too.
        """
        configure, aggregate, weights = strategy.configure_train, strategy.aggregate_train, {}

        def configure_train(server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            weights[server_round] = arrays.to_numpy_ndarrays()
            return configure(server_round, arrays, config, grid)

        def aggregate_train(server_round: int, replies: Iterable[Any]) -> Any:
            received = list(replies)
            parts = {"got": weights.pop(server_round)}
            for reply in received:
                if not reply.has_error():
                    parts[f"sent-{reply.metadata.src_node_id}"] = _arrays(reply)
            self._write(f"server-{server_round}", parts)
            return aggregate(server_round, received)

        strategy.configure_train, strategy.aggregate_train = configure_train, aggregate_train
        return strategy

    def observations(
        self,
        network: TorchClassifier,
        *,
        observer: int | str,
        n_features: int,
        classes: Any,
        n_parties: int | None = None,
        local_steps: int = 1,
    ) -> Observations:
        """Read the recorded rounds.

        Parameters
        ----------
        network : TorchClassifier
            The module that was trained, its learning rate and batch size.
        observer : int, "server" or "masked-sum"
            The ``node_id`` of a recording client; the server, which sees each change; or the server behind
            secure sums, which sees only the sum. Parties are in the order of their node ids.
        n_features : int
        classes : array
        n_parties : int >= 2, optional
            How many clients train in each round: needed for a client, which cannot know.
        local_steps : int
            Steps of a party in a round.

        Returns
        -------
        Observations
            Of a client, the rounds whose next round it was in, too. Of a server, the rounds with an answer.
        """
        from ostraka.audit.attacks.federated import FlatNetwork  # noqa: PLC0415

        layout = FlatNetwork(network, n_features=n_features, n_classes=len(classes)).layout
        facts: dict[str, Any] = {
            "layout": layout,
            "network": network,
            "classes": np.asarray(classes),
            "local_steps": local_steps,
        }
        if observer in ("server", "masked-sum"):
            summed = observer == "masked-sum"
            read = (self._read(path, facts["layout"]) for _, path in self._rounds("server"))
            rounds = [parts for parts in read if len(parts) > 1]  # not those that no client answered
            if not rounds:
                raise ValueError(
                    f"{self.folder} must have a round that a client answered: look for its error"
                )
            nodes = sorted({name for parts in rounds for name in parts if name != "got"}, key=_number)
            weights = np.array([parts["got"] for parts in rounds])
            sent = np.array([[parts.get(node, parts["got"]) for node in nodes] for parts in rounds])
            changes = sent - weights[:, None]
            present = np.array([[node in parts for node in nodes] for parts in rounds])
            return Observations(
                weights=weights,
                updates=changes.sum(axis=1) if summed else changes,
                n_summed=present.sum(axis=1) if summed else np.ones(len(rounds), dtype=np.int64),
                present=present,
                **facts,
            )
        if isinstance(observer, str) or n_parties is None:
            raise ValueError(
                'observer must be "server", "masked-sum", or the node_id of a client with n_parties= of each '
                f"round, got {observer!r} and {n_parties!r}"
            )
        check.integer(n_parties=n_parties, least=2)
        by_number = {n: self._read(path, facts["layout"]) for n, path in self._rounds(f"client-{observer}")}
        pairs = [(by_number[n], by_number[n + 1]) for n in by_number if n + 1 in by_number]
        if not pairs:
            raise ValueError(
                f"{self.folder} must have two rounds in a row of client {observer}, has rounds "
                f"{sorted(by_number)}: let it take part more often"
            )
        moved = [
            np.float32(n_parties) * (after["got"] - before["got"]) - (before["sent"] - before["got"])
            for before, after in pairs
        ]
        return Observations(
            weights=np.array([before["got"] for before, _ in pairs]),
            updates=np.array(moved),
            n_summed=np.full(len(pairs), n_parties - 1),
            **facts,
        )

    def _rounds(self, start: str) -> list[tuple[int, Path]]:
        rounds = sorted((_number(path.stem), path) for path in self.folder.glob(f"{start}-*.npz"))
        if not rounds:
            raise ValueError(
                f"{self.folder} has no rounds of {start}: record them with client_mod or watch, and name the "
                "observer by its node_id"
            )
        return rounds

    def _write(self, name: str, parts: dict[str, Sequence[np.ndarray]]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        arrays = {
            f"{part}:{place}": array
            for part, arrays_of_part in parts.items()
            for place, array in enumerate(arrays_of_part)
        }
        files.write(self.folder / f"{name}.npz", to_bytes(arrays), private=True)

    def _read(self, path: Path, layout: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[str, np.ndarray]:
        """Each part of a round as one vector."""
        from ostraka.audit.attacks.federated import flat  # noqa: PLC0415

        vectors: dict[str, list[np.ndarray]] = {}
        with np.load(path, allow_pickle=False) as saved:
            for name in saved.files:  # in the order of writing
                vectors.setdefault(name.rpartition(":")[0], []).append(saved[name])
        expected = [shape for _, shape in layout]
        for part, arrays in vectors.items():
            if [array.shape for array in arrays] != expected:
                raise ValueError(f"{path}: {part} must hold arrays of shapes {expected}, those of the module")
        return {part: flat(arrays) for part, arrays in vectors.items()}


def _arrays(message: Any) -> list[np.ndarray]:
    """The arrays of the only array record of a message; none where there is not one."""
    records = list(message.content.array_records.values())
    return [np.array(tensor) for tensor in records[0].to_numpy_ndarrays()] if len(records) == 1 else []


def _number(name: str) -> int:
    digits = re.search(r"(\d+)$", name)
    return int(digits[1]) if digits else -1


def read_parties(
    parties: Any, *, n_rounds: int, batch_size: int, stratified: bool = True
) -> tuple[list[PartyRows], np.ndarray]:
    """The parties, and all classes. Pairs (X, y) are parties, too."""
    read = [
        party if isinstance(party, PartyRows) else PartyRows(X=np.asarray(party[0]), y=party[1])
        for party in parties
    ]
    if len(read) < 2:
        raise ValueError(f"parties must be two or more, got {len(read)}")
    if len({party.X.shape[1] for party in read}) > 1:
        raise ValueError("all parties must have the same number of features")
    classes = np.unique(np.concatenate([party.y for party in read]))
    for number, party in enumerate(read):
        if party.schedule is not None and len(party.schedule) != n_rounds:
            raise ValueError(
                f"the schedule of party {number} must have {n_rounds} rounds, got {len(party.schedule)}"
            )
        # batches must be possible to draw; unless stratified, classes need not be alike
        where = "" if party.schedule is None else " without the property"
        having, other = pools_of(party)
        needs = [False, True]
        if party.schedule is not None:
            needs = [bool(party.schedule.any()), bool((party.schedule < 1).any())]
        if any(need and not len(pool) for need, pool in zip(needs, (having, other), strict=True)):
            raise ValueError(f"party {number} has no row with the property, or none without it")
        if not stratified:
            continue
        lacking = len(classes) - len(np.unique(party.y[other]))
        one_class = len(np.unique(party.y[having])) < len(classes)
        if lacking and (needs[1] or one_class):
            raise ValueError(
                f"party {number} has no row of {lacking} of {len(classes)} classes{where}: batches hold all "
                "classes alike. Type stratified=False if they need not"
            )
        if party.schedule is not None and needs[0]:
            codes = np.unique(np.searchsorted(classes, party.y[having]))
            most = round(float(party.schedule.max()) * batch_size)
            _counts_with(most, batch_size, codes, len(classes))
    return read, classes


def pools_of(party: PartyRows) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the rows with the property, if there is a schedule, and of all others."""
    if party.schedule is None:
        return np.arange(0), np.arange(party.n_rows)
    return np.flatnonzero(party.has_property), np.flatnonzero(~party.has_property)


def draw_mixed(
    rng: np.random.Generator,
    pools: tuple[np.ndarray, np.ndarray],
    n_with: int,
    size: int,
    *,
    n_classes: int,
    stratified: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Places in two pools, given by their codes: ``n_with`` rows with the property, the rest without it.

    All classes are alike in the whole batch; if every class has rows with the property, in each part, too.
    """
    parts = (n_with, size - n_with)
    if not stratified:
        return tuple(  # type: ignore[return-value]
            rng.choice(len(codes), size=count, replace=count > len(codes)) if count else np.arange(0)
            for codes, count in zip(pools, parts, strict=True)
        )
    present = np.unique(pools[0])
    counts: tuple[np.ndarray | None, np.ndarray | None] = (None, None)
    if n_with and len(present) < n_classes:
        inside = _counts_with(n_with, size, present, n_classes)
        counts = (inside, _alike(rng, size, n_classes) - inside)
    return tuple(  # type: ignore[return-value]
        draw_batch(rng, codes, count, n_classes=n_classes, counts=part) if count else np.arange(0)
        for codes, count, part in zip(pools, parts, counts, strict=True)
    )


def draw_batch(
    rng: np.random.Generator,
    codes: np.ndarray,
    size: int,
    *,
    n_classes: int,
    counts: np.ndarray | None = None,
) -> np.ndarray:
    """Places of a batch with all classes alike, or with so many rows of each class."""
    counts = _alike(rng, size, n_classes) if counts is None else counts
    parts = []
    for code, count in enumerate(counts):
        mine = np.flatnonzero(codes == code)
        parts.append(rng.choice(mine, size=count, replace=count > len(mine)) if count else mine[:0])
    return np.asarray(rng.permutation(np.concatenate(parts)))


def _counts_with(n_with: int, size: int, present: np.ndarray, n_classes: int) -> np.ndarray:
    """Rows with the property of each class, where it does not occur in all classes.

    Raises
    ------
    ValueError
        They would be more than that class has in a batch of all classes alike.
    """
    counts = np.zeros(n_classes, dtype=np.int64)
    counts[present] = n_with // len(present)
    counts[present[: n_with % len(present)]] += 1
    if len(present) < n_classes and counts.max() > size // n_classes:
        raise ValueError(
            f"the property occurs in {len(present)} of {n_classes} classes, so that a batch of {size} with "
            f"all classes alike holds at most {size // n_classes * len(present)} rows with it, not {n_with}: "
            "take a smaller share, or type stratified=False"
        )
    return counts


def _alike(rng: np.random.Generator, size: int, n_classes: int) -> np.ndarray:
    """As many rows of each class; a remainder goes to classes drawn at random."""
    counts = np.full(n_classes, size // n_classes)
    counts[rng.permutation(n_classes)[: size % n_classes]] += 1
    return counts
