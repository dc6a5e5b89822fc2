"""A round among clients: exact sums of the survivors, one set of them, and nobody read alone."""

import copy
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from ostraka.collect import Client, Histogram
from ostraka.collect.messages import (
    ENTRY_BYTES,
    SEALED,
    approval,
    certificate,
    kind_of,
    numbers,
    pair_names,
    places,
)
from ostraka.collect.plan import among_clients
from ostraka.secure.keys import Identity
from ostraka.secure.masks import mask, pair_mask
from ostraka.secure.rounds import PartyError
from tests.collect.conftest import Office
from tests.false_alarm import FALSE_ALARM, looks_uniform


class Round(Office):
    """A task among clients, who go through its exchanges."""

    def run(self, values, vanish=None):
        return among_clients(self.tally, values, vanish=vanish, enrolment=self.office)

    def clients(self, n):
        """New clients, enrolled if there is an enrolment."""
        clients = [Client(self.task) for _ in range(n)]
        for client in clients if self.office else ():
            client.certificate = certificate(self.task, self.office, client.claim, round_=0)
        return clients

    def approval(self):
        return approval(self.task, self.office, self.tally.entries(), round_=0) if self.office else b""

    def until(self, stage, values):
        """The clients, with everything done up to an exchange; its messages are not sent."""
        clients = self.clients(len(values))
        for client in clients:
            self.tally.receive(client.join())
        self.tally.advance(self.approval())
        while self.tally.stage != stage:
            for client, value in zip(clients, values, strict=True):
                self.tally.receive(self.answer(client, value))
            self.tally.advance()
        return clients

    def answer(self, client, value=None):
        message = self.tally.outbox(bytes.fromhex(client.key))
        if self.tally.stage == "mask":
            return client.mask(value, message)
        return getattr(client, self.tally.stage)(message)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(
    vanish=st.dictionaries(st.integers(0, 11), st.sampled_from(["share", "mask", "unmask"]), max_size=3),
    lying=st.booleans(),
)
def test_whoever_vanishes_the_sum_is_exact_or_the_round_fails_by_name(vanish, lying):
    collection, values = Round(lying=lying, missing=0.25, colluding=0.05), list(range(12))
    masked = collection.run(values, vanish)
    try:
        sums = collection.tally.close().open()
    except PartyError as error:
        assert error.parties  # noqa: PT017  (either outcome is right)
    else:
        np.testing.assert_array_equal(sums, collection.plain([values[k] for k in masked]))


def test_progress_can_be_asked_while_messages_come():
    collection = Round()
    clients = collection.until("share", list(range(9)))

    class Coming(dict):  # a message that is counted while others are looked through
        def __iter__(self):
            for key in super().__iter__():
                yield key
                self["share", 99] = b""

    collection.tally._state._digests = Coming({("share", 98): b""})
    assert collection.tally.progress == (0, 9)
    collection.tally.receive(collection.answer(clients[0]))
    assert collection.tally.progress == (1, 9)


def test_too_many_who_vanish_fail_the_round_and_are_named():
    collection = Round(missing=0.0, colluding=0.3, least=9, most=20)
    collection.run(list(range(14)), dict.fromkeys(range(10), "unmask"))
    with pytest.raises(PartyError, match="10 survivors did not answer") as caught:
        collection.tally.close()
    assert len(caught.value.parties) == 10


@pytest.mark.statistical
@pytest.mark.usefixtures("same_draws")
def test_shares_of_noise_suffice_for_the_fewest_honest_survivors():
    collection = Round(
        Histogram(0, 1, cells=3000), noise="clients", sigma=5.0, least=10, most=14, colluding=0.1
    )
    values = np.linspace(0, 1, 12)
    masked = collection.run(values, {0: "mask", 1: "mask"})
    noise = collection.tally.close().open() - collection.plain(values[masked])
    low, high = chi2.ppf([FALSE_ALARM, 1 - FALSE_ALARM], 3000)
    share = collection.task.share(12)
    assert share == 25.0 / (10 - 2)  # planted: shares sized for all 12 clients would be 25 / 12
    assert low * 0.98 < (noise.astype(float) ** 2).sum() / (10 * share) < high * 1.02
    assert collection.tally.variance == pytest.approx(10 * share)
    assert (10 - 2) * share >= 25.0
    assert not low * 0.98 < (noise.astype(float) ** 2).sum() / (10 * 25.0 / 12) < high * 1.02


