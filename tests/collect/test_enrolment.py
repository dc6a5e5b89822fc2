"""An enrolment signs claims and one roster a round; strangers and a second roster are refused."""

import pickle
import threading

import numpy as np
import pytest

from ostraka.collect import Client, Keeper, Tally, Task, Tree
from ostraka.collect.client import send
from ostraka.collect.keeper import Enrolment, approve_roster
from ostraka.collect.messages import approval, certified
from ostraka.secure.keys import Identity
from ostraka.secure.rounds import PartyError
from ostraka.secure.wire import PartyServer
from tests.collect.conftest import Office


class Round(Office):
    """A task among clients with an enrolment, in which strangers join as well."""

    def __init__(self, folder=None, **options):
        super().__init__(enrolled=True, folder=folder, **{"colluding": 0.05, **options})

    def joined(self, n, strangers=0):
        clients = [Client(self.task) for _ in range(n + strangers)]
        for client in clients[:n]:
            client.certificate = self.enrolment.enrol(client.claim)
        for client in clients[:n]:
            self.tally.receive(client.join())
        for client in clients[n:]:  # as a tally that lets in whom it likes would do
            message = client.join()
            self.tally._state._entries[bytes.fromhex(client.key)] = message[16:]
        return clients[:n]


@pytest.mark.parametrize("lying", [True, False])
def test_strangers_are_left_out_and_the_others_sum_exactly(lying):
    collection = Round(lying=lying)
    clients = collection.joined(10, strangers=3)
    collection.tally.approve(collection.enrolment.approve(collection.tally.entries()))
    assert collection.tally.n_clients == 10
    while True:
        stage = collection.tally.stage
        for value, client in enumerate(clients):
            message = collection.tally.outbox(bytes.fromhex(client.key))
            work = getattr(client, stage)
            collection.tally.receive(work(value, message) if stage == "mask" else work(message))
        if stage == "unmask":
            break
        collection.tally.advance()
    np.testing.assert_array_equal(collection.tally.close().open(), collection.plain(range(10)))


@pytest.mark.parametrize("certificate", [b"", bytes(64), "another's"])
def test_strangers_take_no_place_on_the_roster(certificate):
    collection = Round(most=12)
    enrolled = collection.joined(9)
    for _ in range(20):
        stranger = Client(collection.task)
        stranger.certificate = enrolled[0].certificate if certificate == "another's" else certificate
        with pytest.raises(PartyError, match=r"certificate|did not sign"):
            collection.tally.receive(stranger.join())
    collection.joined(3)
    assert collection.tally.n_clients == 12


def test_a_roster_waits_for_those_who_are_enrolled_and_not_for_strangers():
    collection = Round()
    collection.joined(8, strangers=12)
    with PartyServer(collection.tally) as server:
        late = threading.Timer(0.3, lambda: collection.joined(4))
        late.start()
        approve_roster(server.url, collection.enrolment, n_clients=12, seconds=60)
        late.join()
    assert (collection.tally.stage, collection.tally.n_clients) == ("share", 12)


def test_a_second_roster_is_refused_after_a_restart_too_and_the_first_is_repeated(tmp_path):
    collection = Round(tmp_path)
    collection.joined(9)
    first = collection.tally.entries()
    approved = collection.enrolment.approve(first)
    collection.joined(1)
    for _ in range(2):
        with pytest.raises(PartyError, match="another roster"):
            collection.enrolment.approve(collection.tally.entries())
        assert collection.enrolment.approve(first) == approved
        collection.restart()
    collection.tally.approve(approved)
    collection.restart()
    assert (collection.tally.stage, collection.tally.n_clients) == ("share", 9)
    assert collection.tally.approve(approved) == collection.tally.approve(approved)
    with pytest.raises(PartyError, match="closed"):
        collection.tally.approve(approval(collection.task, collection.office, first, round_=0))


