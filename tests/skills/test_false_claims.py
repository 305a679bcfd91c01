"""A model's claim of a deed gets a note; talk about such things gets none."""

import time

import pytest

from voxtui.skills.rules.about_itself import doubt


@pytest.mark.parametrize(
    "reply",
    [
        "I've set a timer for ten minutes.",
        "Okay, I have started the timer for you.",
        "Your timer is set for 5 minutes.",
        "The reminder has been set for tomorrow at nine.",
        "I'll remind you to call your mother tomorrow.",
        "Sure, I will set a reminder for you.",
        "Timer set for ten minutes.",
        "I have sent the email to Anna.",
        "Your pasta timer has been cancelled.",
        "I will wake you at seven.",
    ],
)
def test_a_claim_is_noted(reply):
    assert doubt(reply) is not None


@pytest.mark.parametrize(
    "reply",
    [
        "A timer counts down.",
        "You can set a timer on your phone.",
        "I cannot set timers.",
        "I can't send emails, but you can.",
        "To set an alarm, open the clock.",
        "The first alarm clock was made in 1787.",
        "The sun is set to rise at six.",
        "Email was invented in 1971.",
        "The first email was sent in 1971.",
        "The event was created in 1896.",
        "The first message was sent by telegraph.",
    ],
)
def test_talk_about_such_things_is_not(reply):
    assert doubt(reply) is None


def test_the_work_is_in_proportion_to_the_reply():
    """A match holds the interpreter: no key is served meanwhile."""
    begun = time.thread_time()
    assert doubt("I set " * 5000) is None
    assert time.thread_time() - begun < 5.0  # 0.2 s if linear, a minute if quadratic