@pytest.mark.statistical
def test_a_client_that_is_called_missing_after_it_sent_stays_unreadable():
    # the recovery of Melis 2018: survivors tell the masks of whoever the tally calls missing
    collection = Round(Histogram(0, 1, cells=20_000))
    clients = collection.until("mask", values := [0.5] * 12)
    messages = [collection.answer(client, value) for client, value in zip(clients, values, strict=True)]
    victim = clients[0]
    for message in messages[1:]:
        collection.tally.receive(message)
    collection.tally.advance()
    with pytest.raises(PartyError, match="too late"):
        collection.tally.receive(messages[0])
    for client in clients[1:]:
        collection.tally.receive(collection.answer(client))
    np.testing.assert_array_equal(collection.tally.close().open(), collection.plain(values[1:]))
    inner = collection.tally._state
    place = inner._places[bytes.fromhex(victim.key)]
    vector = np.frombuffer(messages[0][16 + 4 + 32 :], dtype="<u4")
    masks = np.zeros(len(vector), dtype=np.uint32)
    for peer, key in inner.keys_of_missing(place):
        masks += mask(key, size=len(vector)) * np.uint32(1 if peer < place else 2**32 - 1)
    unmasked = vector + masks  # what survivors added for the victim is what it took away
    assert looks_uniform(unmasked)
    # every share of the victim that was told is one of its mask secret
    assert {answer[place][0] for answer in inner._answers.values() if place in answer} == {0}
    assert not looks_uniform(unmasked - mask(victim._masking._seed, size=len(unmasked)))


def survivors(collection, alive, *, n=None) -> bytes:
    gathering = collection.tally._state
    return kind_of("survivors", gathering.roster.digest) + numbers([len(alive) if n is None else n, *alive])


def test_a_client_answers_for_one_set_of_survivors_and_never_tells_both_shares():
    collection = Round()
    clients = collection.until("unmask", list(range(12)))
    client = clients[0]
    answer = collection.answer(client)
    size = 4 + 1 + 33
    senders = [places(answer[at : at + 4])[0] for at in range(16 + 4 + 32, len(answer), size)]
    assert len(senders) == len(set(senders))
    place = collection.tally._state._places[bytes.fromhex(client.key)]
    fewer = collection.tally._state._graph[place].tolist()[1:]
    with pytest.raises(PartyError, match="answers 'unmask' once"):
        client.unmask(survivors(collection, fewer, n=11))


@pytest.mark.parametrize("lying", [False, True])
def test_fewer_survivors_than_agreed_are_refused_before_a_share_is_told(lying):
    collection = Round(lying=lying, least=8)
    clients = collection.until("confirm" if lying else "unmask", list(range(12)))
    client = clients[0]
    place = collection.tally._state._places[bytes.fromhex(client.key)]
    few = sorted([*collection.tally._state._graph[place].tolist()[:6], place] if lying else [])
    work = client.confirm if lying else client.unmask
    with pytest.raises(PartyError, match="needs 8 survivors"):
        work(survivors(collection, few, n=7))
    with pytest.raises(PartyError, match="is at 'done'"):
        work(survivors(collection, list(range(12)), n=12))


@pytest.mark.parametrize("whose", ["a neighbour's again", "its own"])
def test_shares_are_those_of_neighbours_and_once_of_each(whose):
    one = Round()
    client = one.until("mask", list(range(12)))[0]
    message = one.tally.outbox(bytes.fromhex(client.key))
    one_more = message[16 : 16 + 4 + SEALED]
    if whose == "its own":
        one_more = numbers([one.tally._state._places[bytes.fromhex(client.key)]]) + one_more[4:]
    with pytest.raises(PartyError, match="no neighbour, or twice of one"):
        client.mask(0, message + one_more)


@pytest.mark.parametrize("lying", [False, True])
def test_survivors_are_different_clients_in_order(lying):
    """Seven of whom one is named twice would pass for the eight that are agreed."""
    one = Round(lying=lying, least=8)
    clients = one.until("confirm" if lying else "unmask", list(range(12)))
    inner = one.tally._state
    twice, backwards, beyond = clients[:3]
    for client in (twice, backwards, beyond):
        place = inner._places[bytes.fromhex(client.key)]
        known = sorted([*inner._graph[place].tolist(), place] if lying else inner._graph[place].tolist())
        few = sorted({place, *known[:7]})[:7] if lying else known
        named = {twice: [*few, few[-1]], backwards: known[::-1], beyond: [*known, 12]}[client]
        with pytest.raises(PartyError, match="survivors must be different clients in order"):
            (client.confirm if lying else client.unmask)(survivors(one, named, n=8))


