"""A round: masks cancel in the sum over all, and show nothing in any smaller one."""

import numpy as np
import pytest

from ostraka.parties.parties import PartyEnsemble
from ostraka.secure import rounds
from ostraka.secure.keys import exchange_key, new_secret
from ostraka.secure.masks import pair_mask
from ostraka.secure.rounds import AGGREGATOR, Call, Round
from tests.false_alarm import looks_uniform


def masked(tap, parties: PartyEnsemble, rows) -> np.ndarray:
    """What the first party sends in one round: uint32 of shape (n_rows, n_classes)."""
    wire = tap(parties)
    parties.vote(rows)
    parties._links["party-1"] = wire.link
    body = wire.log["vote answer"][64 + 32 :]
    return np.frombuffer(body, dtype="<u4").reshape(len(rows), -1)


def test_masks_of_all_participants_cancel_exactly():
    secrets = {name: new_secret() for name in ("a", "b", "c", "d")}
    round_, aggregator = some_round(secrets)
    total = sum(rounds.total_mask(secret, name, round_, n_classes=3) for name, secret in secrets.items())
    for name in secrets:
        total = total - known_to_aggregator(aggregator, name, round_)
    assert not total.any()


def some_round(secrets, *, n_rows=2, agreement="0" * 64):
    aggregator = new_secret()
    call = Call(
        agreement=agreement,
        id=new_secret().hex(),
        key=exchange_key(aggregator),
        n_rows=n_rows,
        participants=tuple(secrets),
        question="0" * 64,
    )
    return Round(call, {name: exchange_key(secret) for name, secret in secrets.items()}), aggregator


def known_to_aggregator(aggregator, name, round_):
    stream = pair_mask(
        aggregator,
        round_.keys[name],
        transcript=round_.transcript,
        pair=(AGGREGATOR, name),
        size=3 * round_.call.n_rows,
    )
    return stream.reshape(-1, 3)


@pytest.mark.statistical
def test_a_masked_message_alone_is_uniform_and_so_is_the_difference_of_two(ensemble, tap):
    parties, rows = ensemble(n_classes=2), np.zeros((1000, 2))
    first, second = (np.concatenate([masked(tap, parties, rows) for _ in range(20)]) for _ in range(2))
    assert looks_uniform(first)
    assert looks_uniform(first - second)  # a mask used twice would leave the votes' difference: zero
    for wrong in (first - first, first >> 1, first & 0xFFFFFFFE, np.where(first % 64 == 0, first + 1, first)):
        assert not looks_uniform(wrong.astype(np.uint32))


@pytest.mark.statistical
def test_all_but_two_parties_with_the_aggregator_see_only_the_sum_of_the_two():
    secrets = {name: new_secret() for name in ("a", "b", "c", "d")}
    round_, aggregator = some_round(secrets, n_rows=20_000)
    streams_left = {}
    for name in ("a", "b"):
        streams_left[name] = rounds.total_mask(secrets[name], name, round_, n_classes=3)
        streams_left[name] = streams_left[name] - known_to_aggregator(aggregator, name, round_)
        for colluder in ("c", "d"):  # colluding: each tells the stream shared with this party
            stream = pair_mask(
                secrets[colluder],
                round_.keys[name],
                transcript=round_.transcript,
                pair=(name, colluder),
                size=60_000,
            ).reshape(-1, 3)
            streams_left[name] = streams_left[name] - stream
    assert looks_uniform(streams_left["a"])
    assert looks_uniform(streams_left["b"])
    assert not (streams_left["a"] + streams_left["b"]).any()


@pytest.mark.parametrize("field", ["id", "question", "agreement", "n_rows", "participants", "keys"])
def test_masks_are_new_ones_whenever_anything_of_a_round_changes(field):
    secrets = {name: new_secret() for name in ("a", "b", "c")}
    round_, _ = some_round(secrets)
    call, keys = round_.call, dict(round_.keys)
    values = {name: getattr(call, name) for name in call.__slots__}
    if field == "keys":
        keys["c"] = exchange_key(new_secret())
    else:
        values[field] = {"n_rows": 3, "participants": ("a", "b")}.get(field, "f" * 64)
    second = Round(Call(**values), keys)
    assert second.transcript != round_.transcript
    streams = [
        pair_mask(secrets["a"], keys["b"], transcript=member.transcript, pair=("a", "b"), size=64)
        for member in (round_, second)
    ]
    assert (streams[0] != streams[1]).mean() > 0.9


def test_a_key_that_is_another_one_spelled_differently_does_not_make_masks_cancel():
    # X25519 ignores the highest bit: who replies with somebody's key like this shares no secret, but
    # b's masks with a and with c would be one stream, once added and once taken away
    secrets = {name: new_secret() for name in ("a", "b", "c")}
    keys = {name: exchange_key(secret) for name, secret in secrets.items()}
    keys["c"] = keys["a"][:-2] + f"{int(keys['a'][-2:], 16) ^ 0x80:02x}"
    streams = [
        pair_mask(secrets["b"], keys[peer], transcript=bytes(32), pair=("b", peer), size=64)
        for peer in ("a", "c")
    ]
    assert (streams[0] != streams[1]).mean() > 0.9
    known = [
        pair_mask(secrets["b"], keys[peer], transcript=bytes(32), pair=("b", "a"), size=64)
        for peer in ("a", "c")
    ]
    np.testing.assert_array_equal(*known)  # it is the names that keep them apart
