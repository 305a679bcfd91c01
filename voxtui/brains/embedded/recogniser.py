"""The embedded recogniser: Moonshine tiny (English), from the weights inside its wheel.

The decoder runs here, and not in the wheel's own runtime, for two reasons. Its probabilities
distinguish known speech from unknown speech. And it follows several beginnings of a transcript (a
beam), because the likeliest first word is not always part of the likeliest sentence.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import threading
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event as Flag
from typing import Any, Protocol

from voxtui.dialogue.data import SAMPLE_RATE, Samples, Utterance
from voxtui.errors import ForeignSpeech, ModelError, how_to_install
from voxtui.onnx_runtime import import_onnxruntime, inference_session

LONG_SECONDS = 12.0
"""Length of a stretch from which the next pause ends it: the cost grows faster than the length."""

LONGEST_SECONDS = 28.0
"""Maximum length of a stretch without a pause: the model was trained on less than 30 s."""

PAUSE_SECONDS = 0.25
"""Minimum silence between two stretches of speech."""

SHORTEST = SAMPLE_RATE // 10
"""Minimum samples of a pass. The encoder's windows need 895."""

TOKENS_PER_SECOND = 6.5
"""Maximum tokens of a pass per second of sound, which ends a decoder that repeats itself."""

FOREIGN = -0.75
"""Mean log-probability below which speech is not English. The worst of 320 clear ones has -0.65."""

LOOP, ENDLESS_LOOP, LOOP_CHARACTERS = 4.0, 2.4, 100
"""Compression ratios of zlib, and minimum length, of the text of a decoder that repeats itself; the
second ratio is for a decoder that did not end. On some foreign speech such tokens are likely. A
nursery rhyme reaches 3.4, but the decoder ends it. A person may say "no" ten times, so shorter
texts are not judged."""

FEWEST_TOKENS = 4
"""Minimum tokens of a refused utterance, because single words are uncertain in any language."""

DOUBTFUL = math.log(0.4)
"""Log-probability below which a word is shown as doubtful."""

PUNCTUATION = frozenset((b"", b".", b",", b"?", b"!", b"-", b"'", b'"', b":", b";"))
"""Tokens that are not words."""

START, END = 1, 2
"""The tokens before and after a transcript."""

PAST, PRESENT, ENCODER = "past_key_values", "present", ".encoder."
"""Parts of the names of the decoder's cache: for the input, for the output, and for the sound."""

SPACE = "\u2581".encode()
"""The beginning of a word's first token."""

_ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
         "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
         "nineteen"]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
NUMBERS = (*_ONES, *(f"{ten} {one}" for ten in _TENS for one in ("", *_ONES[1:10])))
"""The words of the numbers to 99."""

BEAM = 5
"""Maximum number of beginnings of a transcript that the decoder follows at the same time."""

NAMED = -10.0
"""Minimum log-probability with which the beginning of an utterance counts as the name."""

MARGIN = 3.0
"""Distance from the best log-probability at which a beginning is dropped, so that clear speech is
decoded at the cost of a single one."""

CLOSE = 2.0
"""Maximum distance of a candidate's log-probability from the best one."""

LOUD, LOUD_PERCENTILE, MOST_GAIN = 0.5, 99.5, 20.0
"""The level for the model at this percentile of the samples, and the maximum gain."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """START and the first tokens of a transcript."""

    tokens: tuple[int, ...] = ()
    log_probabilities: tuple[float, ...] = ()
    """the log-probability of each token after START"""
    score: float = 0.0
    """the sum of these, including that of the end if it is complete"""

    def followed_by(self, token: int, log_probability: float) -> Beginning:
        return Beginning(
            (*self.tokens, token),
            (*self.log_probabilities, log_probability),
            self.score + log_probability,
        )


@dataclass(frozen=True, slots=True)
class Heard:
    """The result of the recogniser."""

    text: str
    doubtful: tuple[int, ...] = ()
    """the numbers, from 0, of the words of `text` that are uncertain"""
    tokens: int = 0
    log_probability: float = 0.0
    """the sum of the tokens' log-probabilities"""
    endless: bool = False
    """whether the decoder was stopped because it did not end by itself"""
    score: float = 0.0
    """the log-probability of the whole transcript with its end"""

    @property
    def is_foreign(self) -> bool:
        """True if the speech is clearly not English."""
        if self.tokens >= FEWEST_TOKENS and self.log_probability < FOREIGN * self.tokens:
            return True
        text, loop = self.text.encode(), ENDLESS_LOOP if self.endless else LOOP
        return len(text) >= LOOP_CHARACTERS and len(text) > loop * len(zlib.compress(text))

    def english(self) -> str:
        """Return the text. Raises ForeignSpeech if the speech is not English."""
        if self.is_foreign:
            raise ForeignSpeech
        return self.text


