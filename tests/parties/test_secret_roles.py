"""Who learns what of a secret question, role by role: nothing but what docs/parties.md says.

A simulator knows one role's inputs and outputs only, and draws everything else uniformly. Real transcripts
of 2,000 rows must look like it: no bit is biased, nothing repeats, and no two rounds have anything in common.
Planted leaks must not: those of the question's mask are in mutants/_secret.py.
"""

import base64
import hashlib

import numpy as np
import pytest
from scipy.stats import norm

from ostraka.parties.asker import SecretRound
from ostraka.secure import rounds, two_party
from ostraka.secure.agreement import fixed_rows
from ostraka.secure.keys import decrypt, exchange_secret
from ostraka.secure.masks import stream
from ostraka.secure.rounds import DEALER, AskerKeys, PartyError
from ostraka.secure.two_party import Sent, Sizes, model_pads
from tests.false_alarm import FALSE_ALARM
from tests.parties.hidden_rounds import secret_parties, tapped

N_ROWS = 2000
LOW, HIGH = np.zeros((N_ROWS, 2)), np.ones((N_ROWS, 2))


def looks_drawn(numbers: np.ndarray, *, bits: int | None = None) -> bool:
    """Whether the bits of an array (rows first) are fair, each by itself, and rows do not repeat."""
    rows = np.ascontiguousarray(numbers).reshape(len(numbers), -1)
    bits = 8 * rows.itemsize if bits is None else bits
    octets = rows.view(np.uint8).reshape(-1, rows.itemsize)
    ones = np.unpackbits(octets, axis=1, bitorder="little").sum(axis=0)[:bits]
    reach = norm.isf(FALSE_ALARM / (2 * bits)) * np.sqrt(rows.size) / 2
    fair = (np.abs(ones - rows.size / 2) <= reach).all()
    long = rows.shape[1] * bits >= 64  # of shorter rows some are alike
    return bool(fair and not (long and len({row.tobytes() for row in rows}) < len(rows)))


def round_of(parties, rows):
    """What went to and from the first party and the dealer, and the pads of both sides."""
    wire, dealer, sides = tapped(parties), tapped(parties, DEALER), {}
    sessions = parties.parties["party-1"]._secret
    plain_asked, began = SecretRound.asked, sessions.join

    def joined(call, secret):
        session = began(call, secret)
        sides["owner"] = sessions._open[call.digest].side._pads
        return session

    def kept_side(self, name, weights):
        side = plain_asked(self, name, weights)
        if name == "party-1":
            sides["asker"] = side[0]._pads
        return side

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sessions, "join", joined)
        patched.setattr(SecretRound, "asked", kept_side)
        parties.vote(rows)
    parties._links["party-1"], parties._dealer = wire.link, dealer.link
    return wire, dealer, sides


