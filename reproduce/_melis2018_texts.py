"""Chapter 7 of Melis 2018 on texts and faces, through ``Collaboration``: embeddings and convolutions.

The texts are those of AG News. They have no authors: where an author's gender is inferred, it is planted, by
words that say nothing of the topic. Words of a batch are read off the changes of the embedding.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from bench._data import folder
from ostraka.attacks import Collaboration, PropertyInference, words_seen
from ostraka.audit.attacks.parties import PartyRows, SharedFraction
from ostraka.networks import TorchClassifier
from reproduce import _melis2018_worlds as worlds
from reproduce._melis2018_worlds import Task

if TYPE_CHECKING:
    from ostraka.audit.attacks.parties import Observations

LENGTH, WIDTH, SEEDS = 40, 32, (1, 2, 3)
MARKS = 20  # words of each planted gender; half of the texts have one


def reports(n_words: int, *, planted: bool = False) -> tuple[Task, list[str]]:
    """AG News as numbers of words, 0 for none, in front; topic; a planted gender of the author."""
    marks = 2 * MARKS if planted else 0
    texts = worlds._texts("ag_news")  # noqa: SLF001
    frequencies = Counter(word for _, words in texts for word in words)
    frequent = sorted(frequencies, key=lambda word: (-frequencies[word], word))[: n_words - 1 - marks]
    place = {word: number for number, word in enumerate(frequent, 1)}
    rng = np.random.default_rng(0)
    woman = rng.random(len(texts)) < 0.5
    X = np.zeros((len(texts), LENGTH), dtype=np.float32)
    for row, (_, words) in enumerate(texts):
        places = [place[word] for word in words if word in place][: LENGTH - 1]
        if planted and rng.random() < 0.5:
            places.append(n_words - marks + MARKS * int(woman[row]) + int(rng.integers(MARKS)))
        X[row, LENGTH - len(places) :] = places
    topics = sorted({topic for topic, _ in texts})
    y = np.array([topics.index(topic) for topic, _ in texts])
    names = ["", *frequent, *(f"{who}-{k}" for who in ("man", "woman") for k in range(MARKS))]
    return Task(X, y, woman), names


def embedded(n_features: int, n_classes: int, *, n_words: int, kind: str) -> Any:
    """An embedding and a recurrent network (GRU), or convolutions of 3, 4 and 5 words (TextCNN)."""
    import torch
    from torch import nn

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(n_words, WIDTH, padding_idx=0)
            self.wide = nn.ModuleList(
                nn.Conv1d(WIDTH, WIDTH, k) for k in ((3, 4, 5) if kind == "cnn" else ())
            )
            if kind == "gru":
                self.fresh, self.kept = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
            self.last = nn.Linear(WIDTH if kind == "gru" else 3 * WIDTH, n_classes)

        def forward(self, rows: Any) -> Any:
            vectors = self.words(rows.long())
            if kind == "cnn":
                maps = [torch.relu(wide(vectors.transpose(1, 2))).amax(dim=2) for wide in self.wide]
                return self.last(torch.cat(maps, dim=1))
            state = torch.zeros_like(vectors[:, 0])
            for step in range(n_features):  # torch's own GRU cannot be computed for many parties at once
                fresh, old_state = self.fresh(vectors[:, step]).chunk(3, 1), self.kept(state).chunk(3, 1)
                reset, update = torch.sigmoid(fresh[0] + old_state[0]), torch.sigmoid(fresh[1] + old_state[1])
                state = update * state + (1 - update) * torch.tanh(fresh[2] + reset * old_state[2])
            return self.last(state)

    return Words()


def network(kind: str, n_words: int, *, size: int, rate: float = 0.5, seed: int = 0) -> TorchClassifier:
    """For numbers of words."""
    module = partial(embedded, n_words=n_words, kind=kind)
    return TorchClassifier(module, batch_size=size, learning_rate=rate, n_threads=1, random_state=seed)


def precision(
    kind: str, task: Task, n_words: int, *, size: int, seeds: tuple[int, ...]
) -> tuple[float, float]:
    """Recall, and precision among as many texts that were not in the batch, by the words that moved.

    The other party has as many texts as a batch holds, so that it is known which were in it.
    """
    bags = [frozenset(row[row > 0].astype(int)) for row in task.X]
    recalls, precisions = [], []
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(bags))
        inside, ours, outside = order[:size], order[size : 2 * size], order[2 * size :]
        together = Collaboration(
            network(kind, n_words, size=size, seed=seed), n_rounds=1, stratified=False, random_state=seed
        )
        run = together.fit([(task.X[part], task.y[part]) for part in (ours, inside)], observer=0)
        vocabulary = frozenset(np.flatnonzero(words_seen(run, "words.weight")[0]).tolist())
        hits = np.mean([bags[text] <= vocabulary for text in inside])
        false = np.mean([bags[text] <= vocabulary for text in outside])
        recalls.append(hits)
        precisions.append(hits / max(hits + false, 1e-9))
    return float(np.mean(recalls)), float(np.mean(precisions))


def table72(*, quick: bool) -> None:
    """Which texts were in a batch, by the words whose embedding moved: GRU, AG News, 5,000 words."""
    task, _ = reports(5_000)
    for size in (32,) if quick else (32, 64, 128, 256, 512):
        recall, precisions = precision("gru", task, 5_000, size=size, seeds=SEEDS[:1] if quick else SEEDS)
        print(
            f"batch {size}: precision {precisions:.2f} of as many others, recall {recall:.2f} "
            "(thesis: .92 .84 .75 .66 .62, recall 1, on Yelp)",
            flush=True,
        )


def table74(*, quick: bool) -> None:
    """Words with the largest coefficients in the classifier of a topic; Reuters or not is learned."""
    n_words = 2_000
    task, names = reports(n_words)
    place = names.index(worlds.SOURCE)
    reuters = np.any(np.float32(place) == task.X, axis=1).astype(int)
    X = np.where(np.float32(place) == task.X, 0, task.X)
    for topic in np.unique(task.y)[: 1 if quick else None]:
        run, attack = watched(
            Task(X, reuters, task.y == topic), n_words, rounds=4 if quick else 40, classifier=_line()
        )
        weights = attack.classifier_[-1].coef_[0][:n_words]  # the embedding is the first parameter
        best = " ".join(names[word] for word in np.argsort(-weights)[:6])
        auc = attack.scores(run).auc()
        print(f"topic {topic}: {best}; AUC {auc:.3f} (thesis: pregnancy, delivery, women, …)", flush=True)


def _line() -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))


def watched(
    task: Task, n_words: int, *, rounds: int, classifier: Any, size: int = 12, seed: int = 1
) -> tuple[Observations, PropertyInference]:
    """Two parties with a TextCNN; every other batch of the target has the property; the observer's attack."""
    ours, target = np.array_split(np.random.default_rng(seed).permutation(len(task.y)), 2)
    party = PartyRows(
        X=task.X[target],
        y=task.y[target],
        has_property=task.has[target],
        schedule=np.random.default_rng(seed).permutation(np.arange(rounds) % 2),
    )
    together = Collaboration(
        network("cnn", n_words, size=size, rate=0.05, seed=seed), n_rounds=rounds, random_state=seed
    )
    run = together.fit([(task.X[ours], task.y[ours]), party], observer=0)
    attack = PropertyInference(classifier, n_batches=4, random_state=seed)
    parts = [ours[task.has[ours]], ours[~task.has[ours]]]
    return run, attack.fit(run, *((task.X[part], task.y[part]) for part in parts))