def joined(parts: Iterable[Heard]) -> Heard:
    text, doubtful, tokens, log_probability, endless = "", list[int](), 0, 0.0, False
    for part in parts:
        before = len(text.split())
        doubtful += [before + number for number in part.doubtful]
        text = f"{text} {part.text}".strip()
        tokens += part.tokens
        log_probability += part.log_probability
        endless = endless or part.endless
    return Heard(text, tuple(doubtful), tokens, log_probability, endless)


class Choice(Protocol):
    """Chooses among the candidates of a pass. See Rescoring."""

    def load(self) -> None: ...

    def choose(self, candidates: Sequence[Heard]) -> Heard: ...

    def close(self) -> None: ...


class Moonshine:
    """Speech to text. Thread-safe. Without a `choice` it takes the likeliest candidate."""

    def __init__(self, choice: Choice | None = None) -> None:
        self._choice = choice
        self._lock = threading.Lock()
        self._encoder: Any = None
        self._decoder: Any = None
        self._pieces: list[bytes] = []
        self._cached: list[tuple[str, int, int]] = []
        """the name, heads and size of each part of the decoder's cache"""

    def load(self) -> None:
        try:
            import_onnxruntime()
            folder = weights()
        except (ImportError, OSError) as error:
            raise ModelError(
                "The embedded recogniser is not installed or does not run here.",
                how_to_install("embedded"),
            ) from error
        if self._choice is not None:
            self._choice.load()
        with _model_errors(
            "The embedded recogniser did not load",
            "Is there memory left? `voxtui doctor` says how much.",
        ):
            self._encoder, self._decoder = (
                inference_session(folder / name)
                for name in ("encoder_model.ort", "decoder_model_merged.ort")
            )
            self._pieces = read_pieces((folder / "tokenizer.bin").read_bytes())
        self._cached = [
            (given.name, given.shape[1], given.shape[3])
            for given in self._decoder.get_inputs()
            if given.name.startswith(PAST)
        ]

    def recognise(self, samples: Samples, cancelled: Flag | None = None, name: str = "") -> Heard:
        """Return the words in `samples` (float32, 16 kHz, up to 30 s). Raises ModelError.

        Ends at the next token once `cancelled` is set. The words begin with `name` if that is
        likely enough.
        """
        candidates = self.candidates(samples, cancelled, name)
        if self._choice is None or len(candidates) == 1:
            return candidates[0]
        with self._lock:
            return self._choice.choose(candidates)

    def candidates(
        self, samples: Samples, cancelled: Flag | None = None, name: str = ""
    ) -> list[Heard]:
        """Return at least one transcript, the likeliest first; no two have the same words.

        The others are CLOSE to the first one. Otherwise like `recognise`.
        """
        with self._lock, _model_errors("The embedded recogniser failed"):
            paths, endless = self._decode(samples, cancelled, name)
        heard: dict[str, Heard] = {}
        for path in paths:
            pieces = [self._pieces[token] for token in path.tokens[1:]]
            one = read_tokens(pieces, path.log_probabilities)
            heard.setdefault(same_words(one.text), replace(one, endless=endless, score=path.score))
        return list(heard.values())

    def _decode(
        self, samples: Samples, cancelled: Flag | None, name: str
    ) -> tuple[list[Beginning], bool]:
        """Return the transcripts, the likeliest first, and whether the decoder was stopped."""
        sound = _Sound(self._encoder, self._decoder, self._cached, samples)
        live, complete = [Beginning((START,))], list[Beginning]()
        if name:
            live = self._named(sound, NameTokens(name, self._pieces)) or live
        for _ in range(math.ceil(len(samples) / SAMPLE_RATE * TOKENS_PER_SECOND)):
            if cancelled is not None and cancelled.is_set():
                break
            best = max((path.score for path in complete), default=-math.inf)
            live, sources, ended = extended(live, sound.logits(live), best - CLOSE)
            complete += ended
            # A longer path is never likelier than its beginning.
            if not live:
                break
            sound.select(sources)
        if complete:
            complete.sort(key=lambda path: path.score, reverse=True)
            return [path for path in complete if path.score >= complete[0].score - CLOSE], False
        return live[:1], True

    def _named(self, sound: _Sound, name: NameTokens) -> list[Beginning]:
        """Return the likeliest spelling of the name at the beginning; nothing if it is unlikely.

        A name is no usual word, so the likeliest words differ from it even if it was spoken. Here
        only the name can be written, and its probability shows whether it was spoken.
        """
        live, best, cached = [Beginning((START,))], Beginning(score=NAMED), sound.state
        while live:
            rows = log_softmax(sound.logits(live))
            ways: list[tuple[float, int, Beginning]] = []
            state = sound.state
            for number, path in enumerate(live):
                for token, is_whole in name.following(path.tokens[1:]):
                    longer = path.followed_by(token, float(rows[number, token]))
                    if is_whole and longer.score > best.score:
                        best, cached = longer, sound.only(number)
                    elif not is_whole:
                        ways.append((longer.score, number, longer))
            ways = sorted((w for w in ways if w[0] > best.score), key=lambda w: w[0])[-BEAM:]
            live, sound.state = [path for *_, path in ways], state
            sound.select([number for _, number, _ in ways])
        sound.state = cached
        # Its words are certain now, and the others are judged by their own probability.
        return [Beginning(best.tokens, (0.0,) * (len(best.tokens) - 1))] if best.tokens else []

    def close(self) -> None:
        with self._lock:
            self._encoder = self._decoder = None
            if self._choice is not None:
                self._choice.close()


