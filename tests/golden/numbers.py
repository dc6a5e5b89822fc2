"""Prices, plans and bounds, and what is drawn from a seed, as they were when they were recorded.

A regression test: the numbers are our own, and other tests say that they are right. They are to stay, because
an interrupted fit is known by its noise, a ledger's total must not rise overnight, and a simulation is to be
repeated. Each line of ``numbers.txt`` is an expression and, after a tab, its value. CHANGELOG.md names a
change. ``python -m tests.golden`` writes the values anew, also of an expression that is typed without one.
"""

import copy
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from unittest import mock

import numpy as np
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from ostraka import *
from ostraka import Adjacency, Budget, Curve, Ledger, Private, release
from ostraka.accounting import *
from ostraka.audit import *
from ostraka.audit import adversaries, cuts, intervals, library, votes, worlds
from ostraka.audit.attacks import *
from ostraka.audit.attacks import generators, parties, properties, sampler
from ostraka.audit.attacks import votes as attributes
from ostraka.core import check, numeric, randomness, released
from ostraka.core.accounting import publish, smooth
from ostraka.core.accounting.bounds import exact_rdp
from ostraka.core.consistent import Consistent
from ostraka.core.curve import gaussian_delta, gaussian_epsilon
from ostraka.core.laws import adaptive, curvature, equivalents, limit, losses, tables
from ostraka.core.laws.cover import argmax_family, screen_family, stencils
from ostraka.core.laws.gaussian import gaussian_deltas, gaussian_pair, mirrored
from ostraka.core.laws.law import Law
from ostraka.core.laws.law import check as check_law
from ostraka.core.ledger import chain
from ostraka.core.ledger.budget import BudgetExceeded, Pace, RenyiFilter
from ostraka.core.mechanisms import exact
from ostraka.core.mechanisms.adaptive import AdaptiveMarginals, SequenceMarginals
from ostraka.core.mechanisms.counts import NoisyMarginals, TreeMarginals
from ostraka.core.mechanisms.selection import Selection, TokenDraw
from ostraka.core.mechanisms.skellam import SkellamSum, largest_draw
from ostraka.core.result import Result
from ostraka.core.scores import Scores
from ostraka.data.units import partition
from ostraka.mechanisms import *
from ostraka.parties import asker, models, party
from ostraka.secure import agreement, keys, masks, rounds, server, two_party, wire
from ostraka.secure.agreement import Agreement, SecretQuestions
from ostraka.voters import named
from ostraka.voters.voting import Teacher
from tests.parties.hidden_rounds import Wire, secret_parties

RECORD = Path(__file__).with_name("numbers.txt")
VOTES = np.array([[180, 40, 30], [90, 80, 80], [125, 125, 0], [250, 0, 0], [84, 83, 83]])
TWO = np.array([[240, 10], [130, 120], [125, 125], [0, 250]])
CODES = np.array([[2, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]] * 40)
MOONS = make_moons(160, noise=0.3, random_state=0)