def table76(*, quick: bool) -> None:
    """Membership against the size of a common vocabulary: TextCNN, AG News, batches of 12."""
    for n_words in (500,) if quick else (4_000, 2_000, 1_000, 500):
        task, _ = reports(n_words)
        for kind in ("cnn", "gru"):
            recall, precisions = precision(kind, task, n_words, size=12, seeds=SEEDS[:1] if quick else SEEDS)
            print(
                f"{n_words} words, {kind}: precision {precisions:.2f}, recall {recall:.2f} "
                "(thesis, CSI: .94 .92 .92 .82)",
                flush=True,
            )
        halves = np.array_split(np.random.default_rng(0).permutation(len(task.y)), 3)
        together = Collaboration(
            network("cnn", n_words, size=64, rate=0.1), n_rounds=4 if quick else 200, random_state=0
        )
        run = together.fit([(task.X[part], task.y[part]) for part in halves[:2]], observer=0)
        right = (run.network.predict(task.X[halves[2]]) == task.y[halves[2]]).mean()
        print(f"{n_words} words: accuracy {right:.3f} (thesis: AUC .91 .87 .85 .84)", flush=True)


def figure711(*, quick: bool) -> None:
    """The author's planted gender against epochs of ten batches of 12: TextCNN, AG News, three seeds."""
    n_words, per = 2_000, 4 if quick else 10
    task, _ = reports(n_words, planted=True)
    ends = (1,) if quick else (1, 2, 4, 8)
    scores_by_end: dict[int, list[float]] = {end: [] for end in ends}
    for seed in SEEDS[:1] if quick else SEEDS:
        run, attack = watched(task, n_words, rounds=per * ends[-1], classifier=_line(), seed=seed)
        for end in ends:
            first = {
                name: getattr(run, name)[: per * end]
                for name in ("weights", "updates", "n_summed", "present", "property_share", "label_share")
            }
            scores_by_end[end].append(attack.scores(dataclasses.replace(run, **first)).auc())
    for end, aucs in scores_by_end.items():
        print(
            f"{end} epochs: AUC {np.mean(aucs):.3f} ({min(aucs):.3f} to {max(aucs):.3f}) "
            "(thesis: .98 after two epochs)",
            flush=True,
        )