def weights() -> Path:
    found = importlib.util.find_spec("moonshine_voice")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("moonshine_voice")
    return Path(found.origin).parent / "assets" / "tiny-en"


@contextmanager
def _model_errors(failure: str, hint: str = "") -> Generator[None]:
    """Turn exceptions of the inference runtime, which share no base class, into ModelError."""
    try:
        yield
    except Exception as error:
        known = isinstance(error, OSError | MemoryError)
        if not known and "onnxruntime" not in type(error).__module__:
            raise
        raise ModelError(f"{failure}: {str(error).rstrip('.')}.", hint) from error


def read_pieces(table: bytes) -> list[bytes]:
    """Return the bytes of each token of a tokenizer.bin.

    Each token is stored as its length, in one byte or two, and its bytes.
    """
    pieces: list[bytes] = []
    at = 0
    while at < len(table):
        length = table[at]
        at += 1
        if length >= 128:
            length += (table[at] - 1) * 128
            at += 1
        pieces.append(table[at : at + length])
        at += length
    return pieces


def read_tokens(pieces: Sequence[bytes], log_probabilities: Sequence[float]) -> Heard:
    """Return the text of the tokens `pieces`, with its doubtful words."""
    words: list[float] = []
    written = False
    """whether the newest word already has a character"""
    for piece, log_probability in zip(pieces, log_probabilities, strict=True):
        begins = piece.startswith(SPACE) and written
        if begins or not words:
            words.append(0.0)
        said = piece.replace(SPACE, b"")
        written = (written and not begins) or bool(said)
        if said not in PUNCTUATION:
            words[-1] += log_probability
    text = b"".join(pieces).replace(SPACE, b" ").decode(errors="replace").strip()
    doubtful = tuple(number for number, sure in enumerate(words) if sure < DOUBTFUL)
    return Heard(text, doubtful, len(pieces), sum(log_probabilities))


def same_words(text: str) -> str:
    """Return `text` without the differences that transcripts of the same words may have.

    Numbers are words, as they are said: 1969 is nineteen sixty nine.
    """
    text = re.sub(r"[^\w' ]", "", text.lower().replace("-", " "))
    text = re.sub(r"[1-9]\d|\d", lambda digits: f" {NUMBERS[int(digits[0])]} ", text)
    return " ".join(text.split())


def louder(samples: Samples) -> Samples:
    """Return `samples` at the level at which the model makes the fewest errors.

    Scales by a high percentile, because the peak may be a click.
    """
    import numpy as np

    level = float(np.percentile(np.abs(samples), LOUD_PERCENTILE)) if len(samples) else 0.0
    return samples * np.float32(min(MOST_GAIN, LOUD / max(level, 1e-9)))


