"""The rules on sentences that they were built with. Others judge them: test_corpus.py."""

from datetime import datetime

import pytest

from tests.skills.corpus import NOW, describe, same, sentences
from voxtui.skills.rules.intents import Fact, NewReminder, Question
from voxtui.skills.rules.normalise import normalise
from voxtui.skills.rules.understand import understand

CASES = list(sentences("built-with.tsv"))


@pytest.mark.parametrize(("meaning", "sentence"), CASES, ids=[case[1] for case in CASES])
def test_a_sentence_has_its_meaning(meaning, sentence):
    found = describe(understand(sentence, NOW))
    assert same(meaning, found), found


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("Twenty-five", "25"),
        ("one thousand two hundred", "1200"),
        ("one hundred and four", "104"),
        ("three thirty", "3 30"),
        ("two point five", "2.5"),
        ("the twenty-first of May", "the 21st of May"),
        ("What's 1,200 + 7?", "What is 1200 + 7"),
        ("nine p.m.", "9 pm"),
        ("two million three hundred thousand", "2300000"),
    ],
)
def test_numbers_are_read_as_words_and_as_digits(said, read):
    assert normalise(said) == read


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("What is 5! + 3?", 123),
        ("what's 17% of 3.4e3 minus -2?", 580),
        ("0.41 percent of 1e131772258305", None),
        ("100 plus 10 percent of 50", 105),
        ("What is five factorial plus three?", 123),
        ("What is 2 times 3!", None),
        ("What is 3!!", None),
        ("I won 3 - 2!", None),
        ("What is 100 factorial?", None),
    ],
)
def test_a_factorial_is_computed_or_left_alone(words: str, value: int | None) -> None:
    meaning = understand(words, NOW)
    assert (meaning.value if isinstance(meaning, Fact) else None) == value


@pytest.mark.parametrize(
    "words",
    [
        "Set a timer for minus five minutes.",
        "Start a timer for negative ten seconds.",
        "Set a timer for five minutes five minutes.",
        "Remind me in one hour and in two hours to call.",
        "What weekday was Christmas 1500?",
        "Cancel the timer in five minutes.",
        "Pause my timer for a second",
        "The time is now.",
    ],
)
def test_what_has_no_sure_meaning_is_left_to_the_brain(words: str) -> None:
    assert understand(words, NOW) is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("Remind me yesterday at five.", "That time has passed. When?"),
        ("Set an alarm for yesterday.", "That time has passed. When?"),
        ("Wake me at eight pm at nine.", "When exactly?"),
        ("Remind me on Friday December 5th at noon to call.", "When exactly?"),
        ("Remind me this morning at one to call.", "That time has passed. At what time?"),
        ("Wake me in the afternoon at 6 am.", "When exactly?"),
        (
            "Set a timer for half a second.",
            "A timer takes from one second to 30 days. For how long?",
        ),
        ("When was Easter?", "Easter was Sunday, April 5th, 2026."),
        ("How many metres in minus three feet?", "Minus 3 feet are about minus 0.914 metres."),
    ],
)
def test_what_is_over_or_contradicts_itself_is_said(words: str, sentence: str) -> None:
    meaning = understand(words, NOW)
    assert isinstance(meaning, Fact | Question)
    assert meaning.sentence == sentence


@pytest.mark.parametrize(
    ("words", "at"),
    [
        ("Remind me at 5 am.", "2026-11-23T05:00"),
        ("Remind me at seven p.m.", "2026-11-22T19:00"),
        ("Remind me on Friday at 6 pm.", "2026-11-27T18:00"),
        ("Remind me in 2 hours and 5 minutes.", "2026-11-22T15:09"),
        ("Remind me at 10 minutes past 5.", "2026-11-22T17:10"),
        ("Remind me tomorrow night at 9.", "2026-11-23T21:00"),
        ("Remind me today at 16:30.", "2026-11-22T16:30"),
        ("Remind me at nine o'clock.", "2026-11-22T21:00"),
        ("Remind me at 8 in the evening in two days.", "2026-11-24T20:00"),
        ("Remind me on Friday December 4th at noon.", "2026-12-04T12:00"),
        ("Remind me at half seven.", "2026-11-22T19:30"),
        ("Remind me a week on Monday at ten in the morning.", "2026-11-30T10:00"),
    ],
)
def test_no_part_of_a_time_is_the_subject_of_a_reminder(words: str, at: str) -> None:
    assert understand(words, NOW) == NewReminder(datetime.fromisoformat(at), "")
