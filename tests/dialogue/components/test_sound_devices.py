"""Microphone and speaker: lost, missing, replaced."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.dialogue.talking import HANDS_FREE, SPEECH, EngineTest, notices, talking
from tests.fakes import (
    LONG_AGO,
    SECONDS,
    BeepVoice,
    Events,
    FakeMicrophone,
    FakeSpeaker,
    Flag,
    ScriptedBrain,
    frames,
)
from voxtui.dialogue import engine
from voxtui.dialogue.components import sound_devices
from voxtui.dialogue.data import FRAME_SECONDS
from voxtui.dialogue.engine_commands import (
    Release,
    ReplaceComponents,
    RescanDevices,
    SendText,
    Sync,
    Talk,
)
from voxtui.dialogue.events import (
    Captured,
    Loaded,
    MicrophoneLost,
    Notice,
    State,
    StateChanged,
    Synced,
    TurnStarted,
)
from voxtui.dialogue.listening.listener import PREROLL_SECONDS
from voxtui.dialogue.timestamps import Outcome
from voxtui.errors import DeviceError
from voxtui.settings.schema import (
    Config,
)


def test_a_turn_goes_on_as_text_after_the_speaker_is_lost() -> None:
    speaker = FakeSpeaker()
    with talking(speaker=speaker) as talk:
        speaker.fails = DeviceError("The speaker was unplugged.")
        assert talk.ask().outcome is Outcome.ANSWERED
        assert "unplugged" in str(talk.events.of(Notice)[0])


@pytest.mark.parametrize(("config", "attended"), [(Config(), [True, False]), (HANDS_FREE, [True])])
def test_the_microphone_is_attended_while_one_may_speak_to_it(
    config: Config, attended: list[bool]
) -> None:
    with talking(config=config) as talk:
        assert talk.ask().outcome is Outcome.ANSWERED
        talk.engine.close()
        assert talk.microphone.attended == attended


def test_of_sound_that_comes_late_only_the_pre_roll_is_recorded() -> None:
    with talking() as talk:
        talk.engine.post(Talk(LONG_AGO))
        talk.events.until(TurnStarted)
        talk.microphone.push(frames(SPEECH * 2, LONG_AGO - len(SPEECH) * FRAME_SECONDS))
        talk.engine.post(Release(LONG_AGO + len(SPEECH) * FRAME_SECONDS))
        talk.microphone.push(frames("....", LONG_AGO + len(SPEECH) * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.ANSWERED
        heard = talk.events.of(Captured)[0].utterance.seconds
        assert heard == pytest.approx(PREROLL_SECONDS + len(SPEECH) * FRAME_SECONDS, abs=0.2)


def test_speech_captured_before_the_microphone_was_unplugged_is_answered() -> None:
    with talking() as talk:
        talk.engine.post(Talk(LONG_AGO))
        talk.microphone.push(frames(SPEECH, LONG_AGO))
        talk.microphone.unplug()
        assert talk.events.until(MicrophoneLost)
        assert talk.events.until(Notice, lambda e: "there is no other" in str(e))
        assert talk.turn().outcome is Outcome.ANSWERED
        talk.engine.post(Talk(LONG_AGO + 500))
        notice = talk.events.until(Notice, lambda e: "no microphone" in str(e))
        assert notice
        assert talk.turn().outcome is Outcome.CANCELLED
        talk.engine.post(SendText("still there?"))
        assert talk.turn().outcome is Outcome.ANSWERED


def test_a_lost_microphone_is_replaced_and_the_speaker_stays() -> None:
    spare, last = FakeMicrophone(), FakeMicrophone()
    fallback_devices = iter((spare, last))
    with talking(fallback_devices=lambda: (next(fallback_devices), FakeSpeaker())) as talk:
        talk.engine.post(Talk(LONG_AGO))
        talk.microphone.push(frames(SPEECH, LONG_AGO))
        talk.microphone.unplug()
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.microphone.closed and talk.speaker.chunks
        lost, found = talk.events.of(Notice)[:2]
        assert lost.severity == "warning"  # no error, because another microphone is in use
        assert found == Notice("Listening to fake microphone now.", "information")
        talk.engine.post(Talk(LONG_AGO + 500))
        spare.push(frames(SPEECH, LONG_AGO + 500))
        talk.engine.post(Release(LONG_AGO + 500 + len(SPEECH) * FRAME_SECONDS))
        spare.push(frames("....", LONG_AGO + 500 + len(SPEECH) * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.ANSWERED
        spare.unplug()  # it has been heard, so it may be replaced too
        talk.events.until(Notice, lambda e: "Listening to" in str(e))
        assert last.opened and not talk.events.of(MicrophoneLost)


def test_an_unplugged_headset_is_replaced_once_although_both_devices_report_it() -> None:
    """The microphone's loss waits behind the answer; by then the speaker's has replaced both."""
    spare, loud, go = FakeMicrophone(), FakeSpeaker(), Flag()
    with talking(ScriptedBrain([go, "One."]), fallback_devices=lambda: (spare, loud)) as talk:
        talk.engine.post(SendText("tell me"))
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.THINKING))
        talk.microphone.fails = talk.speaker.fails = DeviceError("It is not there.")
        talk.microphone.unplug()
        go.set()
        assert talk.turn().outcome is Outcome.ANSWERED
        talk.engine.post(Talk(LONG_AGO))
        talk.events.until(TurnStarted)
        spare.push(frames(SPEECH, LONG_AGO))
        talk.engine.post(Release(LONG_AGO + len(SPEECH) * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert loud.chunks and not spare.closed and not talk.events.of(MicrophoneLost)


def test_sound_of_a_lost_microphone_does_not_prove_that_the_next_one_delivers() -> None:
    spares, go = [FakeMicrophone(), FakeMicrophone()], Flag()
    fallback_devices = iter(spares)
    with talking(
        ScriptedBrain([go, "One."]),
        fallback_devices=lambda: (next(fallback_devices), FakeSpeaker()),
    ) as talk:
        talk.engine.post(SendText("tell me"))
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.THINKING))
        talk.microphone.fails = talk.speaker.fails = DeviceError("It is not there.")
        talk.microphone.push(frames(SPEECH, LONG_AGO))
        go.set()
        talk.events.until(Notice, lambda e: "Listening to" in str(e))
        talk.engine.post(SendText("and now?"))  # the old frames were taken before it
        talk.turn()
        spares[0].unplug()  # it has delivered nothing, so it is not replaced again at once
        assert talk.events.until(MicrophoneLost)
        assert not spares[1].opened


def test_a_lost_speaker_is_not_replaced_while_the_user_already_speaks() -> None:
    go = Flag()
    with talking(
        ScriptedBrain(["It is one. And ", go, "two."]),
        fallback_devices=lambda: (FakeMicrophone(), FakeSpeaker()),
    ) as talk:
        talk.speaker.fails = DeviceError("It is not there.")
        talk.engine.post(SendText("tell me"))
        talk.events.until(Notice, lambda e: "It is not there" in str(e))
        talk.engine.post(Talk(LONG_AGO))
        talk.microphone.push(frames(SPEECH, LONG_AGO))
        go.set()
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.LISTENING))
        talk.engine.post(Sync())
        talk.events.until(Synced)
        assert talk.microphone.opened == 1
        talk.engine.post(Release(LONG_AGO + len(SPEECH) * FRAME_SECONDS))
        talk.events.until(Captured)
        talk.events.until(Notice, lambda e: "Speaking through" in str(e))


def test_an_old_loss_does_not_close_a_microphone_that_was_opened_again() -> None:
    go = Flag()
    with talking(
        ScriptedBrain([go, "One."]), fallback_devices=lambda: (FakeMicrophone(), FakeSpeaker())
    ) as talk:
        talk.engine.post(SendText("tell me"))
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.THINKING))
        talk.speaker.fails = DeviceError("The sound server has gone.")
        talk.microphone.unplug()  # and the server is back once the answer is over
        go.set()
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.ask(at=LONG_AGO).outcome is Outcome.ANSWERED
        assert talk.microphone.opened == 2 and not talk.microphone.closed


def test_a_replacement_that_delivers_no_frame_is_not_replaced_again() -> None:
    made: list[FakeMicrophone] = []

    def fallback_devices() -> tuple[FakeMicrophone, FakeSpeaker]:
        made.append(FakeMicrophone())
        return made[-1], FakeSpeaker()

    with talking(fallback_devices=fallback_devices) as talk:
        talk.microphone.unplug()
        talk.events.until(Notice, lambda e: "Listening to" in str(e))
        talk.engine.post(Talk(10.0, source="clip.wav"))
        talk.engine.push(*frames("x", source="clip.wav"))  # which proves nothing
        made[0].unplug()
        assert talk.events.until(MicrophoneLost)
        assert len(made) == 1


def test_a_turn_goes_on_as_text_after_the_voice_fails_or_the_speaker_is_lost() -> None:
    class Unplugged(FakeSpeaker):
        def finish(self, timestamps, stopped):  # type: ignore[no-untyped-def]
            raise DeviceError("The speaker was unplugged.")

    def broken(clause: str) -> None:
        raise ValueError

    brain, speaker = ScriptedBrain(["One."], ["Two."]), FakeSpeaker()
    fallback_devices = (FakeMicrophone(), speaker)
    with talking(
        brain,
        voice=BeepVoice(broken),
        speaker=Unplugged(),
        fallback_devices=lambda: fallback_devices,
    ) as talk:
        assert talk.ask().reply == "One."
        talk.events.until(Notice, lambda e: "Speaking through fake speaker" in str(e))
        assert talk.ask(at=2000.0).reply == "Two."


def test_a_lost_speaker_is_replaced_once_for_the_later_answers() -> None:
    spare, made = FakeSpeaker(), list[FakeMicrophone]()

    def fallback_devices() -> tuple[FakeMicrophone, FakeSpeaker]:
        made.append(FakeMicrophone())
        return made[-1], spare

    with talking(fallback_devices=fallback_devices) as talk:
        talk.speaker.fails = DeviceError("The speaker was unplugged.")
        assert talk.ask().outcome is Outcome.ANSWERED
        assert talk.events.until(Notice, lambda e: "Speaking through fake speaker now" in str(e))
        for text in ("once more", "and again"):
            talk.engine.post(SendText(text))
            assert talk.turn().outcome is Outcome.ANSWERED
        assert [chunk.text for chunk in spare.chunks] == ["Yes.", "Yes."] and len(made) == 1


def test_text_works_if_the_microphone_does_not_open() -> None:
    with talking(
        microphone=FakeMicrophone(DeviceError("Busy.", "Close the other program."))
    ) as talk:
        talk.engine.post(SendText("hello"))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert "Busy. Close the other program." in str(talk.events.of(Notice)[0])


def test_text_works_if_the_speaker_does_not_open() -> None:
    speaker = FakeSpeaker()
    speaker.fails = DeviceError("Busy.", "Close the other program.")
    with talking(speaker=speaker) as talk:
        assert talk.ask().outcome is Outcome.ANSWERED
        assert [str(e) for e in talk.events.of(Notice)] == [
            str(Notice(str(speaker.fails), "error"))
        ]


def test_a_new_speaker_is_heard_by_a_tone_and_then_by_the_next_answer() -> None:
    new = FakeSpeaker()
    with talking() as talk:
        talk.engine.post(ReplaceComponents(Config(), speaker=new))
        assert talk.events.until(Loaded, lambda loaded: loaded.changed)
        talk.engine.post(SendText("hello"))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert [chunk.text for chunk in new.chunks] == ["", "Yes."]
        assert talk.speaker.closed and not talk.speaker.chunks


def test_a_rescan_keeps_devices_that_are_still_there() -> None:
    with talking(fallback_devices=lambda: (FakeMicrophone(), FakeSpeaker())) as talk:
        talk.engine.post(RescanDevices())
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        assert talk.ask().outcome is Outcome.ANSWERED
        assert talk.speaker.chunks
        assert talk.microphone.opened == 2
        assert not talk.events.of(Notice)


def test_a_rescan_uses_a_microphone_that_came_back() -> None:
    def none() -> tuple[FakeMicrophone, FakeSpeaker]:
        return FakeMicrophone(DeviceError("There is no microphone.")), FakeSpeaker()

    with talking(fallback_devices=none) as talk:
        talk.microphone.fails = DeviceError("It is not there.")
        talk.microphone.unplug()
        talk.events.until(MicrophoneLost)
        talk.engine.post(RescanDevices())
        talk.events.until(MicrophoneLost)
        talk.microphone.fails = None
        talk.engine.post(RescanDevices())
        talk.events.until(Notice, lambda e: "Listening to fake microphone now." in str(e))
        assert talk.ask().outcome is Outcome.ANSWERED


def test_the_default_replaces_a_missing_microphone_until_a_rescan_finds_it() -> None:
    absent, spare = FakeMicrophone(DeviceError("It is not there.")), FakeMicrophone()
    with talking(microphone=absent, fallback_devices=lambda: (spare, FakeSpeaker())) as talk:
        said = [str(notice) for notice in talk.events.of(Notice)]
        assert "It is not there." in said[0] and "Listening to fake microphone now." in said[1]
        assert spare.opened and not absent.opened and not talk.events.of(MicrophoneLost)
        absent.fails = None
        talk.engine.post(RescanDevices())
        assert talk.events.until(Loaded)
        assert absent.opened and spare.closed


def test_the_default_replaces_a_speaker_that_is_missing_at_the_start() -> None:
    absent, spare = FakeSpeaker(), FakeSpeaker()
    absent.fails = DeviceError("It is not there.")
    with talking(speaker=absent, fallback_devices=lambda: (FakeMicrophone(), spare)) as talk:
        said = [str(notice) for notice in talk.events.of(Notice)]
        assert "It is not there." in said[0] and "Speaking through" in said[1] and len(said) == 2
        assert talk.ask().outcome is Outcome.ANSWERED
        assert spare.chunks and not absent.chunks


# Devices that come back.


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sound_devices, engine):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(sound_devices, "WAKE_SECONDS", 0.005)


def no_devices() -> tuple[FakeMicrophone, FakeSpeaker]:
    speaker = FakeSpeaker()
    speaker.fails = DeviceError("There is no speaker.")
    return FakeMicrophone(DeviceError("There is no microphone.")), speaker


def lose_all(talk: EngineTest) -> None:
    """Unplug both devices, as when the sound server ends."""
    talk.microphone.fails = talk.speaker.fails = DeviceError("It is not there.")
    talk.microphone.unplug()
    talk.events.until(MicrophoneLost)


def wait_until(there: Callable[[], bool]) -> None:
    poll = Flag()
    while not there():
        poll.wait(0.001)


@pytest.mark.usefixtures("impatient")
def test_a_lost_microphone_and_speaker_are_used_again_when_they_come_back() -> None:
    with talking(fallback_devices=no_devices) as talk:
        lose_all(talk)
        assert talk.events.of(Loaded)[-1].microphone is None
        assert talk.events.of(Loaded)[-1].speaker is None
        talk.speaker.fails = None
        talk.events.until(Notice, lambda e: "Speaking through fake speaker again." in str(e))
        talk.microphone.fails = None
        wait_until(lambda: talk.microphone.opened >= 2)
        talk.microphone.push(frames(".", LONG_AGO))
        talk.events.until(Notice, lambda e: "Listening to fake microphone again." in str(e))
        assert talk.ask(at=LONG_AGO + 1).outcome is Outcome.ANSWERED
        assert talk.speaker.chunks
        again = [e for e in talk.events.of(Notice) if "again" in str(e)]
        assert len(again) == 2


@pytest.mark.usefixtures("impatient")
def test_a_microphone_that_opens_but_delivers_nothing_is_not_back() -> None:
    with talking(fallback_devices=no_devices) as talk:
        lose_all(talk)
        talk.microphone.fails = None
        wait_until(lambda: talk.microphone.opened >= 4)
        assert not [e for e in talk.events.of(Notice) if "Listening" in str(e)]
        talk.engine.post(Talk(LONG_AGO))
        assert talk.turn().outcome is Outcome.CANCELLED


def test_a_typed_question_tries_the_speaker_that_is_missing() -> None:
    with talking(fallback_devices=no_devices) as talk:
        lose_all(talk)
        talk.engine.post(SendText("hello"))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert not talk.speaker.chunks and "as text" not in notices(talk.events)
        talk.speaker.fails = None
        talk.engine.post(SendText("hello"))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert [chunk.text for chunk in talk.speaker.chunks] == ["Yes."]
        assert "Speaking through fake speaker again." in notices(talk.events)


@pytest.mark.usefixtures("impatient")
def test_a_wanted_microphone_replaces_the_default_once_it_is_plugged_in() -> None:
    system = [0]
    absent, spare = FakeMicrophone(DeviceError("It is not there.")), FakeMicrophone()
    with talking(
        microphone=absent,
        fallback_devices=lambda: (spare, FakeSpeaker()),
        sound_system=lambda: tuple(system),
    ) as talk:
        spare.push(frames(".", LONG_AGO))
        absent.fails = None
        spare.push(frames(".", LONG_AGO + 1))
        assert not absent.opened  # nothing told of a new device
        system[0] += 1
        time = LONG_AGO + 2
        while not absent.opened:
            spare.push(frames(".", time))
            time += 1
            Flag().wait(0.001)
        talk.events.until(Notice, lambda e: "Listening to fake microphone now." in str(e))
        assert spare.closed


def states(events: Events) -> list[State]:
    return [event.state for event in events.of(StateChanged) if isinstance(event, StateChanged)]


def test_an_answer_whose_speaker_fails_is_not_spoken_and_nothing_is_ready_while_it_is_replaced():
    go_on, speaker, other = Flag(), FakeSpeaker(), FakeSpeaker()
    brain = ScriptedBrain(["One. ", go_on, "Two."])
    with talking(
        brain, speaker=speaker, fallback_devices=lambda: (FakeMicrophone(), other)
    ) as talk:
        talk.events.drain()
        talk.speak()
        talk.events.until(StateChanged, lambda event: event == StateChanged(State.SPEAKING))
        assert speaker.playing.wait(SECONDS)
        speaker.fails = DeviceError("The sound server has gone.")
        go_on.set()
        talk.events.until(StateChanged, lambda event: event == StateChanged(State.THINKING))
        assert talk.turn().reply == "One. Two."
        talk.events.until(Loaded)
        talk.events.until(StateChanged, lambda event: event == StateChanged(State.READY))
        assert states(talk.events)[-4:] == [
            State.THINKING,
            State.READY,
            State.LOADING,
            State.READY,
        ]
