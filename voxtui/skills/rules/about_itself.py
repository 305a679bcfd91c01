"""True answers about the assistant from the configuration, which a language model would invent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from voxtui.skills.rules.forms import compile_forms, matches, read_tables

if TYPE_CHECKING:
    from voxtui.settings.schema import Config

_TABLES = read_tables("about_itself.toml")
_PARTS, _ANSWERS = _TABLES["parts"], _TABLES["answers"]
_LINES = ((kind, "|".join(lines)) for kind, lines in _TABLES["forms"].items())
FORMS = compile_forms(
    {kind: [f"{{opening}}(?:{line}){{closing}}"] for kind, line in _LINES}, _PARTS, flags=0
)


def about_itself(words: str, sends_to: str, config: Config) -> str | None:
    """Return the answer to a question about the assistant itself, or None for other words."""
    plain = re.sub(r"\b(what|who|how|where)'s\b", r"\1 is", words.lower().replace("’", "'"))
    plain = " ".join(re.sub(r"[^\w'\- ]+", " ", plain).split())
    kind = next((kind for kind, _ in matches(FORMS, plain)), None)
    if kind is None:
        return None
    own = config.brain.instruction != type(config.brain)().instruction
    if kind in ("deed", "live", "can", "name") and (sends_to or own):
        return None  # a server may have tools, and the user's instruction another name
    stored = bool(config.session.keep)
    case = {
        "hears": "hands_free" * config.vad.hands_free,
        "remembers": "stored" * stored,
        "keeps": f"{'sent_' * bool(sends_to)}{'stored' * stored}".strip("_"),
        "sends": "sent" * bool(sends_to),
        "runs": "sent" * bool(sends_to),
    }.get(kind, "")
    return _ANSWERS[f"{kind}_{case}" if case else kind].format(host=sends_to)


_CLAIMS = compile_forms(_TABLES["claims"], _PARTS)["made"]
_HERE = re.compile(r"timer|reminder|alarm|countdown|remind|wake|notify|alert", re.IGNORECASE)


def doubt(reply: str) -> str | None:
    """Return a sentence that corrects `reply` if it claims an action, else None."""
    reply = reply.replace("’", "'")
    claims = [claim for form in _CLAIMS if (claim := form.search(reply))]
    if not claims:
        return None
    thing = min(claims, key=lambda claim: claim.start())["thing"]
    if _HERE.search(thing):
        return "The model said so, but no timer or reminder was changed."
    return f"The model said so, but voxtui cannot do that: nothing was sent or entered ({thing})."
