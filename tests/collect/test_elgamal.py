"""ElGamal: the sum and nothing else, by any k of n authorities whose proofs hold."""

import itertools
import secrets

import numpy as np
import pytest

from ostraka.collect import CountSketch

pytest.importorskip("coincurve")

from reproduce import _melis2018_elgamal as elgamal

ENCODING = CountSketch(width=4, depth=2, key="11" * 32)


def agreed(n=3, threshold=2):
    authorities = [elgamal.Authority(number, n=n, threshold=threshold) for number in range(1, n + 1)]
    group = elgamal.Group(threshold, tuple(authority.dealing for authority in authorities))
    for member in authorities:
        member.receive(group, [dealer.share_for(member.number) for dealer in authorities])
    return authorities, group


@pytest.fixture(scope="module")
def office():
    return agreed()


def summed(group, values):
    vectors = [elgamal.encrypted(ENCODING.encode([k]), group.key) for k in values]
    plain = np.sum([ENCODING.encode([k]).astype(np.int32) for k in values], axis=0, dtype=np.int64)
    return vectors, elgamal.added(vectors), plain


def test_any_threshold_of_the_authorities_decrypt_the_sum_of_numpy():
    authorities, group = agreed(4, 3)
    vectors, total, plain = summed(group, [1, 2, 2, 9, 30])
    for chosen in itertools.combinations(authorities, 3):
        parts = {authority.number: authority.part(group, vectors, purpose="one") for authority in chosen}
        sums = elgamal.decrypted(total, parts, group, encoding=ENCODING, most=5)
        np.testing.assert_array_equal(sums.open(), plain)
    del parts[chosen[0].number]
    with pytest.raises(ValueError, match="parts of 3"):
        elgamal.decrypted(total, parts, group, encoding=ENCODING, most=5)


def test_a_wrong_part_is_refused_and_its_authority_named(office):
    authorities, group = office
    vectors, total, _ = summed(group, [3, 4, 5])
    parts = {authority.number: authority.part(group, vectors, purpose="three") for authority in authorities}
    points, proof = parts[2].points, parts[2].proof
    base = elgamal.times_base(1)
    for wrong in (
        elgamal.Part((elgamal.total_of([points[0], base]), *points[1:]), proof),
        elgamal.Part((points[1], points[0], *points[2:]), proof),
        elgamal.Part(points, bytes(32) + proof[32:]),
        elgamal.Part(points, proof[:32] + bytes([proof[32] ^ 1]) + proof[33:]),
        elgamal.Part(points[:-1], proof),
        elgamal.Part(parts[1].points, parts[1].proof),
    ):
        with pytest.raises(ValueError, match="part of authority 2 does not hold"):
            elgamal.decrypted(total, {1: parts[1], 2: wrong}, group, encoding=ENCODING, most=5)


def test_two_wrong_cells_that_cancel_in_a_plain_sum_are_noticed(office):
    authorities, group = office
    vectors, total, _ = summed(group, [3, 4, 5])
    parts = {
        authority.number: authority.part(group, vectors, purpose="four") for authority in authorities[:2]
    }
    first, second, *points = parts[1].points
    base, back = elgamal.times_base(1), elgamal.times_base(elgamal.ORDER - 1)
    moved = (elgamal.total_of([first, base]), elgamal.total_of([second, back]), *points)
    with pytest.raises(ValueError, match="authority 1 does not hold"):
        elgamal.decrypted(
            total, {**parts, 1: elgamal.Part(moved, parts[1].proof)}, group, encoding=ENCODING, most=5
        )


def test_an_authority_decrypts_one_sum_for_each_purpose(office):
    authorities, group = office
    vectors, _, _ = summed(group, [3, 4, 5])
    total, _, _ = summed(group, [3, 4, 6])
    authorities[0].part(group, vectors, purpose="five")
    authorities[0].part(group, vectors, purpose="five")
    with pytest.raises(ValueError, match="another sum"):
        authorities[0].part(group, total, purpose="five")


def test_an_authority_decrypts_no_sum_of_few_clients_or_of_one_client_repeated(office):
    authorities, group = office
    vectors, _, _ = summed(group, [3, 4, 5])
    for reports in (vectors[:2], vectors[:1], [vectors[0]] * 3, [*vectors, vectors[0]]):
        with pytest.raises(ValueError, match="needs vectors of 3 clients or more, each of them once"):
            authorities[0].part(group, reports, purpose="seven")
    with pytest.raises(ValueError, match="least must be at least 3"):
        elgamal.Authority(1, n=3, threshold=2, least=2)


def test_an_authority_without_its_secret_is_no_member_and_a_rogue_key_is_refused():
    first, second = (elgamal.Authority(number, n=2, threshold=2) for number in (1, 2))
    # a rogue key: chosen so that the sum is a key whose secret the rogue knows
    rogue = elgamal.total_of([elgamal.times_base(5), elgamal._negative(elgamal.point_of(first.dealing[:33]))])
    with pytest.raises(ValueError, match="authority 2 does not prove"):
        elgamal.Group(2, (first.dealing, rogue.format() + second.dealing[33:]))
    with pytest.raises(ValueError, match="authority 1 does not prove"):
        elgamal.Group(2, (second.dealing, first.dealing))  # a proof is bound to its number
    with pytest.raises(ValueError, match="of its own"):
        elgamal.Group(2, (first.dealing, first.dealing))


def test_a_dealt_share_that_does_not_fit_is_refused_and_the_dealer_named():
    authorities = [elgamal.Authority(number, n=3, threshold=2) for number in (1, 2, 3)]
    group = elgamal.Group(2, tuple(authority.dealing for authority in authorities))
    shares = [authority.share_for(1) for authority in authorities]
    for wrong in (shares[1] + 1, 0, -shares[1]):
        with pytest.raises(ValueError, match="share of authority 2"):
            authorities[0].receive(group, [shares[0], wrong, shares[2]])
    with pytest.raises(ValueError, match="received no shares"):
        authorities[0].part(group, summed(group, [1, 2, 3])[0], purpose="six")


def test_every_cell_is_encrypted_afresh_and_copies_are_refused(office):
    # planted: in a published implementation a row is one ciphertext, copied; the insert adds to one copy
    _, group = office
    vector = np.zeros(6, dtype=np.uint32)
    fresh = elgamal.encrypted(vector, group.key).write()
    assert len({fresh[at : at + 33] for at in range(0, len(fresh), 33)}) == 12
    copied = fresh[:66] * 6
    with pytest.raises(ValueError, match="afresh"):
        elgamal.Ciphertexts.read(copied, cells=6)
    assert elgamal.encrypted(vector, group.key).write() != fresh


def test_sums_are_found_from_minus_most_to_most_and_nowhere_else():
    for limit in (1, 2, 9, 100):
        steps, step = elgamal.table(limit)
        noise = elgamal.times_base(secrets.randbelow(elgamal.ORDER - 1) + 1)
        for value in {-limit, -1, 0, 1, limit}:
            point = elgamal.total_of([noise, elgamal.times_base(value % elgamal.ORDER)]) if value else noise
            assert elgamal.logarithm(point, noise, steps, step, limit) == value
        for value in (-limit - 1, limit + 1, 3 * limit + 5):
            point = elgamal.total_of([noise, elgamal.times_base(value % elgamal.ORDER)])
            with pytest.raises(ValueError, match="not within"):
                elgamal.logarithm(point, noise, steps, step, limit)


def test_two_groups_of_authorities_cannot_decrypt_two_sums():
    with pytest.raises(ValueError, match="two groups of 2"):
        agreed(4, 2)