def test_claims_are_remembered_and_cover_all_keys_of_a_client(tmp_path):
    collection = Round(tmp_path)
    clients = collection.joined(9)
    collection.restart()
    entries = collection.tally.entries()
    assert len(collection.enrolment.approve(entries)) == 96 + 32 * 9
    second_collection = Round()
    second_collection.task, second_collection.enrolment = (
        collection.task,
        Enrolment(collection.task, collection.office),
    )
    for client in clients:
        second_collection.enrolment.enrol(client.claim)
    changed = bytearray(entries)
    for client in range(2):  # the tally puts other keys for shares beside enrolled keys for masks
        changed[128 * client + 32 : 128 * client + 64] = bytes.fromhex(Client(collection.task).key)
    with pytest.raises(PartyError, match="7 enrolled clients joined: too few"):
        second_collection.enrolment.approve(bytes(changed))
    assert certified(collection.task, bytes.fromhex(clients[0].claim), clients[0].certificate, round_=0)
    assert not certified(collection.task, bytes.fromhex(clients[1].claim), clients[0].certificate, round_=0)


def test_a_false_approval_closes_no_roster_and_leaves_no_trace(tmp_path):
    collection = Round(tmp_path)
    collection.joined(9)
    before = collection.tally._log.head
    entries = collection.tally.entries()
    for wrong in (
        b"",
        bytes(96),
        approval(collection.task, Identity.fresh(), entries, round_=0),
        bytes(96 + 32),
    ):
        with pytest.raises(PartyError, match=r"approval|signature|joined"):
            collection.tally.approve(wrong)
    assert collection.tally._log.head == before
    assert collection.tally.stage == "join"


def test_claims_that_another_process_signs_meanwhile_are_on_the_roster(tmp_path):
    collection = Round(tmp_path)
    waiting = collection.enrolment  # 'collect approve' waits while 'collect enrol' signs
    collection.enrolment = Enrolment(collection.task, collection.office, folder=tmp_path)
    collection.joined(9)
    collection.tally.approve(waiting.approve(collection.tally.entries()))
    assert collection.tally.n_clients == 9


def test_entries_that_make_no_roster_are_refused_and_use_up_no_approval():
    collection = Round(most=12)
    clients = collection.joined(10)
    good = collection.tally.entries()
    many = [Client(collection.task) for _ in range(3)]
    for client in many:
        client.certificate = collection.enrolment.enrol(client.claim)
    joins = b"".join(client.join()[16:-64] for client in many)
    for wrong in (good[:128] * 10, good[:128] * 3 + good[128:], bytes(128) + good, good + joins):
        with pytest.raises(PartyError, match="the enrolment refuses"):
            collection.enrolment.approve(wrong)
    collection.tally.approve(collection.enrolment.approve(good))
    assert collection.tally.n_clients == len(clients)


def test_the_approval_of_a_large_roster_fits_into_a_message_to_the_tally():
    collection = Round(most=1_000_000, least=60_000)
    assert collection.tally.most_bytes >= 96 + 32 * 1_000_000


def test_what_is_no_claim_and_who_is_no_enrolment_are_refused():
    collection = Round()
    for claim in ("", "ab", "AB" * 32, "zz" * 32):
        with pytest.raises(ValueError, match="claim must have 64"):
            collection.enrolment.enrol(claim)
    with pytest.raises(ValueError, match="another enrolment"):
        Enrolment(collection.task, Identity.fresh())
    with pytest.raises(PartyError, match="another length"):
        collection.enrolment.approve(bytes(5))
    with pytest.raises(TypeError, match="does not travel"):
        pickle.dumps(collection.enrolment)


def test_sending_needs_the_signature_of_the_enrolment():
    me, office, others = Identity.fresh(), Identity.fresh(), [Identity.fresh() for _ in range(2)]
    keys = [Keeper.key(keeper) for keeper in others]
    task = Task(Tree(0, 20), sigma=3.0, tally=me.public_key, enrolment=office.public_key, keepers=keys)
    tally = Tally(task, me, keepers=[Keeper(task, keeper) for keeper in others])
    with PartyServer(tally, pages=tally.pages) as server:
        with pytest.raises(ValueError, match="needs an enrolled client"):
            send(server.url, 3)
        with pytest.raises(ValueError, match="did not sign"):
            send(server.url, 3, certify=lambda _: bytes(64))
        for _ in range(3):
            send(server.url, 3, certify=Enrolment(task, office).enrol)
    assert tally.n_clients == 3


def test_a_roster_is_approved_after_the_time_limit_with_those_who_came():
    collection = Round()
    collection.joined(9)
    with PartyServer(collection.tally) as server:
        approve_roster(server.url, collection.enrolment, n_clients=12, seconds=0.2)
    assert collection.tally.stage == "share"
