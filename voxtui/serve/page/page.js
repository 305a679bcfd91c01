// The page: talk by taps or by holding, or type; read both sides, see where the time went.

import { Line } from "./line.js";
import { heardAt, latency, showTimes } from "./times.js";
import { addEntry, asMarkdown, clear, drop, entries, history, setText } from "./words.js";

const RATE = 24000;
const TAP_MS = 300; // a longer press is held: its end sends the words
const SHORTEST = RATE / 10; // samples; the server takes no less
const SLIDE = 60; // pixels from the button, where a finger cancels
const BARS = 48; // of the level
const MOUSE = matchMedia("(hover: hover) and (pointer: fine)").matches;
const TAP = MOUSE ? "Click" : "Tap";
const INSECURE = window.isSecureContext && navigator.mediaDevices ? "" :
  "Browsers give the microphone to https pages and to localhost only. Either forward the port " +
  `(ssh -L 8000:${location.hostname}:${location.port || 80} ${location.hostname}) and open http://localhost:8000, ` +
  "or start the server with --tls-cert and --tls-key.";

const byId = (id) => document.getElementById(id);
const talkButton = byId("talk");

function say(text) {
  if (byId("status").textContent !== text) byId("status").textContent = text;
  label();
}

const ready = () => refused || `${TAP} to talk`;

// Says what a tap on the button does. What is in [brackets] is a key.
function label() {
  const held = pressed !== null && !latched, cancels = MOUSE ? " · [Esc] cancels" : "";
  const state = pressed !== null ? "listening" : speaking ? "speaking" : response || wanted ? "thinking"
    : line.away ? "away" : refused ? "blocked" : "idle";
  const words = {
    listening: leaving ? "Let go to cancel" : !held ? `${TAP} to send${cancels}`
      : by ? `Let go of [${by}] to send${cancels}` : "Let go to send · slide away to cancel",
    away: `${line.away === "gone" || line.away === "full" ? "Trying again. " : ""}${TAP} to try now`,
    blocked: INSECURE ? "Type below" : refused.endsWith("blocked") ? `${TAP} after you allow it` : `${TAP} to try again`,
    idle: MOUSE && document.activeElement === byId("text") ? "[Enter] sends"
      : byId("status").textContent.endsWith(ready()) ? `or hold ${MOUSE ? "[Space] " : ""}while you speak` : ready(),
  }[state] ?? `${TAP} to talk over it${MOUSE ? " · [Esc] stops" : ""}`;
  const parts = words.split(/[\[\]]/).map((part, i) => i % 2 ? Object.assign(document.createElement("kbd"), { textContent: part }) : part);
  if (byId("hint").textContent !== words.replace(/[\[\]]/g, "")) byId("hint").replaceChildren(...parts);
  talkButton.dataset.state = state;
  talkButton.toggleAttribute("data-held", held);
  talkButton.toggleAttribute("data-leaving", leaving);
  byId("stop").hidden = held || !["listening", "thinking", "speaking"].includes(state);
  byId("stop").textContent = state === "listening" ? "Cancel" : "Stop"; // what is said is thrown away
  byId("clear").disabled = state === "listening";
  byId("text").placeholder = state === "away" ? "Waiting for the connection…" : "Or type a message";
  if (state !== "thinking") byId("progress").hidden = true;
}

// Shows a problem, with its first sentence in bold.
function warn(problem) {
  const text = problem || INSECURE;
  if (byId("problem").textContent === text) return;
  const head = document.createElement("b"), end = text.search(/[.!?](\s|$)/) + 1 || text.length;
  head.textContent = text.slice(0, end);
  byId("problem").replaceChildren(...(text ? [head, text.slice(end)] : []));
}

let draft = null; // the entry of what is being said
const said = []; // those of what was, until the server has named its item

// The turn.

// The moments of a turn in ms of performance.now(), as in times.js, and what the server told of it.
let turn = {}; // the latest one that was committed
let response = null; // in progress: its turn, and whether it made sound or was stopped
let latest = {}; // response, also when it is done and still played
let wanted = false; // an answer, as soon as that one has ended
let speaking = null; // what is played: its item, and its turn

