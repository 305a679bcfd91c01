"""The embedded brain: a recogniser and a small chat model on the CPU that work during speech.

While the user speaks, one thread repeatedly transcribes the utterance so far, and prefills the chat
model's prompt with the words that are certain. When the words stop changing, or speech pauses, it
speculates a reply. The words of the final, trimmed utterance decide: the speculation for exactly
these words becomes the answer; any other one is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event as Flag

from voxtui.brains.embedded.chat_process import ASK, BEAT_SECONDS, ChatRequest, Llama, chatml
from voxtui.brains.embedded.chat_reply import ChatReply
from voxtui.brains.embedded.live_transcription import LiveTranscription, LiveUtterance, Recogniser
from voxtui.brains.embedded.recogniser import stretches
from voxtui.brains.embedded.tool_prompt import (
    LOOKING,
    ToolChoice,
    result_line,
    tool_choice,
    tool_prefix,
)
from voxtui.brains.embedded.whisper import choose
from voxtui.brains.prompting import after_clock, examples, instruction, until_repeated
from voxtui.brains.reply_form import (
    FREE,
    QUOTING,
    SPEAKABLE,
    UNTOLD,
    ReplyForm,
    danger_form,
    is_untold,
    reply_form,
    with_correction,
)
from voxtui.brains.speculation import SpeculationThread
from voxtui.dialogue.data import Token, ToolCall, UserTranscript, Utterance
from voxtui.dialogue.listening.heard_words import after_name
from voxtui.dialogue.protocols import (
    DEFAULT_OPTIONS,
    OnWords,
    Past,
    PastTurn,
    Progress,
    ReplyOptions,
    TurnRequest,
)
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import ForeignSpeech, ModelError, strip_control_characters
from voxtui.models.catalogue import CHAT_MODELS, Model, Source, chat_model
from voxtui.models.download import download, download_default
from voxtui.models.installed import chat_model_name, check_content, model_file
from voxtui.settings.paths import user_folders
from voxtui.settings.schema import AUTO, LANGUAGES, Config

TYPING_PAUSE_SECONDS = 0.25
"""Time without a key after which a reply to a typed text is drafted."""

SENTENCE_ENDS = (".", "?", "!")
"""Ends of a typed text that is drafted at once, because Enter is usually the next key."""

REST_SECONDS = 0.05
"""Maximum time for which a pass of the recogniser waits for the chat model to pause. On a slow
machine a batch of a prompt takes 0.4 s, and both at work slow each other down less than that."""

WARM_UP_TOKENS = 2
"""Tokens generated before the first turn, because only the second one takes the usual path."""

PROMPT_TOKENS = 1600
"""Tokens of the context for the instruction, the examples and an utterance of two minutes."""


class EmbeddedBrain:
    """Moonshine, or Whisper for languages other than English, and a GGUF chat model.

    Raises ModelError if the recogniser of the language is missing. If it `fetches`, it downloads a
    missing chat model at warm-up; `notify` receives which one, and why.
    """

    name = "embedded"
    sends_to = ""

    def __init__(
        self,
        config: Config,
        fetches: bool = False,
        notify: Callable[[str], object] = lambda sentence: None,
        *,
        recogniser: Recogniser | None = None,
        chat: Llama | None = None,
    ) -> None:
        self._recogniser = recogniser or choose(config.brain)
        self._language = config.brain.language or "en"
        self._named = config.brain.embedded.model
        self._model = chat_model_name(self._named)
        known = CHAT_MODELS.get(self._model)
        self._fetches = fetches and known is not None
        self._notify = notify
        self._opening = known.opening if known else ""
        self._sampling = config.generation.sampling(self.name)
        self._instruction = instruction(config)
        self._examples = examples(config)
        if self._language != "en":  # the examples are English, and so would be the answers
            self._instruction += f" Always answer in {LANGUAGES[self._language]}."
            self._examples = ()
        read = config.history.tokens(self.name) + config.input.tokens(self.name)
        context = PROMPT_TOKENS + read * 5 // 4 + self._sampling.max_new_tokens
        self._chat = chat or Llama(
            -(-context // 256) * 256,
            self._prompt((), ""),
            user_folders().user_cache_path / "prefixes",
            SPEAKABLE if self._examples else "",
        )
        self._replies: SpeculationThread | None = None
        self._ahead: ChatReply | None = None
        """the newest request for a turn that is not answered yet"""
        self._progress: Callable[[int, int], object] = lambda done, total: None
        self._live = LiveTranscription(
            self._recogniser, lambda: self._loaded().pause(REST_SECONDS), self._prepare
        )

    @property
    def description(self) -> str:
        name = self._model.removesuffix(".gguf").rpartition("/")[2]
        known = CHAT_MODELS.get(self._model)
        return f"embedded: {name} ({known.title if known else name}, {LANGUAGES[self._language]})"

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        if self._fetches:
            self._fetch(progress)
        self._load(progress, tool_prefix(options.tools))
        self._replies = SpeculationThread("voxtui-chat")
        # The prompt ends with the time. Its twenty tokens are read here, because the first question
        # would wait for them. The last request is also that of the first `read`.
        prompt = self._prompt((), "", options)
        for tokens in (WARM_UP_TOKENS, 0):
            reply = self._request(prompt, tokens, Flag())
            while not reply.wait(BEAT_SECONDS):
                progress("warming up", None)
            if reply.error is not None:
                raise reply.error
            self._ahead = None
        self._live.start()

    def _load(self, progress: Progress, prefix_of_tools: str) -> None:
        """Load both models at once, because each mostly occupies only one core."""
        import numpy as np

        unwanted = Flag()
        with ThreadPoolExecutor(1, "voxtui-loading") as beside:
            chat = beside.submit(self._load_chat, unwanted, prefix_of_tools)
            try:
                progress("recogniser", None)
                self._recogniser.load()
                self._recogniser.recognise(np.zeros(32_000, np.float32))
                while not wait((chat,), BEAT_SECONDS).done:
                    progress("chat model", None)
            finally:
                unwanted.set()  # nobody waits for it if the recogniser failed, or at the end
        chat.result()

    def _fetch(self, progress: Progress) -> None:
        def attempt(model: Model, source: Source | Path) -> None:
            step = f"fetching {model.name}"
            progress(step, None)
            download(model, source, lambda done, size: progress(step, done / size))

        if self._named == AUTO:
            download_default("auto", attempt, self._notify)
        else:
            attempt(chat_model(self._named), "auto")

    def _load_chat(self, stop: Flag, prefix_of_tools: str) -> None:
        self._model = chat_model_name(self._named)
        path = model_file(self._named, stop)
        try:
            self._chat.load(path, stop, prefix_of_tools)
        except ModelError:
            check_content(path)
            raise

    def listen(
        self, request: TurnRequest, recording: Recording, on_words: OnWords | None = None
    ) -> None:
        self._request(self._prompt(request.past, "", request.options), 0, request.cancelled)
        self._live.follow(
            LiveUtterance(request.past, recording, request.cancelled, request.options, on_words)
        )

    def wake(self) -> None:
        self._live.wake()

    def read(self, request: TurnRequest, progress: Callable[[int, int], object]) -> None:
        self._progress = progress
        self._request(self._prompt(request.past, "", request.options), 0, request.cancelled)

    def read_ahead(self, request: TurnRequest) -> None:
        past, text, options = request.past, str(request.user_input), request.options
        # The last word may still grow.
        settled = self._prompt(past, text.rpartition(" ")[0], options)
        pause = 0.0 if text.endswith(SENTENCE_ENDS) else TYPING_PAUSE_SECONDS
        due_at = time.monotonic() + pause
        self._ask(past, text, options, request.cancelled, settled, due_at)

    def reply(self, request: TurnRequest) -> Generator[UserTranscript | Token | ToolCall]:
        user_input, timestamps = request.user_input, request.timestamps
        name = request.options.name
        released = timestamps.at(Milestone.RELEASED) or time.monotonic()
        live = self._live.stop()
        try:
            if isinstance(user_input, str):
                words, doubtful = user_input, ()
            else:
                cancelled = request.cancelled
                heard = self._live.final(user_input, live, timestamps, released, cancelled, name)
                # With a name, others may be speaking any language.
                if cancelled.is_set() or (name and heard.is_foreign):
                    self._abandon()
                    return
                words, doubtful = heard.english(), heard.doubtful
            if not words:
                return
            yield UserTranscript(words, doubtful)
        except (GeneratorExit, ForeignSpeech):
            self._abandon()
            raise
        words = (after_name(words, name) if name else None) or words
        past, options = request.past, request.options
        if request.calls:
            looked = PastTurn(words, None, (Token(LOOKING),), clock=options.clock)
            results = result_line(request.calls)
            prompt = self._prompt((*past, looked), results, options.with_clock(""))
            prompt += ASK + self._opening
            called = {finished.call.name for finished in request.calls}
            quotes = any(tool.quoted and tool.name in called for tool in options.tools)
            reply = self._request(
                prompt, self._most_tokens(options), request.cancelled, options=options,
                form=QUOTING if quotes else FREE,
            )  # fmt: skip
        else:
            reply = self._ask(past, words, options, request.cancelled)
        self._ahead = None
        texts = reply.tokens() if options.json_schema else until_repeated(reply.tokens())
        for number, text in enumerate(texts):
            if number == 0:
                timestamps.speculative_s += reply.worked_before(released)
                timestamps.drafted = len(reply.computed)
            if reply.prefilled_at is not None:  # later than an opening
                timestamps.record(Milestone.PREFILLED, reply.prefilled_at)
                timestamps.prompt_tokens = reply.prompt_tokens
            yield Token(strip_control_characters(text))
        if reply.call is not None:
            timestamps.record(Milestone.PREFILLED, reply.prefilled_at)
            timestamps.speculative_s += reply.worked_before(released)
            timestamps.prompt_tokens, timestamps.tokens = reply.prompt_tokens, reply.call_tokens
            yield reply.call

    def _abandon(self) -> None:
        """Abandon the work on the reply."""
        self._ahead = None
        self._loaded().abandon_newest()

    def language(self, reply: str, timestamps: Timestamps) -> str:
        return self._language

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        for number, (start, end) in enumerate(stretches(utterance)):
            if cancelled.is_set():
                return
            with self._live.exclusively():
                heard = self._recogniser.recognise(utterance.samples[start:end], cancelled)
            text = heard.english()
            yield Token(f" {text}" if number else text)

    def close(self) -> None:
        self._live.close()
        if self._replies is not None:
            self._replies.close()
            self._replies = None
        self._chat.close()
        self._recogniser.close()

    def _prepare(self, live: LiveUtterance, text: str, complete: bool) -> None:
        """Work on the reply to `text`, or to its beginning. Runs on the transcription's thread."""
        if name := live.options.name:
            text = after_name(text, name) or ""
            if not text:
                return
        if complete:
            self._ask(live.past, text, live.options, live.cancelled)
        else:
            beginning = self._prompt(live.past, text.rpartition(" ")[0], live.options)
            self._request(beginning, 0, live.cancelled, options=live.options)

    def _ask(
        self,
        past: Past,
        words: str,
        options: ReplyOptions,
        cancelled: Flag,
        settled: str = "",
        due_at: float = 0.0,
    ) -> ChatReply:
        """Request the reply to a user's complete `words`, or the call of a tool."""
        prompt = self._prompt(past, with_correction(words, past), options) + ASK + self._opening
        choice, form = tool_choice(past, words, options), self._form(past, words, options)
        most = self._most_tokens(options)
        return self._request(prompt, most, cancelled, settled, due_at, options, choice, form)

    def _request(
        self,
        prompt: str,
        max_tokens: int,
        cancelled: Flag,
        settled: str = "",
        due_at: float = 0.0,
        options: ReplyOptions = DEFAULT_OPTIONS,
        choice: ToolChoice | None = None,
        form: ReplyForm = FREE,
    ) -> ChatReply:
        # A client's own instruction may ask for lists or code, unless the reply is spoken.
        free = options.instruction is not None and options.voice == "none"
        request = ChatRequest(
            prompt, self._sampling, max_tokens, json_schema=options.json_schema,
            grammar="" if free else None,
        )  # fmt: skip
        reply = ChatReply(
            self._chat, request, cancelled, settled, due_at, self._progress, choice, form
        )
        if self._ahead is not None:
            reply.follow(self._ahead)
        self._ahead = self._loaded().request(reply)
        return self._ahead

    def _loaded(self) -> SpeculationThread:
        if self._replies is None:
            raise ModelError("The embedded brain is not loaded.")
        return self._replies

    def _prompt(self, past: Past, words: str, options: ReplyOptions = DEFAULT_OPTIONS) -> str:
        said = [(after_clock(turn.clock, turn.user_text), turn.reply_text) for turn in past]
        if options.instruction is None:
            said = [*self._examples, *said]
        front = self._instruction if options.instruction is None else options.instruction
        return chatml(front, said, words, options.clock, self._opening)

    def _form(self, past: Past, words: str, options: ReplyOptions) -> ReplyForm:
        own = options.instruction
        if own is None:  # the user's own instruction stands without the examples
            own = "" if self._examples else self._instruction
        if self._language == "en" and not options.json_schema:
            if options.instruction is None and (form := danger_form(words, past)):
                return form
            if is_untold(words, past, own):
                return UNTOLD
        if not self._has_form(options):
            return FREE
        return reply_form(words, [turn.user_text for turn in past if not turn.attached])

    def _has_form(self, options: ReplyOptions) -> bool:
        ours = self._examples and options.instruction is None and not options.json_schema
        return bool(ours) and not self._sampling.one_sentence

    def _most_tokens(self, options: ReplyOptions) -> int:
        return options.limit(self._sampling.max_new_tokens)