@pytest.mark.parametrize("told_of_all", [True, False])
def test_a_lying_tally_gets_no_second_set_confirmed(told_of_all):
    collection = Round(lying=True, least=8, colluding=0.05, missing=0.1)
    clients = collection.until("confirm", list(range(12)))
    inner = collection.tally._state
    at = {inner._places[bytes.fromhex(client.key)]: client for client in clients}
    victim, survivor = 0, 5
    # of the neighbours of one client, half are told that all survive, half that the victim does not
    everybody, without = list(range(12)), list(range(1, 12))
    peers = [peer for peer in inner._graph[survivor].tolist() if peer != victim]
    signed = {}
    for number, place in enumerate(peers):
        message = at[place].confirm(survivors(collection, everybody if number % 2 else without))
        signed[place] = message[16 + 4 + 32 :]
    at[survivor].confirm(survivors(collection, everybody if told_of_all else without))
    body = b"".join(numbers([peer]) + signed[peer] for peer in peers)
    with pytest.raises(PartyError, match="must confirm the survivors"):
        at[survivor].unmask(kind_of("confirmations", inner.roster.digest) + body)
    with pytest.raises(PartyError, match="not among the survivors"):
        at[victim].confirm(survivors(collection, without))


@pytest.mark.parametrize("lying", [False, True])
def test_a_tally_that_withholds_shares_opens_no_sum_of_a_part_of_the_survivors(lying):
    collection = Round(lying=lying, least=11, colluding=0.05, missing=0.1)
    clients = collection.until("mask", list(range(12)))
    inner = collection.tally._state
    places_of = [inner._places[bytes.fromhex(client.key)] for client in clients]
    inside = sorted(places_of)[
        :10
    ]  # the tally delivers shares among these, and says that all twelve survived
    for client, place in zip(clients, places_of, strict=True):
        message = collection.tally.outbox(bytes.fromhex(client.key))
        if place in inside:
            peers = [peer for peer in inner._graph[place].tolist() if peer in inside]
            shares = [numbers([peer]) + inner._sealed[peer][place] for peer in peers]
            message = message[:16] + b"".join(shares)
        client.mask(3, message)
    refusals = 0
    for client, place in zip(clients, places_of, strict=True):
        peers = inner._graph[place].tolist()
        answer = client.confirm if lying else client.unmask
        message = survivors(collection, list(range(12)) if lying else peers, n=12)
        withheld = len(set(peers) - set(inside)) if place in inside else 0
        if withheld:
            refusals += 1
            with pytest.raises(
                PartyError, match=f"shares of {withheld} neighbours who survived did not arrive"
            ):
                answer(message)
        else:
            answer(message)
    assert refusals > 3


def test_a_roster_without_the_word_of_the_enrolment_is_refused_by_tally_and_client():
    collection = Round(lying=True)
    clients = collection.clients(10)
    for client in clients:
        collection.tally.receive(client.join())
    for wrong in (
        b"",
        bytes(96),
        approval(collection.task, Identity.fresh(), collection.tally.entries(), round_=0),
    ):
        with pytest.raises(PartyError, match=r"approval|signature"):
            collection.tally.advance(wrong)
    collection.tally.advance(collection.approval())
    message = collection.tally.outbox(bytes.fromhex(clients[0].key))
    invented = message[:-128] + message[-256:-128]
    with pytest.raises(PartyError, match="signature"):
        clients[0].share(invented)


def flipped(message: bytes, place: int) -> bytes:
    place %= len(message)
    return message[:place] + bytes([message[place] ^ 1]) + message[place + 1 :]


@pytest.mark.parametrize("stage", ["share", "mask", "unmask"])
@pytest.mark.parametrize(
    "change", [lambda m: b"", lambda m: m[:-1], lambda m: m + b"\0", lambda m: flipped(m, 0)]
)
def test_clients_refuse_what_a_tally_should_not_say(stage, change):
    collection = Round()
    client = collection.until(stage, list(range(12)))[0]
    message = change(collection.tally.outbox(bytes.fromhex(client.key)))
    with pytest.raises(PartyError, match="the client refuses"):
        client.mask(3, message) if stage == "mask" else getattr(client, stage)(message)