function createResponse() {
  wanted = response !== null;
  if (!wanted) line.send({ type: "response.create" });
}

// What the page does with an event of the server. `entry` is that of the event's item.
const TAKE = {
  "x_voxtui.caption": ({ text }) => { if (draft ?? said.at(-1)) setText(draft ?? said.at(-1), text); },
  "x_voxtui.prefill": ({ done, total }) => {
    byId("progress").hidden = done >= total || response === null;
    byId("progress").value = done / total;
  },
  "input_audio_buffer.committed": ({ item_id: id }) => entries.set(id, said.shift() ?? addEntry("user")),
  "conversation.item.input_audio_transcription.completed": ({ transcript }, entry) =>
    entry && transcript ? setText(entry, transcript) : drop(entry),
  "response.created": () => {
    response = latest = { turn, sounds: false, stopped: false };
    ear?.port.postMessage({ muted: false, listens: true });
    label();
  },
  "conversation.item.added": ({ item: { role, id } }) => {
    if (role === "assistant" && !entries.has(id)) entries.set(id, addEntry("assistant"));
  },
  "response.output_audio_transcript.delta": ({ delta }, entry) => {
    if (response) response.turn.word ??= performance.now();
    byId("progress").hidden = true;
    setText(entry, entry.text + delta);
  },
  "response.output_audio.delta": play,
  "output_audio_buffer.started": () => {
    if (latest.stopped) return;
    speaking = { turn: latest.turn };
    if (latest.turn.heard) say("Speaking…"); // the sound was faster than the event
  },
  "output_audio_buffer.stopped": () => { if (speaking) endSpeaking(); },
  "response.output_audio.done": ({ item_id: item }) => {
    if (line.call) latest.sounds = true;
    else if (response?.sounds && !response.stopped) player.port.postMessage({ item, end: true });
  },
  "response.done": finish,
  "conversation.item.truncated": ({ item_id }) => line.send({ type: "conversation.item.retrieve", item_id }),
  "conversation.item.retrieved": ({ item: { id, content } }) => {
    const heard = content[0]?.transcript ?? "", cut = entries.get(id);
    if (cut?.text.startsWith(heard)) setText(cut, heard, cut.text.slice(heard.length));
  },
  "error": ({ error: { code, message } }) => { if (code !== "response_cancel_not_active") warn(message); },
};
const take = (event) => TAKE[event.type]?.(event, entries.get(event.item_id));

function finish({ response: ended, x_voxtui: told }) {
  const { sounds, turn: answered = turn } = response ?? {};
  response = null;
  answered.told = told;
  if (ended.status === "completed" || ended.status === "incomplete") {
    answered.done = performance.now();
    const text = ended.output[0]?.content[0]?.transcript ?? "";
    if (!sounds) {
      byId("read").textContent = text; // by a screen reader
      say(text ? ready() : "Nothing was heard. " + ready());
    }
  } else if (ended.status === "failed") {
    warn(ended.status_details.error.message);
    if (pressed === null) say(ready());
  }
  showTimes(answered);
  if (wanted) createResponse();
  label();
}

// Sound.

let microphone = null, recorder = null, speakers = null, player = null;
let call = null, ear = null; // the context and the worklet of a call's sound
let stream = null; // of the microphone
let pressed = null; // the moment of the press
let latched = false; // it was a tap, so another one ends what is said
let by = ""; // what is held, if it is a key
let leaving = false; // the finger has slid off the button
let refused = INSECURE ? "No microphone" : ""; // what to say of the microphone
let soundSent = 0; // samples of this utterance
let released = null; // the moment of its end; null: it was only a tap

async function openSpeakers() {
  speakers = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
  await useSpeaker();
  await speakers.audioWorklet.addModule("worklet.js");
  player = new AudioWorkletNode(speakers, "player", { numberOfInputs: 0, outputChannelCount: [1] });
  player.connect(speakers.destination);
  player.port.onmessage = ({ data }) => {
    if (!speaking) return; // it was stopped meanwhile
    const { turn: answered } = speaking;
    if (data.heard) {
      answered.heard ??= heardAt(speakers, data.at);
      say("Speaking…");
    } else if (data.ended) endSpeaking();
    else truncate(data.item ? data.played : 0);
    showTimes(answered);
  };
}

