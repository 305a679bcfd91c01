"""`voxtui doctor` on machines that lack something."""

import json
import sys
from pathlib import Path

import pytest

from tests.commands.sound_devices import CRASHED, MICROPHONE, SPEAKER
from tests.fakes import FakeMicrophone
from voxtui.audio.portaudio import Probe
from voxtui.brains.voxtral.cuda_errors import write_marker
from voxtui.commands.doctor import doctor
from voxtui.commands.doctor.doctor import Finding
from voxtui.errors import ModelError
from voxtui.models.cuda import Gpu
from voxtui.settings.schema import (
    BrainConfig,
    Config,
    EmbeddedBrainConfig,
    VoiceConfig,
    VoxtralBrainConfig,
)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Fake a machine that can hold a conversation; each test removes its subject."""
    model = tmp_path / "chat.gguf"
    model.write_bytes(b"GGUF" + bytes(60))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    class Machine:
        config = Config(brain=BrainConfig(embedded=EmbeddedBrainConfig(model=str(model))))
        probe = Probe((MICROPHONE, SPEAKER))
        lacking: tuple[str, ...] = ()
        voice_fails: ModelError | None = None
        microphone_fails: str | None = None

        def examine(self, capsys):
            """(whether a conversation is possible, the lines that are not ok)."""
            possible = doctor.run(self.config)
            lines = capsys.readouterr().out.splitlines()
            return possible, [line for line in lines[:-2] if not line.startswith("ok ")]

        def no_gpu(self):
            raise ModelError("There is no NVIDIA driver here.")

        def check_voice(self, config):
            if self.voice_fails:
                raise self.voice_fails

    made = Machine()
    find_spec = doctor.importlib.util.find_spec
    monkeypatch.setattr(doctor, "probe", lambda: made.probe)
    monkeypatch.setattr(doctor, "microphone_problem", lambda name: made.microphone_fails)
    monkeypatch.setattr(
        doctor.importlib.util,
        "find_spec",
        lambda name: None if name in made.lacking else find_spec(name),
    )
    monkeypatch.setattr(doctor, "check_voice", made.check_voice)
    monkeypatch.setattr(doctor.cuda, "first_gpu", made.no_gpu)
    monkeypatch.setattr(doctor, "MEMORY_GB", 0.1)
    monkeypatch.setattr(doctor, "DISK_GB", 0.001)
    monkeypatch.setenv("TERM", "xterm-256color")
    return made


def test_a_machine_that_has_everything_lacks_nothing(machine, capsys):
    assert machine.examine(capsys) == (True, [])


def test_a_microphone_that_nobody_can_be_heard_from_is_a_note(machine, capsys):
    machine.microphone_fails = "Only digital silence comes from 'Headset'."
    assert machine.examine(capsys) == (
        True,
        [
            "note     microphone: Only digital silence comes from 'Headset'.",
            "         `voxtui devices` shows its level.",
        ],
    )


@pytest.mark.parametrize(("level", "found"), [(0.0, "Only digital"), (1e-4, None), (0.5, None)])
def test_a_quiet_room_is_no_problem_of_a_microphone(monkeypatch, tmp_path, level, found):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("voxtui.commands.devices_command.LEVEL_SECONDS", 0.05)
    microphone = FakeMicrophone()
    microphone.level = level
    monkeypatch.setattr(doctor, "build_microphone", lambda name: microphone)
    problem = doctor.microphone_problem("")
    assert (problem and problem[:12]) == found
    assert microphone.closed


def test_the_findings_are_json_too(machine, capsys):
    machine.lacking = ("hibari",)
    assert not doctor.run(machine.config, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["possible"] is False
    assert told["findings"][0]["verdict"] == "missing"


def test_without_the_packages_no_conversation_is_possible(machine, capsys):
    machine.lacking = ("xllamacpp",)
    possible, (what, mend) = machine.examine(capsys)
    assert not possible
    assert what == "missing  embedded models: not installed (xllamacpp)"
    assert "pip install" in mend


def test_without_the_weights_the_command_that_fetches_them_is_named(machine, capsys):
    embedded = EmbeddedBrainConfig(model="/no/such/model.gguf")
    machine.config = Config(brain=BrainConfig(embedded=embedded))
    possible, (what, mend) = machine.examine(capsys)
    assert not possible
    assert what == "missing  chat model: There is no model file at /no/such/model.gguf."
    assert "brain.embedded.model" in mend


def test_damaged_weights_are_reported(machine, capsys, monkeypatch):
    monkeypatch.setattr(doctor.installed, "check_content", damaged)
    possible, (what, mend) = machine.examine(capsys)
    assert not possible
    assert (what.split(), mend.strip()) == (["missing", "chat", "model:", "Damaged."], "Delete it.")


def damaged(path):
    raise ModelError("Damaged.", "Delete it.")


def test_too_little_free_memory_is_reported(machine, capsys, monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda path: "MemAvailable:    50000 kB\n")
    possible, lines = machine.examine(capsys)
    assert possible
    assert lines[0] == "note     memory: 0.1 GB free; 0.1 GB are needed"


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/user/app\n", {"user/app/memory.max": "max", "user/memory.max": "700000000"}),
        ("0::/host/only\n", {"memory.max": "700000000"}),  # as in a container
    ],
)
def test_the_limit_of_a_container_is_the_smallest_of_its_control_groups(tmp_path, groups, files):
    (tmp_path / "cgroup").write_text(groups)
    for name, limit in files.items():
        (tmp_path / "mount" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mount" / name).write_text(f"{limit}\n")
    limit = doctor.control_group_limit(tmp_path / "cgroup", tmp_path / "mount")
    assert limit == 700_000_000


def test_a_system_without_control_groups_has_no_limit_of_theirs(tmp_path):
    assert doctor.control_group_limit(tmp_path / "none", tmp_path) is None


def test_an_impossible_voice_is_missing(machine, capsys):
    machine.voice_fails = ModelError("No such voice.", "Take another.")
    possible, lines = machine.examine(capsys)
    assert not possible
    assert lines == ["missing  voice: No such voice.", "         Take another."]


@pytest.mark.parametrize(
    ("probe", "lines"),
    [
        (Probe((), CRASHED), [f"sound: {CRASHED}"]),
        (Probe((SPEAKER,)), ["microphone: There is no microphone."]),
        (Probe((MICROPHONE,)), ["speaker: There is no speaker."]),
        (Probe(()), ["microphone: There is no microphone.", "speaker: There is no speaker."]),
    ],
)
def test_without_sound_a_conversation_is_possible_in_text(machine, capsys, probe, lines):
    machine.probe = probe
    possible, printed = machine.examine(capsys)
    assert possible
    assert printed[::2] == [f"note     {line}" for line in lines]
    without = "Text and sample clips work without."
    known = [] if probe.problem else ["A device that another program holds alone is not seen."]
    assert {line.strip() for line in printed[1::2]} == {" ".join([*known, without])}


@pytest.mark.parametrize(("figure", "word"), [("MEMORY_GB", "memory"), ("DISK_GB", "disk")])
def test_too_little_memory_or_disk_is_reported(machine, capsys, monkeypatch, figure, word):
    monkeypatch.setattr(doctor, figure, 1e9)
    possible, lines = machine.examine(capsys)
    assert possible
    assert lines[0].startswith(f"note     {word}: ")


def test_a_terminal_without_a_screen_is_reported(machine, capsys, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert machine.examine(capsys)[1][0].startswith("note     terminal: ")


@pytest.fixture
def gpu(monkeypatch):
    def install(gigabytes, torch=lambda: "2.13.0 for CUDA 13.0", free=None):
        found = Gpu("NVIDIA X", gigabytes * 10**9, (gigabytes if free is None else free) * 10**9)
        monkeypatch.setattr(doctor.cuda, "first_gpu", lambda: found)
        monkeypatch.setattr(doctor.cuda, "check_torch", torch)
        monkeypatch.setattr(doctor, "check_installed", lambda: None)

    return install


def test_a_gpu_is_listed_with_the_missing_packages_of_voxtral_and_kokoro(machine, capsys, gpu):
    gpu(150)
    assert machine.examine(capsys) == (
        True,
        [
            "note     Voxtral: mistralai/Voxtral-Mini-3B-2507 is not on this machine yet.",
            "         Run `voxtui models fetch voxtral` (9.4 GB).",
            "note     Kokoro: kokoro-v1_0.pth of hexgrad/Kokoro-82M is not on this machine yet.",
            "         Run `voxtui models fetch kokoro` (0.33 GB).",
        ],
    )


def test_a_small_gpu_and_a_torch_without_cuda_are_reported(machine, capsys, gpu):
    def no_cuda():
        raise ModelError("torch 2.13.0+cpu is a build without CUDA.", "Take another.")

    gpu(8, no_cuda)
    possible, lines = machine.examine(capsys)
    assert possible
    assert lines[:4] == [
        "note     GPU: NVIDIA X, 8.0 GB of memory, 8.0 GB free",
        "         Voxtral needs 12 GB; the embedded brain needs no GPU.",
        "note     torch: torch 2.13.0+cpu is a build without CUDA.",
        "         Take another.",
    ]


def test_a_gpu_with_too_little_free_memory_is_reported(machine, capsys, gpu):
    gpu(24, free=3)
    assert machine.examine(capsys)[1][:2] == [
        "note     GPU: NVIDIA X, 24.0 GB of memory, 3.0 GB free",
        "         Voxtral needs 10.5 GB of it; `nvidia-smi` says what has the rest.",
    ]


@pytest.fixture
def abroad(machine, monkeypatch, tmp_path):
    """Configure a server, Kokoro and a language; there is no program of its own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "check_installed", lambda: None)

    def configure(language, engine="kokoro"):
        machine.config = Config(
            brain=BrainConfig(name="remote", language=language), voice=VoiceConfig(engine=engine)
        )
        return [finding for finding in doctor.languages(machine.config) if finding.verdict != "ok"]

    return configure