ONE = 4 + ENTRY_BYTES  # a neighbour: its place and its keys


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda n, place, peers: numbers([7, place]) + peers, "a roster must have 8 to 40 clients, got 7"),
        (lambda n, place, peers: numbers([41, place]) + peers, "a roster must have 8 to 40 clients, got 41"),
        (lambda n, place, peers: numbers([n, n]) + peers, "a roster must have 8 to 40 clients"),
        (lambda n, place, peers: numbers([n, place]) + peers[:-ONE], "the roster must name 6 neighbours"),
        (lambda n, place, peers: numbers([n, place]) + peers + peers[-ONE:], "must name 6 neighbours"),
        (lambda n, place, peers: numbers([40, place]) + peers, r"the roster must name \d\d neighbours"),
        (
            lambda n, place, peers: numbers([n, place]) + peers[:32] + peers[32 + ONE :] + peers[-ONE:],
            "neighbours must be different clients",
        ),
        (
            lambda n, place, peers: numbers([n, place]) + peers[:-ONE] + numbers([place]) + peers[4 - ONE :],
            "neighbours must be different clients",
        ),
        (
            lambda n, place, peers: numbers([n, place]) + peers[:-ONE] + numbers([n]) + peers[4 - ONE :],
            "neighbours must be different clients",
        ),
        (
            lambda n, place, peers: numbers([n, place]) + peers[: 4 - ONE] + peers[36 : 36 + ENTRY_BYTES],
            "neighbours must have keys of their own",
        ),
        (
            lambda n, place, peers: numbers([n, place]) + peers[:-ENTRY_BYTES] + bytes(ENTRY_BYTES),
            "malformed",
        ),
    ],
)
def test_a_client_takes_as_many_neighbours_as_agreed_each_once_with_keys_of_its_own(change, why):
    one = Round()
    client = one.until("share", list(range(12)))[0]
    message = one.tally.outbox(bytes.fromhex(client.key))
    n, place = places(message[16:24])
    assert (n, len(message)) == (12, 16 + 8 + 32 + 6 * ONE)
    with pytest.raises(PartyError, match=why):
        client.share(message[:16] + change(n, place, message[24:]))
    with pytest.raises(PartyError, match="is at 'done'"):
        client.share(message)


@pytest.mark.parametrize("lying", [False, True])
def test_as_many_survivors_as_agreed_are_enough_and_they_are_of_the_roster(lying):
    one = Round(lying=lying, least=8, colluding=0.05)
    clients = one.until("confirm" if lying else "unmask", list(range(12)))
    inner = one.tally._state

    def answer(client, named, n):
        return (client.confirm if lying else client.unmask)(survivors(one, named, n=n))

    for client, extra in zip(clients, range(4), strict=False):
        place = inner._places[bytes.fromhex(client.key)]
        peers = inner._graph[place].tolist()
        alive = sorted([*peers[:7], place]) if lying else peers
        if extra == 0:
            assert answer(client, alive, 8)
        elif extra == 1:
            with pytest.raises(PartyError, match="a round needs 8 survivors"):
                answer(client, alive, 13)
        elif extra == 2 and not lying:
            with pytest.raises(PartyError, match="survivors must be neighbours"):
                answer(client, sorted([*peers, place]), 12)
        elif extra == 3 and lying:
            with pytest.raises(PartyError, match="not among the survivors"):
                answer(client, peers[:9], 9)


@pytest.mark.parametrize("lying", [False, True])
def test_a_client_that_lies_about_shares_ends_no_round(lying):
    collection, values = Round(lying=lying, least=8, colluding=0.05), list(range(12))
    clients = collection.clients(len(values))
    liar = clients[5]
    while True:
        stage = collection.tally.stage
        for client, value in zip(clients, values, strict=True):
            message = client.join() if stage == "join" else collection.answer(client, value)
            if client is liar and stage == "share":  # its last two seals are wrong
                message = message[:-100] + os.urandom(100)
            if client is liar and stage == "unmask":  # and so are all shares that it tells
                size, head = 4 + 1 + 33, 16 + 4 + 32
                parts = [
                    message[at : at + 5] + os.urandom(32) + b"\0" for at in range(head, len(message), size)
                ]
                message = message[:head] + b"".join(parts)
            collection.tally.receive(message)
        if stage == "unmask":
            break
        collection.tally.advance(collection.approval() if stage == "join" else b"")
    np.testing.assert_array_equal(collection.tally.close().open(), collection.plain(values))


def test_too_many_wrong_seals_are_refused():
    collection = Round()
    client = collection.until("mask", list(range(12)))[0]
    message = collection.tally.outbox(bytes.fromhex(client.key))
    with pytest.raises(PartyError, match="neighbours are needed"):
        client.mask(
            3,
            message[:16]
            + b"".join(message[at : at + 4] + os.urandom(82) for at in range(16, len(message), 86)),
        )