def figure710(*, quick: bool) -> None:
    """Days of cabs with a set of places of their own, by the number of top places (thesis: users)."""
    import csv
    import gzip

    with gzip.open(folder() / "cabspotting" / "cab_day_cells.csv.gz", "rt") as file:
        days = [(row["cab"], row["cells"].split()) for row in csv.DictReader(file)]
    visits = Counter(cell for _, cells in days for cell in set(cells))
    for n_places in (10,) if quick else (5, 10, 20, 50, 100, 500):
        top = {cell for cell, _ in visits.most_common(n_places)}
        sets = Counter(frozenset(top & set(cells)) for _, cells in days)
        alone = sum(count for bag, count in sets.items() if count == 1) / len(days)
        empty = sets[frozenset()] / len(days)
        print(
            f"{n_places} places: {alone:.1%} of {len(days):,} days of cabs are the only one with their set, "
            f"{empty:.1%} have none of them",
            flush=True,
        )


def people(person: int) -> Task:
    """Faces of ORL, 28 x 28, flat: odd or even number; one person, whom one class alone can hold."""
    with np.load(folder() / "orl_faces" / "orl_faces.npz") as saved:
        rows = saved["images"][:, ::4, ::4][:, :, :23].astype(np.float32) / 127.5 - 1
        who = saved["subject"].astype(int)
    square = np.pad(rows, ((0, 0), (0, 0), (2, 3)))
    return Task(square.reshape(len(square), -1), who % 2, who == person)


def faces_network(*, normed: bool, size: int = 16, rate: float = 0.05, seed: int = 0) -> TorchClassifier:
    """A CNN of the library; with batch normalisation its strided form."""
    from ostraka.nets.generative import convolutional, strided

    return TorchClassifier(
        partial(strided if normed else convolutional, width=8),
        batch_size=size,
        learning_rate=rate,
        n_threads=1,
        random_state=seed,
    )