function endSpeaking() {
  speaking = null;
  if (pressed === null) say(ready());
}

// Plays the stream of a call, which the server plays in real time.
async function openEar(stream) {
  const silent = new Audio(); // without it Chromium hands no sound of a call to the context
  Object.assign(silent, { muted: true, srcObject: stream });
  silent.play().catch(() => {});
  call?.close();
  const context = call = new AudioContext({ latencyHint: "interactive" });
  await context.audioWorklet.addModule("worklet.js");
  const node = ear = new AudioWorkletNode(context, "ear");
  context.createMediaStreamSource(stream).connect(node).connect(context.destination);
  node.port.onmessage = ({ data }) => {
    const answered = latest.turn;
    if (latest.stopped || !answered) return;
    answered.received ??= performance.now() + (data.at - context.currentTime) * 1000;
    answered.heard ??= heardAt(context, data.at);
    if (speaking) say("Speaking…");
    showTimes(answered);
  };
}

async function useSpeaker() {
  const id = byId("speaker").value;
  for (const context of [speakers, call]) if (id && context?.setSinkId) await context.setSinkId(id);
}

// Lists the devices, whose names the browser tells once it may use the microphone.
async function listDevices() {
  for (const device of await navigator.mediaDevices.enumerateDevices()) {
    const list = { audioinput: byId("microphone"), audiooutput: byId("speaker") }[device.kind];
    const known = [...(list?.options ?? [])].some(({ value }) => value === device.deviceId);
    if (list && !known) list.append(new Option(device.label, device.deviceId));
  }
}

async function openMicrophone() {
  const id = byId("microphone").value;
  const deviceId = id ? { exact: id } : undefined;
  stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true, deviceId } });
  listDevices();
  microphone = new AudioContext({ latencyHint: "interactive" });
  await microphone.audioWorklet.addModule("worklet.js");
  recorder = new AudioWorkletNode(microphone, "recorder", { numberOfOutputs: 0 });
  microphone.createMediaStreamSource(stream).connect(recorder);
  recorder.port.onmessage = ({ data }) => {
    if (data.sound && pressed !== null) showLevel(Math.max(...data.sound) / 32768);
    if (!line.call) data.sound ? sendSound(data.sound) : commit();
  };
  stream.getAudioTracks()[0].onended = () => { closeMicrophone(); warn("The microphone is gone."); };
}

// Shows how long and how loud one has spoken, the newest bar on the right.
function showLevel(peak) {
  byId("time").textContent = new Date(performance.now() - pressed).toISOString().slice(15, 19);
  const bars = byId("level").getElementsByTagName("i");
  const bar = bars.length < BARS ? document.createElement("i") : bars[0];
  bar.style.height = `${100 * Math.sqrt(peak)}%`;
  bar.style.opacity = peak < 0.01 ? 0.35 : 1;
  talkButton.style.setProperty("--level", Math.sqrt(peak));
  byId("level").append(bar);
}

function closeMicrophone() {
  for (const track of stream?.getTracks() ?? []) track.stop();
  microphone?.close();
  microphone = recorder = stream = null; // the next press opens it again
}

const REFUSALS = {
  NotAllowedError: "The microphone is blocked. Allow it for this page in the browser’s site settings, or type below.",
  NotFoundError: "The browser finds no microphone. Connect one, or type below.",
  NotReadableError: "The microphone cannot be opened. Close the program that uses it, or type below.",
};

function sendSound(sound) {
  if (!draft) return; // the connection was lost meanwhile
  soundSent += sound.length;
  const bytes = new Uint8Array(sound.buffer);
  line.send({ type: "input_audio_buffer.append", audio: btoa(String.fromCharCode(...bytes)) });
}

function play({ item_id: item, delta }) {
  if (!player || !response || response.stopped) return;
  response.turn.received ??= performance.now();
  response.sounds = true;
  speaking = { item, turn: response.turn };
  const bytes = Uint8Array.from(atob(delta), (character) => character.charCodeAt(0));
  player.port.postMessage({ item, sound: new Int16Array(bytes.buffer) });
}

