"""`python -m benchmarks.transcribe`: our server on a scripted recogniser, beside a fake one."""

import json
from contextlib import contextmanager

import pytest
import soundfile
from click.testing import CliRunner

from benchmarks.serve.process import Server
from benchmarks.transcribe import transcribe
from benchmarks.word_errors import word_errors
from tests import openai_server
from tests.serve.conftest import serving, spoken
from voxtui.errors import VoxtuiError

WORDS = ["This is the first clip.", "This is the second clip."]


@pytest.fixture(scope="module")
def ours():
    """Our server; its recogniser gets the second clip wrong by one word of five."""

    def recognise(samples, cancelled) -> str:
        return "this is the first clip" if len(samples) < 16_000 else "this is the last clip"

    with serving(recognise=recognise) as server:
        yield Server(f"{server.url}/v1", 1.0, 0)


@pytest.fixture
def bench(ours, monkeypatch, tmp_path):
    """Run the command on two clips with their words; return the click result."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, seconds, words in zip(("one", "two"), (0.5, 1.5), WORDS, strict=True):
        soundfile.write(f"{name}.wav", spoken(seconds), 16_000, subtype="PCM_16")
        (tmp_path / f"{name}.txt").write_text(words)

    @contextmanager
    def started(module, arguments):
        yield ours

    monkeypatch.setattr("benchmarks.transcribe.started", started)

    def run(*arguments, clips=("one.wav", "two.wav")):
        ran = CliRunner().invoke(transcribe, [*clips, *arguments])
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return ran

    return run


@pytest.fixture
def other(monkeypatch):
    monkeypatch.setenv("VOXTUI_AGAINST_KEY", "sesame")
    monkeypatch.setenv("VOXTUI_API_KEY", "not for them")
    with openai_server.serving() as fake:
        yield fake


def test_two_servers_get_the_same_clips_in_turn_and_are_compared(bench, other):
    other.answers["audio/transcriptions"] = openai_server.returns({"text": "This is, a clip!"})
    ran = bench("--against", other.url, "--runs", "2", "--json")
    assert ran.exit_code == 0
    told = ran.stderr.splitlines()
    assert told[0] == f"Your clips go to {other.host}."
    whole = json.loads(ran.stdout)
    mine, theirs = whole["servers"]
    assert (mine["name"], mine["model"], mine["streams"]) == ("voxtui", "moonshine-tiny-en", True)
    assert (theirs["name"], theirs["model"], theirs["streams"]) == (other.host, "a-model", False)
    assert mine["word_errors"] == 10.0
    assert theirs["word_errors"] == 40.0
    assert "-30.0 points" in ran.stderr
    for server in (mine, theirs):
        assert [(a["clip"], a["run"]) for a in server["answers"]] == [
            ("one.wav", 0), ("one.wav", 1), ("two.wav", 1), ("one.wav", 2), ("two.wav", 2),
        ]  # fmt: skip
        assert server["wall_ms"]["n"] == server["first_text_ms"]["n"] == 4
        assert server["xrt"] > 1
    asked = [r for r in other.requests if r.path.endswith("transcriptions")]
    assert {request.headers["authorization"] for request in asked} == {"Bearer sesame"}
    assert b'name="stream"' in asked[0].body
    assert b'name="stream"' not in asked[-1].body


@pytest.mark.parametrize(
    "events",
    [
        [
            {"type": "transcript.text.delta", "delta": "This is "},
            {"type": "transcript.text.delta", "delta": "the first clip."},
            {"type": "transcript.text.done", "text": "This is the first clip."},
        ],
        [
            {"object": "transcription.chunk", "choices": [{"delta": {"content": "This is "}}]},
            {"object": "transcription.chunk",
             "choices": [{"delta": {"content": "the first clip."}}]},
            {"choices": []},
        ],
    ],
    ids=["openai", "vllm"],
)  # fmt: skip
def test_the_first_text_of_a_stream_is_timed(bench, other, events):
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    other.answers["audio/transcriptions"] = openai_server.sends(*lines, "data: [DONE]\n\n")
    ran = bench("--against", other.url, "--runs", "1", "--json", clips=["one.wav"])
    theirs = json.loads(ran.stdout)["servers"][1]
    assert theirs["streams"]
    assert theirs["word_errors"] == 0
    assert all(a["first_text_ms"] <= a["wall_ms"] for a in theirs["answers"])


def test_a_server_that_refuses_to_stream_is_asked_without(bench, other):
    def answer(exchange):
        streams = b'name="stream"' in other.requests[-1].body
        refusal = {"error": {"message": "stream is not supported"}}
        exchange.whole(refusal if streams else {"text": "a"}, 400 if streams else 200)

    other.answers["audio/transcriptions"] = answer
    assert bench("--against", other.url, "--runs", "1").exit_code == 0


def test_word_errors_that_rise_by_more_than_a_point_are_refused(bench, tmp_path):
    report = bench("--runs", "1", "--json").stdout
    old = tmp_path / "old.json"
    old.write_text(report)
    same = bench("--runs", "1", "--compare", "old.json")
    assert (same.exit_code, same.stdout.splitlines()[-1][:4]) == (0, "PASS")
    old.write_text(report.replace("last clip", "second clip"))
    worse = bench("--runs", "1", "--compare", "old.json")
    assert worse.exit_code == 1
    assert worse.stdout.splitlines()[-1] == (
        "FAIL  word errors 10.0 %: at most 1 point more than the 0.0 % of old.json"
    )
    with pytest.raises(
        VoxtuiError, match=r"old\.json: was measured on other clips or references: two\.wav\."
    ):
        bench("--compare", "old.json", clips=["one.wav"])


def test_a_clip_without_its_words_is_timed_only(bench, tmp_path):
    (tmp_path / "two.txt").unlink()
    ran = bench("--runs", "1")
    assert "two.wav: there is no two.txt, so its words are not compared." in ran.stderr
    assert "0.0 %" in ran.stdout
    (tmp_path / "old.json").write_text(bench("--runs", "1", "--json").stdout)
    with pytest.raises(VoxtuiError, match=r"Write them to two\.txt\."):
        bench("--compare", "old.json")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.wav"], "none.wav: there is no such file."),
        (["one.wav", "one.wav"], "one.wav: two clips have this name. Rename one of them."),
        (["one.wav", "--compare", "none.json"], "none.json: cannot be read: No such file"),
        (["one.wav", "--compare", "one.txt"], "one.txt: is not a report of `python -m benchmarks"),
        (["one.wav", "--against", "api.example"], '--against "api.example" is not of the form'),
        (["one.wav", "--against", "http://a:b@c/v1"], "set the environment variable VOXTUI_AGAIN"),
        (["one.wav", "--against", "http://127.0.0.1:9/v1"], "127.0.0.1:9: cannot connect: "),
    ],
)
def test_what_cannot_be_done_is_one_sentence(bench, arguments, sentence):
    with pytest.raises(VoxtuiError) as refused:
        bench(*arguments, clips=())
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("models", 401, "rejected the API key (HTTP 401): “no”. Check VOXTUI_AGAINST_KEY."),
        ("audio/transcriptions", 400, "one.wav: {host} refused the request (HTTP 400): “no”."),
        ("audio/transcriptions", 413, "one.wav: Request too large for {host} (HTTP 413): “no”."),
        ("audio/transcriptions", 429, "rate limit exceeded (HTTP 429): “no”. Try again later."),
    ],
)
def test_the_other_server_s_refusal_is_one_sentence(bench, other, path, status, sentence):
    other.answers[path] = openai_server.returns({"error": {"message": "no"}}, status)
    with pytest.raises(VoxtuiError) as refused:
        bench("--against", other.url, "--runs", "1")
    assert str(refused.value).endswith(sentence.format(host=other.host))


def test_capitals_and_commas_are_no_word_errors():
    assert word_errors([("What is it?", "what is, it")]) == 0
    assert word_errors([("one two three four", "one too three")]) == 0.5
    assert word_errors([("", "a word"), ("two words", "two words")]) == 1.0
    assert word_errors([("!", "a word")]) is None