# What audits have seen: outcomes in two worlds, scores of canaries, votes of teachers and of neighbours.
ENDS = 1.5, 2.0, 32.0, math.inf
SEEN = [725, 222, 53], [469, 469, 62]
RAMP = np.arange(1, 31), np.arange(31, 1, -1)
LONG = np.arange(1500) % 7 * np.arange(1500), np.arange(1500)[::-1] % 5 * np.arange(1500)[::-1]
SCORES = Scores.of(members=[0.9, 0.8, 0.8, 0.7] * 60 + [0.1] * 9, others=[0.8, 0.2, 0.1, 0.0] * 55)
COINS = Scores.of(members=np.arange(380) % 17 + 4, others=np.arange(400) % 17)
SIGNS = Scores.of(members=np.arange(380) % 17 - 3, others=np.arange(400) % 17 - 12)
LABELLED = Scores.of(members=np.arange(200) % 5 / 4, others=np.repeat([0.3, 0.0], [12, 588]))
WITH = [
    Private(np.random.default_rng(0).multinomial(19, [0.6, 0.4], size=200) + move, Adjacency.one_ballot())
    for move in ([0, 1], [1, 0])
]
MODELS = [
    votes.VoteModel.random_shards([0.6, 0.4], [0.1, 0.9], n_teachers=20),
    votes.VoteModel.neighbours([0.5, 0.5], [0.7, 0.3], n_neighbours=8, label=1, reached=0.2),
    votes.VoteModel.fixed_parties([[0.5, 0.5], [1.0, 0.0], [0.2, 0.8]], [0.1, 0.9], party=2),
]
POOL = votes.BallotPool(
    others=np.arange(90).reshape(2, 15, 3) % 4 // 2,
    each=6,
    present=np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]]),
    absent=np.array([[0, 1, 0], [0, 0, 0], [0, 1, 1]]),
    n_classes=2,
)
NEAR = worlds.NeighbourWorlds(
    np.arange(20.0)[:, None], np.arange(20) % 2, n_classes=2, n_neighbours=4, sampling_rate=0.5
)
TEACHERS = {"estimator": GaussianNB(), "X": MOONS[0], "y": MOONS[1], "n_teachers": 8, "n_classes": 2}
TAUGHT = worlds.TeacherWorlds(worlds.Retraining(**TEACHERS), n_trainings=3)
KEPT = worlds.TeacherWorlds(worlds.Retraining(**TEACHERS, fixed=True), n_trainings=3, party=2, seed=4)
WAVES = np.sin(np.arange(192.0)).reshape(8, 24) / 2 + 0.5  # confidences of models, and coins of the same size
REFERENCES = ReferenceModels.from_confidences(WAVES, np.arange(192).reshape(8, 24) ** 3 % 7 > 2)
TARGET = np.cos(np.arange(24.0)) / 2 + 0.5
COUNTED = TreeMarginals(sizes=(4, 4, 2), target=2, sigma_pairs=2.0, sigma_triples=3.0, select_epsilon=1.0)
RELEASED = {
    name: np.arange(size).reshape(shape)
    for name, size, shape in (("0,2", 8, (4, 2)), ("1,2", 8, (4, 2)), ("0,1,2", 32, (4, 4, 2)))
}
ASKED = Consistent(secret=bytes(32), grid=0.5, teachers="t")
PRESENT = np.cos(np.arange(48.0) ** 2).reshape(12, 4) > -0.2

# Parties: their keys, what they agreed on, a call and the replies to it, and shares of a secret.
KEY = bytes(range(32))
SECRETS = [bytes([number] * 32) for number in range(1, 7)]
KEYS = [keys.signing_key(secret) for secret in SECRETS]
EXCHANGES = [keys.exchange_key(secret) for secret in SECRETS]
AGREED = Agreement(
    members=dict(zip("abcd", KEYS, strict=False)),
    aggregator=KEYS[4],
    classes=["yes", "no"],
    n_features=2,
    sigma=4.0,
    max_rows=4,
)
HIDDEN = replace(
    AGREED,
    noise="parties",
    secret=SecretQuestions(dealer=KEYS[5], input_range=(0, 2), hidden=3, reveals="argmax"),
)
CALL = rounds.Call(
    agreement=AGREED.sha256,
    id="1" * 64,
    key=EXCHANGES[4],
    n_rows=2,
    participants=tuple("abcd"),
    question="2" * 64,
)
REPLIES = {
    name: keys.seal(secret, "reply", rounds.reply(CALL, name, key))
    for name, secret, key in zip("abcd", SECRETS, EXCHANGES, strict=False)
}
SHARES = {place: (5 + 7 * place).to_bytes(33, "little") for place in range(1, 7)}

# Costs as ledgers keep them: of a Gaussian argmax, of a pure release, and without laws; and an entry.
ORDERS = (2.0, 8.0)
ARGMAX = Curve(ORDERS, (0.25, 1.0 / 3), mu_squared=0.1, slack=2.0**-60, laws=(Law("gaussian-argmax", 0.1),))
PRICED, OTHER, PURE, NUMBERS = (
    chain.price(curve)[1]
    for curve in (
        ARGMAX,
        Curve(ORDERS, (2.0, 3.0), laws=(Law("gaussian-argmax", 0.1, 2), Law("pure", 1.0))),
        Curve(ORDERS, (0.1, 0.1), laws=(Law("pure", 0.1),)),
        replace(ARGMAX, laws=None),
    )
)
ROW = (3, "charge", "ann", "k", 1, 2, "row", 0, 0.5, b"a", 1, 0.25, b"s", None, b"")