def masked_rows(question):
    """The masked rows of a message, behind their salt."""
    return two_party.words(Sent(question[32:]), (len(question) - 32) // 16, 2)


def parts_of(parties, rows):
    """One round: what a party sees, and what the asker sees of it and of the dealer, by name.

    Numbers that are opened are taken less one's own mask: what is left must be hidden by the other's.
    """
    wire, dealer, sides = round_of(parties, rows)
    units = parties.agreement.secret.hidden
    sizes = Sizes(len(rows), 2, units, 3)
    sealed, words = rounds.unpack(wire.last("ask", "sent"), 2)
    _, question, opening, _ = rounds.unpack(sealed[64:], 4)
    party = {
        "rows": masked_rows(question),
        "first opening": two_party.words(Sent(opening), sizes.n_rows, sizes.first),
        "wins": two_party.small(Sent(rounds.unpack(wire.last("vote", "sent")[64:], 3)[2]), sizes.n_rows, 3),
    }
    _, weights = rounds.unpack(wire.last("join", "received"), 2)
    answer = Sent(wire.last("ask", "received")[64 + 32 :])
    asker = {
        "weights": two_party.words(Sent(weights[64 + 32 :]), 2, sizes.first),
        "first opening": two_party.words(answer, sizes.n_rows, sizes.first),
    }
    last = "ask"
    if units:
        last = "layer"
        sent = Sent(rounds.unpack(wire.last("layer", "sent")[64:], 3)[2])
        party["signs"] = two_party.small(sent, sizes.n_rows, units)
        party["units"] = two_party.words(sent, sizes.n_rows, units)
        party["last opening"] = two_party.words(sent, sizes.n_rows, 3)
        asker["signs"] = two_party.small(answer, sizes.n_rows, units)
        layer = Sent(wire.last("layer", "received")[64 + 32 :])
        asker["last opening"] = two_party.words(layer, sizes.n_rows, 3)
    for name in [name for name in party if name.endswith("opening")]:
        masks = {
            holder: (side.argmax if side.relu is None or name.startswith("last") else side.relu).opened
            for holder, side in sides.items()
        }
        opened = party[name] + asker[name]
        for view, holder in ((party, "owner"), (asker, "asker")):
            view[name.replace("opening", "opened")] = opened - masks[holder].reshape(opened.shape)
    asker["wins"] = np.frombuffer(wire.last(last, "received"), dtype=np.uint8)[-3 * sizes.n_rows :].reshape(
        -1, 3
    )
    party["words"], asker["words"] = words, words
    asker["votes"] = np.frombuffer(wire.last("vote", "received")[64 + 32 :], dtype="<u4").reshape(-1, 3)
    asker["corrections"] = rounds.unpack(dealer.last("material", "received"), 3)[2]
    return party, asker


def bits_of(name):
    return {"wins": 4, "signs": 1}.get(name)


def seen(view):
    """The numbers of a view that a simulator draws, rows first; correction words by their halves."""
    arrays = {
        name: values
        for name, values in view.items()
        if isinstance(values, np.ndarray) and len(values) == N_ROWS
    }
    words = np.frombuffer(view["words"], dtype="<u8")[: 8 * N_ROWS].reshape(N_ROWS, -1, 2)
    arrays["words"], arrays["seed words"] = words[:, :, 1], words[:, :, 0] >> np.uint64(8)
    return arrays


def simulated(view, rng):
    """The same shapes, drawn without anybody's question, model or vote."""
    arrays = {}
    for name, values in seen(view).items():
        bits = {"seed words": 56}.get(name, bits_of(name)) or 8 * values.itemsize
        draws = rng.integers(0, 2**64, values.shape, dtype=np.uint64) >> np.uint64(64 - bits)
        arrays[name] = draws.astype(values.dtype)
    return arrays


def alike(view, rng):
    """Names of what tells the view from its simulation."""
    wrong = []
    for name, values in simulated(view, rng).items():
        bits = {"seed words": 56}.get(name, bits_of(name))
        assert looks_drawn(values, bits=bits), name
        if not looks_drawn(seen(view)[name], bits=bits):
            wrong.append(name)
    return wrong


@pytest.mark.statistical
@pytest.mark.parametrize("units", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_a_party_sees_what_its_simulator_draws_whatever_the_question(units):
    parties, rng = secret_parties(hidden_units=units, max_rows=N_ROWS), np.random.default_rng(0)
    views = [parts_of(parties, rows)[0] for rows in (LOW, HIGH, HIGH)]
    for view in views:
        assert alike(view, rng) == []
    for first, second in ((0, 1), (1, 2)):  # masks of another round: differences are drawn, too
        for name, values in seen(views[first]).items():
            second_view = seen(views[second])[name]
            assert looks_drawn(values ^ second_view, bits={"seed words": 56}.get(name, bits_of(name))), name


@pytest.mark.statistical
@pytest.mark.parametrize("units", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_an_asker_sees_what_its_simulator_draws_whatever_the_models(units):
    rng = np.random.default_rng(0)
    views = [
        parts_of(secret_parties(hidden_units=units, max_rows=N_ROWS, seed=seed), LOW)[1] for seed in (0, 1, 1)
    ]
    for view in views:
        assert alike(view, rng) == []
    for first, second in ((0, 1), (1, 2)):
        for name, values in seen(views[first]).items():
            second_view = seen(views[second])[name]
            assert looks_drawn(values ^ second_view, bits={"seed words": 56}.get(name, bits_of(name))), name
        assert not (views[first]["weights"] == views[second]["weights"]).any()


@pytest.mark.statistical
def test_the_dealer_is_told_nothing_that_depends_on_question_or_models():
    messages = []
    for seed, rows in ((0, LOW), (1, HIGH)):
        parties = secret_parties(max_rows=N_ROWS, seed=seed)
        wire = tapped(parties, DEALER)
        parties.vote(rows)
        messages.append([(verb, len(data)) for verb, direction, data in wire.log if direction == "sent"])
        text = b"".join(data for _, direction, data in wire.log if direction == "sent")
        fixed = fixed_rows(rows, parties.agreement.secret)
        for guess in (
            rounds.question(rows),
            rounds.question(fixed),
            hashlib.sha256(rows.tobytes()).hexdigest(),
        ):
            assert guess.encode() not in text  # the old digest: whoever guesses the rows could tell
    assert sorted(messages[0]) == sorted(messages[1])


def dealt(parties, rows):
    """The signed bodies that go to the dealer in a round which ends before any material is made."""
    wire = tapped(parties, DEALER)

    def stop(verb, direction, data):
        if (verb, direction) == ("material", "sent"):
            raise PartyError("enough is seen", code="unreachable", parties=(DEALER,))
        return data

    wire.change = stop
    with pytest.raises(PartyError, match="enough is seen"):
        parties.vote(rows)
    parties._dealer = wire.link
    return [data[64:] for verb, direction, data in wire.log if direction == "sent"]


def drawn_by_dealers_simulator(parties, dealt_views):
    """The strings in a dealer's view which its simulator draws: all else follows from the agreement."""
    opened, request = dealt_views
    written, replies = rounds.read_replies(request)
    call = rounds.Call.read(written.encode(), parties.agreement)
    keys = rounds.Round.gather(call, replies, parties.agreement).keys
    assert opened == rounds.opening(call)
    public = {"agreement": parties.agreement.sha256, "n_rows": 3, "participants": tuple(parties.parties)}
    draws = {"id": call.id, "key": call.key, "question": call.question, "offer": call.offer}
    assert call == rounds.Call(**public, **draws)
    again = {
        name: parties.parties[name]._identity.seal("reply", rounds.reply(call, name, key))
        for name, key in keys.items()
    }
    assert request == rounds.write_replies(written, again)  # Ed25519 signs without drawing
    return [call.id, call.question], [call.key, *keys.values()]


@pytest.mark.statistical
@pytest.mark.parametrize("reveals", [pytest.param("counts", marks=pytest.mark.slow), "argmax"])
def test_a_dealer_sees_what_its_simulator_draws_whatever_questions_and_models(reveals):
    digests, keys = [], []
    for seed, rows in ((0, LOW[:3]), (1, HIGH[:3])):
        parties = secret_parties(seed=seed, reveals=reveals)
        for _ in range(50):
            first, second = drawn_by_dealers_simulator(parties, dealt(parties, rows))
            digests += first
            keys += second
    octets = [
        np.array([list(bytes.fromhex(text)) for text in texts], dtype=np.uint8) for texts in (digests, keys)
    ]
    assert len(octets[0]) + len(octets[1]) >= 600  # 1,200 with both parameters
    words = [block.view("<u8").reshape(len(block), 4) for block in octets]
    assert looks_drawn(words[0])
    assert looks_drawn(words[1][:, :3])
    assert looks_drawn(words[1][:, 3:], bits=63)  # a key has 255 bits
    for texts in (digests, keys):
        assert len(set(texts)) == len(texts)
    # and the digests of one question differ as those of two do
    assert looks_drawn(words[0][: len(words[0]) // 2] ^ words[0][len(words[0]) // 2 :])


def test_the_digest_of_the_same_rows_is_another_each_time():
    parties = secret_parties()
    calls = []
    for _ in range(2):
        wire = tapped(parties)
        parties.vote(LOW[:3])
        calls.append(wire.last("join", "sent")[64:])
        parties._links["party-1"] = wire.link
    digests = {rounds.Call.read(call, parties.agreement).question for call in calls}
    assert len(digests) == 2


# planted leaks, each of which a role would notice


def planted(monkeypatch, leak):
    """Spoil one pad of the protocol."""
    plain_pads = two_party.model_pads

    def spoilt(seed, sent, sizes, *, question):
        pads = plain_pads(seed, sent, sizes, question=question)
        return leak(pads, owner=question is None)

    monkeypatch.setattr(two_party, "model_pads", spoilt)


@pytest.mark.statistical
@pytest.mark.parametrize("holder", ["asker", "owner"])
def test_logits_behind_a_bad_mask_are_noticed(monkeypatch, holder):
    def leak(material, *, owner):
        if owner != (holder == "owner"):
            return material
        argmax = material.argmax._replace(opened=material.argmax.opened & np.uint64(2**32 - 1))
        return material._replace(argmax=argmax)

    planted(monkeypatch, leak)
    monkeypatch.setattr("ostraka.parties.asker.plausible", lambda total, *_: total.astype(np.int64))
    view = parts_of(secret_parties(max_rows=N_ROWS), LOW)[holder == "owner"]
    assert "first opened" in alike(view, np.random.default_rng(0))


@pytest.mark.statistical
@pytest.mark.parametrize("what", ["masks", "halves"])
def test_votes_behind_no_mask_are_noticed(monkeypatch, what):
    if what == "masks":
        zeros = lambda *_, n_classes, **__: np.zeros((N_ROWS, n_classes), dtype=np.uint32)  # noqa: E731
        monkeypatch.setattr("ostraka.secure.rounds.total_mask", zeros)
    planted(
        monkeypatch,
        lambda material, *, owner: (
            material._replace(argmax=material.argmax._replace(table=material.argmax.table * np.uint32(0)))
            if owner
            else material
        ),
    )
    monkeypatch.setattr("ostraka.parties.asker.plausible", lambda total, *_: total.astype(np.int64))
    view = parts_of(secret_parties(max_rows=N_ROWS), LOW)[1]
    assert ("votes" in alike(view, np.random.default_rng(0))) == (what == "masks")


def test_corrections_are_sealed_to_the_asker():
    parties = secret_parties()
    wire = tapped(parties, DEALER)
    parties.vote(LOW[:3])
    _, words, sealed = rounds.unpack(wire.last("material", "received"), 3)
    assert len(sealed) == 16 + 3 * 3 * 8 + 3 * 3 + 3 * 3 * 16 * 4  # products, signs, tables, and a tag
    for key in (bytes(32), hashlib.sha256(words).digest()):
        with pytest.raises(ValueError, match="encrypted"):
            decrypt(key, sealed)


def test_corrections_that_are_not_sealed_are_noticed(monkeypatch):
    monkeypatch.setattr("ostraka.secure.dealer.encrypt", lambda _, corrections: corrections)
    with pytest.raises(PartyError, match="the dealer: it is not encrypted with the agreed key"):
        secret_parties().vote(LOW[:3])


# what two roles learn together, as the table says


def known_to_dealer(parties):
    """The secrets of the dealer in one round, what went to a party, and all that went to the dealer."""
    dealer = parties._dealer._party
    wires, masks = (tapped(parties), tapped(parties, DEALER)), []
    deal = dealer._made
    dealer._made = lambda dealing, name: (masks.append(dealing), deal(dealing, name))[1]
    parties.vote(HIGH[:3])
    return wires[0], masks[0], b"".join(data for _, _, data in wires[1].log)


def test_dealer_and_party_together_learn_the_question():
    parties = secret_parties()
    wire, dealing, _ = known_to_dealer(parties)
    call = dealing.round.call
    pad = rounds.question_pad(
        AskerKeys.of(exchange_secret(dealing.secret), call.key, call).question, Sizes(3, 2, 0, 3)
    )
    masked = masked_rows(rounds.unpack(rounds.unpack(wire.last("ask", "sent"), 2)[0][64:], 4)[1])
    np.testing.assert_array_equal(masked + pad, fixed_rows(HIGH[:3], parties.agreement.secret))


def test_the_dealer_which_knows_the_mask_cannot_check_a_guess_of_the_question():
    parties = secret_parties()
    wire, dealing, known_mask = known_to_dealer(parties)
    call = dealing.round.call
    keys = AskerKeys.of(exchange_secret(dealing.secret), call.key, call)
    guess = fixed_rows(HIGH[:3], parties.agreement.secret) - rounds.question_pad(
        keys.question, Sizes(3, 2, 0, 3)
    )
    salted = rounds.unpack(rounds.unpack(wire.last("ask", "sent"), 2)[0][64:], 4)[1]
    assert salted[32:] == guess.tobytes()  # the rows are guessed right
    assert call.question == rounds.digest_of(salted)  # and whoever has the salt, as parties do, sees it
    for salt in (b"", bytes(32), bytes.fromhex(call.id), bytes.fromhex(call.key)):
        assert call.question != rounds.digest_of(salt + guess.tobytes())
    assert call.question != rounds.question(guess)
    salt = salted[:32]  # which the dealer neither receives nor sends, in any spelling
    for spelling in (salt, salt.hex().encode(), base64.b64encode(salt), base64.b85encode(salt)):
        assert spelling not in known_mask


def test_dealer_and_asker_together_learn_the_models():
    parties = secret_parties()
    wire, dealing, _ = known_to_dealer(parties)
    key = rounds.owner_key(dealing.secret, dealing.round.keys["party-1"], dealing.round.call, "party-1")
    pads = stream(key)
    factor = model_pads(pads, pads, Sizes(3, 2, 0, 3), question=None).first.factor
    masked = two_party.words(Sent(rounds.unpack(wire.last("join", "received"), 2)[1][64 + 32 :]), 2, 3)
    model = parties.parties["party-1"]._secret._model
    np.testing.assert_array_equal(masked + factor, model.layers[0][0])
