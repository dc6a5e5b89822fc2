"""Collaborative training against steps written out with torch, what each observer sees, and defences."""

import dataclasses

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from ostraka.attacks import Collaboration, PropertyInference, words_seen
from ostraka.audit.attacks.collaboration import masked_sum
from ostraka.audit.attacks.parties import NoisySum, Observations, PartyRows, SharedFraction
from ostraka.core.check import TrainingDiverged
from ostraka.networks import TorchClassifier
from tests.false_alarm import FALSE_ALARM

torch = pytest.importorskip("torch")

SIZE, RATE = 8, 0.3


def two_layers(n_features, n_classes):
    return torch.nn.Sequential(torch.nn.Linear(n_features, 4), torch.nn.Tanh(), torch.nn.Linear(4, n_classes))


@pytest.fixture
def network():
    return TorchClassifier(two_layers, batch_size=SIZE, learning_rate=RATE, random_state=3, n_threads=1)


@pytest.fixture
def parties():
    """Each has exactly one batch of rows, so that no draw matters."""
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(SIZE, 3)).astype(np.float32), np.arange(SIZE) % 2) for _ in range(3)]


def stepped(network, weights, party, steps):
    """The change by plain steps of torch's own optimizer."""
    module = network.new_module(n_features=3, n_classes=2, seed=network.seed())
    start = torch.as_tensor(weights)
    torch.nn.utils.vector_to_parameters(start.clone(), module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        rows, codes = torch.as_tensor(party[0]), torch.as_tensor(party[1])
        torch.nn.functional.cross_entropy(module(rows), codes).backward()
        optimizer.step()
    return (torch.nn.utils.parameters_to_vector(module.parameters()) - start).detach().numpy()


@pytest.mark.parametrize(("rule", "steps"), [("sgd", 1), ("averaging", 4)])
def test_a_round_adds_the_mean_of_the_parties_changes_and_a_party_sees_those_of_the_others(
    network, parties, rule, steps
):
    together = Collaboration(network, rule=rule, local_steps=steps, n_rounds=3, random_state=0)
    run = together.fit(parties, observer=1)
    for number in range(3):
        changes = [stepped(network, run.weights[number], party, steps) for party in parties]
        assert run.updates[number] == pytest.approx(changes[0] + changes[2], abs=1e-6)
        if number < 2:
            moved = run.weights[number + 1] - run.weights[number]
            assert moved == pytest.approx(np.mean(changes, axis=0), abs=1e-6)
    assert run.n_summed.tolist() == [2, 2, 2]


def test_a_server_sees_each_change_and_masks_leave_the_sum(network, parties):
    together = Collaboration(network, n_rounds=2, random_state=0)
    views = {observer: together.fit(parties, observer=observer) for observer in (0, "server", "masked-sum")}
    changes, total = views["server"].updates, views["masked-sum"].updates
    assert changes.shape == (2, 3, run_size(views[0]))
    assert total == pytest.approx(changes.sum(axis=1), abs=1e-7)
    assert views[0].updates == pytest.approx(changes[:, 1:].sum(axis=1), abs=1e-7)
    assert views["masked-sum"].n_summed.tolist() == [3, 3]


def run_size(run):
    return run.weights.shape[1]


def test_masked_sums_are_right_at_the_ends_of_the_fixed_point():
    rng = np.random.default_rng(0)
    for changes in (np.ones((5, 3)), -np.ones((5, 3)), np.zeros((2, 4)), rng.normal(size=(9, 50)) * 1e6):
        total = changes.sum(axis=0)
        assert masked_sum(changes) == pytest.approx(total, abs=max(np.abs(changes).max(), 1) * 1e-7)


def test_the_trained_network_predicts(network, parties):
    run = Collaboration(network, n_rounds=200, random_state=0).fit(parties)
    assert (run.network.predict(parties[0][0]) == parties[0][1]).mean() >= 0.75
    assert repr(run) == "Observations(n_rounds=200, n_weights=26)"


def test_recorded_snapshots_give_what_the_simulated_observer_saw(network, parties):
    together = Collaboration(network, n_rounds=6, random_state=0)
    run = together.fit(parties, observer=0)
    server = together.fit(parties, observer="server")
    ends = [0, *np.cumsum([np.prod(shape) for _, shape in run.layout])]

    def layers(vector):
        return [
            vector[start:stop].reshape(shape)
            for start, stop, (_, shape) in zip(ends, ends[1:], run.layout, strict=False)
        ]

    rounds = [layers(weights) for weights in run.weights]
    own_changes = [layers(w + d) for w, d in zip(run.weights, server.updates[:, 0], strict=True)][:-1]
    about = {"n_parties": 3, "n_features": 3, "classes": [0, 1]}
    observations = Observations.from_rounds(network, rounds, own=own_changes, **about)
    assert observations.updates == pytest.approx(run.updates[:-1], abs=1e-6)
    assert observations.n_summed.tolist() == [2] * 5
    assert observations.property_share is None
    without = Observations.from_rounds(network, rounds, **about)
    assert without.updates == pytest.approx(server.updates[:-1].sum(axis=1), abs=1e-6)
    with pytest.raises(ValueError, match="each round must hold arrays of shapes"):
        Observations.from_rounds(network, [parts[::-1] for parts in rounds], **about)
    with pytest.raises(ValueError, match="rounds must be two or more"):
        Observations.from_rounds(network, rounds[:1], **about)


# Words.


def bags(_n_features, n_classes):
    class Bags(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(12, 4)
            self.last = torch.nn.Linear(4, n_classes)

        def forward(self, rows):
            return self.last(self.words(rows.long()).mean(dim=1))

    return Bags()


def of_words(words, n_rows=8):
    rng = np.random.default_rng(len(words))
    rows = np.concatenate([np.resize(words, 3)[None], rng.choice(words, size=(n_rows - 1, 3))])
    return rows.astype(np.float32), np.arange(n_rows) % 2


def test_words_of_the_others_are_seen_and_nobody_elses():
    network = TorchClassifier(bags, batch_size=8, learning_rate=0.5, random_state=0, n_threads=1)
    late = of_words([9, 10, 11])
    parties = [of_words([0, 1, 2]), of_words([3, 4, 5]), PartyRows(X=late[0], y=late[1], joins=2)]
    run = Collaboration(network, n_rounds=4, random_state=0).fit(parties, observer=0)
    words = words_seen(run, "words.weight")
    assert [np.flatnonzero(row).tolist() for row in words] == [[3, 4, 5]] * 2 + [[3, 4, 5, 9, 10, 11]] * 2
    assert not words_seen(run, "words.weight", tolerance=10.0).any()
    server = Collaboration(network, n_rounds=1, random_state=0).fit(parties, observer="server")
    assert words_seen(server, "words.weight").sum(axis=2).tolist() == [[3, 3, 0]]
    for parameter in ("words", "last.bias"):
        with pytest.raises(ValueError, match="parameter must be"):
            words_seen(run, parameter)


# The active observer, and defences.


def test_an_active_observers_change_is_that_of_both_losses(network, parties):
    has = np.arange(SIZE) < 4
    active = [PartyRows(X=parties[0][0], y=parties[0][1], has_property=has), *parties[1:]]
    together = Collaboration(network, n_rounds=2, random_state=0)
    run = together.fit(active, observer=0, main_weight=0.4)
    module = network.new_module(n_features=3, n_classes=2, seed=network.seed())
    head = torch.zeros(5)
    for number in range(2):
        torch.nn.utils.vector_to_parameters(torch.tensor(run.weights[number]), module.parameters())
        head = head.detach().requires_grad_()
        module.zero_grad()
        rows = torch.as_tensor(parties[0][0])
        hidden = module[:2](rows)
        second = torch.nn.functional.binary_cross_entropy_with_logits(
            hidden @ head[:4] + head[4], torch.as_tensor(has.astype(np.float32))
        )
        main = torch.nn.functional.cross_entropy(module(rows), torch.as_tensor(parties[0][1]))
        (0.4 * main + 0.6 * second).backward()
        own_changes = -RATE * torch.cat(
            [torch.zeros_like(p).ravel() if p.grad is None else p.grad.ravel() for p in module.parameters()]
        )
        head = head - RATE * head.grad
        if number == 0:
            others = sum(stepped(network, run.weights[0], party, 1) for party in parties[1:])
            expected = run.weights[0] + (own_changes.numpy() + others) / 3
            assert run.weights[1] == pytest.approx(expected, abs=1e-6)


def test_shared_fractions_send_the_largest_entries(network, parties):
    together = Collaboration(network, n_rounds=2, defence=SharedFraction(share=0.1), random_state=0)
    run = together.fit(parties, observer="server")
    assert ((run.updates != 0).sum(axis=2) == 3).all()  # a tenth of 26, rounded up
    full_step = stepped(network, run.weights[0], parties[0], 1)
    largest = np.argsort(-np.abs(full_step))[:3]
    assert run.updates[0, 0][largest] == pytest.approx(full_step[largest], abs=1e-6)
    full_share = Collaboration(network, n_rounds=2, defence=SharedFraction(share=1.0), random_state=0).fit(
        parties
    )
    plain = Collaboration(network, n_rounds=2, random_state=0).fit(parties)
    assert (full_share.weights == plain.weights).all()


def test_noisy_sums_clip_each_change_and_add_the_noise_that_they_are_priced_for():
    from scipy import stats

    defence = NoisySum(clip=0.5, noise_multiplier=3.0)
    changes = np.random.default_rng(0).normal(size=(4, 1000)) * [[1e-4], [0.1], [1.0], [50.0]]
    clipped = defence.each(changes)
    assert clipped[0] == pytest.approx(changes[0])
    assert np.linalg.norm(clipped[1:], axis=1) == pytest.approx([0.5] * 3)
    noise = defence.noise(size=20_000, rng=np.random.default_rng(1))
    assert stats.kstest(noise, stats.norm(scale=1.5).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(noise, stats.norm(scale=1.5 * 1.1).cdf).pvalue < FALSE_ALARM
    for order, rdp in zip(defence.curve().orders[::40], defence.curve().rdp[::40], strict=True):
        assert rdp == pytest.approx(order / (2 * 3.0**2), rel=1e-12)


# What is refused.


def test_wrong_parties_are_refused(network, parties):
    together = Collaboration(network, n_rounds=2)
    with pytest.raises(ValueError, match="a party must have rows"):
        together.fit([parties[0], (np.zeros((0, 3)), np.zeros(0))])
    with pytest.raises(ValueError, match="two or more, got 1"):
        together.fit(parties[:1])
    late = PartyRows(X=parties[1][0], y=parties[1][1], joins=1)
    with pytest.raises(ValueError, match="no party other than the observer takes part in round 0"):
        together.fit([parties[0], late], observer=0)
    with pytest.raises(ValueError, match="party 1 has no row of 1 of 2 classes"):
        together.fit([parties[0], (parties[1][0], np.zeros(SIZE, dtype=int))])
    with pytest.raises(ValueError, match="same number of features"):
        together.fit([parties[0], (np.zeros((4, 2)), [0, 1, 0, 1])])
    with pytest.raises(ValueError, match="must be finite"):
        together.fit([parties[0], (np.full((4, 3), np.nan), [0, 1, 0, 1])])
    has = np.arange(SIZE) < 4
    with pytest.raises(ValueError, match="shares from 0 to 1"):
        PartyRows(X=parties[0][0], y=parties[0][1], has_property=has, schedule=[2.0, 0.0])
    short = PartyRows(X=parties[0][0], y=parties[0][1], has_property=has, schedule=[0.5])
    with pytest.raises(ValueError, match="must have 2 rounds"):
        together.fit([parties[1], short])
    with pytest.raises(ValueError, match="schedule needs has_property"):
        PartyRows(X=parties[0][0], y=parties[0][1], schedule=[0.5])
    with pytest.raises(ValueError, match="has_property must be bool"):
        PartyRows(X=parties[0][0], y=parties[0][1], has_property=[1, 0])


def test_wrong_settings_are_refused(network, parties):
    for observer in (3, -1, True, "party"):
        with pytest.raises(ValueError, match="observer must be"):
            Collaboration(network, n_rounds=1).fit(parties, observer=observer)
    with pytest.raises(ValueError, match="main_weight needs an observer"):
        Collaboration(network, n_rounds=1).fit(parties, main_weight=0.5)
    with pytest.raises(ValueError, match="participation must be"):
        Collaboration(network, participation=0.0).fit(parties)
    with pytest.raises(ValueError, match="rule must be one of"):
        Collaboration(network, rule="gossip").fit(parties)
    with pytest.raises(ValueError, match="plain gradient steps"):
        Collaboration(TorchClassifier(optimizer=torch.optim.Adam)).fit(parties)

    def counting(n_features, n_classes):
        module = torch.nn.Linear(n_features, n_classes)
        module.register_buffer("seen", torch.zeros(1))
        return module

    with pytest.raises(ValueError, match="no buffers"):
        Collaboration(TorchClassifier(counting)).fit(parties)
    with pytest.raises(ValueError, match="share must be"):
        SharedFraction(share=0.0)


def test_changes_that_are_no_numbers_are_refused(network, parties):
    line = TorchClassifier(torch.nn.Linear(3, 2), batch_size=SIZE, learning_rate=3e38, random_state=0)
    with pytest.raises(TrainingDiverged, match="a party's change is not finite"):
        Collaboration(line, n_rounds=9).fit(parties)
    run = Collaboration(network, n_rounds=2).fit(parties)
    broken = run.updates.copy()
    broken[1, 3] = np.nan
    with pytest.raises(ValueError, match="updates must be finite, which 1 are not"):
        dataclasses.replace(run, updates=broken)
    with pytest.raises(ValueError, match="26 numbers a round"):
        dataclasses.replace(run, updates=broken[:, 1:])


# Set-ups of the thesis: a property of one class, batches as they come, who leaves, batch normalisation.


SMALL = TorchClassifier(two_layers, batch_size=8, learning_rate=0.3, n_threads=1, random_state=3)


def gendered(seed, n=120):
    """Two classes; the property, a feature of its own, occurs in the first class only."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    has = (y == 0) & (rng.random(n) < 0.5)
    return np.c_[y + 0.1 * rng.normal(size=n), has + 0.1 * rng.normal(size=n)].astype(np.float32), y, has


def test_a_property_of_one_class_is_in_batches_whose_labels_do_not_tell_it():
    X, y, has = gendered(1)
    ours = gendered(2)
    schedule = np.arange(40) % 2 * 0.5
    target = PartyRows(X=X, y=y, has_property=has, schedule=schedule)
    run = Collaboration(SMALL, n_rounds=40, random_state=0).fit([ours[:2], target], observer=0)
    assert (run.label_share == 0.5).all()
    assert run.property_share.tolist() == schedule.tolist()
    rows = [(ours[0][part], ours[1][part]) for part in (ours[2], ~ours[2])]
    attack = PropertyInference(
        RandomForestClassifier(20, random_state=0), n_batches=2, share=0.5, random_state=0
    )
    assert attack.fit(run, *rows).scores(run).auc() > 0.9
    with pytest.raises(
        ValueError, match="at most 4 rows with it, not 8: take a smaller share, or type strat"
    ):
        PropertyInference(RandomForestClassifier(), random_state=0).fit(run, *rows)
    wide = PartyRows(X=X, y=y, has_property=has, schedule=schedule * 1.5)
    with pytest.raises(ValueError, match=r"occurs in 1 of 2 classes, .* not 6"):
        Collaboration(SMALL, n_rounds=40).fit([ours[:2], wide])


def test_batches_as_they_come_have_labels_as_they_come():
    """The confound: a property of one class is told by labels alone, and scores do not refuse that."""
    X, y, has = gendered(1)
    target = PartyRows(X=X, y=y, has_property=has, schedule=np.arange(40) % 2)
    one_class = X[y == 1], y[y == 1]
    together = Collaboration(SMALL, n_rounds=40, stratified=False, random_state=0)
    run, ours = together.fit([one_class, target], observer=0), gendered(2)
    shares = run.label_share[:, 0]
    assert (shares[1::2] == 1).all()
    assert 0 < shares[::2].mean() < 0.5
    rows = [(ours[0][part], ours[1][part]) for part in (ours[2], ~ours[2])]
    attack = PropertyInference(RandomForestClassifier(20, random_state=0), n_batches=2, random_state=0)
    assert attack.fit(run, *rows).scores(run).auc() > 0.9


def test_a_party_that_leaves_sends_nothing_more(network, parties):
    guest = PartyRows(X=parties[1][0], y=parties[1][1], joins=1, leaves=3)
    run = Collaboration(network, n_rounds=5, random_state=0).fit([*parties, guest], observer=0)
    assert run.present[:, -1].tolist() == [False, True, True, False, False]
    with pytest.raises(ValueError, match="leaves must be an integer >= 2"):
        PartyRows(X=parties[1][0], y=parties[1][1], joins=1, leaves=1)
    with pytest.raises(ValueError, match="takes part in round 3"):
        Collaboration(network, n_rounds=5).fit(
            [parties[0], PartyRows(X=parties[1][0], y=parties[1][1], leaves=3)]
        )


def test_batch_normalisation_takes_each_partys_own_batch(parties):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    network = TorchClassifier(module, batch_size=SIZE, learning_rate=RATE, n_threads=1, random_state=0)
    run = Collaboration(network, n_rounds=1, random_state=0).fit(parties, observer="server")
    for number, party in enumerate(parties):
        assert run.updates[0, number] == pytest.approx(stepped(network, run.weights[0], party, 1), abs=1e-6)
