"""Private statistics: seconds and bytes of clients, keepers and tallies, and errors of what is released."""

from __future__ import annotations

import gzip
import importlib.util
import math
import time
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import beta

from bench._data import folder
from ostraka.collect import Client, Grid, Histogram, Keeper, Pairs, Tally, Task, Tree, estimate
from ostraka.collect.estimate import ranked, similarity
from ostraka.collect.messages import Closing
from ostraka.collect.plan import among_clients, parsed, sigma_for
from ostraka.core.mechanisms.skellam import SkellamSum, skellam
from ostraka.secure.keys import Identity, exchange_key, exchange_secret, new_secret
from ostraka.secure.masks import pair_mask

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["certified", "main", "median_error"]

_DELTA = 1e-6
_CHOSEN_ON, _TRAINED = 5_835, 8_000  # baskets of groceries
SMALL = False
QUICK = {"SMALL": True}


def seconds(work: Callable[[], object], *, times: int = 1) -> float:
    """Processor time of one call."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def kept_task(
    encoding: Histogram, n_keepers: int, *, least: int = 3
) -> tuple[Task, Identity, list[Identity]]:
    me, keepers = Identity.fresh(), [Identity.fresh() for _ in range(n_keepers)]
    keys = [Keeper.key(identity) for identity in keepers]
    return Task(encoding, sigma=9.0, tally=me.public_key, keepers=keys, least=least), me, keepers


def all_pairs(n_clients: int, cells: int) -> float:
    """Time one client's masks with all other clients."""
    secret, keys = new_secret(), [exchange_key(new_secret()) for _ in range(n_clients - 1)]

    def work() -> None:
        secret_key, total = exchange_secret(secret), np.zeros(cells, dtype=np.uint32)
        for number, key in enumerate(keys):
            pair = ("client 0", f"client {number + 1}")
            total += pair_mask(secret_key, key, transcript=bytes(32), pair=pair, size=cells)

    return seconds(work)


def keeper_seconds(n_clients: int, cells: int) -> float:
    """A keeper's answer for so many clients with keys of their own."""
    task, me, keepers = kept_task(Histogram(0, 1, cells=cells), 3)
    keys = sorted(bytes.fromhex(exchange_key(new_secret())) for _ in range(n_clients))
    request = me.seal("close", Closing(0, exchange_key(new_secret()), b"".join(keys)).write(task))
    keeper = Keeper(task, keepers[0])
    return seconds(lambda: keeper.answer(request))


def adding(n_clients: int, cells: int) -> float:
    """Time the tally's additions of vectors in memory."""
    rows = np.random.default_rng(0).integers(0, 2**32, (n_clients, cells), dtype=np.uint32)
    return seconds(lambda: rows.sum(axis=0, dtype=np.uint32), times=20)


def whole_round(n_clients: int, cells: int, *, colluding: float, missing: float) -> tuple[float, float]:
    """All clients of a round, and the tally's last step; sums are checked."""
    me = Identity.fresh()
    least = math.floor(n_clients * (1 - missing)) - 1
    task = Task(
        Histogram(0, 1, cells=cells),
        sigma=9.0,
        noise="tally",
        tally=me.public_key,
        least=least,
        most=n_clients,
        colluding=colluding,
        missing=missing,
    )
    tally, rng = Tally(task, me), np.random.default_rng(0)
    values = rng.random(n_clients)
    gone = dict.fromkeys(rng.permutation(n_clients)[: math.floor(missing * n_clients)].tolist(), "mask")
    masked: list[int] = []
    clients = seconds(lambda: masked.extend(among_clients(tally, values.tolist(), vanish=gone)))
    sums: list[np.ndarray] = []
    server = seconds(lambda: sums.append(tally.close().open()))
    exact = np.histogram(values[masked], bins=cells, range=(0, 1))[0]
    if not np.array_equal(sums[0], exact):
        raise AssertionError("the sum is not exact")
    return clients, server


def median_error(epsilon: float, *, shares: float = 1.0, repeats: int = 200) -> float:
    """Mean absolute error of the median of Melis 2018, Sec. 4.3.2; ``shares`` widens the noise's variance."""
    tree, rng, wrong = parsed("tree:0:1000"), np.random.default_rng(0), []
    assert isinstance(tree, Tree)
    sigma = sigma_for(tree, epsilon=epsilon, delta=_DELTA) * math.sqrt(shares)
    task = Task(tree, sigma=sigma, noise="tally", tally="ab" * 32)
    for _ in range(repeats):
        values = np.concatenate([rng.normal(300, 25, 1000), rng.normal(500, 200, 200)])
        values = np.clip(values, 0, 999).astype(int)
        sums = tree_sums(tree, values) + skellam(sigma**2, (tree.cells,), rng=rng)
        median = estimate.quantile(sums, task, 0.5, n_clients=len(values)).value
        wrong.append(abs(median - np.sort(values)[599]))
    return float(np.mean(wrong))


