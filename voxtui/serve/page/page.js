// The page: talk by taps or by holding, or type; read both sides, see where the time went.

import { Line } from "./line.js";
import { heardAt, latency, showTimes } from "./times.js";
import { addEntry, asMarkdown, clear, drop, entries, history, setText } from "./words.js";

const RATE = 24000;
const TAP_MS = 300; // a longer press is held: its end sends the words
const SHORTEST = RATE / 10; // samples; the server takes no less
const BARS = 48; // of the level
const READY = "Ready.";
const LISTENING = "Listening.";
const SPEAKING = "Speaking.";

const byId = (id) => document.getElementById(id);
const talkButton = byId("talk");

function say(text) {
  if (byId("status").textContent !== text) byId("status").textContent = text;
  label();
}

// Says what a tap on the button does.
function label() {
  const state = pressed !== null ? "listening" : speaking ? "speaking" : response || wanted ? "thinking" : "idle";
  const words = state !== "listening" ? "Tap to talk" : latched ? "Tap to send" : "Let go to send";
  if (byId("hint").textContent !== words) byId("hint").textContent = words;
  talkButton.dataset.state = state;
  byId("stop").hidden = state === "idle";
  byId("stop").textContent = state === "listening" ? "Cancel" : "Stop"; // what is said is thrown away
  if (state !== "thinking") byId("progress").hidden = true;
}
const warn = (text) => { if (byId("problem").textContent !== text) byId("problem").textContent = text; };

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

function take(event) {
  const entry = entries.get(event.item_id);
  switch (event.type) {
    case "x_voxtui.caption":
      if (draft ?? said.at(-1)) setText(draft ?? said.at(-1), event.text);
      break;
    case "x_voxtui.prefill":
      byId("progress").hidden = event.done >= event.total || response === null;
      byId("progress").value = event.done / event.total;
      break;
    case "input_audio_buffer.committed":
      entries.set(event.item_id, said.shift() ?? addEntry("user"));
      break;
    case "conversation.item.input_audio_transcription.completed":
      if (entry && event.transcript) setText(entry, event.transcript);
      else drop(entry);
      break;
    case "response.created":
      response = latest = { turn, sounds: false, stopped: false };
      ear?.port.postMessage({ muted: false, listens: true });
      label();
      break;
    case "conversation.item.added":
      if (event.item.role === "assistant" && !entries.has(event.item.id))
        entries.set(event.item.id, addEntry("assistant"));
      break;
    case "response.output_audio_transcript.delta":
      if (response) response.turn.word ??= performance.now();
      byId("progress").hidden = true;
      setText(entry, entry.text + event.delta);
      break;
    case "response.output_audio.delta":
      play(event);
      break;
    case "output_audio_buffer.started":
      if (latest.stopped) break;
      speaking = { turn: latest.turn };
      if (latest.turn.heard) say(SPEAKING); // the sound was faster than the event
      break;
    case "output_audio_buffer.stopped":
      if (speaking) endSpeaking();
      break;
    case "response.output_audio.done":
      if (line.call) latest.sounds = true;
      else if (response?.sounds && !response.stopped) player.port.postMessage({ item: event.item_id, end: true });
      break;
    case "response.done":
      finish(event);
      break;
    case "conversation.item.truncated":
      line.send({ type: "conversation.item.retrieve", item_id: event.item_id });
      break;
    case "conversation.item.retrieved": {
      const heard = event.item.content[0]?.transcript ?? "";
      const cut = entries.get(event.item.id);
      if (cut?.text.startsWith(heard)) setText(cut, heard, cut.text.slice(heard.length));
      break;
    }
    case "error":
      if (event.error.code !== "response_cancel_not_active") warn(event.error.message);
      break;
  }
}

function finish({ response: ended, x_voxtui: told }) {
  const { sounds, turn: answered = turn } = response ?? {};
  response = null;
  answered.told = told;
  if (ended.status === "completed" || ended.status === "incomplete") {
    answered.done = performance.now();
    const text = ended.output[0]?.content[0]?.transcript;
    // Without sound, a screen reader reads the answer.
    if (!sounds) say(text || "Nothing was heard. " + READY);
  } else if (ended.status === "failed") {
    warn(ended.status_details.error.message);
    if (pressed === null) say(READY);
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
      say(SPEAKING);
    } else if (data.ended) {
      endSpeaking();
    } else {
      truncate(data.item ? data.played : 0);
      label();
    }
    showTimes(answered);
  };
}

function endSpeaking() {
  speaking = null;
  if (pressed === null) say(READY);
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
    if (speaking) say(SPEAKING);
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
  stream.getAudioTracks()[0].onended = () => {
    closeMicrophone();
    warn("The microphone is gone.");
  };
}

// Shows how long and how loud one has spoken, the newest bar on the right.
function showLevel(peak) {
  const seconds = Math.floor((performance.now() - pressed) / 1000);
  byId("time").textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  const bars = byId("level").getElementsByTagName("i");
  const bar = bars.length < BARS ? document.createElement("i") : bars[0];
  bar.style.height = `${100 * Math.max(0.06, Math.sqrt(peak))}%`;
  talkButton.style.setProperty("--level", Math.sqrt(peak));
  byId("level").append(bar);
}

