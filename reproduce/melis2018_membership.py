"""Chapter 6 of Melis 2018: who was in the training data of a generator, on Fashion-MNIST.

``python -m reproduce melis2018_membership [PART ...]`` prints, for each attack, the share of members among as
many suspects as there are members (the thesis's accuracy), the AUC and the true positive rate at 1 %. Plain
networks stand in for DCGAN, Fashion for CIFAR; LFW and DR are not to be had. So only the order compares.
Rows that a generative attacker knows are half of its batches from step 1,000 on, as in the thesis (figure
6.10 has other steps, too). Attackers of figures 6.6 and 6.10 have 2,500 steps, others 5,000. The thesis's GAN
of figure 6.18 has no differential privacy by today's definition: the VAE of a ``DPGM`` is attacked instead.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from bench._data import folder
from ostraka.audit.attacks.generators import TargetGenerator, generator_statistics, nearest
from ostraka.scores import Scores
from ostraka.synth import DPGM
from ostraka.synth.sgd import VAE, logits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.audit.attacks.generators import Sampling
    from reproduce._melis2018_vaegan import VariationalGAN

N_ROWS, WIDTH, RATE, SEED = 4_000, 512, 5e-4, 0
EPOCHS, CURVE = 400, (50, 100, 200, 400)
ATTACKER_STEPS, DELAY = 5_000, 1_000
SHORT_CURVE, DELAYS = (1_000, 2_500), (0, 1_000, 2_500)  # steps of the attacker; the last delay: never
SHARES, SHARE_ROWS = (0.1, 0.5, 0.9), 1_000
EPSILONS, PRIVATE_STEPS, UNITS, LATENT = (1.5, 28.3), 4_000, 200, 16  # of the VAEs of figure 6.18
QUICK = {
    "N_ROWS": 200,
    "WIDTH": 8,
    "EPOCHS": 1,
    "CURVE": (1,),
    "ATTACKER_STEPS": 4,
    "DELAY": 2,
    "SHORT_CURVE": (4,),
    "DELAYS": (0, 4),
    "SHARES": (0.5,),
    "SHARE_ROWS": 100,
    "EPSILONS": (28.3,),
    "PRIVATE_STEPS": 2,
    "UNITS": 8,
    "LATENT": 2,
}
QUICK_ARGUMENTS: list[str] = []
TRAINED: dict[tuple[object, ...], TargetGenerator] = {}
DEFENCES: dict[str, dict[str, Any]] = {
    "no defence": {},
    "weight normalisation": {"weight_normalised": True},
    "dropout 0.5": {"dropout": 0.5},
}


def images() -> np.ndarray:
    """Rows in [0, 1]."""
    with gzip.open(folder() / "fashion_mnist" / "train-images-idx3-ubyte.gz") as file:
        whole = np.frombuffer(file.read(16 + 784 * N_ROWS), np.uint8, offset=16)
    return whole.reshape(-1, 784) / np.float32(255)


def dealt(share: float = 0.1, n_rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and which are members: exactly this share, as in the thesis. No audit follows."""
    rows = images()[:n_rows]
    member = np.zeros(len(rows), dtype=bool)
    member[np.random.default_rng(SEED).permutation(len(rows))[: int(share * len(rows))]] = True
    return rows, member


def target(
    rows: np.ndarray, *, kind: str = "gan", epochs: int | None = None, **defence: Any
) -> TargetGenerator:
    """A generator which was trained on these rows: parts that attack the same one train it once."""
    settings = {"width": WIDTH, "learning_rate": RATE, "random_state": SEED, **defence}
    settings |= {"kind": kind, "epochs": EPOCHS if epochs is None else epochs}
    name = (hashlib.sha256(rows.tobytes()).hexdigest(), *sorted(settings.items()))
    if name not in TRAINED:
        TRAINED[name] = TargetGenerator(**settings).fit(rows)
    return TRAINED[name]


