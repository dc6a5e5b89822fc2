"""Endpoints: what a server can do to a request, and what never leaves with it."""

import contextlib
import json
import logging
import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ostraka.voters import Endpoint
from ostraka.voters.endpoint import Failure, FunctionClient, HTTPClient
from tests.threads import at_once

CANARY = "canary-7f3a-private"
GO = threading.Event()
PATIENCE = 60.0  # seconds, on a busy machine


@pytest.fixture
def server(language):
    with language.LocalEndpoint(lambda prompt: f"echo {prompt[:5]}") as running:
        yield running


def asked(url, prompt=f"hello {CANARY}", *, stop=GO, **options):
    options = {"pause": 0.01, "retries": 2, "timeout": PATIENCE, **options}
    with HTTPClient(Endpoint(url, **options), "small") as line:
        return line.ask([prompt], stop)


def first(*faults):
    """Misbehave so often, then answer."""
    waiting = list(faults)

    def intercept(handler, _body):
        if not waiting:
            return False
        waiting.pop(0)(handler)
        return True

    return intercept


def status(code, record=None, **headers):
    return lambda handler: handler.reply(code, {"error": {}} if record is None else record, **headers)


def drop(handler):
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def cut_off(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.wfile.flush()
    drop(handler)


class Endless:
    """Holds on to one request, until it is clear that the client has gone; or tires, which it says."""

    def __init__(self):
        self.gone, self.tired = threading.Event(), False

    def hang(self, handler):
        self.tired = not self.gone.wait(PATIENCE)
        drop(handler)

    def drip(self, handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        until = time.monotonic() + PATIENCE
        while not self.gone.wait(0.05) and not self.tired:
            handler.wfile.write(b" ")  # raises once the client has gone
            handler.wfile.flush()
            self.tired = time.monotonic() > until


@pytest.mark.parametrize("api", ["chat", "text"])
def test_a_prompt_is_sent_as_the_api_wants_it_and_answered(server, api):
    got = asked(server.url, "hello", api=api, settings={"temperature": 0, "max_tokens": 3, "seed": 7})
    assert got == ["echo hello"]
    (body,) = server.seen
    prompt = body.pop("prompt") if api == "text" else body.pop("messages")[0]["content"]
    assert prompt == "hello"
    assert body == {"model": "small", "temperature": 0, "max_tokens": 3, "seed": 7}


def test_any_text_can_be_sent(server):
    prompt = 'a\ud800 "quoted"\n\x00 ✓'
    asked(server.url, prompt, api="text")
    assert server.seen[0]["prompt"] == prompt


PASSING = {
    "too many": status(429),
    "broken": status(500),
    "overloaded": status(503, b"<html>"),
    "timed out": status(408),
    "in conflict": status(409),
    "too early": status(425),
    "dropped": drop,
    "cut off": cut_off,
    "no JSON": status(200, b"<html>hello"),
    "no completion": status(200, {"choices": []}),
    "a list": status(200, []),
    "a number for a text": status(200, {"choices": [{"message": {"content": 7}}]}),
    "nested": status(200, b"[" * 100_000),
    "too long": status(200, b" " * (1 << 20) + b"{}"),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_tried_again_and_given_up_in_words_that_quote_nothing(server, fault):
    server.intercept = first(fault, fault)
    assert asked(server.url) == ["echo hello"]
    assert len(server.seen) == 3
    server.intercept = first(fault, fault, fault)
    got = asked(server.url)
    assert isinstance(got, Failure)
    assert got.temporary
    assert CANARY not in str(got)
    assert len(server.seen) == 6


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_a_request_takes_no_longer_than_its_timeout(server, fault):
    endless = Endless()
    server.intercept = first(getattr(endless, fault))
    assert isinstance(asked(server.url, timeout=0.3, retries=0), Failure)
    endless.gone.set()
    assert not endless.tired, "the client left first"
    server.intercept = first(getattr(endless, fault))
    assert asked(server.url, timeout=0.3, retries=50) == ["echo hello"]


@pytest.mark.parametrize("code", [301, 307, 400, 401, 403, 404, 413, 422])
def test_what_will_not_pass_is_not_tried_again(server, code):
    elsewhere = {"Location": "http://192.0.2.1/v1/chat/completions"}
    server.intercept = first(status(code, **elsewhere))
    assert asked(server.url) == Failure(f"status {code}")
    assert len(server.seen) == 1


def test_codes_are_told_and_sentences_are_not(server):
    error = {
        "message": "one_word_of_mine",
        "code": "unsupported_parameter",
        "param": "max_tokens",
        "type": 7,
    }
    server.intercept = first(status(400, {"error": error}))
    assert asked(server.url).reason == "status 400 (unsupported_parameter, max_tokens)"
    for code in (f"{CANARY} and more", "a" * 65):
        server.intercept = first(status(400, {"error": {"code": code}}))
        assert asked(server.url).reason == "status 400"
    server.intercept = first(status(400, {"error": {"code": "a" * 64}}))
    assert asked(server.url).reason == f"status 400 ({'a' * 64})"


def test_an_answer_of_a_mebibyte_is_taken(server):
    answer = json.dumps({"choices": [{"message": {"content": "yes"}}]}).encode()
    server.intercept = first(status(200, answer.ljust(1 << 20)))
    assert asked(server.url, retries=0) == ["yes"]


def test_a_model_that_declines_has_answered_nothing(server):
    server.intercept = first(status(200, {"choices": [{"message": {"content": None}}]}))
    assert asked(server.url) == [""]


class Unhurried(threading.Event):
    """Keeps how long it was waited for, and lets nobody wait."""

    def __init__(self):
        super().__init__()
        self.pauses = []

    def wait(self, timeout=None):
        if timeout:
            self.pauses.append(timeout)
        return self.is_set()


@pytest.mark.parametrize("how", ["seconds", "date"])
def test_retry_after_holds_for_all_requests_of_the_connection(server, how):
    def busy(handler):
        in_a_while = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
        handler.reply(429, {}, Retry_After="30" if how == "seconds" else in_a_while)

    server.intercept, stop = first(busy), Unhurried()
    with HTTPClient(Endpoint(server.url, pause=0.01, retries=0), "small") as line:
        assert line.ask(["a"], stop).cause == "endpoint"
        assert line.ask(["b"], stop) == ["echo b"]
    assert 20 < max(stop.pauses) <= 30


@pytest.mark.parametrize("wait", ["300.1", "3600", "inf", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_server_that_asks_for_more_than_five_minutes_has_said_no(server, wait):
    server.intercept = first(status(503, Retry_After=wait))
    assert asked(server.url).reason == "status 503"
    server.intercept, stop = first(status(503, Retry_After="300")), Unhurried()
    assert asked(server.url, stop=stop) == ["echo hello"]
    assert max(stop.pauses) == pytest.approx(300, abs=60)


@pytest.mark.parametrize("wait", ["soon", "nan", "-5", ""])
def test_a_retry_after_that_says_nothing_is_passed_over(server, wait):
    server.intercept = first(status(503, Retry_After=wait))
    assert asked(server.url) == ["echo hello"]


@pytest.mark.parametrize(
    ("pause", "pauses"), [(1.0, [1, 2, 4, 8, 16]), (20.0, [20, 40, 60, 60, 60]), (100.0, [100] * 5)]
)
def test_pauses_double_up_to_a_minute_and_vary_by_half(server, pause, pauses):
    server.intercept, stop = first(*[status(500)] * 5), Unhurried()
    assert asked(server.url, stop=stop, pause=pause, retries=5) == ["echo hello"]
    assert all(most / 2 <= pause <= most for most, pause in zip(pauses, stop.pauses, strict=True))


def test_once_stopped_nothing_new_is_begun(server):
    stop = threading.Event()
    server.intercept = first(lambda handler: (stop.set(), handler.reply(500, {})))
    assert isinstance(asked(server.url, stop=stop), Failure)
    assert len(server.seen) == 1
    assert isinstance(asked(server.url, stop=stop), Failure)
    assert len(server.seen) == 1


def test_nobody_there_is_a_failure(free_port):
    assert asked(f"http://127.0.0.1:{free_port}/v1").reason == "ConnectionRefusedError"


def test_the_key_comes_from_the_environment_and_goes_nowhere_else(server, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SOME_KEY", f" {CANARY}\n")
    headers = []
    server.intercept = lambda handler, _body: headers.append(handler.headers["Authorization"])
    endpoint = Endpoint(server.url, key_env="SOME_KEY")
    with HTTPClient(endpoint, "small") as line:
        line.ask(["hello"], GO)
        assert CANARY not in repr(line) + repr(vars(line))
    asked(server.url, "hello")
    assert headers == [f"Bearer {CANARY}", None]
    assert CANARY not in repr(endpoint) + caplog.text


@pytest.mark.parametrize("key", ["", "  ", f"{CANARY}\nsecond", f"{CANARY} second", f"{CANARY}é"])
def test_a_key_that_cannot_be_one_is_refused_without_showing_it(server, monkeypatch, key):
    monkeypatch.setenv("SOME_KEY", key)
    with pytest.raises(ValueError, match="SOME_KEY") as refused:
        asked(server.url, key_env="SOME_KEY")
    assert "canary" not in str(refused.value)
    assert server.seen == []


def test_a_proxy_of_the_environment_never_sees_what_stays_here(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert asked(server.url) == ["echo hello"]


def test_prompts_are_not_logged(server, caplog):
    caplog.set_level(logging.DEBUG)
    server.intercept = first(status(500), drop)
    asked(server.url)
    assert CANARY not in caplog.text


def test_a_server_whose_certificate_nobody_vouches_for_is_sent_nothing(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "pem").write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    attempts, requests = [], []

    def serve():
        with contextlib.suppress(OSError):
            plain, _ = listening.accept()
            attempts.append(plain)
            with plain, context.wrap_socket(plain, server_side=True) as tls:
                requests.append(tls.recv(1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as listening, at_once(serve):
        got = asked(f"https://localhost:{listening.getsockname()[1]}/v1", retries=0)
    assert got.reason == "SSLCertVerificationError"
    assert attempts
    assert requests == []


@pytest.mark.parametrize(
    "url",
    [
        "http://models.example/v1",
        "http://127.0.0.1.example/v1",
        "http://localhost.example",
        "http://10.0.0.1",
    ],
)
def test_another_machine_needs_https_or_a_word(url):
    with pytest.raises(ValueError, match="must be https"):
        Endpoint(url)
    assert not Endpoint(url, allow_http=True).loopback
    assert not Endpoint(url.replace("http", "https")).loopback


@pytest.mark.parametrize("url", ["http://localhost:1/v1", "http://127.8.0.1/v1", "http://[::1]:8000/v1/"])
def test_this_machine_needs_no_https(url):
    assert Endpoint(url).loopback


@pytest.mark.parametrize(
    "url",
    [
        "",
        "models.example/v1",
        "ftp://models.example",
        "https://",
        f"https://user:{CANARY}@models.example/v1",
        f"https://models.example/v1?key={CANARY}",
        "https://models.example/v1#part",
        "https://models.example/v1/chat/completions",
    ],
)
def test_a_url_that_is_no_base_is_refused_without_showing_it(url):
    with pytest.raises(ValueError, match="url must be") as refused:
        Endpoint(url)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"api": "images"},
        {"concurrency": 0},
        {"retries": -1},
        {"timeout": 0},
        {"pause": float("nan")},
        {"settings": {"stream": True}},
        {"settings": {"seed": object()}},
    ],
)
def test_settings_that_cannot_be_used_are_refused(options):
    with pytest.raises(ValueError, match="must"):
        Endpoint("https://models.example/v1", **options)


@pytest.mark.parametrize(
    "function",
    [
        lambda prompts: [CANARY][:0],
        lambda prompts: None,
        lambda prompts: [7],
        lambda prompts: prompts * 2,
        lambda prompts: [][prompts],
    ],
)
def test_a_function_that_does_not_answer_fails_in_words_that_quote_nothing(function):
    got = FunctionClient(function).ask([CANARY], GO)
    assert isinstance(got, Failure)
    assert CANARY not in str(got)