function closeMicrophone() {
  for (const track of stream?.getTracks() ?? []) track.stop();
  microphone?.close();
  microphone = recorder = stream = null; // the next press opens it again
}

const REFUSALS = {
  NotAllowedError: "The browser does not let this page use the microphone. Allow it for this site in the browser's settings, then press again.",
  NotFoundError: "The browser finds no microphone. Connect one, then press again.",
  NotReadableError: "The microphone cannot be opened. Another program may use it. Close that one, then press again.",
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
}

async function press(at) {
  if (pressed !== null || talkButton.disabled) return;
  if (line.transport === "webrtc" && line.state !== "ready") { // there is no track yet
    line.open();
    say("Connecting. Then tap to talk.");
    return;
  }
  pressed = at;
  latched = false;
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
    label();
    warn(REFUSALS[problem.name] ?? `The sound cannot be opened: ${problem.message}`);
    return;
  }
  if (pressed !== at) { // let go while the browser asked
    line.call?.talk(null, false);
    return;
  }
  soundSent = 0;
  say(LISTENING);
  draft = addEntry("user");
  for (const bar of byId("level").querySelectorAll("i")) bar.remove();
  recorder.port.postMessage({ talk: true });
}

// A finger or a key goes down, and up. A tap begins and ends what is said, and so does a hold.
function down(at) {
  if (pressed === null) press(at);
  else if (latched) release(at);
}

function up(at) {
  if (pressed === null || latched) return;
  if (at - pressed >= TAP_MS && draft) release(at); // without a draft the microphone is not open yet
  else {
    latched = true;
    label();
  }
}

function release(at, keep = true) {
  if (pressed === null) return;
  pressed = null;
  label();
  if (!draft) {
    say(READY);
    return;
  }
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
    say("Thinking.");
  } else {
    line.send({ type: "input_audio_buffer.clear" });
    drop(draft);
    say("Stopped.");
  }
  draft = null;
}

// Text.

async function send(text, at) {
  warn("");
  if (pressed !== null) release(at, false);
  interrupt();
  if (!player && window.isSecureContext) await openSpeakers().catch(() => {});
  speakers?.resume();
  const id = `item_${Math.random().toString(36).slice(2)}`;
  setText(entries.set(id, addEntry("user")).get(id), text);
  line.send({
    type: "conversation.item.create",
    item: { id, type: "message", role: "user", content: [{ type: "input_text", text }] },
  });
  turn = { released: at, sent: performance.now() };
  createResponse();
  say("Thinking.");
}

// The connection.

const STATES = {
  ready: READY,
  paused: "The session has ended. Talk or type: a new one begins with these words.",
  gone: "The server cannot be reached. The page tries again by itself.",
  full: "All sessions of the server are in use. The page tries again by itself.",
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
    const asks = state === "locked" && !line.token;
    if (why && state !== "full" && !asks) warn(why);
  }
  if (pressed === null) say(STATES[state]);
  if (state === "locked") byId("key").focus();
}

const line = new Line({ take, changed, history, ear: openEar });

// Hands.

const isTalkKey = (event) =>
  event.key === " " && (event.target === talkButton || !event.target.closest("input, button, select, a"));

document.addEventListener("keydown", (event) => {
  if (isTalkKey(event)) {
    event.preventDefault();
    if (!event.repeat) down(event.timeStamp);
  } else if (event.key === "Escape" && !byId("settings").matches(":popover-open")) stop(event.timeStamp);
});
document.addEventListener("keyup", (event) => {
  if (!isTalkKey(event)) return;
  event.preventDefault();
  up(event.timeStamp);
});
talkButton.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  talkButton.setPointerCapture(event.pointerId);
  down(event.timeStamp);
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
  if (pressed !== null) release(at, false);
  else {
    interrupt();
    say("Stopped.");
  }
}
byId("stop").addEventListener("click", (event) => {
  stop(event.timeStamp);
  talkButton.focus();
});

byId("compose").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("text").value.trim();
  byId("text").value = "";
  if (text) send(text, event.timeStamp);
});
byId("examples").addEventListener("click", (event) => {
  if (event.target.matches("button")) send(event.target.textContent, event.timeStamp);
});

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
  say("A new conversation. " + READY);
});

byId("lock").addEventListener("submit", (event) => {
  event.preventDefault();
  line.token = byId("key").value.trim();
  sessionStorage.setItem("token", line.token);
  talkButton.focus();
  line.open();
});

byId("transport").addEventListener("change", (event) => {
  sessionStorage.setItem("transport", event.target.value);
  line.use(event.target.value);
  say("Connecting.");
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

line.open();
if (!window.isSecureContext || !navigator.mediaDevices) {
  talkButton.disabled = true;
  warn(
    "Browsers give the microphone to https pages and to localhost only. Either forward the port " +
    `(ssh -L 8000:${location.hostname}:${location.port || 80} ${location.hostname}) and open http://localhost:8000, ` +
    "or start the server with --tls-cert and --tls-key.",
  );
}
