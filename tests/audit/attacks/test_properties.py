"""Property inference: found where it is, not found where it is not, and what is refused."""

import dataclasses
import functools
import stat

import numpy as np
import pytest
from scipy import stats
from sklearn.ensemble import RandomForestClassifier

from ostraka.attacks import Collaboration, PropertyInference
from ostraka.audit.attacks.parties import PartyRows, SharedFraction
from ostraka.audit.attacks.properties import changed_sizes
from ostraka.audit.cli_attack import attack_property
from ostraka.networks import TorchClassifier
from tests.false_alarm import FALSE_ALARM

torch = pytest.importorskip("torch")

ROUNDS = 80


def rows(rng, n, *, effect):
    """The task needs the first feature; the property moves the second by ``effect``."""
    has, y = rng.random(n) < 0.5, np.arange(n) % 2
    return np.c_[2 * y + rng.normal(size=n), effect * has + 0.3 * rng.normal(size=n)], y, has


@functools.cache
def world(*, effect, seed=0, n_others=0, schedule=None, observer=0, **settings):
    """A run, and the attack on it; the target is party 1. The same for all tests, which do not change it."""
    rng = np.random.default_rng(seed)
    X, y, has = rows(rng, 240, effect=effect)
    features, labels, mine = rows(rng, 240, effect=effect)
    schedule = rng.permutation(np.arange(ROUNDS) % 2) if schedule is None else np.array(schedule)
    target = PartyRows(X=X, y=y, has_property=has, schedule=schedule)
    others = [rows(rng, 60, effect=0.0)[:2] for _ in range(n_others)]
    network = TorchClassifier(
        lambda n, k: torch.nn.Sequential(torch.nn.Linear(n, 6), torch.nn.ReLU(), torch.nn.Linear(6, k)),
        batch_size=16,
        learning_rate=0.05,
        random_state=0,
        n_threads=1,
    )
    run = Collaboration(network, n_rounds=ROUNDS, random_state=seed, **settings).fit(
        [(features, labels), target, *others], observer=observer
    )
    attack = PropertyInference(RandomForestClassifier(20, random_state=0), n_batches=3, random_state=0)
    return run, attack.fit(run, (features[mine], labels[mine]), (features[~mine], labels[~mine]))


def test_a_property_that_moves_a_feature_is_found_in_single_batches():
    run, attack = world(effect=1.0)
    assert attack.scores(run).auc() > 0.95


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"rule": "averaging", "local_steps": 2}, marks=pytest.mark.slow),
        {"defence": SharedFraction(share=0.5)},
    ],
)
def test_it_is_found_under_averaging_and_where_half_is_shared(settings):
    run, attack = world(effect=1.0, **settings)
    assert attack.scores(run).auc() > 0.85


@pytest.mark.slow  # quick: what changes nothing is not found, below
def test_more_parties_hide_it_better():
    aucs = [attack.scores(run).auc() for run, attack in (world(effect=0.5, n_others=n) for n in (0, 6))]
    assert aucs[0] > aucs[1] + 0.05


