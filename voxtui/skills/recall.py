"""Questions about what was said in this conversation, answered word for word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from voxtui.dialogue.protocols import AUDIO_INPUT, Past, PastTurn
from voxtui.skills.intents import Fact
from voxtui.skills.normalise import patterns

_LATEST = patterns(
    r"what (?:did i|have i) (?:just |last )?(?:say|said)(?: (?:to you|just now|last))?",
    r"what was (?:it )?(?:that )?i (?:just )?said|what i (?:just )?said",
    r"(?:what was )?the last thing (?:that )?i (?:said|told you)(?: was)?",
)
_LATEST_QUESTION = patterns(
    r"what (?:did i|have i) (?:just |last )(?:ask|asked)(?: you)?",
    r"what did i ask(?: you)? (?:last|just now|before)",
    r"(?:what was )?(?:my|the) (?:last|latest|previous) (?:question|thing i asked(?: you)?)",
)
_FIRST = patterns(
    r"what did i (?:say|tell you) (?:first|at the (?:beginning|start)|in the beginning)",
    r"(?:what was )?the (?:first|1st) thing (?:that )?i (?:said|told you)",
    r"what did i (?:first|1st) (?:say|tell you)",
)
_FIRST_QUESTION = patterns(
    r"what did i ask(?: you)? (?:first|1st|at the (?:beginning|start)|in the beginning)",
    r"what did i (?:first|1st) ask(?: you)?",
    r"(?:what was )?(?:my|the) (?:first|1st) (?:question|thing (?:that )?i asked(?: you)?)",
)
_REPEAT = patterns(
    r"(?:repeat|say) (?:that|it|this|what you (?:just )?said)(?: (?:again|once more))*",
    r"(?:say|repeat) (?:again|your last (?:answer|sentence))|come again|once more|one more time",
    r"what did you (?:just )?say(?: (?:just now|again))?|what was that(?: again)?|repeat",
)
_QUESTION = re.compile(
    r"(?:(?:and|so|but|well|ok|okay|please) )*(?:who|whose|what|which|where|when|why|how|can|could"
    r"|do|does|did|is|are|was|were|will|would|should|may|have|has|tell me)\b",
    re.IGNORECASE,
)


def understand(text: str, past: Past) -> Fact | None:
    """Return what was said in `past` (oldest first), if `text` asks for it and it is known."""
    said = [turn for turn in past if turn.user_input != "" and not turn.attached]
    if _asks(_REPEAT, text):
        replies = [turn.reply_text.strip() for turn in past if turn.reply and not turn.attached]
        return Fact("said", replies[-1], replies[-1]) if replies and replies[-1] else None
    if _asks(_LATEST, text):
        return _quoted("You said", said[-1:])
    if _asks(_FIRST, text):
        return _quoted("First you said", said[:1])
    if _asks(_LATEST_QUESTION, text):
        return _quoted("You asked", _questions(said)[-1:])
    if _asks(_FIRST_QUESTION, text):
        return _quoted("First you asked", _questions(said)[:1])
    return None


def _asks(forms: Sequence[re.Pattern[str]], text: str) -> bool:
    return any(form.fullmatch(text) for form in forms)


def _questions(said: list[PastTurn]) -> list[PastTurn]:
    """Return the questions; none if words are missing, because one of those may be the one."""
    if any(turn.user_text.startswith(AUDIO_INPUT) for turn in said):
        return []
    return [one for one in said if one.user_text.endswith("?") or _QUESTION.match(one.user_text)]


def _quoted(opening: str, turns: list[PastTurn]) -> Fact | None:
    if not turns or turns[0].user_text.startswith(AUDIO_INPUT):
        return None
    words = turns[0].user_text.strip()
    return Fact("said", words, f"{opening}: “{words}”")