def attacker(n_samples: int, steps: int | None = None) -> TargetGenerator:
    """The attacker's own generator, not trained yet."""
    epochs = max(1, (ATTACKER_STEPS if steps is None else steps) * 32 // n_samples)
    return TargetGenerator("gan", epochs=epochs, width=WIDTH, learning_rate=RATE, random_state=SEED + 1)


def say(name: str, found: np.ndarray, member: np.ndarray) -> None:
    """One attack on one target."""
    guessed = member[np.argsort(-found, kind="stable")[: member.sum()]].mean()
    scores = Scores.of(members=found[member], others=found[~member])
    print(
        f"  {name}: {guessed:.1%} of as many suspects, AUC {scores.auc():.3f}, "
        f"TPR at 1 % {scores.tpr(fpr=0.01):.1%} (by chance {member.mean():.0%}, 0.5, 1 %)",
        flush=True,
    )


def by_samples(generator: Sampling, rows: np.ndarray, how: Any, **known: Any) -> np.ndarray:
    """The black box."""
    return generator_statistics(generator, rows, access="black-box", attacker=how, random_state=SEED, **known)


def split(member: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Members and others whom the attacker knows: this share of each."""
    rng = np.random.default_rng(SEED + 2)
    inside, others = (
        rng.permutation(np.flatnonzero(side))[: int(share * side.sum())] for side in (member, ~member)
    )
    return inside, others


def figure65() -> None:
    """Euclidean distance to the nearest sample (thesis: chance)."""
    rows, member = dealt()
    say("distance", by_samples(target(rows[member]), rows, "distance"), member)


def figure66() -> None:
    """Black box, samples of a shadow GAN of 10 % of the members added (thesis, LFW: 18 % at every step)."""
    rows, member = dealt()
    inside, _ = split(member, 0.1)
    made, shadow = (
        target(part).sample(len(rows), random_state=SEED) for part in (rows[member], rows[inside])
    )
    left = np.setdiff1d(np.arange(len(rows)), inside)
    for name, real in {"target alone": made, "and shadow": np.concatenate([made, shadow])}.items():
        for steps in SHORT_CURVE:
            own = attacker(len(real), steps).fit(real)
            say(f"{name}, {steps} steps", own.realness(rows[left]), member[left])


def figure67() -> None:
    """White box, by the epochs of the target (thesis, CIFAR: DCGAN 100 %, BEGAN 19 % at 400)."""
    rows, member = dealt()
    for kind in ("gan", "began"):
        for epochs in CURVE:
            made = target(rows[member], kind=kind, epochs=epochs)
            say(f"{kind}, {epochs} epochs", generator_statistics(made, rows), member)


def convolutional() -> None:
    """White box, DCGAN and DCGAN + VAE, of half the width (thesis, CIFAR: 100 and 80 % at 400 epochs)."""
    rows, member = dealt()
    say("dcgan", generator_statistics(target(rows[member], kind="dcgan", width=WIDTH // 2), rows), member)
    say("dcgan + vae", generator_statistics(variational(rows[member]), rows), member)


def variational(rows: np.ndarray) -> VariationalGAN:
    """A DCGAN + VAE of half the width which was trained on these rows."""
    from reproduce._melis2018_vaegan import VariationalGAN

    return VariationalGAN(epochs=EPOCHS, width=WIDTH // 2, learning_rate=RATE, random_state=SEED).fit(rows)


def figure68() -> None:
    """Black box, nothing known (thesis, CIFAR: 37 %)."""
    rows, member = dealt()
    say("own GAN", by_samples(target(rows[member]), rows, attacker(len(rows))), member)


def figure69() -> None:
    """Discriminative: 20 % of the others known; 30 % of members and others (thesis: chance, 33 %)."""
    rows, member = dealt()
    samples = target(rows[member]).sample(len(rows), random_state=SEED)
    for name, inside, others in _knowledge(member, first_knows="others"):
        real = np.concatenate([samples, rows[inside]])
        labels = np.arange(len(real) + len(others)) < len(real)
        model = MLPClassifier((WIDTH,), max_iter=5 if len(rows) > 1000 else 1, random_state=SEED)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # so many epochs, and no more
            model.fit(np.concatenate([real, rows[others]]), labels)
        left = np.setdiff1d(np.arange(len(rows)), np.concatenate([inside, others]))
        say(name, model.predict_proba(rows[left])[:, 1], member[left])


def figure610() -> None:
    """Black box, 20 % of the members known, by the step at which they join (thesis: early is worse)."""
    rows, member = dealt()
    inside, _ = split(member, 0.2)
    left = np.setdiff1d(np.arange(len(rows)), inside)
    kinds: dict[str, Callable[[np.ndarray], Any]] = {"gan": target, "dcgan + vae": variational}
    for kind, train in kinds.items():
        samples = train(rows[member]).sample(len(rows), random_state=SEED)
        for delay in DELAYS:
            own = attacker(len(samples), DELAYS[-1])
            never = delay == DELAYS[-1]
            own.fit(samples, members=None if never else rows[inside], delay=delay)
            when = "never" if never else f"from step {delay}"
            say(f"{kind}, {when}", own.realness(rows[left]), member[left])


def figure611() -> None:
    """Generative: 20 % of the members known; 30 % of members and others (thesis, CIFAR: no gain, 58 %)."""
    rows, member = dealt()
    samples = target(rows[member]).sample(len(rows), random_state=SEED)
    for name, inside, others in _knowledge(member, first_knows="members"):
        _generative(name, samples, rows, member, known=(inside, others))


def figure616() -> None:
    """White box by the share of 1,000 rows that are members (thesis: much gain at 10 %, none at 90 %)."""
    for share in SHARES:
        rows, member = dealt(share, SHARE_ROWS)
        say(f"{share:.0%}", generator_statistics(target(rows[member]), rows), member)


def figure617() -> None:
    """White box against defences (thesis, top ten: 89, 88 and 70 % better than chance)."""
    rows, member = dealt()
    for name, defence in DEFENCES.items():
        say(name, generator_statistics(target(rows[member], **defence), rows), member)


def figure618() -> None:
    """A VAE without differential privacy, and with it, in a DPGM (thesis: chance at 1.5, 85 % at 28.3)."""
    rows, member = dealt()
    plain = target(rows[member], kind="vae", width=UNITS, n_noise=LATENT, learning_rate=1e-3)
    say("no privacy, white box", plain.realness(rows), member)
    say("no privacy, distance", by_samples(plain, rows, "distance"), member)
    network = VAE(n_features=rows.shape[1], hidden=(UNITS,), latent=LATENT)
    for epsilon in EPSILONS:
        model = DPGM(
            n_clusters=1,
            generator=network,
            steps=PRIVATE_STEPS,
            sampling_rate=0.1,
            epsilon=epsilon,
            delta=1e-4,
        ).fit(rows[member], rng=np.random.default_rng(SEED))
        say(f"epsilon {epsilon:g}, white box", evidence(model, network, rows), member)
        say(f"epsilon {epsilon:g}, distance", -nearest(rows, model.sample(len(rows))[0]), member)


def evidence(model: DPGM, network: VAE, rows: np.ndarray) -> np.ndarray:
    """Evidence lower bound of each row under the one network that a DPGM released, a mean of eight draws."""
    import torch

    [module] = network.modules(1, seed=0)
    module.load_state_dict(
        {name.removeprefix("0/"): torch.from_numpy(part) for name, part in model.weights_.items()}
    )
    centre = np.broadcast_to(logits_of(np.clip(model.cluster_centers_, 0.0, 1.0)), rows.shape)
    both = torch.from_numpy(np.concatenate([rows, centre], axis=1).astype(np.float32))
    with torch.random.fork_rng(), torch.inference_mode():
        torch.manual_seed(SEED)
        draws = [network.losses(module, both).double().numpy() for _ in range(8)]
    return np.asarray(-np.mean(draws, axis=0))


def table61() -> None:
    """White box and calibrated, black box with nothing and with 30 % known (thesis, CIFAR: 100, 37, 58 %)."""
    rows, member = dealt()
    made = target(rows[member])
    fresh = np.flatnonzero(~member)[: int(member.sum())]
    other = target(rows[fresh], epochs=EPOCHS)
    left = np.setdiff1d(np.arange(len(rows)), fresh)  # the reference's rows are no candidates
    say("white box", generator_statistics(made, rows[left]), member[left])
    say("calibrated", generator_statistics(made, rows[left], reference=other), member[left])
    say("black box", by_samples(made, rows, attacker(len(rows))), member)
    samples = made.sample(len(rows), random_state=SEED)
    [_, (name, inside, others)] = _knowledge(member, first_knows="members")
    _generative(name, samples, rows, member, known=(inside, others))


def _knowledge(member: np.ndarray, *, first_knows: str) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """The thesis's two settings: members and others whom the attacker knows."""
    few, nobody = split(member, 0.2), np.zeros(0, dtype=np.int64)
    first = (few[0], nobody) if first_knows == "members" else (nobody, few[1])
    return [(f"20 % of the {first_knows} known", *first), ("30 % of both known", *split(member, 0.3))]


def _generative(
    name: str,
    samples: np.ndarray,
    rows: np.ndarray,
    member: np.ndarray,
    *,
    known: tuple[np.ndarray, np.ndarray],
) -> None:
    """The attacker's GAN takes known members for real, and known others for generated, after a delay."""
    inside, others = known
    own = attacker(len(samples)).fit(
        samples, members=rows[inside], fakes=rows[others] if len(others) else None, delay=DELAY
    )
    left = np.setdiff1d(np.arange(len(rows)), np.concatenate([inside, others]))
    say(name, own.realness(rows[left]), member[left])


PARTS: dict[str, Callable[[], None]] = {
    "table6.1": table61,
    "figure6.5": figure65,
    "figure6.6": figure66,
    "figure6.7": figure67,
    "convolutional": convolutional,
    "figure6.8": figure68,
    "figure6.9": figure69,
    "figure6.10": figure610,
    "figure6.11": figure611,
    "figure6.16": figure616,
    "figure6.17": figure617,
    "figure6.18": figure618,
}


def main(arguments: list[str]) -> None:
    """The named parts, or all."""
    parser = argparse.ArgumentParser(prog="reproduce melis2018_membership")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all")
    for name in parser.parse_args(arguments).parts or PARTS:
        print(f"\n{name}: {(PARTS[name].__doc__ or '').strip()}", flush=True)
        start = time.process_time()
        PARTS[name]()
        print(f"  ({time.process_time() - start:.0f} s CPU)", flush=True)
