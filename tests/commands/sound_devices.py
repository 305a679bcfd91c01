"""Sound devices as a probe finds them."""

from voxtui.audio.portaudio import Device

MICROPHONE = Device(0, "Headset", "ALSA", 1, 0, 48_000, True, False)
SPEAKER = Device(1, "Loud speaker", "ALSA", 0, 2, 44_100, False, True)
CRASHED = "The sound system crashed when asked for its devices."
