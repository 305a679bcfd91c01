"""A recogniser and a chat model that do as a test tells them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fakes import Flag
from voxtui.brains.embedded.chat_process import ChatRequest, Speed
from voxtui.brains.embedded.recogniser import Heard


class ScriptedRecogniser:
    """FakeRecogniser: each pass is the next script. A str is recognised, an exception raised."""

    def __init__(self) -> None:
        self.script: list[str | Heard | Exception] = []
        self.passes = 0
        self.passed = Flag()
        self.before: Callable[[], object] = lambda: None
        self.loading: Callable[[], object] = lambda: None

    def load(self) -> None:
        self.loading()

    def recognise(self, samples: object, cancelled: object = None, name: str = "") -> Heard:
        self.passes += 1
        self.before()
        text = self.script.pop(0) if self.script else "hello there"
        self.passed.set()
        if isinstance(text, Exception):
            raise text
        return Heard(text) if isinstance(text, str) else text

    def close(self) -> None: ...


class ScriptedChat:
    """FakeChatModel: answers with `texts`, a token each; `before` is called with each prompt."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts or ("It ", "is ", "so.")
        self.speed = Speed()
        self.prompts: list[str] = []
        self.seeds: list[int] = []
        self.schemas: list[str] = []
        self.grammars: list[str | None] = []
        self.before: Callable[[str], object] = lambda prompt: None
        self.reading: Callable[[str], object] = lambda prompt: None
        self.between: Callable[[str], object] = lambda text: None
        self.loading: Callable[[Flag], object] = lambda stop: None

    def load(self, path: Path, stop: Flag, tool_prefix: str = "") -> None:
        self.loading(stop)

    def run(
        self,
        request: ChatRequest,
        on_prefilled: Callable[[int, int], bool],
        on_token: Callable[[str], bool],
    ) -> bool:
        prompt = request.prompt
        self.prompts.append(prompt)
        self.schemas.append(request.json_schema)
        self.grammars.append(request.grammar)
        self.seeds.append(request.sampling.seed)
        self.before(prompt)
        stopped = on_prefilled(0, len(prompt))
        self.reading(prompt)
        if on_prefilled(len(prompt), len(prompt)) or stopped:
            return False
        texts = self.texts[: request.max_tokens]
        for number, text in enumerate(texts, 1):
            self.between(text)
            if on_token(text) and number < len(texts):
                return False
        return True

    def close(self) -> None: ...
