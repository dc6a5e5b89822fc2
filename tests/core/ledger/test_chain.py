import hashlib
import hmac
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ostraka import GNMax
from ostraka.core.curve import Curve
from ostraka.core.ledger.chain import INFINITE, Row, Seal, beyond, fold, price, to_curve

NAT, SLACK = Fraction(1, 2**50), Fraction(1, 2**62)
ORDERS_2 = (2.0, math.inf)

costs = st.floats(0, 1e5) | st.sampled_from([0.0, 5e-324, 1e-300, 4095.9, 4096.0, 1e308, math.inf])
slacks = st.floats(0, 1.0) | st.sampled_from([0.0, 1e-30, 1e-12, 2.0, math.inf])


def curve(low=0.0, high=0.0, mu_squared=math.inf, slack=0.0):
    return Curve(ORDERS_2, (low, high), mu_squared=mu_squared, slack=slack)


def wholes(cost):
    return np.frombuffer(cost, dtype="<u8").tolist()


@given(low=costs, high=costs, mu_squared=costs, slack=slacks)
def test_a_price_is_rounded_up_by_less_than_one_unit(low, high, mu_squared, slack):
    _, cost = price(curve(low, high, mu_squared, slack))
    for value, n_units, unit in zip(
        (low, high, mu_squared, slack), wholes(cost), (NAT, NAT, NAT, SLACK), strict=True
    ):
        if value >= INFINITE * unit:
            assert n_units == INFINITE
        else:
            assert 0 <= n_units * unit - Fraction(value) < unit


@given(total=st.integers(0, INFINITE), cost=st.integers(0, INFINITE), uses=st.integers(0, 2**62 - 1))
def test_folding_is_the_arithmetic_of_whole_numbers_up_to_infinite(total, cost, uses):
    pack = [np.array([x], dtype="<u8").tobytes() for x in (total, cost)]
    assert wholes(fold(*pack, uses=uses)) == [min(INFINITE, total + uses * cost)]
    assert wholes(fold(None, pack[1], uses=uses)) == [min(INFINITE, uses * cost)]


@given(st.lists(st.integers(0, INFINITE), min_size=3, max_size=3))
@example([2**53 + 1, 2**60 + 1, 2**61 + 3])
@example([2**62 - 1, 2**54 + 1, 2**62 - 1])
def test_a_total_becomes_a_curve_that_is_never_below_it(lanes):
    orders, _ = price(Curve((2.0,), (0.0,)))
    got = to_curve(np.array(lanes, dtype="<u8").tobytes(), "ballot", orders)
    for value, n_units, unit in zip((*got.rdp, got.mu_squared), lanes, (NAT, NAT), strict=False):
        assert value == math.inf if n_units == INFINITE else n_units * unit <= Fraction(value)
        assert n_units == INFINITE or Fraction(value) <= n_units * unit * (1 + Fraction(1, 2**52))
    assert lanes[2] * SLACK <= Fraction(got.slack) <= 1


def test_small_terms_beside_large_ones_are_never_lost():
    _, large = price(curve(1000.0, slack=0.5))
    _, small = price(curve(1e-15, slack=1e-17))
    total = large
    for _ in range(1000):
        total = fold(total, small, uses=1000)
    assert 0 <= wholes(total)[0] * NAT - (1000 + 10**6 * Fraction(1e-15)) < 10**6 * NAT
    assert 0 <= wholes(total)[3] * SLACK - (Fraction(0.5) + 10**6 * Fraction(1e-17)) < 10**6 * SLACK
    assert 1000.0 + 1e-15 == 1000.0  # a sum of floats, one by one, would have stayed here
    assert 0.5 + 1e-17 == 0.5


@given(st.permutations([(1.3, 7), (1e-14, 3), (0.2, 1), (300.0, 2)]))
def test_totals_do_not_depend_on_the_order_of_charges(steps):
    total = None
    for value, uses in steps:
        total = fold(total, price(curve(value, value))[1], uses=uses)
    assert wholes(total)[0] == 7 * math.ceil(1.3 * 2**50) + 3 * 12 + math.ceil(0.2 * 2**50) + 2 * 300 * 2**50