@pytest.mark.parametrize("n_others", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_property_that_changes_nothing_is_not_found(n_others):
    ranks, weights = 0.0, 0.0
    for seed in range(3):
        run, attack = world(effect=0.0, seed=seed, n_others=n_others)
        statistics, has = attack.statistics(run), run.property_share > 0
        n, m = has.sum(), (~has).sum()
        ranks += stats.rankdata(statistics)[has].sum() - n * (n + m + 1) / 2
        weights += n * m * (n + m + 1) / 12  # variance of the rank sum; ties make it smaller
    assert 2 * stats.norm.sf(abs(ranks) / np.sqrt(weights)) > FALSE_ALARM


def test_statistics_say_when_and_in_which_party():
    schedule = 40 * (0.0,) + (ROUNDS - 40) * (1.0,)
    run, attack = world(effect=1.0, n_others=1, schedule=schedule, observer="server")
    statistics = attack.statistics(run)
    assert statistics.shape == (ROUNDS, 3)
    assert statistics[40:, 1].mean() > statistics[:40, 1].mean() + 0.5
    assert statistics[40:, 1].mean() > statistics[40:, 2].mean() + 0.5
    with pytest.raises(ValueError, match="one sum a round"):
        attack.scores(run)


def test_larger_shares_score_higher():
    shares = np.tile([0.0, 0.25, 0.5, 1.0], ROUNDS // 4)
    run, attack = world(effect=1.0, schedule=tuple(shares))
    means = [attack.statistics(run)[shares == share].mean() for share in (0.0, 0.25, 0.5, 1.0)]
    assert means == sorted(means)


def test_labels_that_tell_the_property_are_refused():
    run, attack = world(effect=0.0)
    label_shares = np.where((run.property_share > 0)[:, None], [0.4, 0.6], [0.6, 0.4])
    with pytest.raises(ValueError, match="labels of rounds with the property differ"):
        attack.scores(dataclasses.replace(run, label_share=label_shares))


def test_a_property_in_every_batch_or_in_none_and_an_unknown_truth_are_refused():
    run, attack = world(effect=0.0)
    for share, words in ((np.ones(ROUNDS), "every round"), (np.zeros(ROUNDS), "no round"), (None, "truth")):
        with pytest.raises(ValueError, match=words):
            attack.scores(dataclasses.replace(run, property_share=share))


def test_wrong_rows_of_the_observer_are_refused():
    run, _ = world(effect=0.0)
    attack = PropertyInference(RandomForestClassifier(2))
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    with pytest.raises(ValueError, match="fitted first"):
        attack.statistics(run)
    with pytest.raises(ValueError, match="all 10 rows of with_property are among"):
        attack.fit(run, (X[y == 0], y[y == 0]), (X, y))
    with pytest.raises(ValueError, match="all 20 rows of with_property are among"):
        attack.fit(run, (X, y), (X, y))
    with pytest.raises(ValueError, match="as many features"):
        attack.fit(run, (X[:10, :1], y[:10]), (X[10:, :1], y[10:]))
    with pytest.raises(ValueError, match="share must be"):
        PropertyInference(RandomForestClassifier(2), share=0.0).fit(run, (X, y), (X, y))


def own_rows():
    """The observer's rows of :func:`world` with the property and without it."""
    rng = np.random.default_rng(0)
    rows(rng, 240, effect=1.0)
    features, labels, mine = rows(rng, 240, effect=1.0)
    return (features[mine], labels[mine]), (features[~mine], labels[~mine])


def test_saved_changes_are_those_that_the_attack_learns_from_and_give_its_scores(tmp_path):
    run, attack = world(effect=1.0)
    having, lacking = own_rows()
    attack.save_changes(tmp_path / "rounds.npz", run, having, lacking)
    assert stat.S_IMODE((tmp_path / "rounds.npz").stat().st_mode) == 0o600
    with np.load(tmp_path / "rounds.npz") as saved:
        assert saved["with_property"].shape == saved["without"].shape == (3 * ROUNDS, 32)
        assert np.allclose(saved["observed"], changed_sizes(run.updates), atol=1e-6)
        changes = [saved[name].reshape(ROUNDS, 3, -1) for name in ("with_property", "without")]
        learned = np.stack(changes, axis=1).reshape(-1, 32)
        assert saved["has_property"].tolist() == (run.property_share > 0).tolist()
    again = RandomForestClassifier(20, random_state=0).fit(
        learned, np.tile(np.repeat([True, False], 3), ROUNDS)
    )
    probabilities = again.predict_proba(changed_sizes(run.updates).astype(np.float32))[:, 1]
    assert np.corrcoef(probabilities, attack.statistics(run))[0, 1] > 0.99
    command = attack_property(tmp_path / "rounds.npz", seed=0)
    assert command.scores.auc() == pytest.approx(attack.scores(run).auc(), abs=0.05)


def test_rounds_in_which_the_observer_saw_nothing_are_left_out_of_scores_and_of_the_command(tmp_path):
    run, attack = world(effect=1.0)
    absent = np.arange(ROUNDS) < 11
    less = dataclasses.replace(run, updates=np.where(absent[:, None], 0, run.updates).astype(np.float32))
    scores = attack.scores(less)
    assert scores.members.sum() + scores.others.sum() == ROUNDS - 11
    attack.save_changes(tmp_path / "rounds.npz", less, *own_rows())
    command = attack_property(tmp_path / "rounds.npz", seed=0)
    assert command.left_out == 11
    assert command.numbers.tolist() == list(range(11, ROUNDS))
    having = run.property_share > 0
    only = dataclasses.replace(run, updates=np.where(having[:, None], run.updates, 0).astype(np.float32))
    for wrong, words in (
        (only, "every round"),
        (dataclasses.replace(run, updates=0 * run.updates), "all are 0"),
    ):
        with pytest.raises(ValueError, match=words):
            attack.save_changes(tmp_path / "wrong.npz", wrong, *own_rows())
        assert not (tmp_path / "wrong.npz").exists()
    with pytest.raises(ValueError, match=r"file must be in a folder that exists, got .*nowhere"):
        attack.save_changes(tmp_path / "nowhere" / "rounds.npz", less, *own_rows())


def test_of_large_networks_the_largest_change_of_each_output_and_each_input_is_kept():
    layout = (("0.weight", (3, 10_000)), ("0.bias", (3,)))
    change = np.zeros((1, 30_003))
    change[0, [7, 10_007, 20_005, 30_002]] = 3.0, -4.0, 5.0, -1.0
    sizes = changed_sizes(change, layout)[0]
    expected = np.zeros(3 + 10_000 + 3)  # outputs, inputs, biases
    expected[[0, 1, 2, 3 + 5, 3 + 7, 10_005]] = 3, 4, 5, 5, 4, 1
    assert np.allclose(sizes, expected / np.linalg.norm(expected))
    assert np.allclose(changed_sizes(sizes[None]), sizes)  # sizes of sizes are the same