def test_what_a_language_lacks_is_named_with_the_commands(abroad):
    program, voice = abroad("fr")
    assert "espeak-ng is not installed. Answers in French are text only" in program.what
    assert "apt install espeak-ng" in program.fix
    assert "Kokoro-82M is not on this machine" in voice.what
    assert "voxtui models fetch kokoro --language fr" in voice.fix


@pytest.mark.parametrize(
    ("language", "engine", "told"),
    [
        ("de", "kokoro", "there is no German voice"),
        ("fr", "embedded", "the embedded voice speaks English only"),
        ("en", "kokoro", None),
        ("fr", "none", None),
    ],
)
def test_a_language_without_a_voice_is_told(abroad, language, engine, told):
    found = abroad(language, engine)
    assert [told in finding.what for finding in found] == [True] * bool(told)


def test_another_language_by_the_embedded_brain_needs_whisper_and_a_voice(machine, capsys):
    chat = machine.config.brain.embedded
    machine.config = Config(brain=BrainConfig(name="embedded", language="es", embedded=chat))
    possible, lines = machine.examine(capsys)
    assert not possible
    assert lines[0].startswith("missing  Whisper: ") and "is Spanish" in lines[0]
    assert "models fetch whisper-base" in lines[1]
    assert "note     languages: Spanish: kokoro-small is not on this machine yet." in lines
    assert "         Run `voxtui models fetch kokoro-small` (95 MB)." in lines


