"""The response cache: every answer once, whatever happens to the process or the file, and no text in it."""

import contextlib
import hmac
import json
import os
import stat

import pytest

from ostraka.secure.log import LogError
from ostraka.voters.endpoint import ResponseCache
from tests.threads import at_once

SECRET = "the private demonstration"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "response_cache.jsonl"


@pytest.fixture
def opened():
    """Response caches that close their file at the end."""
    with contextlib.ExitStack() as stack:

        def one(path):
            return stack.enter_context(contextlib.closing(ResponseCache(path)))

        yield one


def filled(path, n=3):
    response_cache = ResponseCache(path)
    names = [response_cache.name("{}", f"{SECRET} {number}") for number in range(n)]
    for number, name in enumerate(names):
        response_cache.record([(name, f"answer {number}")])
    response_cache.close()
    return names


def test_answers_are_there_again_after_a_restart(path):
    names = filled(path)
    again = ResponseCache(path)
    assert [again[name] for name in names] == ["answer 0", "answer 1", "answer 2"]
    assert again.name("{}", f"{SECRET} 1") == names[1]
    assert again.secret("deal") == ResponseCache(path).secret("deal") != again.secret("other")


def test_a_name_depends_on_setting_prompt_and_cache(path, tmp_path):
    first, second = ResponseCache(path), ResponseCache(tmp_path / "other")
    names = {
        first.name("a", "p"),
        first.name("b", "p"),
        first.name("a", "q"),
        second.name("a", "p"),
        first.name("", "a\0p"),
    }
    assert len(names) == 5


def test_the_file_is_for_its_owner_and_holds_no_question(path):
    filled(path)
    end = path.with_name(f"{path.name}.end")
    assert sorted(path.parent.iterdir()) == [path, end]
    for file in (path, end):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert SECRET.encode() not in file.read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_that_others_may_open_is_refused(path, mode):
    filled(path)
    path.chmod(mode)
    with pytest.raises(ValueError, match="type chmod 600"):
        ResponseCache(path)


def earlier(path, n=3):
    """A file as versions before 0.2 wrote it: a line with a key, and a line for each answer."""
    key, names = b"k" * 32, [f"{number:064x}" for number in range(n)]
    lines = [json.dumps({"ostraka": "cassette", "version": 1, "key": key.hex()})]
    for number, name in enumerate(names):
        content = f'line\0{name}\0"answer {number}"'.encode()
        check = hmac.digest(key, content, "sha256").hex()[:16]
        lines.append(json.dumps({"name": name, "answer": f"answer {number}", "check": check}))
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return names


def test_a_file_of_an_earlier_version_is_converted_but_for_what_a_crash_cut_off(path, opened):
    names = earlier(path)
    raw = path.read_bytes()
    junk = b'\xff\n[]\n7\n{"name": 1}\n{"name": "a", "answer": 1, "check": 2}\n' + b"[" * 100_000 + b"\n"
    for content, n_kept in ((raw, 3), (raw[:-2], 2), (raw + junk, 3)):
        path.write_bytes(content)
        cache = opened(path)
        assert cache.secret("deal") == hmac.digest(b"k" * 32, b"secret\0deal", "sha256")
        assert [name in cache for name in names] == [number < n_kept for number in range(3)]
        assert cache[names[1]] == "answer 1"
        cache.close()
        assert opened(path)[names[0]] == "answer 0"


@pytest.mark.parametrize(
    "content",
    [b"", b"{}\n", b"a private table\n", b'{"ostraka": "cassette", "version": 1, "key": "00"}\n'],
)
def test_a_file_that_is_no_cache_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(
        (LogError, ValueError), match=r"is not a response cache|is no log of ostraka"
    ) as refused:
        ResponseCache(path)
    assert "private table" not in str(refused.value)
    assert path.read_bytes() == content


def test_two_at_once_see_each_other_and_the_first_answer_stays(path, opened):
    first, second = opened(path), opened(path)
    first.record([("a", "first")])
    second.record([("a", "second"), ("b", "b")])
    first.load()
    assert (first["a"], first["b"]) == ("first", "b")
    assert ResponseCache(path)["a"] == "first"


def test_many_who_begin_the_same_file_share_one_key(path):
    keys = []
    with at_once(*[lambda: keys.append(ResponseCache(path).secret("x"))] * 8):
        pass
    assert len(keys) == 8
    assert len(set(keys)) == 1


def test_without_a_file_answers_last_as_long_as_the_object():
    response_cache = ResponseCache(None)
    response_cache.record([("a", "1")])
    response_cache.load()
    assert response_cache["a"] == "1"
    assert ResponseCache(None).secret("deal") != response_cache.secret("deal")
