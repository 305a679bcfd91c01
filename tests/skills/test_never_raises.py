"""No sentence ends the program: the rules raise nothing, whatever is said and whenever."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

import pytest

from tests.skills.grammar import sentences
from voxtui.dialogue.protocols import SkillRequest
from voxtui.skills.assistant_skills import AssistantSkills
from voxtui.skills.rules.about_itself import doubt
from voxtui.skills.timer_store import Reminder, TimerStore, reminders_file

MOMENTS = [
    datetime(2026, 1, 1, 0, 0),
    datetime(2026, 12, 31, 23, 59, 59),
    datetime(2027, 3, 28, 0, 30),
    datetime(2026, 3, 29, 2, 30),
    datetime(2026, 10, 25, 2, 30),
    datetime(2028, 2, 29, 12, 0),
    datetime(2028, 1, 15, 12, 30),
    datetime(2025, 2, 28, 11, 59),
    datetime(9999, 12, 31, 23, 59),
    datetime(1, 1, 1, 0, 0),
]

KNOWN = """
when is easter 0000
how long until 70 to 1
how many days between december 5 2028 and february 29 2028
how many days between march 5 and february 29
remind me in 99999999999 days at 7
set a timer for 99999999999999999999 weeks
what is 9999999 ^ 999
what is 2 ^ 0.5 ^ 999
square root of minus 4
in 40000 years
what day is it in 9000 years
how many days until 31 february
how long until 24:30
remind me at 12:99 to eat
how many metres in 1 μg
what is 5 µg in ſ
replace ſt. with μg
how many ſ in 5 μ
"""


pytestmark = pytest.mark.usefixtures("berlin")


def raised(tmp_path, said) -> list[str]:
    """Return what the skills raise at each of the odd moments, in turn."""
    failures: list[str] = []
    for index, moment in enumerate(MOMENTS):
        skills = AssistantSkills(tmp_path / str(index), now=lambda moment=moment: moment)
        for words in said[index :: len(MOMENTS)]:
            try:
                skills.answer(SkillRequest(words))
                skills.answer(SkillRequest(words, again=True))
                doubt(words)
            except Exception as error:  # noqa: BLE001
                failures.append(f"{moment} {words!r}: {error!r}")
            for file in (tmp_path / str(index)).glob("*.json"):
                if file.stat().st_size > 4000:
                    file.unlink()
    return failures


def test_no_form_is_tried_for_minutes(tmp_path):
    """A match holds the interpreter: no key is served meanwhile. The time limit ends this test."""
    for words in ("wake me at" + 12 * " 10 10 am" + " x", 30 * "all of " + "alarm x"):
        assert raised(tmp_path, [words]) == []


def test_the_known_sentences(tmp_path):
    for words in KNOWN.strip().splitlines():
        assert raised(tmp_path, [words] * len(MOMENTS)) == []


def test_an_answer_to_a_question_about_words_with_braces(tmp_path):
    skills = AssistantSkills(tmp_path, now=lambda: MOMENTS[0])
    assert skills.answer(SkillRequest("remind me to water the {olx }"))
    assert skills.answer(SkillRequest("at seven o'clock"))


def test_some_sentences_of_the_rules_own_grammar(tmp_path):
    assert raised(tmp_path, list(islice(sentences(seed=1), 3000)))[:5] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_sentences(tmp_path):
    assert raised(tmp_path, list(islice(sentences(seed=2), 100_000)))[:5] == []


def test_a_file_with_times_at_both_ends_of_the_calendar(tmp_path):
    reminders_file(tmp_path).write_text(
        '[{"at": "9998-12-31T23:59:59Z", "about": "last"}, {"at": "1971-01-01T00:00:00Z"}]'
    )
    skills = AssistantSkills(tmp_path, now=lambda: datetime(2026, 11, 24, 12, 0))
    assert isinstance(TimerStore(tmp_path).read().reminders[0], Reminder)
    TimerStore(tmp_path).read().countdowns()
    assert skills.answer(SkillRequest("What are my reminders?"))