// Stops the answer: at once here, and on the server.
function interrupt() {
  if (line.call) silenceCall();
  else if (speaking) player.port.postMessage({ stop: true });
  else if (response && !response.stopped) line.send({ type: "response.cancel" });
  if (response) response.stopped = true;
  wanted = false;
}

// The server knows what it has played, so it truncates.
function silenceCall() {
  const asks = response && !response.stopped;
  if (asks) line.send({ type: "response.cancel" });
  if (asks || speaking) line.send({ type: "output_audio_buffer.clear" });
  ear?.port.postMessage({ muted: true });
  latest.stopped = true;
  speaking = null;
}

function truncate(played) {
  const queued = latency(speakers) * RATE; // given to the device, but not heard
  const heard = Math.max(0, Math.floor(((played - queued) / RATE) * 1000));
  line.send({ type: "conversation.item.truncate", item_id: speaking.item, content_index: 0, audio_end_ms: heard });
  speaking = null;
  label();
}

async function press(at) {
  if (pressed !== null || talkButton.disabled) return;
  if (line.away || (line.transport === "webrtc" && line.state !== "ready")) return reconnect(); // there is no track yet
  pressed = at;
  latched = false;
  refused = "";
  warn("");
  interrupt();
  label();
  try {
    if (!player) await openSpeakers();
    if (!recorder) await openMicrophone();
    await Promise.all([speakers.resume(), microphone.resume(), call?.resume()]);
    await line.call?.talk(stream.getAudioTracks()[0], true);
  } catch (problem) {
    pressed = null;
    refused = problem.name === "NotAllowedError" ? "Microphone blocked" : "No microphone";
    say(refused);
    return warn(REFUSALS[problem.name] ?? `The sound cannot be opened: ${problem.message}`);
  }
  if (pressed !== at) return line.call?.talk(null, false); // let go while the browser asked
  soundSent = 0;
  say("Listening…");
  draft = addEntry("user");
  for (const bar of byId("level").querySelectorAll("i")) bar.remove();
  recorder.port.postMessage({ talk: true });
}

function reconnect() {
  line.again();
  say("Connecting…");
}

// A finger or a key goes down, and up. A tap begins and ends what is said, and so does a hold.
function down(at, key = "") {
  by = key;
  if (pressed === null) press(at);
  else if (latched) release(at);
}

function up(at) {
  if (pressed === null || latched) return;
  if (leaving) return release(at, false);
  if (at - pressed >= TAP_MS && draft) return release(at); // without a draft the microphone is not open yet
  latched = true;
  label();
}

function release(at, keep = true) {
  if (pressed === null) return;
  pressed = null;
  leaving = false;
  label();
  if (!draft) return say(ready());
  released = keep ? at : null;
  recorder?.port.postMessage({ talk: false });
  if (line.call) {
    line.call.talk(null, false);
    soundSent = RATE; // or so: the track has sent it
    if (line.state === "ready") commit();
  }
}

// The recorder has handed over the last sound.
function commit() {
  if (!draft) return;
  if (released !== null && soundSent >= SHORTEST) {
    turn = { released };
    said.push(draft);
    line.send({ type: "input_audio_buffer.commit" });
    createResponse();
    turn.sent = performance.now();
    say("Thinking…");
  } else {
    line.send({ type: "input_audio_buffer.clear" });
    drop(draft);
    say("Stopped");
  }
  draft = null;
}

// Text.

async function send(text, at) {
  if (line.away) return reconnect(); // the words stay in the field
  byId("text").value = "";
  warn("");
  if (pressed !== null) release(at, false);
  interrupt();
  if (!player && window.isSecureContext) await openSpeakers().catch(() => {});
  speakers?.resume();
  const id = `item_${Math.random().toString(36).slice(2)}`;
  setText(entries.set(id, addEntry("user")).get(id), text);
  const item = { id, type: "message", role: "user", content: [{ type: "input_text", text }] };
  line.send({ type: "conversation.item.create", item });
  turn = { released: at, sent: performance.now() };
  createResponse();
  say("Thinking…");
}

// The connection.

const STATES = {
  paused: "The session has ended. Talk or type: a new one begins with these words.",
  gone: "Connection lost",
  full: "All sessions of the server are in use.",
  locked: "The server needs its API key.",
  refused: "The server refused the session.",
};