class _Sound:
    """The decoder over one sound, with its state after the tokens of each path."""

    def __init__(
        self, encoder: Any, decoder: Any, cached: Sequence[tuple[str, int, int]], samples: Samples
    ) -> None:
        import numpy as np

        sound = np.zeros((1, max(len(samples), SHORTEST)), np.float32)
        sound[0, : len(samples)] = louder(samples)
        self._decoder = decoder
        self._everything = np.ones(sound.shape, np.int64)
        inputs = {"input_values": sound, "attention_mask": self._everything}
        (self._encoded,) = encoder.run(None, inputs)
        self.state: dict[str, Samples] = {
            name: np.zeros(
                (1, heads, len(self._encoded[0]) if ENCODER in name else 0, size), np.float32
            )
            for name, heads, size in cached
        }

    def logits(self, live: Sequence[Beginning]) -> Samples:
        """Return the logits of the token after each path. The state lacks only its last token."""
        import numpy as np

        is_first = len(live[0].tokens) == 1
        # What depends on the sound alone is computed with the first token.
        wanted = [name for name in self.state if is_first or ENCODER not in name]
        logits, *updates = self._decoder.run(
            ["logits", *(name.replace(PAST, PRESENT) for name in wanted)],
            {
                "input_ids": np.array([path.tokens[-1:] for path in live]),
                "use_cache_branch": np.array([not is_first]),
                "encoder_hidden_states": np.repeat(self._encoded, len(live), 0),
                # of the sound: the decoder thins it out
                "encoder_attention_mask": np.repeat(self._everything, len(live), 0),
                **self.state,
            },
        )
        self.state = {**self.state, **dict(zip(wanted, updates, strict=True))}
        return logits[:, -1]

    def select(self, sources: list[int]) -> None:
        """Continue with paths that extend those with these numbers."""
        count = len(next(iter(self.state.values())))
        if sources != list(range(count)):
            self.state = {name: values[sources] for name, values in self.state.items()}

    def only(self, number: int) -> dict[str, Samples]:
        return {name: values[[number]] for name, values in self.state.items()}


class NameTokens:
    """The spellings of a name in tokens, in upper or lower case, with or without commas."""

    def __init__(self, name: str, pieces: Sequence[bytes]) -> None:
        self._name, self._pieces = name.lower(), pieces
        self._useful = [
            token
            for token, piece in enumerate(pieces)
            if token > END and (piece in (SPACE, b",") or self._text(piece) in self._name)
            and (piece in (SPACE, b",") or self._text(piece))
        ]  # fmt: skip

    def following(self, tokens: Sequence[int]) -> Iterator[tuple[int, bool]]:
        """Yield each token that continues the name after `tokens`, and whether it ends it."""
        written = b"".join(self._pieces[token] for token in tokens)
        for token in self._useful:
            text = self._text(written + self._pieces[token])
            if self._name.startswith(text) and text:
                yield token, text == self._name

    def _text(self, pieces: bytes) -> str:
        text = pieces.replace(SPACE, b" ").decode(errors="replace").lower()
        return " ".join(text.replace(",", "").split())


def log_softmax(logits: Samples) -> Samples:
    import numpy as np

    rows = logits - logits.max(1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


def extended(
    live: Sequence[Beginning], logits: Samples, least: float = -math.inf
) -> tuple[list[Beginning], list[int], list[Beginning]]:
    """Extend each beginning by its likeliest tokens.

    Returns the best results, the number of each one's beginning, and the complete ones. All have a
    score of at least `least`.
    """
    import numpy as np

    rows = log_softmax(logits)
    ways = sorted(
        (
            (path.score + float(rows[number, token]), number, int(token))
            for number, path in enumerate(live)
            for token in np.argpartition(-rows[number], BEAM)[: BEAM + 1]
        ),
        reverse=True,
    )
    least = max(least, ways[0][0] - MARGIN)
    found, sources, ended = list[Beginning](), list[int](), list[Beginning]()
    for score, number, token in ways:
        if len(found) == BEAM or score < least:
            break
        path, log_probability = live[number], float(rows[number, token])
        if token != END:
            found.append(path.followed_by(token, log_probability))
            sources.append(number)
        else:
            ended.append(Beginning(path.tokens, path.log_probabilities, score))
    return found, sources, ended


def stretches(utterance: Utterance) -> list[tuple[int, int]]:
    """Return (start, end) samples of the parts of `utterance` to recognise, cut at pauses.

    Only the last part changes while `utterance` grows.
    """
    begin, cuts = 0, list[int]()
    for (_, end), (start, _) in zip(utterance.speech, utterance.speech[1:], strict=False):
        middle = int((end + start) / 2 * SAMPLE_RATE)
        if start - end >= PAUSE_SECONDS and middle - begin >= LONG_SECONDS * SAMPLE_RATE:
            cuts.append(middle)
            begin = middle
    bounds = [0, *cuts, len(utterance.samples)]
    parts: list[tuple[int, int]] = []
    for start, end in itertools.pairwise(bounds):
        while end - start > LONGEST_SECONDS * SAMPLE_RATE:
            parts.append((start, start + int(LONGEST_SECONDS * SAMPLE_RATE)))
            start = parts[-1][1]
        parts.append((start, end))
    return parts