@pytest.mark.parametrize("stage", ["share", "mask", "unmask"])
def test_the_tally_takes_one_message_of_each_exchange_and_only_from_its_sender(stage):
    collection = Round()
    clients = collection.until(stage, list(range(12)))
    message = collection.answer(clients[0], 3)
    before = copy.deepcopy(collection.tally._state.total)
    ticket = flipped(message, 16 + 4 + 5)  # another client knows the place, not the ticket
    for wrong, why in (
        (ticket, "not from client"),
        (message[:16] + numbers([99]) + message[20:], "from a client on the roster"),
        (flipped(message, 2), "another task or round"),
        (message[:-1], "needed|cells"),
        (b"", "another task or round"),
    ):
        with pytest.raises(PartyError, match=why):
            collection.tally.receive(wrong)
    np.testing.assert_array_equal(collection.tally._state.total, before)
    collection.tally.receive(message)
    collection.tally.receive(message)
    with pytest.raises(PartyError, match="answered this exchange already"):
        collection.tally.receive(flipped(message, -1))


def test_too_few_clients_stop_every_exchange():
    collection = Round(least=8)
    for _ in range(7):
        collection.tally.receive(Client(collection.task).join())
    with pytest.raises(PartyError, match="needs 8 clients, and 7 joined"):
        collection.tally.advance()
    collection = Round(least=8)
    clients = collection.until("share", list(range(12)))
    for client in clients[:7]:
        collection.tally.receive(collection.answer(client))
    with pytest.raises(PartyError, match="7 sent shares"):
        collection.tally.advance()


def test_more_wrong_shares_than_can_be_corrected_are_noticed_and_no_honest_client_is_named():
    collection = Round()
    collection.run(list(range(12)))
    inner, peer = collection.tally._state, 5
    for holder in inner._graph[peer].tolist()[:4]:
        flag, share = inner._answers[holder][peer]
        inner._answers[holder][peer] = flag, flipped(share, 0)
    with pytest.raises(PartyError, match="the secrets of 1 of 12 clients are not recovered") as caught:
        collection.tally.close()
    assert caught.value.parties == ()


def test_a_restarted_tally_goes_on_in_every_exchange(tmp_path):
    collection = Round(folder=tmp_path)
    values, restart = list(range(12)), collection.restart
    clients = [Client(collection.task) for _ in values]
    for client in clients:
        collection.tally.receive(client.join())
        restart()
    for _ in range(3):
        collection.tally.advance()
        restart()
        for client, value in zip(clients[:-1], values, strict=False):
            collection.tally.receive(collection.answer(client, value))
        restart()
    np.testing.assert_array_equal(collection.tally.close().open(), collection.plain(values[:-1]))
    restart()
    np.testing.assert_array_equal(collection.tally.close().open(), collection.plain(values[:-1]))


def test_a_client_joins_a_round_once_not_after_a_restart_either(tmp_path):
    collection = Round()
    Client(collection.task, folder=tmp_path).join()
    with pytest.raises(PartyError, match="answered this round"):
        Client(collection.task, folder=tmp_path).join()
    with pytest.raises(PartyError, match="has not joined"):
        Client(collection.task).share(b"")
    with pytest.raises(ValueError, match="trusts clients"):
        Client(collection.task).report(3)


def test_each_pair_has_a_mask_of_its_own_in_each_round():
    collection = Round()
    clients = collection.until("mask", list(range(12)))
    client = clients[0]._masking
    streams = [
        pair_mask(
            client._secret, entry.mask.hex(), transcript=digest, pair=pair_names(client._place, peer), size=16
        ).tobytes()
        for peer, entry in client._peers.items()
        for digest in (client._digest, bytes(32))
    ]
    assert len(set(streams)) == len(streams)


