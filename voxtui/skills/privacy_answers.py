"""True answers to questions about the assistant itself: what it hears, keeps, sends and can do.

A language model invents these answers. They are promises, so they come from the configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxtui.skills.abilities import ability
from voxtui.skills.sentences import plain_words, sentence

if TYPE_CHECKING:
    from voxtui.settings.schema import Config, VadConfig

_MINE = (
    r"(?:me|us|this|(?:my|our|this) (?:voice|words?|audio|speech|sound|data|questions?"
    r"|conversations?|chats?|recordings?)|the sound of my voice"
    r"|(?:what|everything|anything|all)(?: that)? (?:i|we)(?: have|'ve)?"
    r" (?:say|said|tell you|told you|type|typed|talk about|talked about|speak about)"
    r"|everything|anything)"
)
_MANNER = r"(?:(?:always|ever|also|really|still|just|secretly|constantly|permanently|actually) )*"
_WHEN = (
    r"(?: (?:all the time|always|constantly|permanently|in the background|secretly|at night"
    r"|(?:when|while|if|even|without|before|after|unless) .*))?"
)


_HEARS = sentence(
    rf"(?:are|do|will) you {_MANNER}(?:listen|listening|hear|hearing)(?: to)?(?: {_MINE})?{_WHEN}",
    r"can you (?:always )?(?:listen|hear)(?: to)? (?:me|us) (?:all the time|always"
    r"|(?:when|while|if|even|without|before|after|unless) .*)",
    rf"when (?:exactly )?(?:can|do|are|will) you (?:listen|listening|hear)(?: to)?(?: {_MINE})?",
    r"is (?:the|my|your) microphone (?:always )?(?:on|open|off|listening)" + _WHEN,
)
_SENDS = sentence(
    rf"(?:are|do|will) you {_MANNER}(?:send|sending|upload|uploading|share|sharing|transmit)"
    rf" {_MINE}(?: .*)?",
    rf"(?:where )?(?:does|do|will|is|are|can) {_MINE} (?:being )?"
    r"(?:go|gone|get|leave|sent|uploaded|transmitted|shared|processed|end up|stay)(?: .*)?",
    rf"who(?: else)? (?:can|could|might|will|is|does)? ?{_MANNER}"
    rf"(?:hear|hears|listen|listens|listening|read|reads|see|sees|know|knows)(?: to)? {_MINE}",
    r"(?:are|do) you (?:spy|spying) on (?:me|us)",
)
_KEEPS = sentence(
    rf"(?:are|do|will) you {_MANNER}(?:record|recording|store|storing|save|saving|keep|keeping"
    rf"|log|logging) {_MINE}{_WHEN}",
    rf"(?:is|are|am i|will) (?:{_MINE} )?(?:being |be )?"
    r"(?:recorded|stored|saved|logged|kept|private|confidential)" + _WHEN,
    rf"what (?:do|will) you do with {_MINE}",
)
_RUNS = sentence(
    r"where (?:do you (?:run(?: .{0,40})?|live)|are you (?:running|hosted|located|right now))",
    r"do you (?:need|use|require|have) (?:the |an )?(?:internet|cloud|network|wifi|wi-fi|server)"
    r"(?: (?:connection|access))?(?: to .{0,30}| for .{0,30})?",
    r"(?:can|do|could) you (?:work|run|answer|function)(?: me)? "
    r"(?:offline|locally|without (?:the |an )?(?:internet|network)(?: connection)?)",
    r"are you (?:in the cloud|online|offline|local|on the internet|connected to the internet"
    r"|running (?:locally|offline|in the cloud|on .{0,20}))",
)
_BEING = sentence(
    r"are you (?:really |actually )?(?:(?:a |an )?(?:real |actual |living )?(?:human being|human"
    r"|person|man|woman|robot|machine|computer|program|ai|bot|artificial intelligence)"
    r"|alive|real)(?: or .{0,30})?",
    r"am i (?:talking|speaking) (?:to|with) (?:a |an )?(?:real )?(?:human being|human|person"
    r"|robot|machine|computer|program|ai|bot)(?: or .{0,30})?",
)
_REMEMBERS = sentence(
    r"(?:will|do|can|could) you (?:still )?remember (?:me|us|this|what .*|our .*|everything.*"
    r"|anything.*|my .*) ?(?:tomorrow|yesterday|next time|next week|last time|last week|last night"
    r"|the other day|after .*|when i (?:quit|close|restart|come back).*)",
)


def about_itself(words: str, sends_to: str, config: Config) -> str | None:
    """Return the answer to a question about the assistant itself; None for any other words.

    `sends_to`: the host that gets the user's voice and words; empty if they stay here.
    """
    asked = plain_words(words)
    for pattern, told in (
        (_HEARS, _hears(config.vad)),
        (_REMEMBERS, _remembers(bool(config.session.keep))),
        (_KEEPS, _keeps(sends_to, bool(config.session.keep))),
        (_SENDS, _sends(sends_to)),
        (_RUNS, _runs(sends_to)),
        (_BEING, "I am a computer program, a voice assistant, and not a person."),
    ):
        if pattern.fullmatch(asked):
            return told
    if sends_to or config.brain.instruction != type(config.brain)().instruction:
        return None  # a server may have tools, and the user's instruction another name
    return ability(asked)


def _hears(vad: VadConfig) -> str:
    if not vad.hands_free:
        return "Only with the talk key: from just before you press it until your turn ends."
    return "Hands-free is on, so I listen for your voice all the time."


def _remembers(kept: bool) -> str:
    if kept:
        return "Yes, I keep our conversations in a file here. Type /history to go on with one."
    return "Only this conversation. It is gone when you start a new one or quit."


def _keeps(sends_to: str, kept: bool) -> str:
    if kept:
        what = f"What you say goes to {sends_to}. Here" if sends_to else "As you chose,"
        sent = "" if sends_to else " It is never sent anywhere."
        return f"{what} our words are kept in a file until you delete them.{sent}"
    if sends_to:
        return f"What you say goes to {sends_to}. Here it is stored only when you ask for that."
    return (
        "What you say stays in the memory of this computer until you quit. "
        "It is stored only when you ask for that, and never sent anywhere."
    )


def _sends(sends_to: str) -> str:
    if sends_to:
        return f"Your voice and your words go to {sends_to}, and nowhere else."
    return "Your voice and your words stay on this computer. Nothing is sent anywhere."


def _runs(sends_to: str) -> str:
    if sends_to:
        return f"The model that answers you runs at {sends_to}."
    return "I run entirely on this computer and need no internet."