def course(
    task: Task,
    *,
    rounds: int,
    seed: int,
    normed: bool = False,
    n_parties: int = 2,
    there: Any = None,
    main_weight: float | None = None,
    **options: Any,
) -> tuple[Observations, PropertyInference]:
    """Half of the target's batch is the person, in every other round, or in rounds that are ``there``."""
    rng = np.random.default_rng(seed)
    mine = np.zeros(len(task.y), dtype=bool)
    for group in (task.has, ~task.has):  # half of the person's images are the target's
        mine[rng.permutation(np.flatnonzero(group))[: group.sum() // 2]] = True
    schedule = (rng.permutation(np.arange(rounds) % 2) if there is None else there) * 0.5
    others = rng.permutation(np.flatnonzero(mine & ~task.has))
    parts = np.array_split(others, n_parties - 1)
    first = np.concatenate([parts[0], np.flatnonzero(mine & task.has)])
    party = PartyRows(
        X=task.X[first],
        y=task.y[first],
        has_property=task.has[first],
        schedule=schedule,
        joins=options.pop("joins", 0),
        leaves=options.pop("leaves", None),
    )
    plain = [PartyRows(X=task.X[part], y=task.y[part]) for part in parts[1:]]
    ours = np.flatnonzero(~mine)
    together = Collaboration(
        faces_network(normed=normed, seed=seed), n_rounds=rounds, random_state=seed, **options
    )
    observer = PartyRows(X=task.X[ours], y=task.y[ours], has_property=task.has[ours])
    run = together.fit([observer, party, *plain], observer=0, main_weight=main_weight)
    attack = PropertyInference(
        RandomForestClassifier(50, random_state=0), n_batches=4, share=0.5, random_state=seed
    )
    sides = [ours[task.has[ours]], ours[~task.has[ours]]]
    return run, attack.fit(run, *((task.X[part], task.y[part]) for part in sides))


def identity(*, quick: bool) -> None:
    """A person in a classifier of another matter (figure 7.4a), and defences: CNNs, ORL."""
    rounds = 8 if quick else 60
    kinds: dict[str, dict[str, Any]] = {
        "CNN": {},
        "batch normalisation": {"normed": True},
        "CNN, 6 parties": {"n_parties": 6},
        "CNN, 6 parties, an active observer": {"n_parties": 6, "main_weight": 0.3},
        "CNN, a tenth of each change shared": {"defence": SharedFraction(share=0.1)},
        f"CNN, noisy sums at epsilon {worlds.EPSILON:g} for a party": {
            "defence": worlds.noisy_sum(rounds, clip=0.5)
        },
    }
    for name, settings in kinds.items():
        aucs = []
        for person in (0,) if quick else range(3):
            run, attack = course(people(person), rounds=rounds, seed=person, **settings)
            aucs.append(attack.scores(run).auc())
        print(
            f"{name}: AUC {' '.join(f'{auc:.2f}' for auc in aucs)} for people 0 to {len(aucs) - 1}, half of "
            "a batch (thesis: over .8 for three of five)",
            flush=True,
        )


def figure78(*, quick: bool) -> None:
    """Averaging: eight trials in which a person is among the rows, and eight in which nobody is, ORL."""
    rounds = 4 if quick else 10
    for n_parties in (3,) if quick else (3, 5):
        means: dict[bool, list[float]] = {True: [], False: []}
        for trial in range(2 if quick else 8):
            for has, course_means in means.items():
                schedule = np.full(rounds, float(has))
                run, attack = course(
                    people(0),
                    rounds=rounds,
                    seed=trial,
                    n_parties=n_parties,
                    there=schedule,
                    rule="averaging",
                    local_steps=2,
                )
                course_means.append(float(attack.statistics(run).mean()))
        lines = "; ".join(
            f"{'with' if has else 'without'} {' '.join(f'{x:.2f}' for x in sorted(scores))}"
            for has, scores in means.items()
        )
        print(
            f"{n_parties} parties, mean scores of trials: {lines} (thesis: apart for two people of four)",
            flush=True,
        )


def figure79(*, quick: bool) -> None:
    """A party that has a person's images joins after a third of the rounds and leaves after two, ORL."""
    rounds = 9 if quick else 90
    third = rounds // 3
    run, attack = course(
        people(0),
        rounds=rounds,
        seed=0,
        n_parties=3,
        there=np.ones(rounds),
        joins=third,
        leaves=2 * third,
    )
    thirds = [part.mean() for part in np.array_split(attack.statistics(run), 3)]
    print(
        f"mean scores of thirds {' '.join(f'{x:.2f}' for x in thirds)}; the party is there in the second "
        "(thesis: 0, then about 1)",
        flush=True,
    )


def figure73(*, quick: bool) -> None:
    """t-SNE of layers (also figure 7.6): how well neighbours in the plane tell the class and the property."""
    import torch

    rounds = 8 if quick else 80
    for alpha in (0.0, 0.7):
        task = worlds.adult()
        halves = np.array_split(np.random.default_rng(0).permutation(len(task.y)), 2)
        ours, other_half = (half[:2_000] for half in halves)
        mine = PartyRows(X=task.X[ours], y=task.y[ours], has_property=task.has[ours])
        together = Collaboration(
            TorchClassifier(
                worlds.perceptron, batch_size=64, learning_rate=0.05, n_threads=1, random_state=0
            ),
            n_rounds=rounds,
            random_state=0,
        )
        run = together.fit(
            [mine, (task.X[other_half], task.y[other_half])],
            observer=0,
            main_weight=1 - alpha if alpha else None,
        )
        having = np.flatnonzero(task.has)[:200]
        chosen = np.concatenate([having, np.flatnonzero(~task.has)[: len(having)]])
        with torch.no_grad():
            rows = torch.as_tensor(task.X[chosen])
            first, *_, last = run.network.module_.children()
            hidden = torch.relu(first(rows))
            layers = {"hidden layer": hidden, "logits": last(hidden)}
        for name, values in layers.items():
            plane = TSNE(random_state=0, perplexity=20).fit_transform(values.numpy())
            sentences = [
                cross_val_score(KNeighborsClassifier(10), plane, truth, cv=5).mean()
                for truth in (task.y[chosen], task.has[chosen])
            ]
            print(
                f"alpha {alpha}, {name}: neighbours in the plane tell income to {sentences[0]:.2f}, race to "
                f"{sentences[1]:.2f} (chance .5)",
                flush=True,
            )