function changed(state, why) {
  byId("lock").hidden = state !== "locked";
  if (state === "ready") warn("");
  else {
    release(performance.now(), false);
    player?.port.postMessage({ stop: true });
    for (const entry of [draft, ...said.splice(0)]) drop(entry);
    draft = response = speaking = null;
    latest = {};
    wanted = false;
    if (why && state !== "full" && (state !== "locked" || line.token)) warn(why);
  }
  if (pressed === null) say(STATES[state] ?? ready());
  if (state === "locked") byId("key").focus();
}

const line = new Line({ take, changed, history, ear: openEar });

// Hands.

const isTalkKey = (event) =>
  event.key === " " && (event.target === talkButton || !event.target.closest("input, button, select, a"));

document.addEventListener("keydown", (event) => {
  if (isTalkKey(event)) {
    event.preventDefault();
    if (!event.repeat) down(event.timeStamp, "Space");
  } else if (event.key === "Escape" && !byId("settings").open) stop(event.timeStamp);
});
document.addEventListener("keyup", (event) => { if (isTalkKey(event)) { event.preventDefault(); up(event.timeStamp); } });
talkButton.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  talkButton.setPointerCapture(event.pointerId);
  down(event.timeStamp);
});
talkButton.addEventListener("pointermove", (event) => {
  const { x, y, width } = talkButton.getBoundingClientRect();
  const off = Math.hypot(event.clientX - x - width / 2, event.clientY - y - width / 2) > width / 2 + SLIDE;
  if (pressed !== null && !latched && !by && off !== leaving) { leaving = off; label(); }
});
for (const end of ["pointerup", "pointercancel"])
  talkButton.addEventListener(end, (event) => up(event.timeStamp));
// Enter, and screen readers, click without a press: it is a tap.
talkButton.addEventListener("click", (event) => {
  if (event.detail > 0) return;
  down(event.timeStamp);
  up(event.timeStamp);
});
talkButton.addEventListener("contextmenu", (event) => event.preventDefault());
window.addEventListener("blur", () => { if (!latched && draft) release(performance.now()); }); // no key comes up here
document.addEventListener("visibilitychange", () => { if (document.hidden) release(performance.now(), false); });

// Throws away what is being said, or stops the answer.
function stop(at) {
  if (pressed !== null) return release(at, false);
  interrupt();
  say("Stopped");
}
byId("stop").addEventListener("click", (event) => { stop(event.timeStamp); talkButton.focus(); });

byId("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("text").value.trim();
  if (text) send(text, event.timeStamp);
});
for (const change of ["focus", "blur"]) byId("text").addEventListener(change, () => byId("status").textContent === "Stopped" ? say(ready()) : label());
byId("examples").addEventListener("click", ({ target, timeStamp }) => { if (target.matches("button")) send(target.textContent, timeStamp); });

byId("set").addEventListener("click", () => byId("settings").showModal());
byId("microphone").addEventListener("change", closeMicrophone);
byId("speaker").addEventListener("change", useSpeaker);

byId("export").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([asMarkdown()], { type: "text/markdown" }));
  link.download = "conversation.md";
  link.click();
  URL.revokeObjectURL(link.href);
});
byId("clear").addEventListener("click", () => {
  stop(performance.now());
  clear();
  byId("times").hidden = true;
  line.use(line.transport); // a new session knows nothing of the old one
  say("A new conversation. " + ready());
});

byId("lock").addEventListener("submit", (event) => {
  event.preventDefault();
  line.token = byId("key").value.trim();
  sessionStorage.setItem("token", line.token);
  talkButton.focus();
  line.again();
});

byId("transport").addEventListener("change", (event) => {
  sessionStorage.setItem("transport", event.target.value);
  line.use(event.target.value);
  say("Connecting…");
});
line.transport = sessionStorage.getItem("transport") ?? "websocket";
byId("transport").value = line.transport;
window.addEventListener("pagehide", () => line.call?.close());

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem("token", given);
  window.history.replaceState(null, "", location.pathname); // it shall not stay in the address
}
line.token = sessionStorage.getItem("token") ?? "";

talkButton.disabled = INSECURE !== "";
warn("");
line.open();
