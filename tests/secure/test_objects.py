"""An object store as a witness: signatures as published, first writers win, what is not locked fails."""

import contextlib
import datetime as dt

import pytest

from ostraka.core.ledger.budget import LedgerError
from ostraka.core.ledger.witness import Head
from ostraka.secure.wire import Late
from ostraka.secure.witness import Bucket, ObjectWitness, signed
from tests.secure.store import ENVIRONMENT, WHO, running

SECRET = b"s" * 32
MAY = dt.datetime(2013, 5, 24, tzinfo=dt.UTC)
HOST = {"host": "examplebucket.s3.amazonaws.com"}
ONE, TWO, THREE = (Head(number, f"{number:064x}", "aa") for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("line", "headers", "content", "signature"),
    [
        (
            ("GET", "/test.txt", []),
            {"range": "bytes=0-9"},
            b"",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            ("PUT", "/test%24file.text", []),
            {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            b"Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            ("GET", "/", [("lifecycle", "")]),
            {},
            b"",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            ("GET", "/", [("prefix", "J"), ("max-keys", "2")]),
            {},
            b"",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=["get", "put", "lifecycle", "list"],
)
def test_signatures_are_those_that_amazon_publishes(line, headers, content, signature):
    """Amazon S3 API Reference, "Signature Calculations for the Authorization Header", its four examples."""
    complete = signed(*line, HOST | headers, content, who=WHO, region="us-east-1", now=MAY)
    assert complete["authorization"].endswith(f"Signature={signature}")
    assert f"Credential={WHO[0]}/20130524/us-east-1/s3/aws4_request," in complete["authorization"]


@pytest.fixture
def witness():
    """Witnesses at a store, which are closed in the end."""
    with contextlib.ExitStack() as stack:

        def at(store, secret=SECRET):
            first = ObjectWitness(Bucket(store.address, ENVIRONMENT), secret)
            return stack.enter_context(contextlib.closing(first))

        yield at


def tell(first, head, **how):
    return first.tell("a", head, seconds=20.0, **how)


@pytest.mark.parametrize("taken", [412, 409])
def test_of_two_programs_the_second_hears_what_the_first_wrote(witness, taken):
    with running() as store:
        first, second, store.taken = witness(store), witness(store), taken
        assert tell(first, ONE) == [ONE]
        assert tell(second, ONE) == [ONE]
        assert tell(first, TWO) == [ONE, TWO]
        rival = Head(2, "f" * 64, "bb")
        assert tell(second, rival) == [TWO], "its number was taken"
        assert tell(second, THREE) == [TWO, THREE]
        assert tell(first, Head(0, "")) == [THREE]
        assert len(store.objects) == 3, "all heads stay"
        until = {lock["x-amz-object-lock-retain-until-date"] for _, lock in store.objects.values()}
        month = dt.datetime.now(dt.UTC) + dt.timedelta(days=30)
        assert {text[:10] for text in until} <= {
            f"{month - dt.timedelta(minutes=1):%Y-%m-%d}",
            f"{month:%Y-%m-%d}",
        }


@pytest.mark.parametrize(
    ("ignores", "words"), [("if-none-match", "ignores If-None-Match"), ("lock", "does not lock")]
)
def test_a_store_that_takes_everything_is_no_witness(witness, ignores, words):
    with running(ignores) as store:
        for head in (ONE, TWO):
            with pytest.raises(LedgerError, match=words):
                tell(witness(store), head)


def test_a_stores_operator_cannot_make_up_move_or_repeat_a_head(witness):
    with running() as store:
        for head in (ONE, TWO):
            tell(witness(store), head)
        with pytest.raises(LedgerError, match="not sealed"):
            tell(witness(store, b"x" * 32), THREE)
        names = sorted(store.objects)
        store.objects[f"{names[0][:-1]}0"] = store.objects[names[1]]  # the older one in the newest place
        with pytest.raises(LedgerError, match="another object's content"):
            tell(witness(store), THREE)


@pytest.mark.parametrize("status", [403, 500, 503])
def test_a_store_that_does_not_answer_is_late_and_the_next_question_goes_on(witness, status):
    with running() as store:
        first = witness(store)
        assert tell(first, ONE) == [ONE]
        store.statuses += [status] * 2  # the object is written, and nobody is told so
        with pytest.raises(Late):
            tell(first, TWO)
        store.statuses.clear()
        assert tell(first, TWO) == [TWO]
        assert tell(first, THREE) == [TWO, THREE]


@pytest.mark.parametrize(
    "address",
    [
        "s3://evidence/heads",
        "s3://Evidence?region=x",
        "s3://evidence?region=x&days=0",
        "s3://evidence?region=x&secret=y",
        "s3://evidence?region=x&endpoint=http://store.example",
        "s3://evidence/a b?region=x",
    ],
)
def test_addresses_of_another_form_are_refused(address):
    with pytest.raises(ValueError, match="object store must be"):
        Bucket(address, ENVIRONMENT)


def test_without_credentials_the_variable_is_named():
    with pytest.raises(ValueError, match="AWS_SECRET_ACCESS_KEY"):
        Bucket("s3://evidence?region=x", {"AWS_ACCESS_KEY_ID": "a"})
