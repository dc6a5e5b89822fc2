"""Recording what a client or the server of a Flower deployment sees, for attacks on it."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.audit.attacks.parties import Observations
from ostraka.core import check, files

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from ostraka.networks import TorchClassifier


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
        number = _round(message)
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
            return self._of_server(facts, summed=observer == "masked-sum")
        if isinstance(observer, str) or n_parties is None:
            raise ValueError(
                'observer must be "server", "masked-sum", or the node_id of a client with n_parties= of each '
                f"round, got {observer!r} and {n_parties!r}"
            )
        check.integer(n_parties=n_parties, least=2)
        return self._of_client(facts, observer, n_parties)

    def _of_server(self, facts: dict[str, Any], *, summed: bool) -> Observations:
        read = (self._read(path, facts["layout"]) for _, path in self._rounds("server"))
        rounds = [parts for parts in read if len(parts) > 1]  # not those that no client answered
        if not rounds:
            raise ValueError(f"{self.folder} must have a round that a client answered: look for its error")
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

    def _of_client(self, facts: dict[str, Any], node: int, n_parties: int) -> Observations:
        rounds = {n: self._read(path, facts["layout"]) for n, path in self._rounds(f"client-{node}")}
        pairs = [(rounds[n], rounds[n + 1]) for n in rounds if n + 1 in rounds]
        if not pairs:
            raise ValueError(
                f"{self.folder} must have two rounds in a row of client {node}, has rounds {sorted(rounds)}: "
                "let it take part more often"
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
        written = io.BytesIO()
        np.savez(written, allow_pickle=False, **arrays)
        files.write(self.folder / f"{name}.npz", written.getvalue(), private=True)

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


def _round(message: Any) -> int | None:
    """The server's round, which its strategies send with the weights."""
    for record in message.content.config_records.values():
        if "server-round" in record:
            return int(record["server-round"])
    return None


def _number(name: str) -> int:
    digits = re.search(r"(\d+)$", name)
    return int(digits[1]) if digits else -1