def tree_sums(tree: Tree, values: np.ndarray) -> np.ndarray:
    """What the clients' vectors add up to."""
    depth = len(tree.sizes)
    parts = [
        np.bincount((values - tree.low) // tree.fanout ** (depth - 1 - level), minlength=size)
        for level, size in enumerate(tree.sizes)
    ]
    return np.concatenate(parts)


def certified(*, sigma: float = 4.0, delta: float = 1e-3, n_draws: int = 4_000_000) -> tuple[float, float]:
    """A lower bound on epsilon from draws of two neighbouring sums, and the proved upper one.

    The move is the worst of a histogram: two cells by one. A threshold on the difference of the two noisy
    cells is chosen on the first half of the draws; the second half gives the bound, with 95 % confidence.
    """
    rng = np.random.default_rng(1)
    noise = skellam(sigma**2, (2, 2, n_draws), rng=rng)
    with_it, without = (world[0] - world[1] for world in noise)
    with_it = with_it + 2  # one cell up, one down: the difference moves by two
    half = n_draws // 2
    best, threshold = -math.inf, 0
    for at in range(int(12 * sigma)):
        p, q = (with_it[:half] >= at).mean(), (without[:half] >= at).mean()
        if q * half > 400 and p > delta and math.log((p - delta) / q) > best:
            best, threshold = math.log((p - delta) / q), at
    hits = int((with_it[half:] >= threshold).sum()), int((without[half:] >= threshold).sum())
    low = beta.ppf(0.025, hits[0], half - hits[0] + 1)
    high = beta.ppf(0.975, hits[1] + 1, half - hits[1])
    upper = SkellamSum(sigma=sigma, l1=2, l2=math.sqrt(2)).curve().epsilon(delta=delta)
    return math.log((low - delta) / high), upper


def groceries(epsilon: float, *, n_splits: int, n_draws: int, at_most: int = 6) -> np.ndarray:
    """How often a missing item of a new basket is among ten, of shape (splits, draws of the noise, 3).

    Ten are recommended; or the most popular by exact counts; or the most popular by counts of single items
    released at the same epsilon. New baskets are those that served for no choice: ``at_most`` and the power
    in the estimator were chosen on the others.
    """
    coded, items = coded_groceries()
    pairs, alone = (
        Pairs(items=items, at_most=at_most),
        Grid(x=(0, 1), y=(0, 1), shape=(1, items), at_most=at_most),
    )
    sigma, sigma_alone = (sigma_for(encoding, epsilon=epsilon, delta=_DELTA) for encoding in (pairs, alone))
    reported = np.random.default_rng(2024).permutation(len(coded))[_CHOSEN_ON:]
    rates = np.empty((n_splits, n_draws, 3))
    for split in range(n_splits):
        rng = np.random.default_rng(split)
        held_out = rng.permutation(reported)[: len(coded) - _TRAINED]
        test = [
            rng.permutation(coded[place]) for place in held_out if len(coded[place]) > 1
        ]  # the first is left out
        train = np.delete(np.arange(len(coded)), held_out)
        exact = np.bincount(np.concatenate([coded[place] for place in train]), minlength=items)
        clipped = np.bincount(np.concatenate([coded[place][:at_most] for place in train]), minlength=items)
        sums = np.sum([pairs.encode(coded[place]) for place in train], axis=0, dtype=np.int64)
        for draw in range(n_draws):
            noisy = sums + skellam(sigma**2, sums.shape, rng=rng)
            rankings = (
                similarity(noisy.astype(float), pairs, len(train), sigma**2),
                np.tile(exact, (items, 1)),
                np.tile(clipped + skellam(sigma_alone**2, (items,), rng=rng), (items, 1)),
            )
            for place, ranking in enumerate(rankings):
                hits = [basket[0] in ranked(ranking.astype(float), basket[1:], 10) for basket in test]
                rates[split, draw, place] = np.mean(hits)
    return rates


def coded_groceries() -> tuple[list[list[int]], int]:
    """Baskets, each in the random order in which its client puts it, and how many items there are."""
    text = gzip.decompress((folder() / "groceries" / "groceries.txt.gz").read_bytes()).decode()
    baskets = [list(dict.fromkeys(line.split(","))) for line in text.strip().split("\n")]
    names = sorted({name for basket in baskets for name in basket})
    numbers = {name: number for number, name in enumerate(names)}
    shuffle = np.random.default_rng(99).permutation
    return [shuffle([numbers[name] for name in basket]).tolist() for basket in baskets], len(names)


def groceries_rows(n_splits: int, n_draws: int) -> None:
    for epsilon in (1.0,) if SMALL else (0.5, 1.0, 2.0, 4.0):
        rates = groceries(epsilon, n_splits=n_splits, n_draws=n_draws)
        ours, exact, released = rates.mean(axis=(0, 1))
        draws = (rates[..., 0] - rates[..., 1]).mean(axis=0)  # one for each draw of the noise
        print(
            f"groceries, hit@10 at epsilon {epsilon:g}: {ours:.4f}, exact popularity {exact:.4f} (draws: "
            f"{draws.min():+.4f} to {draws.max():+.4f}), popularity released at this epsilon {released:.4f}"
        )


def elgamal_rows(n_clients: int) -> None:
    """165 cells, as in Melis 2018, Sec. 4.3.2."""
    from reproduce import _melis2018_elgamal as elgamal

    authorities = [elgamal.Authority(number, n=3, threshold=2) for number in (1, 2, 3)]
    group = elgamal.Group(2, tuple(ciphertext.dealing for ciphertext in authorities))
    vector = np.zeros(165, dtype=np.uint32)
    ciphertext = elgamal.encrypted(vector, group.key)
    print(f"ElGamal: a client {1e3 * seconds(lambda: elgamal.encrypted(vector, group.key)):.1f} ms", end=", ")
    parsing = seconds(lambda: elgamal.Ciphertexts.read(ciphertext.write(), cells=165), times=5)
    vectors = [elgamal.encrypted(vector, group.key) for _ in range(12)] * (n_clients // 12)
    print(f"{len(ciphertext.write()):,} bytes, parsed in {1e3 * parsing:.2f} ms", end=", ")
    print(f"{n_clients:,} parsed sketches added in {seconds(lambda: elgamal.added(vectors)):.3f} s")


def main() -> None:
    quick = SMALL
    n = 50 if quick else 1000
    print(f"client, {n} users, 4,896 cells, all pairs: {1e3 * all_pairs(n, 4896):.1f} ms")
    task, _, _ = kept_task(Histogram(0, 1, cells=4896), 3)
    print(f"client, 3 keepers: {1e3 * seconds(lambda: Client(task).report(0.5), times=50):.3f} ms")
    print(f"tally adds 1,000: {1e3 * adding(1000, 4896):.2f} ms")
    n_reports = 500 if quick else 100_000
    took = keeper_seconds(n_reports, 1024)
    print(f"a keeper, {n_reports:,} reports, 1,024 cells: {took:.2f} s, {1e6 * took / n_reports:.1f} us each")
    task, _, _ = kept_task(Histogram(0, 1000, cells=1000), 3)
    print(f"median of 1,200, exact: {len(Client(task).report(300))} bytes a client")
    for shares in (1.0,) if quick else (1.0, 1.5, 3.0):
        error = median_error(0.5, shares=shares, repeats=10 if quick else 200)
        print(f"median's error at epsilon 0.5, keepers add {shares:g} times the variance: {error:.2f}")
    for sigma in (1.6, 4.0):  # the price by Renyi divergences, and by a dominating Gaussian
        lower, upper = certified(sigma=sigma, n_draws=40_000 if quick else 4_000_000)
        print(f"certified / proved epsilon, sigma {sigma}: {lower:.3f} / {upper:.3f} = {lower / upper:.2f}")
    if importlib.util.find_spec("coincurve") is not None:
        elgamal_rows(12 if quick else 1200)
    if (folder() / "groceries" / "groceries.txt.gz").exists():
        groceries_rows(*((1, 1) if quick else (5, 5)))
    rounds = [(60, 256, 0.2, 0.2)] if quick else [(1000, 16_384, 0.2, 0.33), (10_000, 1024, 0.1, 0.1)]
    for n_clients, cells, colluding, missing in rounds:
        clients, server = whole_round(n_clients, cells, colluding=colluding, missing=missing)
        print(
            f"{n_clients:,} users, {cells:,} cells, {missing:.0%} vanish: {clients + server:.1f} s", end=" "
        )
        print(f"({1e3 * clients / n_clients:.1f} ms a client, {server:.1f} s at the tally's end)")