def plain(value):
    """Numbers in lists and dictionaries; infinity has a name of its own in JSON."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.13g}")
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def cost(curve):
    """Epsilon at three deltas, delta at three epsilons, and the Rényi cost at orders that are far apart."""
    return [
        *(curve.epsilon(delta) for delta in (1e-2, 1e-5, 1e-10)),
        *(curve.delta(epsilon) for epsilon in (0.0, 0.5, 3.0)),
        *curve.rdp[::20],
    ]


def most(mechanism, **budget):
    """How many uses a budget allows that begins with them."""
    once, whole = mechanism.curve(), Budget(**budget)
    low, high = 0, 1
    while whole.allows(high * once, first=once):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if whole.allows(middle * once, first=once) else (low, middle)
    return low


def most_by(rule, mechanism):
    """How many uses a filter allows, up to 10,000."""
    once, low, high = mechanism.curve(), 0, 10_001
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rule.fits(middle * once) else (low, middle)
    return low


def paced():
    """What is counted of uses over two days."""
    pace, seen = Pace(), []
    for second in range(0, 180_000, 7_000):
        pace.add(1_000_000 + second, 1 + second // 7_000 % 5)
        seen.append([pace.in_a_day(1_000_000 + second), pace.per_second(1_000_600 + second)])
    return [*seen, pace.plain(), Pace.of(pace.plain()).in_a_day(1_200_000), Pace().per_second(5)]


def history(**rule):
    """What a ledger says of its entries, accounts and what is left, step by step, but for times and heads."""
    budget, told = Budget(epsilon=1.5, delta=1e-5, **rule), []
    first, second = GNMax(sigma=20.0), Threshold(at=9.0, sigma=30.0)
    with Ledger(":memory:", budget=budget) as ledger:
        ledger.grant("ann", budget_epsilon=0.5)
        for step in range(12):
            request = chain.ChargeRequest(
                account="ann",
                key=f"q{step}",
                digest=f"{step // 2:02x}",
                cost=second,
                reserve=first,
                answer=step,
            )
            [outcome] = ledger.charge_each([request])
            told.append(getattr(outcome, "left", None) or str(outcome))
        for step in range(60):
            mechanism, uses = (first, second)[step % 3 == 2], 1 + step % 2
            try:
                entry = ledger.charge(
                    mechanism, uses=uses, unit="row", simulation=step % 48 == 5, key=f"k{step % 48}"
                )
            except BudgetExceeded as error:
                told.append([step, str(error), error.asked, error.left])
            else:
                told.append([step, entry, ledger.epsilon(), ledger.affords(first, uses=3)])
        told += [
            [e.kind, e.account, e.key, e.uses, e.epsilon_after, e.answer, e.cap] for e in ledger.entries()
        ]
        told += [[a.name, a.cap, a.spent, a.left] for a in ledger.accounts()]
        return told


def in_a_row(n_charges, **rule):
    """What a ledger at one moment says of one price that is charged again and again."""
    price, settings = GNMax(sigma=40.0), {"budget": Budget(epsilon=1.0, delta=1e-5, **rule), "secret": KEY}
    with mock.patch("time.time", return_value=1e6), Ledger(":memory:", **settings) as ledger:
        for step in range(n_charges):
            ledger.charge(price, uses=1 + step % 2, unit="row", simulation=False)
            if step % 9 == 5:
                ledger.note(f"step {step}", by="olga")
        seen = [[e.seq, e.kind, e.key, e.at, e.epsilon_after] for e in ledger.entries()]
        facts = ledger.count(), ledger.kinds(), ledger.unit, ledger.simulation, ledger.left()
        most = [ledger.uses_left(mechanism) for mechanism in (price, SkellamMax(sigma=9.0))]
        return [*seen, *facts, *most, repr(ledger.outlook()), ledger.entry_of(ledger.notes()[1].key).seq]


def drawn(mechanism, values, seed=0, **changes):
    """What a mechanism answers from this seed."""
    private = Private(np.asarray(values), replace(mechanism.promise, **changes))
    with Ledger(":memory:", budget=Budget(epsilon=1e9, delta=1e-5, adaptive=False)) as ledger:
        return release(mechanism, private, ledger=ledger, rng=np.random.default_rng(seed))


def profile(whole):
    """Epsilon at three deltas, and delta at three epsilons."""
    return [*map(whole.epsilon, (1e-1, 1e-3, 1e-6)), *map(whole.delta, (0.0, 0.2, 1.5))]


def bounds(*settings, **options):
    """Every bound by its name: what it holds for, and epsilon after each number of answers."""
    return {
        bound.name: [bound.publishable, bound.both_directions, *bound.answers, *bound.epsilon(1e-5)]
        for bound in every_bound(*settings, **options)
    }


def planned(**settings):
    """The numbers of a proposal."""
    plan = propose(**settings)
    screen = () if plan.screen is None else (plan.screen.at, plan.screen.sigma)
    size = plan.n_teachers, plan.n_questions, plan.mechanism.sigma, plan.epsilon
    return [*size, *screen, *plan.answered, *plan.answers, *plan.student]


def agreed(n_classes, n_rows):
    """Votes of 250 teachers who agree more and more."""
    shares = np.linspace(0.5, 1.0, n_rows)[:, None] * np.eye(1, n_classes)
    shares = shares + (1 - shares[:, :1]) * (1 - np.eye(1, n_classes)) / (n_classes - 1)
    return np.random.default_rng(3).multinomial(250, shares)


def published(mechanism, counts, **settings):
    """The public record of a cost, from a seed, but for the words."""
    private, rng = Private(counts, Adjacency.one_ballot()), np.random.default_rng(0)
    record = release_epsilon(mechanism, private, rng=rng, **settings).to_dict()
    return [value for value in record.values() if isinstance(value, float)]


def levels(scale):
    """The costs of some levels, and what they are made of."""
    cost = scale.cost[:: max(1, len(scale.cost) // 8)] * publish.UNIT
    return [
        *cost,
        len(scale.cost),
        scale.reach,
        scale.pace,
        scale.tied,
        scale.agreed,
        *scale.levels(VOTES // 5),
    ]


def adaptive_sequence(*, grain=3, constant=(), sizes=(3, 2, 3, 2, 3)):
    """The price of marginals of persons with rows of two columns."""
    settings = {"target": None, "sigma_first": 6.0, "sigma": 5.0, "select_epsilon": 0.4, "n_pick": 1}
    first = AdaptiveMarginals(sizes=(3, 2, 4), **settings)
    following = AdaptiveMarginals(sizes=sizes, grain=grain, **settings)
    return SequenceMarginals(first=first, following=following, constant=constant).curve().epsilon(1e-5)


def digits(arrays):
    """Arrays by name, those of many numbers as three sums of them."""
    wave = {name: np.cos(np.arange(array.size)) for name, array in arrays.items()}
    return {
        name: array if array.size < 20 else [array.shape, array.sum(), wave[name] @ array.ravel()]
        for name, array in arrays.items()
    }


def inspected(system, **settings):
    """What the audit of a build finds whose door draws from one seed."""
    rng = np.random.default_rng(0)

    def answer(mechanism, private, *, ledger):
        return release(mechanism, private, ledger=ledger, rng=rng)

    findings = audit_library(replace(system, answer=answer), **settings)
    return [finding.to_dict() for finding in findings]


def altered(name):
    """What a broken build answers, and what it says that it costs."""
    mechanism = library.DEFECTS[name].mechanism(sigma=2.0)
    private = Private(np.tile([[9.0, 7.0, 8.0]], (30, 1)), Adjacency.one_ballot())
    cost = mechanism.curve().epsilon(1e-5), mechanism.uses(private)
    return [mechanism.release(private, rng=np.random.default_rng(0)), *cost, repr(mechanism)]


def shards_of(name):
    """How teachers of a broken build vote, one shard each, after one question and after two."""
    teachers = library.DEFECTS[name].teachers(GaussianNB(), n_teachers=4)
    manifest = partition(12, n_teachers=4, key=b"sixteen bytes ok")
    rows, labels = np.arange(12.0)[:, None], np.arange(12) % 2
    teachers.fit(rows, labels, classes=[0, 1], manifest=manifest)
    return [teachers.vote(rows[::3]).open() for _ in range(2)]


def half(scores, place):
    """Every other score of both kinds."""
    return Scores.of(
        members=np.repeat(scores.values, scores.members)[place::2],
        others=np.repeat(scores.values, scores.others)[place::2],
    )


def asked(present, absent, **settings):
    """The finding of two worlds with these laws, and how far asking went."""
    rng, steps = np.random.default_rng(0), []
    asks = (lambda n, law=law: rng.multinomial(n, law) for law in (present, absent))
    finding = audit_until(*asks, progress=lambda *step: steps.append(step), **settings)
    return [finding.to_dict(), steps]


def adversary(name, system):
    """What an adversary of this system asks."""
    queries = MOONS[0][:4] if system is TAUGHT else np.array([[2.2], [9.6], [17.0]])
    asks = adversaries.adversarial_queries(
        name,
        system,
        queries,
        np.arange(len(queries)) % 2,
        mechanism=GNMax(sigma=2.0),
        n_candidates=3,
        rng=np.random.default_rng(0),
    )
    return [asks.queries, asks.rows, asks.labels, asks.repeated, asks.n_answers]


def audited(name, system, **settings):
    """What it shows."""
    queries = MOONS[0][:3] if system is TAUGHT else np.array([[2.2], [9.6], [17.0]])
    options = {"trials": 5000, "orders": (2.0, 8.0), "rng": np.random.default_rng(0)} | settings
    labels = np.arange(len(queries)) % 2
    return audit_adversary(name, system, GNMax(sigma=2.0), queries, labels, **options).to_dict()


def recovered(found):
    """What was recovered, but for the words."""
    ends = (np.where(np.isfinite(end), end, -9.0) for end in (found.lower, found.upper))
    return [found.mean.round(5), *ends, found.mode, found.method, found.relative]


def scored(scores):
    """The three columns of scores."""
    return [scores.values, scores.members, scores.others]


def tried(call, *arguments):
    """What each gives, or the error."""
    tries = []
    for argument in arguments:
        try:
            tries.append(call(argument))
        except Exception as error:  # noqa: BLE001  (the error is what is recorded)
            tries.append(f"{type(error).__name__}: {error}")
    return tries


def hiding(hidden, *, classes=2):
    """An agreement on secret questions of two numbers."""
    secret = replace(HIDDEN.secret, hidden=hidden, reveals="counts")
    return replace(HIDDEN, classes=range(classes), secret=secret)


def linear(coefficients, offsets):
    """A linear classifier with these scores."""
    model = LogisticRegression()
    model.coef_, model.intercept_ = np.array(coefficients), np.array(offsets)
    model.classes_ = np.arange(max(2, len(coefficients)))
    return model


def network(weights, offsets):
    """A network with one hidden layer."""
    model = MLPClassifier((len(offsets[0]),))
    model.coefs_, model.intercepts_ = ([np.array(part) for part in parts] for parts in (weights, offsets))
    return model


def traffic(hidden, reveals):
    """Each message of a secret round: how long it is, how long an answer may be, and how long it is."""

    class Counted(Wire):
        def ask(self, verb, sealed, most, *, again=False):
            answer = super().ask(verb, sealed, most, again=again)
            messages.append((name_of[self], verb, len(sealed), most, len(answer)))
            return answer

    members = secret_parties(hidden_units=4 * (hidden > 0), n_features=3, reveals=reveals)
    messages, name_of = [], {}
    for name in members.parties:
        members._links[name] = Counted(members._links[name])
        name_of[members._links[name]] = name
    members._dealer = Counted(members._dealer)
    name_of[members._dealer] = "dealer"
    members.vote([[0.5, 0.25, 1.0]] * 3)
    return sorted(messages)


def crowd(**limits):
    """Who is dropped of a crowd of strangers, one after another."""
    strangers, dropped = server.Strangers(proxies=server.networks(["10.0.0.0/8"]), **limits), []

    class Caller(str):
        __slots__ = ()

        def drop(self):
            dropped.append(str(self))

    callers = [Caller(number) for number in range(24)]
    for number, caller in enumerate(callers):
        peer = ("10.0.0.1", "11.0.0.1", "2001:db8::1", "2001:db8::2", f"12.0.0.{number}")[number % 5]
        strangers.arrived(caller, peer, answered=number % 7 == 3)
        dropped.append([len(strangers), strangers.crowded, strangers.dropped])
        if number % 6 == 5:
            dropped.append(strangers.replaced(callers[number - 1], Caller(f"for {number - 1}")))
            strangers.left(callers[number - 2])
    return [*dropped, strangers.drop("10.0.0.1"), strangers.drop("9.9.9.9"), len(strangers)]


def sums(pairs):
    """The sizes of what dominating pairs hold, summed, and how they are spread."""
    spread = np.linspace(0.5, 1.5, len(pairs.mass))
    return [spread @ np.abs(column) for column in pairs]


def lines():
    """The expressions and their values."""
    for line in RECORD.read_text("utf-8").splitlines():
        expression, _, value = line.partition("\t")
        yield expression, json.loads(value or "null")


def evaluated(expression):
    """The value of an expression, in plain types."""
    return plain(eval(expression, globals()))


def record(expression, present):
    """Write the value of one expression anew."""
    values = dict(lines()) | {expression: present}
    rows = (f"{name}\t{json.dumps(value)}\n" for name, value in values.items())
    RECORD.write_text("".join(rows), encoding="utf-8")
