"""The name and the abilities of Vox, the assistant of the default instruction."""

from __future__ import annotations

from voxtui.skills.sentences import sentence

_ASK = r"(?:(?:can|could|would|will) you (?:please |also )?|are you able to |i want you to )?"
_MY = r"(?:(?:my|our|the|this|that|an?|some|any|another|all(?: of)? my|me an?|me some|\d+|two) )"
_ONE = r"(?:[\w'-]+ ){0,2}"
"""up to two words before a thing, such as `small red`"""
_REST = r"(?: .{1,60})?"

_MAIL = r"(?:e-?mails?|mails?|messages?|texts?|sms|letters?|letter|postcards?|invitations?|money)"
_BOUGHT = (
    r"(?:taxi|cab|tables?|tickets?|flights?|rooms?|hotel|appointment|pizzas?|food|dinner|lunch"
    r"|groceries|flowers|coffee|sushi|train|seats?|car)"
)
_DEVICE = (
    r"(?:lights?|lamps?|tv|television|radio|heating|heater|fan|music|computer|screen|oven|stove"
    r"|volume|air conditioning|wi-?fi|bluetooth|washing machine|dishwasher|alarm system)"
)
_OPENED = (
    r"(?:doors?|windows?|garage|gate|blinds|curtains|browser|apps?|files?|folders?|documents?"
    r"|websites?|web page|page|camera|terminal|calculator|calendar|spotify|youtube)"
)
_MUSIC = (
    r"(?:music|songs?|albums?|radio|podcasts?|playlists?|jazz|rock|pop|classical|mozart|movies?"
    r"|films?|videos?|audiobooks?)"
)

_DEED = sentence(
    rf"{_ASK}(?:send|forward|write and send) (?:.{{1,40}} )?{_MAIL}{_REST}",
    rf"{_ASK}(?:call|phone|ring|text|e-?mail|message) "
    rf"(?:(?:my|the|our|his|her|their) [\w' -]{{2,30}}|him|her|them|us|mum|mom|dad"
    rf"|an? (?:taxi|cab|ambulance|doctor|plumber)|the police)(?: for me| now| back)*",
    rf"{_ASK}(?:book|order|reserve|buy|get|call) (?:me |us )?{_MY}?{_ONE}{_BOUGHT}{_REST}",
    rf"{_ASK}(?:turn|switch) (?:(?:on|off|up|down) {_MY}?{_ONE}{_DEVICE}"
    rf"|{_MY}?{_ONE}{_DEVICE} (?:on|off|up|down)){_REST}",
    rf"{_ASK}dim {_MY}?{_ONE}{_DEVICE}{_REST}",
    rf"{_ASK}(?:open|close|shut|lock|unlock|start|launch) {_MY}?{_ONE}{_OPENED}{_REST}",
    rf"{_ASK}(?:play|put on) {_MY}*{_ONE}{_MUSIC}(?: (?:for|by|from) .{{1,40}})?",
    rf"{_ASK}(?:search|browse) the (?:internet|web|net){_REST}",
    rf"{_ASK}(?:look|google|search|find|check)(?: for)? .{{1,40}}"
    r"(?:on|in) the (?:internet|web|net)",
    rf"{_ASK}(?:look (?:it|that|this) up|google (?:it|that|this))(?: online)?",
    rf"{_ASK}take (?:a|another) (?:photo|picture|selfie|screenshot)(?: of .{{1,30}})?",
    rf"{_ASK}(?:post|share|tweet|publish) (?:this|that|it) (?:on|to|in) .{{1,30}}",
    rf"{_ASK}(?:add|put) .{{1,40}} (?:to|in|into|on) (?:my|the|our) {_ONE}"
    r"(?:list|calendar|basket|cart|diary|agenda)" + _REST,
    rf"{_ASK}print (?:this|that|it|(?:the|my|this) [\w' ]{{2,30}})",
    rf"{_ASK}(?:delete|read|check|open) {_MY}{_ONE}"
    r"(?:e-?mails?|mails?|messages?|files|photos)" + _REST,
    r"can you (?:see|watch) (?:me|us|this|that|it|my [\w ]{2,30}|the screen)",
    r"can you (?:make|place) (?:an? )?(?:phone )?calls?(?: for me)?",
    rf"can you (?:send|write|read) {_MAIL}(?: for me)?",
    r"can you (?:use|access|browse|surf|search) the (?:internet|web)",
)
_NOW = (
    r"(?:outside|here|today|tonight|tomorrow|now|right now|at the moment|currently|later"
    r"|this (?:morning|afternoon|evening|week|weekend)|on \w+day)"
)
_WEATHER = r"(?:rain|raining|snow|snowing|sunny|cold|warm|hot|windy|cloudy|foggy|dark|wet|freezing)"
_LIVE = sentence(
    rf"(?:what|how) is the (?:weather|temperature)(?: like| going to be(?: like)?)?"
    rf"(?: in [\w ]{{2,20}}?)? {_NOW}",
    rf"(?:what|how) is the weather(?: like)?(?: {_NOW})?",
    rf"what is the (?:temperature|weather forecast)(?: for {_NOW})?",
    rf"will it (?:be )?{_WEATHER}(?: in [\w ]{{2,20}}?)? {_NOW}",
    rf"is it (?:going to )?{_WEATHER}(?: in [\w ]{{2,20}}?)? {_NOW}|is it (?:raining|snowing)",
    rf"is the sun shining(?: in [\w ]{{2,20}}?)?(?: {_NOW})?",
    rf"how (?:cold|warm|hot) is it(?: in [\w ]{{2,20}}?)? {_NOW}",
    r"what(?: is| are)(?: in| on)? (?:the |today's )?(?:latest |newest )?(?:news|headlines)"
    r"(?: today| this morning| right now)?",
)
_CAN = sentence(
    r"what (?:else )?can you (?:do|help me with|do for me|help with)",
    r"what are you (?:able to do|capable of|good at|good for)(?: for me)?",
    r"what are your (?:abilities|skills|features|capabilities)",
    r"how can you help(?: me)?",
)
_NAME = sentence(
    r"what is your (?:first )?name|who are you|what are you(?: called)?|how are you called"
    r"|do you have a name|what should i call you|what do i call you|introduce yourself",
)

_DOES_NOT = "I can't do that. I can only talk with you."
_KNOWS_NOT = "I can't know that, because I can't see anything and have no internet."
_DOES = (
    "I can talk with you and answer questions. I can also set timers and reminders, "
    "calculate, and tell the time and the date."
)
_IS = "I'm Vox, a voice assistant."

_ANSWERS = ((_DEED, _DOES_NOT), (_LIVE, _KNOWS_NOT), (_CAN, _DOES), (_NAME, _IS))


def ability(asked: str) -> str | None:
    """Return the answer to `asked`: lower-case words without punctuation. None: another question.

    Requests for a deed get one too, because a small model says that it has done it.
    """
    return next((told for pattern, told in _ANSWERS if pattern.fullmatch(asked)), None)
