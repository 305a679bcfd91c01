"""The instruction that every brain gives its model, and the examples for a small one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the benchmark of random weights runs without msgspec
    from voxtui.settings.schema import Config

SHORT = " Answer with one short sentence of at most fifteen words."

EXAMPLES = (
    ("I'm a bit tired today.", "I'm sorry that you're tired. Was it a long day?"),
    (
        "Help me plan a picnic.",
        "First, choose a meadow with some shade. Then pack bread, cheese, fruit and "
        "plenty of water. Around noon, spread a blanket and eat without hurry. "
        "Afterwards, play cards or a ball game.",
    ),
    (
        "It looks like rain, though.",
        "Then have it indoors: spread the blanket on the floor, open the window, and keep "
        "the same food and the card game.",
    ),
    ("Nothing sweet for me tonight, please.", "All right, nothing sweet tonight."),
    ("What could I have with a cup of tea?", "Some salted nuts, or a piece of cheese on toast."),
    (
        "Spiders are insects with six legs, right?",
        "No, a spider has eight legs, so it isn't an insect.",
    ),
    (
        "Is it nicer to read a book or to see the film?",
        "The book, I'd say. The pictures in your own head are the best ones, and nobody "
        "hurries you.",
    ),
    (
        "Please switch the lamp on. Sorry, I meant the radio.",
        "I can't switch the radio on. I can only talk with you.",
    ),
    (
        "I finally did it, after so many months!",
        "Congratulations, that's wonderful! You must be so relieved. How will you celebrate?",
    ),
    (
        "Ich habe heute zu gar nichts Lust.",
        "Solche Tage gibt es. Geh zehn Minuten an die frische Luft, danach sieht es oft "
        "anders aus.",
    ),
    ("Do you know who is talking to you?", "No, you haven't told me."),
    (
        "I'll charge my phone in the bath tonight.",
        "Please don't! Water and electricity together can kill you. Leave it in another room.",
    ),
)
"""Past turns that show a small model how to talk, and what it cannot know or do.

An instruction alone does not teach it that. Few refuse, because the model refused more after six of
which four did. They hold no name, place, relative, animal or job of the user, because a small model
takes a fact of an example for the user's own, even if it was only asked for ("Do I have a
garden?"). They are few, because each later token attends to all of them. The one about tea is not
the last, because short answers take words of the last ("Black tea." for black and white)."""

EXAMPLE_CLOCK = "(It is Friday, 6 June 2025, 08:41.)"
"""The time before the first example, else a small model repeats that of the first turn."""


def instruction(config: Config) -> str:
    """Return the user's instruction, with a request for one sentence if the preset says so."""
    short = SHORT if config.generation.sampling().one_sentence else ""
    return f"{config.brain.instruction}{short}".strip()


def examples(config: Config) -> tuple[tuple[str, str], ...]:
    """Return past turns for a small model; none if the user has set an instruction.

    They would contradict it, because they follow the default instruction.
    """
    from voxtui.settings.schema import BrainConfig

    if config.brain.instruction != BrainConfig().instruction:
        return ()
    if not config.brain.clock:
        return EXAMPLES
    (words, reply), *others = EXAMPLES
    return ((after_clock(EXAMPLE_CLOCK, words), reply), *others)


RUNS = ((5, 3), (8, 2))
"""Lengths in words, and numbers of occurrences, of an ending by which a reply repeats itself."""

LAST_TOKENS = 24
"""Maximum tokens for the rest of the sentence in which a reply begins to repeat itself."""

_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)]*(?=\s|$)")

LAST_CHARACTERS = 20
"""Number of last characters that include the signs and spaces at the end of a sentence."""


def after_clock(clock: str, words: str) -> str:
    """Return the user's words after the line with the time, if there is one."""
    return f"{clock}\n{words}" if clock else words


def paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def transcript_limit(seconds: float) -> int:
    """Return the maximum tokens of a transcript. Digits read fast are ten a second."""
    return 16 + int(seconds * 15)


def until_repeated(texts: Iterable[str]) -> Iterator[str]:
    """Yield the tokens of a reply until it repeats itself, as small models do in a story.

    The sentence in which it begins to do so is completed, unless it has not begun or is long. The
    work is proportional to the reply.
    """
    repeats, sentence = _repeats(), ""
    left = -1  # tokens that may still follow, once it goes in circles
    next(repeats)
    for text in texts:
        if left < 0 and repeats.send(text):
            left = LAST_TOKENS if sentence.strip() else 0
        if left == 0:
            return
        yield text
        sentence += text
        if ends := list(_SENTENCE_END.finditer(sentence)):
            sentence, left = sentence[ends[-1].end() :], min(left, 0)
        else:  # its end is enough to see that it has begun
            sentence, left = sentence[-LAST_CHARACTERS:], left - (left > 0)


def _repeats() -> Generator[bool, str]:
    """Take one token after another, and yield whether the text repeats itself as in RUNS."""
    seen = Counter[tuple[str, ...]]()
    words: list[str] = []
    """the last complete words"""
    growing = ""
    """the last word, which the next token may continue"""
    repeated = False
    while True:
        text = yield repeated
        *complete, growing = re.split(r"\W+", f"{growing}{text}".lower())
        for word in filter(None, complete):
            words = [*words, word][-RUNS[-1][0] :]
            seen.update(tuple(words[-length:]) for length, _ in RUNS if len(words) >= length)
        latest = [*words, growing] if growing else words
        repeated = any(
            seen[tuple(latest[-length:])] + bool(growing) >= times for length, times in RUNS
        )
