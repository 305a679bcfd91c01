"""Declare every key of config.toml with its type, range and default.

config.toml explains the keys to users. `__post_init__` checks keys that depend on each other.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from voxtui.settings.urls import check_url

T = TypeVar("T")

PROJECT = "may stand in ./voxtui.toml"
"""Marks a key that may stand in ./voxtui.toml because it is harmless: it sends no data elsewhere,
loads no model, writes no file and turns no microphone on. The current directory may come from
another person, for instance in an archive."""

Project: TypeAlias = Annotated[T, PROJECT]

AUTO = "auto"
"""Stands for the chat model that `voxtui models fetch` without a name downloads."""


class EmbeddedBrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1)] = AUTO
    """a name of `voxtui models list`, or the path of a .gguf file"""


class VoxtralBrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1)] = "mistralai/Voxtral-Mini-3B-2507"
    """an owner/name on the hub, or a directory"""
    quantization: Literal["none", "fp8"] = "none"
    idle_transcript: bool = True
    fast: bool = True


class RemoteBrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server with an OpenAI-compatible API."""

    url: str = ""
    """the base URL of the chat server; empty for none"""
    model: str = ""
    """the name of the model; empty for the only model of the server"""
    transcription_model: str = ""
    """the name of the transcription model; empty if `model` accepts audio"""
    transcription_url: str = ""
    """the base URL of the transcription server; empty for `url`"""
    idle_transcript: bool = True
    timeout_s: Annotated[float, Meta(gt=0, le=600)] = 30.0

    def __post_init__(self) -> None:
        for name in ("url", "transcription_url"):
            check_url(name, getattr(self, name))
        if self.transcription_url and not self.transcription_model:
            raise ValueError("transcription_url needs a transcription_model")

    @property
    def hosts(self) -> str:
        urls = (self.transcription_url, self.url) if self.transcription_model else (self.url,)
        return " and ".join(dict.fromkeys(urlsplit(url).netloc for url in urls if url))


LANGUAGES = {
    "de": "German", "en": "English", "es": "Spanish", "fr": "French", "hi": "Hindi",
    "it": "Italian", "nl": "Dutch", "pt": "Portuguese",
}  # fmt: skip
"""Names of the languages that Voxtral understands, by ISO 639-1 code."""


class BrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Literal["auto", "embedded", "voxtral", "remote"] = "auto"
    instruction: str = (
        "You are Vox, a friendly voice assistant. Answer the user in one or two short spoken "
        "sentences. Plain text only, no lists, no code. You can only talk; you cannot see, send or "
        "do anything else."
    )
    language: Literal["", "de", "en", "es", "fr", "hi", "it", "nl", "pt"] = ""
    """the spoken language; empty for any that the brain knows"""
    clock: bool = True
    embedded: EmbeddedBrainConfig = EmbeddedBrainConfig()
    voxtral: VoxtralBrainConfig = VoxtralBrainConfig()
    remote: RemoteBrainConfig = RemoteBrainConfig()

    @property
    def idle_transcript(self) -> bool:
        return (self.remote if self.name == "remote" else self.voxtral).idle_transcript


class KokoroConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Paths of files. Empty ones mean the files of `voxtui models fetch kokoro`."""

    model: str = ""
    config: str = ""
    voice: str = ""


class VoiceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    engine: Literal["auto", "kokoro", "embedded", "none"] = "auto"
    name: Annotated[str, Meta(min_length=1)] = "af_heart"
    speed: Annotated[float, Meta(ge=0.5, le=2.0)] = 1.0
    timeout_s: Annotated[float, Meta(gt=0, le=60)] = 10.0
    kokoro: KokoroConfig = KokoroConfig()


class AudioConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: Project[str] = ""
    output: Project[str] = ""
    echo_cancellation: Project[Literal["auto", "on", "off"]] = "auto"
    max_utterance_s: Project[Annotated[float, Meta(ge=1, le=600)]] = 120.0


class VadConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    threshold: Project[Annotated[float, Meta(gt=0, lt=1)]] = 0.5
    min_speech_ms: Project[Annotated[int, Meta(ge=0, le=5000)]] = 200
    hands_free: bool = False
    start_ms: Project[Annotated[int, Meta(ge=32, le=5000)]] = 200
    end_ms: Project[Annotated[int, Meta(ge=64, le=10_000)]] = 800
    interrupt_ms: Project[Annotated[int, Meta(ge=32, le=5000)]] = 60
    """milliseconds of speech, with each frame of 32 ms weighted by its probability"""
    listen_while_speaking: bool = False
    name: Annotated[str, Meta(max_length=40, pattern=r"^([A-Za-z']+( [A-Za-z']+)*)?$")] = ""

    def __post_init__(self) -> None:
        if self.listen_while_speaking and not self.hands_free:
            raise ValueError(
                "listen_while_speaking needs hands_free = true: otherwise speech ends the answer, "
                "but starts no turn"
            )


class GenerationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    preset: Project[Literal["balanced", "ultra"]] = "balanced"
    max_new_tokens: Project[Annotated[int, Meta(ge=1, le=4096)] | None] = None
    min_new_tokens: Project[Annotated[int, Meta(ge=0, le=4096)] | None] = None
    temperature: Project[Annotated[float, Meta(ge=0, le=2)] | None] = None
    top_p: Project[Annotated[float, Meta(gt=0, le=1)] | None] = None
    top_k: Project[Annotated[int, Meta(ge=0)] | None] = None
    repetition_penalty: Project[Annotated[float, Meta(gt=0, le=2)] | None] = None
    seed: Project[Annotated[int, Meta(ge=0, lt=2**31)]] = 1

    def __post_init__(self) -> None:
        sampling = self.sampling()
        if sampling.max_new_tokens < sampling.min_new_tokens:
            raise ValueError(
                f"max_new_tokens {sampling.max_new_tokens} is less than "
                f"min_new_tokens {sampling.min_new_tokens}"
            )

    def sampling(self, brain: str = "") -> Sampling:
        """Return the values in use: the explicit keys, else those of the brain and the preset."""
        explicit = {
            name: value
            for name in Sampling.__struct_fields__
            if (value := getattr(self, name, None)) is not None
        }
        preset = PRESETS[self.preset]
        explicit.setdefault("temperature", TEMPERATURES.get(brain, preset.temperature))
        return msgspec.structs.replace(preset, **explicit)


class Sampling(msgspec.Struct, frozen=True):
    max_new_tokens: int
    min_new_tokens: int
    temperature: float
    top_p: float
    top_k: int
    """the number of candidate tokens; 0 for no limit"""
    repetition_penalty: float
    one_sentence: bool = False
    """whether the instruction requests one short sentence, which few tokens do not cut"""
    seed: int = 1


PRESETS = {
    "balanced": Sampling(160, 1, 0.2, 0.95, 0, 1.0),
    "ultra": Sampling(25, 2, 0.05, 0.9, 30, 1.2, one_sentence=True),
}

TEMPERATURES = {"embedded": 0.0}
"""Default temperatures by brain, for either preset. The less likely tokens of a small model are
wrong ones: with 0.2 it said "Yellow." for blue and yellow, and "ten" for seven plus five."""


class StreamingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    min_words: Project[Annotated[int, Meta(ge=1, le=50)]] = 1
    max_words: Project[Annotated[int, Meta(ge=1, le=50)]] = 2
    flush_ms: Project[Annotated[int, Meta(ge=1, le=5000)]] = 50

    def __post_init__(self) -> None:
        if self.max_words < self.min_words:
            raise ValueError(f"max_words {self.max_words} is less than min_words {self.min_words}")


HISTORY_TOKENS = {"embedded": 600}
"""Maximum tokens of past turns, by brain. On a CPU each one makes every later token slower."""


class HistoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    turns: Annotated[int, Meta(ge=0, le=5)] = 5
    max_tokens: Annotated[int, Meta(ge=0, le=32_000)] | None = None
    """the maximum tokens of past turns; None for the default of the brain in use"""

    def tokens(self, brain: str) -> int:
        known = self.max_tokens
        return HISTORY_TOKENS.get(brain, 1200) if known is None else known


INPUT_TOKENS = {"embedded": 1000}
"""Maximum tokens of attached texts, by brain. The embedded one reads some 30 tokens a second."""

CONTEXT_TOKENS = 8192
"""Context size in tokens of every other brain. A quarter stays free for the conversation."""


class InputConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts that the user attaches."""

    max_tokens: Annotated[int, Meta(ge=1, le=24_000)] | None = None
    """the maximum tokens of attached texts; None for the default of the brain in use"""

    def tokens(self, brain: str) -> int:
        return self.max_tokens or INPUT_TOKENS.get(brain, CONTEXT_TOKENS * 3 // 4)


class Targets(msgspec.Struct, frozen=True):
    """Targets for a turn's latencies: upper limits in milliseconds."""

    ttft_ms: float
    """release to first token"""
    processing_ms: float
    """complete utterance to first token"""
    first_sound_ms: float
    """release to first audible sample"""
    total_ms: float
    """release to last token"""
    typed_ttft_ms: float
    """Enter to first token"""
    typed_first_sound_ms: float
    """Enter to first audible sample"""
    typed_total_ms: float
    """Enter to last token"""

    def judging(self, typed: bool) -> Targets:
        """Return the targets of typed or spoken turns, under the names of the spoken ones."""
        if not typed:
            return self
        return msgspec.structs.replace(
            self,
            ttft_ms=self.typed_ttft_ms,
            processing_ms=self.typed_ttft_ms,
            first_sound_ms=self.typed_first_sound_ms,
            total_ms=self.typed_total_ms,
        )


TARGETS = {
    # Measured on two CPU cores: medians of 148 to 283 ms to the first token and 369 ms to the first
    # sound. An answer has up to 160 tokens, which take 4 s at 40 tokens/s. The first token of a
    # typed turn takes 340 to 840 ms, because less is computed before Enter than before a release.
    "embedded": Targets(300, 300, 500, 5000, 900, 1100, 6000),
    # A GPU in this machine.
    "voxtral": Targets(100, 100, 300, 1000, 100, 300, 1000),
    # A server adds its queue and one round trip: 50 to 150 ms on the internet.
    "remote": Targets(500, 500, 800, 5000, 500, 800, 5000),
}
"""Default targets by brain, for keys that the user does not set."""

DEFAULT_BRAIN = "embedded"
"""The brain whose targets count before any brain is loaded."""


class TargetsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user's own targets. None means the default of the brain in use."""

    ttft_ms: Project[Annotated[float, Meta(gt=0)] | None] = None
    processing_ms: Project[Annotated[float, Meta(gt=0)] | None] = None
    first_sound_ms: Project[Annotated[float, Meta(gt=0)] | None] = None
    total_ms: Project[Annotated[float, Meta(gt=0)] | None] = None
    typed_ttft_ms: Project[Annotated[float, Meta(gt=0)] | None] = None
    typed_first_sound_ms: Project[Annotated[float, Meta(gt=0)] | None] = None
    typed_total_ms: Project[Annotated[float, Meta(gt=0)] | None] = None

    def resolved(self, brain: str) -> Targets:
        """Return the targets in use with `brain`, a key of TARGETS or any other name."""
        explicit = {k: v for k, v in msgspec.structs.asdict(self).items() if v is not None}
        defaults = TARGETS.get(brain, TARGETS[DEFAULT_BRAIN])
        return msgspec.structs.replace(defaults, **explicit)


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool = True


class ServeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    sessions: Annotated[int, Meta(ge=1, le=64)] = 1
    uds: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    max_upload_mb: Annotated[int, Meta(ge=1, le=10_000)] = 100
    max_audio_minutes: Annotated[int, Meta(ge=1, le=10_000)] = 180


_COMMAND_KEY = re.compile(r"ctrl\+[abd-gk-y]|f[1-9]|f1[0-2]")
"""Matches a command's key: not ctrl+c, h, i, j, m or z, which copy, erase, complete, or suspend."""


class KeysConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of commands on the screen. None types a character, so typing starts no command."""

    again: str = "ctrl+r"
    copy: str = "ctrl+y"
    edit: str = "ctrl+o"
    help: str = "f1"
    menu: str = "ctrl+p"
    mute: str = "ctrl+t"
    new: str = "ctrl+n"
    panel: str = "ctrl+l"
    quit: str = "ctrl+q"
    save: str = "ctrl+s"
    speak: str = "ctrl+g"

    def __post_init__(self) -> None:
        used: dict[str, str] = {}
        for action, key in msgspec.structs.asdict(self).items():
            if not _COMMAND_KEY.fullmatch(key):
                raise ValueError(
                    f'{action}: "{key}" is no key for a command; use f1 to f12, or ctrl+ and a '
                    "letter other than c, h, i, j, m and z"
                )
            if other := used.get(key):
                raise ValueError(f"{other} and {action} have the same key, {key}")
            used[key] = action


class UiConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # No letters, because other shortcuts use them. Only keys that every terminal reports.
    talk_key: Project[
        Literal[
            "space", "insert", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9", "f10", "f11", "f12"
        ]
    ] = "space"
    save_dir: str = ""
    # Ours, and those of Textual: `voxtui config` checks a name without the screen's packages.
    theme: Project[
        Literal[
            "auto", "voxtui-dark", "voxtui-light", "ansi-dark", "ansi-light",
            "atom-one-dark", "atom-one-light", "catppuccin-frappe", "catppuccin-latte",
            "catppuccin-macchiato", "catppuccin-mocha", "dracula", "flexoki", "gruvbox", "monokai",
            "nord", "rose-pine", "rose-pine-dawn", "rose-pine-moon", "solarized-dark",
            "solarized-light", "textual-dark", "textual-light", "tokyo-night",
        ]
    ] = "auto"  # fmt: skip
    motion: Project[bool] = True
    captions: bool = True
    panel: Project[Literal["auto", "line", "glance", "lab"]] = "auto"
    keys: KeysConfig = KeysConfig()

    def __post_init__(self) -> None:
        for action, key in msgspec.structs.asdict(self.keys).items():
            if key == self.talk_key:
                raise ValueError(f"talk_key and keys.{action} have the same key, {key}")


class SessionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keep: bool | None = None
    """whether conversations are stored; None until the user was asked"""


TOOL_NAME = r"^[a-z][a-z0-9_]{0,30}$"


class ToolCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command that the user defines and a sentence runs."""

    name: Annotated[str, Meta(pattern=TOOL_NAME)]
    sentence: Annotated[str, Meta(min_length=1, max_length=200)]
    """the request, with `{argument}` in the place of a value"""
    run: Annotated[tuple[str, ...], Meta(min_length=1)]
    """the program and its arguments, with `{argument}` in the place of a value; no shell"""
    arguments: dict[
        Annotated[str, Meta(pattern=TOOL_NAME)], tuple[str, ...] | Literal["integer", "text"]
    ] = {}
    """the choices of each argument, or its type"""
    says: str = ""
    ask: bool = True
    timeout_s: Annotated[float, Meta(gt=0, le=120)] = 10.0

    def __post_init__(self) -> None:
        known = {*self.arguments}
        spoken = re.findall(r"\{(\w+)\}", self.sentence)
        if odd := ", ".join(sorted(known ^ {*spoken})):
            raise ValueError(f"{self.name}: its sentence and its arguments differ in {odd}")
        if len(spoken) > len(known):
            raise ValueError(f"{self.name}: its sentence has an argument twice")
        if "output" in known:
            raise ValueError(f"{self.name}: {{output}} is what the program writes, no argument")
        run, says = (
            set(re.findall(r"\{(\w+)\}", text)) for text in (" ".join(self.run), self.says)
        )
        if odd := ", ".join(sorted((run | says - {"output"}) - known)):
            raise ValueError(f"{self.name}: there is no argument {odd}")
        if "{" in self.run[0]:
            raise ValueError(f"{self.name}: the program itself cannot be an argument")
        if any(not kind for kind in self.arguments.values()):
            raise ValueError(f"{self.name}: an argument has no choices")


class ToolsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What voxtui may do for the user. ./voxtui.toml may not set it."""

    enabled: bool = True
    notes_file: str = ""
    read_notes: bool = False
    calendar_file: str = ""
    shared: tuple[str, ...] = ()
    command: tuple[ToolCommand, ...] = ()

    def __post_init__(self) -> None:
        names = [command.name for command in self.command]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"two commands have the name {twice}")


class McpExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request and the call that it means. A small model needs one example per tool."""

    say: Annotated[str, Meta(min_length=1, max_length=200)]
    tool: str
    """the tool's name on its server"""
    arguments: dict[str, Any] = {}


class McpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server of the Model Context Protocol that the user configured."""

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,15}$")]
    """the prefix of its tools' names"""
    command: str = ""
    """a program to start, which speaks the protocol on stdin and stdout"""
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    """names of environment variables that the program gets, beside PATH, HOME and the like"""
    url: str = ""
    """the address of a running server (streamable HTTP)"""
    token_env: str = ""
    """the name of the environment variable that holds the token for `url`"""
    examples: tuple[McpExample, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError(f"{self.name}: needs either command or url")
        if self.url and not re.fullmatch(r"https?://[^\s@]+", self.url):
            raise ValueError(f"{self.name}: url is not of the form https://HOST/mcp")
        if self.url and (self.args or self.env):
            raise ValueError(f"{self.name}: args and env belong to a command")
        if self.token_env and not self.url:
            raise ValueError(f"{self.name}: token_env belongs to a url; a command has env")

    @property
    def origin(self) -> str:
        """The program or address. An approval is valid for this one only."""
        return self.url or " ".join((self.command, *map(repr, self.args)))


class McpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Servers whose tools may be called. ./voxtui.toml may not set them."""

    server: tuple[McpServer, ...] = ()

    def __post_init__(self) -> None:
        names = [server.name for server in self.server]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"two servers have the name {twice}")


class DictateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    silence_s: Annotated[float, Meta(ge=0, le=600)] = 3.0
    sound: bool = True
    hook: str = ""
    replacements: str = ""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    brain: BrainConfig = BrainConfig()
    voice: VoiceConfig = VoiceConfig()
    audio: AudioConfig = AudioConfig()
    vad: VadConfig = VadConfig()
    generation: GenerationConfig = GenerationConfig()
    streaming: StreamingConfig = StreamingConfig()
    history: HistoryConfig = HistoryConfig()
    input: InputConfig = InputConfig()
    session: SessionConfig = SessionConfig()
    targets: TargetsConfig = TargetsConfig()
    metrics: MetricsConfig = MetricsConfig()
    tools: ToolsConfig = ToolsConfig()
    mcp: McpConfig = McpConfig()
    dictate: DictateConfig = DictateConfig()
    ui: UiConfig = UiConfig()
    serve: ServeConfig = ServeConfig()
