"""Chapter 6 of Melis 2018: who was in the training data of a generator, on colour images of CIFAR-10.

``python -m reproduce melis2018_membership [PART ...]`` prints, for each attack and seed, the share of members
among as many suspects as there are members (the thesis's accuracy), the AUC and the true positive rate at
1 %. Where a second generator of other rows is trained, it prints the calibrated score, too. DCGAN, DCGAN +
VAE and BEGAN are those of their papers. 500 of 5,000 images are members; the thesis has 6,000 of 60,000. LFW
and the images of retinas are not to be had.

``--seeds=0,1,2``, ``--epochs=400`` of the target, ``--steps=10000`` of an attacker, ``--side=32`` of the
images, ``--width=32`` channels. ``--alone`` trains no second generator. ``--cases=dcgan`` leaves out the
cases of a part whose name is another. ``--device=cuda`` is where networks train, ``--jobs=9`` how many parts
at once. After ``--until`` seconds no training begins any more. ``--out=FILE`` gets a line of JSON for each
printed one, ``--cache=FOLDER`` keeps trainings for other parts and calls, ``--pictures=FOLDER`` gets
pictures.

The step at which an attacker stops, 10,000, was fixed before any run. Known rows are no candidates. The
thesis's private GAN of figure 6.18 has no differential privacy by today's definition: networks of a ``DPGM``
and the ballots of an ``Evolution`` are attacked instead.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench._data import folder
from ostraka.audit.attacks.generators import (
    OF_SAMPLES,
    TargetGenerator,
    closeness,
    generator_statistics,
    nearest,
    residual,
)
from ostraka.audits import one_run_lower_bound
from ostraka.core import files
from ostraka.core.check import TrainingDiverged
from ostraka.core.numeric import clopper_pearson
from ostraka.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

N_ROWS, SIDE = 5_000, 32
CURVE = (50, 100, 150, 200, 300, 400)  # epochs of the target
N_SAMPLES, STEPS, DELAY = 16_000, (1_000, 2_000, 5_000, 10_000), 1_000  # of the attacker
DELAYS = (0, 1_000)
BATCH, RATE = 32, 2e-4
WIDTHS = {"dcgan": 32, "dcgan-vae": 32, "began": 32}
SHARES, SHARE_ROWS = (0.1, 0.5, 0.9), 1_000
# Of figure 6.18: images of another side, half of which are members by fair coins; networks, and ballots.
COINS, COIN_SIDE, EPSILONS, DELTA = 1_000, 16, (1.5, 28.3), 1e-4
PRIVATE_STEPS, UNITS, LATENT, CHANNELS, POPULATION, BALLOTS = 500, 100, 16, 8, 200, 10
SHOWN = 64  # samples at each stage
QUICK = {
    "N_ROWS": 320,
    "SIDE": 8,
    "CURVE": (1, 2),
    "N_SAMPLES": 64,
    "STEPS": (2, 4),
    "DELAY": 2,
    "DELAYS": (0, 2),
    "WIDTHS": {"dcgan": 4, "dcgan-vae": 4, "began": 4},
    "SHARES": (0.5,),
    "SHARE_ROWS": 100,
    "COINS": 100,
    "COIN_SIDE": 8,
    "EPSILONS": (28.3,),
    "PRIVATE_STEPS": 2,
    "UNITS": 8,
    "LATENT": 2,
    "CHANNELS": 4,
    "POPULATION": 20,
    "BALLOTS": 2,
}
QUICK_ARGUMENTS = ["--seeds=0"]
DEFENCES: dict[str, dict[str, Any]] = {
    "no defence": {},
    "weight normalisation": {"weight_normalised": True},
    "dropout 0.5": {"dropout": 0.5},
}


class Run(NamedTuple):
    """One seed of one part: where it is trained, for how long, and what it may use."""

    seed: int
    epochs: tuple[int, ...]
    steps: tuple[int, ...]
    side: int
    width: int | None
    alone: bool
    device: str
    cache: Path
    deadline: float
    pictures: Path | None


class Course(NamedTuple):
    """A training: realness of all rows at each stage, samples at each stage, and samples at the end."""

    realness: np.ndarray
    stages: np.ndarray
    samples: np.ndarray


class World(NamedTuple):
    """Images, flat and in [0, 1]; which are members; and as many others that a second generator gets."""

    rows: np.ndarray
    member: np.ndarray
    fresh: np.ndarray


def images(name: str = "x_train", *, side: int) -> np.ndarray:
    """Flat colour images, channels first; a smaller side leaves pixels out."""
    with np.load(folder() / "cifar10" / "cifar10_5000_2000.npz") as file:
        whole = file[name][:N_ROWS]
    step = 32 // side
    smaller = whole[:, ::step, ::step].transpose(0, 3, 1, 2)
    return smaller.reshape(len(whole), -1) / np.float32(255)


def dealt(run: Run, share: float = 0.1, n_rows: int | None = None) -> World:
    """Exactly this share are members, as in the thesis. No audit follows."""
    rows = images(side=run.side)[:n_rows]
    order, n = np.random.default_rng(run.seed).permutation(len(rows)), int(share * len(rows))
    return World(rows, np.isin(np.arange(len(rows)), order[:n]), order[n : 2 * n])


def trained(
    run: Run, real: np.ndarray, rows: np.ndarray, stages: tuple[int, ...], *, role: str, **settings: Any
) -> Course:
    """A generator's course, trained once. ``stages`` are epochs, of an attacker steps."""
    per = max(1, len(real) // min(BATCH, len(real)))
    ends = tuple(max(1, -(-step // per)) for step in stages) if role == "attacker" else stages
    attacker_rows = {name: settings.pop(name) for name in ("members", "fakes") if name in settings}
    delay = settings.pop("delay", 0)
    kind = settings.setdefault("kind", "dcgan")
    settings = {"width": run.width or WIDTHS.get(kind), "learning_rate": RATE, "batch_size": BATCH} | settings
    number = {"target": run.seed, "reference": 100 + run.seed, "attacker": 200 + run.seed}[role]
    name = hashlib.sha256(repr((sorted(settings.items()), ends, delay, number, run.device)).encode())
    for part in (real, rows, *attacker_rows.values()):
        name.update(np.ascontiguousarray(part).tobytes())
    path = run.cache / f"{name.hexdigest()[:24]}.npz"
    if path.exists():
        with np.load(path) as file:
            return Course(*(file[field] for field in Course._fields))
    if time.time() > run.deadline:
        raise TimeoutError
    realness: list[np.ndarray] = []
    shown: list[np.ndarray] = []

    def look(_stage: str, done: int, _total: int) -> None:
        if done in ends:
            realness.append(generator.realness(rows).astype(np.float32))
            shown.append(pixels(generator.sample(SHOWN, random_state=run.seed)))

    generator = TargetGenerator(
        **settings, epochs=ends[-1], device=run.device, progress=look, random_state=number
    )
    generator.fit(real, **attacker_rows, delay=delay)
    course = Course(
        np.array(realness), np.array(shown), pixels(generator.sample(N_SAMPLES, random_state=run.seed))
    )

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **course._asdict())

    files.write(path, save, private=True)
    return course


def pixels(rows: np.ndarray) -> np.ndarray:
    """Images as they are saved."""
    return np.rint(rows * 255).astype(np.uint8)


def target(run: Run, world: World, **settings: Any) -> Course:
    """The generator of the members."""
    return trained(run, world.rows[world.member], world.rows, run.epochs, role="target", **settings)


def reference(run: Run, world: World, **settings: Any) -> Course:
    """The same of other rows, which are no candidates where it calibrates."""
    return trained(run, world.rows[world.fresh], world.rows, run.epochs, role="reference", **settings)


def attacker(run: Run, world: World, samples: np.ndarray, **facts: Any) -> Course:
    """The attacker's own DCGAN of samples, which any other part that asks the same finds ready."""
    return trained(run, samples / np.float32(255), world.rows, run.steps, role="attacker", **facts)


def scored(row_scores: np.ndarray, member: np.ndarray) -> dict[str, Any]:
    """The thesis's accuracy, which by chance is ``chance``, and what does not depend on the share.

    Intervals of 95 % are about candidates alone, for this target and this attacker: Clopper and Pearson's of
    the share and of the rate, and Hanley and McNeil's (1982, doi:10.1148/radiology.143.1.7063747) of the AUC.
    """
    scores = Scores.of(members=row_scores[member], others=row_scores[~member])
    n = int(member.sum())
    hits, auc = int(member[np.argsort(-row_scores, kind="stable")[:n]].sum()), scores.auc()
    squares = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + sum(
        (count - 1) * (square - auc**2) for count, square in zip((n, (~member).sum()), squares, strict=True)
    )
    margin, rate = 1.96 * math.sqrt(max(0.0, variance) / (n * (~member).sum())), scores.rate(fpr=0.01)
    return {
        "share": hits / n,
        "share_interval": [float(end) for end in clopper_pearson(hits, n, error=0.025)],
        "chance": float(member.mean()),
        "auc": auc,
        "auc_interval": [max(0.0, auc - margin), min(1.0, auc + margin)],
        "tpr": scores.tpr(fpr=0.01),
        "tpr_interval": [rate.low, rate.high],
    }


Line = dict[str, Any]


def by_stage(
    course: Course,
    world: World,
    ends: tuple[int, ...],
    *,
    aside: Course | None = None,
    places: Any = None,
) -> Iterator[Line]:
    """The attack at each stage, and calibrated by another generator, if there is one."""
    places = np.arange(len(world.rows)) if places is None else places
    apart = np.setdiff1d(places, world.fresh)  # the reference's rows are no candidates
    for place, end in enumerate(ends):
        yield {"stage": end} | scored(course.realness[place][places], world.member[places])
        if aside is not None:
            residuals = residual(*(side.realness[place][apart].astype(float) for side in (course, aside)))
            yield {"stage": end, "score": "calibrated"} | scored(residuals, world.member[apart])


def split(world: World, seed: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Members and others whom the attacker knows: this share of each."""
    rng = np.random.default_rng(seed + 2)
    inside, others = (
        rng.permutation(np.flatnonzero(side))[: int(share * side.sum())]
        for side in (world.member, ~world.member)
    )
    return inside, others


def without(world: World, *facts: np.ndarray) -> np.ndarray:
    """Candidates: rows that the attacker does not know."""
    return np.setdiff1d(np.arange(len(world.rows)), np.concatenate(facts))


def figure65(run: Run) -> Iterator[Line]:
    """Euclidean distance to samples, on average and to the nearest (thesis: chance)."""
    world = dealt(run)
    samples = target(run, world).samples[:N_ROWS].astype(np.float64) / 255
    squares, distances = (samples**2).sum(axis=1), []
    for rows in np.array_split(world.rows.astype(np.float64), 10):
        gaps = (rows**2).sum(axis=1)[:, None] + squares - 2 * rows @ samples.T
        distances.append(np.sqrt(np.maximum(gaps, 0)).mean(axis=1))
    yield {"case": "mean distance"} | scored(-np.concatenate(distances), world.member)
    yield {"case": "nearest"} | scored(-nearest(world.rows, samples), world.member)


def figure66(run: Run, *, shadow: bool) -> Iterator[Line]:
    """Black box, samples of a shadow of 10 % of the members added (thesis, LFW: 18 % at every step)."""
    world = dealt(run)
    inside, _ = split(world, run.seed, 0.1)
    samples = target(run, world).samples
    if shadow:
        own = trained(run, world.rows[inside], world.rows, run.epochs, role="reference").samples
        samples = np.concatenate([samples[::2], own[::2]])
    yield from by_stage(attacker(run, world, samples), world, run.steps, places=without(world, inside))


def figure67(run: Run, *, kind: str) -> Iterator[Line]:
    """White box, by the epochs of the target (thesis, CIFAR at 400: 100 %, DCGAN + VAE 80 %, BEGAN 19 %)."""
    world = dealt(run)
    course = target(run, world, kind=kind)
    aside = None if run.alone else reference(run, world, kind=kind)
    yield from by_stage(course, world, run.epochs, aside=aside)


def figure68(run: Run, *, kind: str) -> Iterator[Line]:
    """Black box, nothing known (thesis, CIFAR: 37 %; DCGAN + VAE 20 %)."""
    world = dealt(run)
    attack_course, *others = (
        attacker(run, world, make(run, world, kind=kind).samples)
        for make in (target, reference)[: 1 if run.alone else 2]
    )
    yield from by_stage(attack_course, world, run.steps, aside=others[0] if others else None)


def figure69(run: Run, *, both: bool) -> Iterator[Line]:
    """A discriminator alone: 20 % of the others known; 30 % of members and others (thesis: chance, 33 %)."""
    import torch

    from ostraka.nets.generative import convolutions, square
    from ostraka.networks import TorchClassifier

    world = dealt(run)
    inside, others = split(world, run.seed, 0.3 if both else 0.2)
    inside = inside if both else inside[:0]
    samples = target(run, world).samples[:N_ROWS] / np.float32(255)
    real = np.concatenate([samples, world.rows[inside]])
    if time.time() > run.deadline:
        raise TimeoutError
    model = TorchClassifier(
        lambda n_features, n_classes: convolutions(
            square(n_features), n_classes, width=run.width or WIDTHS["dcgan"]
        ),
        epochs=max(1, run.steps[-1] * BATCH // (len(real) + len(others)) // 2),
        batch_size=BATCH,
        learning_rate=RATE,
        optimizer=partial(torch.optim.Adam, betas=(0.5, 0.999)),
        device=run.device,
        n_threads=1,
        random_state=run.seed,
    ).fit(np.concatenate([real, world.rows[others]]), np.arange(len(real) + len(others)) < len(real))
    places = without(world, inside, others)
    logits = model.logits(world.rows[places])
    yield scored(logits[:, 1] - logits[:, 0], world.member[places])


def figure610(run: Run, *, kind: str, delay: int) -> Iterator[Line]:
    """Black box, 20 % of the members known, by the step at which they join (thesis: early is worse)."""
    world = dealt(run)
    inside, _ = split(world, run.seed, 0.2)
    samples = target(run, world, kind=kind).samples
    attack_course = attacker(run, world, samples, members=world.rows[inside], delay=delay)
    yield from by_stage(attack_course, world, run.steps, places=without(world, inside))


def figure611(run: Run) -> Iterator[Line]:
    """Generative, 30 % of members and of others known (thesis, CIFAR: 58 %).

    What it learns of the known ones by heart, instead of members in general, is scored beside.
    """
    world = dealt(run)
    inside, others = split(world, run.seed, 0.3)
    attacker_rows = {"members": world.rows[inside], "fakes": world.rows[others], "delay": DELAY}
    attack_course = attacker(run, world, target(run, world).samples, **attacker_rows)
    yield from by_stage(attack_course, world, run.steps, places=without(world, inside, others))
    for name, known_rows, side in (("members", inside, world.member), ("others", others, ~world.member)):
        whom = np.flatnonzero(side)
        for end, realness_of_stage in zip(run.steps, attack_course.realness, strict=True):
            sign = 1 if name == "members" else -1  # known others are called generated
            line = {"stage": end, "score": f"known {name} among all {name}"}
            yield line | scored(sign * realness_of_stage[whom], np.isin(whom, known_rows))


def figure612(run: Run) -> Iterator[Line]:
    """Samples at stages of training: how near a sample is to the closest member (thesis: pictures)."""
    world = dealt(run)
    whites = target(run, world)
    for name, course, ends in (
        ("white box", whites, run.epochs),
        ("black box", attacker(run, world, whites.samples), run.steps),
    ):
        for end, stage, realness_of_stage in zip(ends, course.stages, course.realness, strict=True):
            gap = nearest(stage / 255, world.rows[world.member]).mean()
            yield {"case": name, "stage": end, "gap": float(gap)} | scored(realness_of_stage, world.member)
            if run.pictures is not None:
                sheet(run.pictures / f"{name.replace(' ', '-')}-{run.seed}-{end}.png", stage)
    if run.pictures is not None:  # figure 6.13
        sheet(run.pictures / f"real-{run.seed}.png", pixels(world.rows[world.member][:SHOWN]))


def figure616(run: Run, *, share: float) -> Iterator[Line]:
    """By the share of 1,000 rows that are members (thesis, black box: much gain at 10 %, none at 90 %)."""
    world = dealt(run, share, SHARE_ROWS)
    course = target(run, world)
    yield {"case": f"{share:.0%}, white box"} | scored(course.realness[-1], world.member)
    attack_course = attacker(run, world, course.samples)
    yield {"case": f"{share:.0%}, black box"} | scored(attack_course.realness[-1], world.member)


def figure617(run: Run, *, name: str) -> Iterator[Line]:
    """White box against defences (thesis, top ten: 89, 88 and 70 % better than chance)."""
    world = dealt(run)
    yield from by_stage(target(run, world, **DEFENCES[name]), world, run.epochs)


def figure618(run: Run, *, target: str, epsilon: float | None) -> Iterator[Line]:
    """What privacy does to attacks, with both bounds (thesis: chance at 1.5, 85 % at 28.3).

    Each of 1,000 images is a member by a fair coin, so that scores prove a lower bound on epsilon. Without
    privacy the attacks of Hilprecht et al. and of Chen et al. stand beside ours.
    """
    whole = images(side=COIN_SIDE)
    rows = whole[:COINS]
    member = np.random.default_rng(run.seed).random(len(rows)) < 0.5
    if time.time() > run.deadline:
        raise TimeoutError
    if epsilon is None:
        settings: dict[str, Any] = {
            "vae": {"width": UNITS, "n_noise": LATENT, "learning_rate": 1e-3},
            "dcgan": {"width": CHANNELS, "n_noise": LATENT, "learning_rate": RATE},
        }[target]
        copies, aside = (
            TargetGenerator(target, epochs=run.epochs[-1], **settings, random_state=run.seed + n).fit(part)
            for n, part in enumerate((rows[member], whole[COINS : COINS + member.sum()]))
        )
        statistics = {"white box": copies.realness(rows)}
        samples, others = (part.sample(len(rows), random_state=run.seed) for part in (copies, aside))
        statistics["distance less a reference's"] = nearest(rows, others) - nearest(rows, samples)
        statistics["search for noise"] = generator_statistics(
            copies, rows, access="partial-black-box", random_state=run.seed
        )
        if target == "vae":
            statistics["reconstruction"] = generator_statistics(copies, rows, attacker="reconstruction")
    else:
        statistics, samples = private(target, rows, member, epsilon=epsilon, seed=run.seed)
    statistics |= {attacker: closeness(rows, samples, attacker=attacker) for attacker in OF_SAMPLES}
    for name, values in statistics.items():
        scores = Scores.of(members=values[member], others=values[~member])
        lower = one_run_lower_bound(scores, delta=DELTA, rng=np.random.default_rng(run.seed)).epsilon
        yield {"case": name, "lower": lower, "upper": epsilon} | scored(values, member)


def private(
    target: str, rows: np.ndarray, member: np.ndarray, *, epsilon: float, seed: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Statistics of what was released of the members, and its samples: a network of a DPGM, or ballots."""
    from ostraka.synth import DPGM, Evolution
    from ostraka.synth.sgd import DCGAN, VAE

    rng = np.random.default_rng(seed)
    if target == "ballots":

        def vary(winners: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            """Mix public images with others of them."""
            return 0.7 * winners + 0.3 * rng.permutation(winners)

        public = images("x_test", side=COIN_SIDE)[:POPULATION]
        settings = {"n_rounds": BALLOTS, "epsilon": epsilon, "delta": DELTA, "random_state": seed}
        voted = Evolution(public, vary=vary, **settings).fit(rows[member], rng=rng)
        return {}, voted.sample(len(rows), random_state=seed)
    n_features = rows.shape[1]
    network: Any = (
        VAE(n_features=n_features, hidden=(UNITS,), latent=LATENT)
        if target == "vae"
        else DCGAN(n_features=n_features, width=CHANNELS, n_noise=LATENT)
    )
    model = DPGM(
        n_clusters=1,
        generator=network,
        steps=PRIVATE_STEPS,
        sampling_rate=0.1,
        epsilon=epsilon,
        delta=DELTA,
    ).fit(rows[member], rng=rng)
    return {"white box": realness(model, network, rows)}, model.sample(len(rows), random_state=seed)[0]


def realness(model: Any, network: Any, rows: np.ndarray) -> np.ndarray:
    """Minus the loss of each row under the one network that a DPGM released, at the latent means of a VAE."""
    import torch

    from ostraka.synth.sgd import logits_of

    [module] = network.modules(1, seed=0)
    module.load_state_dict(
        {name.removeprefix("0/"): torch.from_numpy(part) for name, part in model.weights_.items()}
    )
    centre = np.broadcast_to(logits_of(np.clip(model.cluster_centers_, 0.0, 1.0)), rows.shape)
    inputs = torch.from_numpy(np.concatenate([rows, centre], axis=1).astype(np.float32))
    with torch.inference_mode():
        return -network.losses(module.eval(), inputs).double().numpy()


def sheet(path: Path, rows: np.ndarray) -> None:
    """A square picture of eight by eight images."""
    import matplotlib.image

    side = int((rows.shape[1] // 3) ** 0.5)
    mosaic = rows.reshape(8, 8, 3, side, side).transpose(0, 3, 1, 4, 2).reshape(8 * side, 8 * side, 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    matplotlib.image.imsave(path, mosaic)


KINDS = ("dcgan", "dcgan-vae", "began")
ATTACKED = KINDS[:2]  # by the black box: the thesis discards BEGAN, too
Part = dict[str, "Callable[[Run], Iterator[Line]]"]


def parts() -> dict[str, Part]:
    """The cases of each part, in the order in which trainings are of use to others."""
    return {
        "figure6.7": {kind: partial(figure67, kind=kind) for kind in KINDS},
        "figure6.8": {kind: partial(figure68, kind=kind) for kind in ATTACKED},
        "figure6.5": {"": figure65},
        "figure6.11": {"30 % of both": figure611},
        "figure6.9": {
            ("30 % of both" if with_reference else "20 % of the others"): partial(
                figure69, both=with_reference
            )
            for with_reference in (False, True)
        },
        "figure6.12": {"": figure612},
        "figure6.17": {name: partial(figure617, name=name) for name in DEFENCES},
        "figure6.10": {
            f"{kind}, from step {delay}": partial(figure610, kind=kind, delay=delay)
            for delay in reversed(DELAYS)
            for kind in ATTACKED
        },
        "figure6.16": {"": partial(_of_shares)},
        "figure6.6": {
            ("and shadow" if shadow else "target alone"): partial(figure66, shadow=shadow)
            for shadow in (True, False)
        },
        "figure6.18": {
            f"{name}, {'no privacy' if epsilon is None else f'epsilon {epsilon:g}'}": partial(
                figure618, target=target, epsilon=epsilon
            )
            for target, name in (("vae", "VAE"), ("dcgan", "DCGAN"), ("ballots", "ballots"))
            for epsilon in (() if target == "ballots" else (None,)) + EPSILONS
        },
    }


def _of_shares(run: Run) -> Iterator[Line]:
    for share in SHARES:
        yield from figure616(run, share=share)


def prepared(run: Run, *, kind: str, make: Callable[..., Course]) -> Iterator[Line]:
    """A target that several parts attack, before they begin at once."""
    make(run, dealt(run), kind=kind)
    yield from ()


TARGETS: Part = {
    f"{kind}, {make.__name__}": partial(prepared, kind=kind, make=make)
    for kind in KINDS
    for make in (target, reference)
}
# Table 6.1 is the best of figures 6.7, 6.8 and 6.11.
NAMES = (
    *("figure6.5", "figure6.6", "figure6.7", "figure6.8", "figure6.9", "figure6.10", "figure6.11"),
    *("figure6.12", "figure6.16", "figure6.17", "figure6.18", "table6.1"),
)


def case_lines(part: str, case: str, run: Run) -> list[Line]:
    """All lines of one case and one seed; one that says so if there was no time left."""
    name = {"part": part, "case": case, "seed": run.seed}
    begin, busy = time.time(), time.process_time()
    try:
        row_scores = list((TARGETS if part == "targets" else parts()[part])[case](run))
    except (TimeoutError, TrainingDiverged) as error:
        return [name | {"failed": str(error) or "not begun in time"}]
    joined = [
        name | line | {"case": ", ".join(filter(None, (case, line.get("case", ""))))} for line in row_scores
    ]
    spent = {"seconds": time.time() - begin, "processor": time.process_time() - busy}
    return [line | {name: round(value, 1) for name, value in spent.items()} for line in joined]


def text_of(line: Line) -> str:
    """A line for people."""
    name = f"  {line['part']} {line['case']}, seed {line['seed']}"
    if "failed" in line:
        return f"{name}: {line['failed']}"
    if "stage" in line:
        name += f", {line['stage']:,}"
    if "score" in line:
        name += f", {line['score']}"
    spent = f" ({line['processor']:.0f} s of processor for the case)"
    bounds = ""
    if "lower" in line:
        claim = "none is claimed" if line["upper"] is None else f"at most {line['upper']:g} is claimed"
        bounds = f", epsilon at least {line['lower']:.2f} (95 %), {claim}"
    gap = f", {line['gap']:.2f} to the closest member" if "gap" in line else ""
    share, auc, tpr = (" to ".join(form.format(end) for end in line[f"{part}_interval"]) for part, form in (
        ("share", "{:.1%}"), ("auc", "{:.3f}"), ("tpr", "{:.1%}"),
    ))  # fmt: skip
    return (
        f"{name}: {line['share']:.1%} ({share}) of as many suspects (by chance {line['chance']:.1%}), "
        f"AUC {line['auc']:.3f} ({auc}), TPR at 1 % {line['tpr']:.1%} ({tpr}){gap}{bounds}{spent}"
    )


def main(arguments: list[str]) -> None:
    """The named parts, or all."""
    parser = argparse.ArgumentParser(prog="reproduce melis2018_membership")
    parser.add_argument("parts", nargs="*", choices=[[], *NAMES], help="default: all")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--epochs", type=int, default=CURVE[-1])
    parser.add_argument("--steps", type=int, default=STEPS[-1])
    parser.add_argument("--side", type=int, choices=(8, 16, 32))
    parser.add_argument("--width", type=int)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--cases", help="default: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--until", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args(arguments)
    ends, steps = (
        tuple(end for end in course if end <= last)
        for course, last in ((CURVE, options.epochs), (STEPS, options.steps))
    )
    if not (ends and steps):
        parser.error(f"--epochs must be >= {CURVE[0]}, and --steps >= {STEPS[0]}, where the first attack is")
    figure_names = set(options.parts or NAMES)
    figure_names |= {"figure6.7", "figure6.8", "figure6.11"} if "table6.1" in figure_names else set()
    with tempfile.TemporaryDirectory() as temporary:
        cache = options.cache or Path(temporary)
        cache.mkdir(parents=True, exist_ok=True)
        runs = [
            Run(
                seed=int(seed),
                epochs=ends,
                steps=steps,
                side=options.side or SIDE,
                width=options.width,
                alone=options.alone,
                device=options.device,
                cache=cache,
                deadline=time.time() + options.until,
                pictures=options.pictures,
            )
            for seed in options.seeds.split(",")
        ]
        calls = [
            (part, case, run)
            for part, cases in parts().items()
            if part in figure_names
            for case in cases
            if options.cases in (None, case)
            for run in runs
        ]
        first = [("targets", case, run) for case in TARGETS for run in runs] if options.jobs > 1 else []
        for lines in itertools.chain(_called(first, options.jobs), _called(calls, options.jobs)):
            for line in lines:
                print(text_of(line), flush=True)
                if options.out is not None:
                    with options.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")


def _called(calls: list[tuple[str, str, Run]], jobs: int) -> Iterator[list[Line]]:
    if jobs == 1:
        yield from (case_lines(*call) for call in calls)
        return
    from joblib import Parallel, delayed

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(
        delayed(case_lines)(*call) for call in calls
    )
