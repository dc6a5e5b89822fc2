"""Parties that vote on rows they cannot see, and a wire that keeps what goes over it."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.neural_network import MLPClassifier

from ostraka.parties.parties import PartyEnsemble
from ostraka.secure import rounds
from ostraka.secure.rounds import PartyError
from ostraka.voters.voting import train

MODELS = {0: RidgeClassifier(), 4: MLPClassifier((4,), max_iter=3)}


class Wire:
    """A link that keeps what went over it, and may change it: ``change(verb, direction, data)``."""

    def __init__(self, link, change=None):
        self.link, self.log, self.change = link, [], change or (lambda _verb, _direction, data: data)

    def ask(self, verb, sealed, most, *, again=False):
        sealed = self.change(verb, "sent", sealed)
        self.log.append((verb, "sent", sealed))
        answer = self.link.ask(verb, sealed, most, again=again)
        assert len(answer) <= most, "a wire would not let it through"
        answer = self.change(verb, "received", answer)
        self.log.append((verb, "received", answer))
        return answer

    def last(self, verb, direction):
        return [data for exchange, heading, data in self.log if (exchange, heading) == (verb, direction)][-1]


def data_of(n_parties, *, n_classes=3, n_features=2, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0, 1, (n_parties, 12, n_features))
    return [(features, np.arange(12) % n_classes) for features in rows]


TRAINED = {}


def trained_once(estimator, shards):
    """The teachers of these shards: hundreds of rounds are between the same few parties."""
    of = (str(estimator), *((shard.X.tobytes(), shard.codes.tobytes(), str(shard.seed)) for shard in shards))
    if of not in TRAINED:
        TRAINED[of] = train(estimator, shards)
    return TRAINED[of]


def secret_parties(n_parties=3, *, hidden_units=0, n_classes=3, n_features=2, seed=0, **options):
    data = data_of(n_parties, n_classes=n_classes, n_features=n_features, seed=seed)
    settings = {"sigma": 1.0, "noise": "parties", "input_range": (0, 1), "random_state": 0, **options}
    settings |= {"classes": range(n_classes), "questions": "secret", "hidden": hidden_units}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ostraka.parties.party.train", trained_once)
        return PartyEnsemble.in_process(MODELS[hidden_units], data, **settings)


def tapped(parties, name="party-1", change=None):
    """Put a wire between the asker and one party, or the dealer."""
    if name == rounds.DEALER:
        parties._dealer = Wire(parties._dealer, change)
        return parties._dealer
    parties._links[name] = Wire(parties._links[name], change)
    return parties._links[name]


def fails(parties, words, *names, rows=((0.5, 0.5),), **options):
    """The error of a round that fails in these words and names these parties, if any are given."""
    with pytest.raises(PartyError, match=words) as caught:
        parties.vote(rows, **options)
    assert caught.value.parties == (names or caught.value.parties)
    return caught.value


def flipped(data, place):
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def bad_material(verb):
    """A change of the dealer's material that the asker sends on with this message."""

    def change(exchange, direction, data):
        if (exchange, direction) != (verb, "sent"):
            return data
        sealed, material = rounds.unpack(data, 2)
        return rounds.pack([sealed, flipped(material, 100)])

    return change