def test_what_whisper_is_for_and_what_it_costs_is_said(machine, monkeypatch, capsys):
    (finding,) = [f for f in doctor.findings(machine.config) if f.what.startswith("other")]
    assert finding == Finding(
        "ok", "other languages: whisper-base (146 MB) is not here, nor needed for English"
    )
    monkeypatch.setattr(doctor.whisper, "is_here", lambda: True)
    (finding,) = [f for f in doctor.findings(machine.config) if f.what.startswith("other")]
    assert finding.verdict == "ok" and "`dictate` takes seconds" in finding.what
    monkeypatch.setattr(doctor.whisper, "find_spec", lambda name: True)
    monkeypatch.setattr(doctor.whisper, "released_path", lambda model: Path())
    spanish = Config(brain=BrainConfig(name="embedded", language="es"))
    (finding,) = [f for f in doctor.findings(spanish) if f.what.startswith("Whisper")]
    assert finding.verdict == "ok" and "hears Spanish" in finding.what


def test_without_a_configured_language_only_the_program_is_asked_for(abroad):
    (program,) = abroad("")
    assert "Answers in Spanish, French, Hindi, Italian and Portuguese are text only" in program.what


def test_without_a_detector_a_language_has_to_be_configured(abroad, machine):
    machine.lacking = ("py3langid",)
    (finding,) = abroad("")
    assert "py3langid is not installed" in finding.what and "brain.language" in finding.fix