def test_a_roster_takes_each_client_once_with_keys_of_its_own_until_it_is_full_or_closed():
    one = Round(most=9)
    clients = [Client(one.task) for _ in range(10)]
    joins = [client.join() for client in clients]
    assert one.tally.outbox(bytes.fromhex(clients[0].key)) == b""
    with pytest.raises(PartyError, match="the roster is not closed yet"):
        _ = one.tally._state._known_roster
    for message in (*joins[:9], joins[0]):
        one.tally.receive(message)
    assert (one.tally.n_clients, one.tally.progress) == (9, (9, 9))
    for message, why in (
        (joins[9], "the roster is full"),
        (flipped(joins[0], 16 + 32 + 5), "another client has the key"),
        (joins[0] + bytes(64), "must carry the enrolment's certificate where"),
        (joins[0][:-1], "an entry must have 128 bytes, got 127"),
        (bytes(16) + joins[0][16:], "for another task or round"),
    ):
        with pytest.raises(PartyError, match=why):
            one.tally.receive(message)
    one.tally.advance()
    one.tally.receive(joins[0])  # an answer that was lost is asked for again
    with pytest.raises(PartyError, match="the roster is closed"):
        one.tally.receive(joins[9])
    assert one.tally.outbox(bytes.fromhex(clients[9].key)) == b""
    assert one.tally.n_clients == 9


def changed_by(one, stage, change):
    """How the tally refuses a changed message of this exchange, before it takes the message itself."""
    clients = one.until(stage, list(range(12)))
    message = one.answer(clients[0], 3)
    place = one.tally._state._places[bytes.fromhex(clients[0].key)]
    with pytest.raises(PartyError) as refused:
        one.tally.receive(change(message, one.tally._state._graph[place].tolist()))
    one.tally.receive(message)
    one.tally.receive(message)
    assert one.tally.progress[0] == 1
    return str(refused.value).replace(f"client {place}", "it")


HEAD, ANSWER = 16 + 4 + 32, 4 + 1 + 33


@pytest.mark.parametrize(
    ("stage", "change", "why"),
    [
        ("share", lambda m, peers: m[:-1], "it: shares for 6 neighbours are needed"),
        ("share", lambda m, peers: m + bytes(SEALED), "it: shares for 6 neighbours are needed"),
        ("mask", lambda m, peers: m[:-4], "it: the vector must have 24 cells"),
        ("mask", lambda m, peers: m + bytes(4), "it: the vector must have 24 cells"),
        ("confirm", lambda m, peers: flipped(m, -1), "it confirms another set of survivors"),
        ("unmask", lambda m, peers: m[:-1], "it: at most 6 shares are needed"),
        ("unmask", lambda m, peers: m + m[HEAD : HEAD + ANSWER], "it: at most 6 shares are needed"),
        (
            "unmask",
            lambda m, peers: m[: HEAD + ANSWER] + m[HEAD : HEAD + ANSWER] + m[HEAD + 2 * ANSWER :],
            "it: a share that was not asked for",
        ),
        ("unmask", lambda m, peers: flipped(m, HEAD + 4), "it: a share that was not asked for"),
        (
            "unmask",
            lambda m, peers: m[:HEAD] + numbers([(set(range(12)) - {*peers}).pop()]) + m[HEAD + 4 :],
            "it: a share that was not asked for",
        ),
    ],
)
def test_the_tally_takes_what_it_asked_for_and_nothing_else(stage, change, why):
    one = Round(lying=stage == "confirm", least=8, colluding=0.1 if stage != "confirm" else 0.05)
    refusal = changed_by(one, stage, change)
    assert refusal.removeprefix("the tally refuses: ") in {why, why.replace("6", "11")}


@pytest.mark.parametrize(
    ("lying", "gone", "stage", "why"),
    [
        (False, "share", "mask", "has sent no shares"),
        (False, "mask", "unmask", "is not among the survivors"),
        (True, "mask", "confirm", "is not among the survivors"),
        (True, "mask", "unmask", "is not among the survivors"),
    ],
)
def test_who_left_a_round_is_not_asked_and_not_heard_any_more(*, lying, gone, stage, why):
    one = Round(lying=lying, least=8, colluding=0.05)
    clients = one.clients(12)
    for client in clients:
        one.tally.receive(client.join())
    with pytest.raises(PartyError, match="the round is at the exchange 'join'"):
        one.tally.close()
    one.tally.advance(one.approval())
    left, *others = clients
    while one.tally.stage != stage:
        left_too = [left] if one.tally.stage not in {gone, "mask", "confirm", "unmask"} else []
        for client in [*others, *left_too]:
            one.tally.receive(one.answer(client, 3))
        one.tally.advance()
    assert one.tally.outbox(bytes.fromhex(left.key)) == b""
    place = one.tally._state._places[bytes.fromhex(left.key)]
    head = kind_of(stage, one.tally._state.roster.digest) + numbers([place]) + left._masking._ticket
    with pytest.raises(PartyError, match=why):
        one.tally.receive(head + bytes(96))
    if stage == "unmask":
        with pytest.raises(PartyError, match=r"closed by close\(\)"):
            one.tally.advance()