@given(
    steps=st.lists(st.tuples(st.sampled_from([1.0, 30.0, 40.0]), st.integers(1, 50)), min_size=1, max_size=6)
)
def test_what_a_later_total_has_beyond_an_earlier_one_adds_up_to_it(steps):
    totals = [None]
    for sigma, uses in steps:
        totals.append(fold(totals[-1], price(GNMax(sigma=sigma).curve())[1], uses=uses))
    for earlier in totals:
        lost = beyond(totals[-1], earlier)
        assert fold(earlier, lost, uses=1) == totals[-1]
    if len(totals) > 2:
        with pytest.raises(ValueError, match="not of one ledger"):
            beyond(totals[1], totals[-1])


def test_prices_of_what_is_infinite_and_of_what_is_no_number():
    _, cost = price(curve(math.inf, math.inf, slack=1.0))
    assert set(wholes(fold(None, cost, uses=0))) == {0}
    assert set(wholes(fold(None, cost, uses=1))) == {INFINITE}
    broken = curve()
    object.__setattr__(broken, "rdp", (0.0, math.nan))
    with pytest.raises(ValueError, match="not NaN"):
        price(broken)


def row(**changes):
    plain = Row(1, "charge", "", "key", price=1, uses=2, protects="row", simulation=0, epsilon=1.0)
    return plain._replace(**changes)


PRICED = bytes(31) + b"p"
PLAIN, SECRET = Seal(None), Seal(bytes(32))


def test_the_digest_is_sha_256_over_the_digest_before_the_price_and_every_field():
    r = row(account="ann", asked=b"\1\2", answer=-1, cap=0.1, state=b"\xff")
    text = "1|charge|ann|=key|2|row|0|1.0|0102|-1|0.1|ff".replace("|", "\x1f")
    assert PLAIN.entry(r, bytes(32), PRICED) == hashlib.sha256(bytes(32) + PRICED + text.encode()).digest()


def test_under_a_secret_it_is_hmac_sha_256():
    text = "1|charge||=key|2|row|0|1.0||None|None|".replace("|", "\x1f")
    expected = hmac.new(bytes(32), bytes(32) + PRICED + text.encode(), "sha256").digest()
    assert SECRET.entry(row(), bytes(32), PRICED) == expected
    assert Seal(b"other secret" * 3).entry(row(), bytes(32), PRICED) != expected


def test_every_field_changes_the_digest():
    changes = {
        "seq": 2, "kind": "grant", "account": "ann", "uses": 3, "protects": "person", "simulation": 1,
        "epsilon": math.nextafter(1.0, 2), "asked": b"q", "answer": 0, "cap": 1.0, "state": bytes(32),
    }  # fmt: skip
    changed = [row(), *(row(**{name: value}) for name, value in changes.items())]
    changed += [row(key=key) for key in (None, "None", "")]
    digests = {PLAIN.entry(r, bytes(32), PRICED) for r in changed}
    digests |= {PLAIN.entry(row(), bytes(31) + b"\1", PRICED), PLAIN.entry(row(), bytes(32), bytes(32))}
    assert len(digests) == len(changed) + 2


def test_a_name_with_a_separator_in_it_has_no_digest():
    # else account "a", key "b\x1fc" and account "a\x1fb", key "c" would read alike
    assert PLAIN.entry(row(account="a\x1fb"), bytes(32), PRICED) is None
    with pytest.raises(ValueError, match="must not contain the byte 1F"):
        row(account="a\x1fb").sealed(PLAIN, bytes(32), PRICED, at=1)


def test_bytes_that_move_from_one_field_to_the_next_change_the_digest():
    assert PLAIN.link(bytes(32), ["a"], b"ab", b"c") != PLAIN.link(bytes(32), ["a"], b"a", b"bc")
    assert PLAIN.link(bytes(32), ["a", "b"]) != PLAIN.link(bytes(32), ["a,b"])


def test_the_name_of_a_secret_tells_secrets_apart_and_is_empty_without_one():
    assert Seal(None).name == ""
    assert len({Seal(None).name, Seal(bytes(32)).name, Seal(b"\1" * 32).name}) == 3


@pytest.mark.parametrize("secret", [b"short", "text of more than thirty-two characters", 7])
def test_a_secret_is_bytes_and_long(secret):
    with pytest.raises(ValueError, match="secret must be 32 bytes or more"):
        Seal(secret)