def test_with_voxtral_configured_only_its_weights_are_needed(machine, capsys):
    machine.config = Config(brain=BrainConfig(name="voxtral"))
    machine.lacking = ("xllamacpp", "py3langid")
    possible, lines = machine.examine(capsys)
    assert not possible
    assert lines == [
        "note     GPU: none. There is no NVIDIA driver here. Voxtral will be slow.",
        "missing  Voxtral: mistralai/Voxtral-Mini-3B-2507 is not on this machine yet.",
        "         Run `voxtui models fetch voxtral` (9.4 GB).",
    ]


def test_the_embedded_brain_may_be_incomplete_if_voxtral_can_answer(
    machine, capsys, gpu, monkeypatch
):
    gpu(150)
    monkeypatch.setattr(doctor.cuda, "check_voxtral", lambda: None)
    monkeypatch.setattr(
        doctor.installed, "voxtral_directory", lambda model: Path("/models/voxtral")
    )
    machine.lacking = ("xllamacpp",)
    possible, lines = machine.examine(capsys)
    assert possible
    assert lines[0] == "note     embedded models: not installed (xllamacpp)"


def test_whether_the_fast_path_is_tried_is_reported(machine, gpu, capsys, monkeypatch, tmp_path):
    def lines(fast=True):
        voxtral = VoxtralBrainConfig(fast=fast)
        config = Config(brain=BrainConfig(name="voxtral", voxtral=voxtral))
        doctor.run(config)
        return capsys.readouterr().out.splitlines()

    gpu(150)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "_voxtral_weights", lambda config: "/models/voxtral")
    assert "ok       fast path of Voxtral: tried at each start" in lines()
    assert "ok       fast path of Voxtral: off (brain.voxtral.fast = false)" in lines(fast=False)
    write_marker()
    note = (
        "note     fast path of Voxtral: left out, because the last attempt at it did not end",
        "         To try it again: voxtui doctor gpu",
    )
    assert set(note) <= set(lines())


def test_who_listens_for_a_name_is_said_if_a_detector_knows_it(monkeypatch):
    assert list(doctor.wake_word("Hey Vox")) == []
    monkeypatch.setitem(sys.modules, "pymicro_wakeword", None)
    (finding,) = doctor.wake_word("Hey Jarvis")
    assert (finding.verdict, "the recogniser" in finding.what) == ("note", True)
    assert "EXTRAS=wake-word" in finding.fix


def test_a_name_with_a_detector_is_ok():
    pytest.importorskip("pymicro_wakeword", reason="the extra wake-word is not installed")
    (finding,) = doctor.wake_word("Hey Jarvis")
    assert finding == Finding("ok", "name: pymicro-wakeword listens for “Hey Jarvis”")
