// The page: hold to talk, read both sides, see where the time went.

import { Line } from "./line.js";
import { axis, shown, waterfall } from "./times.js";

const RATE = 24000;
const TAP_MS = 250; // a shorter press only stops the answer
const READY = "Ready. Hold Space or the button, and speak.";

const byId = (id) => document.getElementById(id);
const talkButton = byId("talk"), words = byId("words");

const say = (text) => { if (byId("status").textContent !== text) byId("status").textContent = text; };
const warn = (text) => { if (byId("problem").textContent !== text) byId("problem").textContent = text; };

// The conversation.

const entries = new Map(); // by the id of the item
let draft = null; // what is being said
const said = []; // what was, until the server has named its item

function addEntry(role) {
  const entry = { role, text: "", line: document.createElement("li"), body: document.createElement("span") };
  const who = document.createElement("b");
  who.textContent = role === "user" ? "You" : "voxtui";
  entry.line.className = role === "user" ? "question" : "answer";
  entry.line.append(who, entry.body);
  words.append(entry.line);
  return entry;
}

function setText(entry, text, unheard = "") {
  const end = document.querySelector("main").getBoundingClientRect().bottom;
  const follows = entry.line.getBoundingClientRect().top < end + 80; // else the reader is elsewhere
  entry.text = text;
  entry.body.textContent = text;
  if (unheard) {
    const struck = document.createElement("s");
    struck.textContent = unheard;
    entry.body.append(struck);
  }
  if (follows) entry.line.scrollIntoView({ block: "nearest" });
}

function drop(entry) {
  entry?.line.remove();
  for (const [id, other] of entries) if (other === entry) entries.delete(id);
}

const history = () =>
  [...entries.values()].filter(({ text }) => text.trim()).slice(-20).map(({ role, text }) => ({
    type: "message", role,
    content: [{ type: role === "user" ? "input_text" : "output_text", text }],
  }));

// The turn.

// The moments of a turn in ms of performance.now(), as in times.js, and what the server told of it.
let turn = {}; // the latest one that was committed
let response = null; // in progress: its turn, and whether it made sound or was stopped
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
    case "input_audio_buffer.committed":
      entries.set(event.item_id, said.shift() ?? addEntry("user"));
      break;
    case "conversation.item.input_audio_transcription.completed":
      if (entry && event.transcript) setText(entry, event.transcript);
      else drop(entry);
      break;
    case "response.created":
      response = { turn, sounds: false, stopped: false };
      break;
    case "conversation.item.added":
      if (event.item.role === "assistant" && !entries.has(event.item.id))
        entries.set(event.item.id, addEntry("assistant"));
      break;
    case "response.output_audio_transcript.delta":
      if (response) response.turn.word ??= performance.now();
      setText(entry, entry.text + event.delta);
      break;
    case "response.output_audio.delta":
      play(event);
      break;
    case "response.output_audio.done":
      if (response?.sounds && !response.stopped) player.port.postMessage({ item: event.item_id, end: true });
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
  } else {
    if (ended.status === "failed") warn(ended.status_details.error.message);
    if (pressed === null) say(READY);
  }
  showTimes(answered);
  if (wanted) createResponse();
}

// Sound.

let microphone = null, recorder = null, speakers = null, player = null;
let pressed = null; // the moment of the press
let soundSent = 0; // samples of this utterance
let released = null; // the moment of its end; null: it was only a tap

async function openSpeakers() {
  speakers = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
  await speakers.audioWorklet.addModule("worklet.js");
  player = new AudioWorkletNode(speakers, "player", { numberOfInputs: 0, outputChannelCount: [1] });
  player.connect(speakers.destination);
  player.port.onmessage = ({ data }) => {
    if (!speaking) return; // it was stopped meanwhile
    const { turn: answered } = speaking;
    if (data.heard) {
      answered.heard ??= heardAt(data.at);
      say("Speaking. Hold to interrupt.");
    } else if (data.ended) {
      answered.ended = heardAt(data.at);
      speaking = null;
      if (pressed === null) say(READY);
    } else {
      truncate(data.item ? data.played : 0);
      if (pressed === null) say(READY);
    }
    showTimes(answered);
  };
}

// Returns when what the worklet made at `at` (its clock) leaves the device.
function heardAt(at) {
  const { contextTime, performanceTime } = speakers.getOutputTimestamp();
  if (performanceTime) return performanceTime + (at - contextTime) * 1000;
  return performance.now() + (at - speakers.currentTime + (speakers.outputLatency || 0)) * 1000;
}

async function openMicrophone() {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true } });
  microphone = new AudioContext({ latencyHint: "interactive" });
  await microphone.audioWorklet.addModule("worklet.js");
  recorder = new AudioWorkletNode(microphone, "recorder", { numberOfOutputs: 0 });
  microphone.createMediaStreamSource(stream).connect(recorder);
  recorder.port.onmessage = ({ data }) => (data.sound ? sendSound(data.sound) : commit());
  stream.getAudioTracks()[0].onended = () => {
    microphone.close();
    microphone = recorder = null; // the next press opens it again
    warn("The microphone is gone.");
  };
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
  if (speaking) player.port.postMessage({ stop: true });
  else if (response && !response.stopped) line.send({ type: "response.cancel" });
  if (response) response.stopped = true;
  wanted = false;
}

function truncate(played) {
  const queued = (speakers.outputLatency || 0) * RATE; // given to the device, but not heard
  const heard = Math.max(0, Math.floor(((played - queued) / RATE) * 1000));
  line.send({ type: "conversation.item.truncate", item_id: speaking.item, content_index: 0, audio_end_ms: heard });
  speaking = null;
}

async function press(at) {
  if (pressed !== null || talkButton.disabled) return;
  pressed = at;
  warn("");
  talkButton.setAttribute("aria-pressed", "true");
  interrupt();
  try {
    if (!player) await openSpeakers();
    if (!recorder) await openMicrophone();
    await Promise.all([speakers.resume(), microphone.resume()]);
  } catch (problem) {
    pressed = null;
    talkButton.setAttribute("aria-pressed", "false");
    warn(REFUSALS[problem.name] ?? `The sound cannot be opened: ${problem.message}`);
    return;
  }
  if (pressed !== at) return; // let go while the browser asked
  soundSent = 0;
  say("Listening.");
  draft = addEntry("user");
  setText(draft, "…");
  recorder.port.postMessage({ talk: true });
}

function release(at, keep = true) {
  if (pressed === null) return;
  const held = at - pressed;
  pressed = null;
  talkButton.setAttribute("aria-pressed", "false");
  if (!draft) {
    say(READY);
    return;
  }
  released = keep && held >= TAP_MS ? at : null;
  recorder.port.postMessage({ talk: false });
}

// The recorder has handed over the last sound.
function commit() {
  if (!draft) return;
  if (released !== null && soundSent) {
    turn = { released };
    said.push(draft);
    line.send({ type: "input_audio_buffer.commit" });
    createResponse();
    turn.sent = performance.now();
    say("Thinking.");
  } else {
    line.send({ type: "input_audio_buffer.clear" });
    drop(draft);
    say("Stopped. " + READY);
  }
  draft = null;
}

// The times.

function showTimes({ released: zero, told, ...moments }) {
  const since = Object.fromEntries(Object.entries(moments).map(([name, at]) => [name, at - zero]));
  byId("first-sound").textContent = shown(since.heard);
  byId("first-word").textContent = shown(since.word);
  byId("full-answer").textContent = shown(since.done);
  const rows = told ? waterfall(since, told) : [];
  const [start, end] = axis(rows);
  byId("stages").replaceChildren(...rows.map((row) => stageRow(row, start, end)));
}

function stageRow({ name, kind, ...row }, start, end) {
  const line = document.createElement("tr"), head = document.createElement("th");
  const track = document.createElement("td"), took = document.createElement("td");
  head.scope = "row";
  head.textContent = name;
  const frame = document.createElement("div"), bar = document.createElement("i");
  const place = (at) => (100 * (Math.min(Math.max(at, start), end) - start)) / (end - start);
  frame.className = "track";
  frame.setAttribute("aria-hidden", "true");
  bar.style.left = `${place(row.start)}%`;
  bar.style.width = `${place(row.end) - place(row.start)}%`;
  frame.append(bar);
  track.append(frame);
  took.textContent = shown(row.end - row.start);
  line.className = kind;
  line.append(head, track, took);
  return line;
}

// The connection.

const STATES = {
  ready: READY,
  paused: "The session has ended. Hold to talk: a new one begins with these words.",
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
    wanted = false;
    const asks = state === "locked" && !line.token;
    if (why && state !== "full" && !asks) warn(why);
  }
  if (pressed === null) say(STATES[state]);
  if (state === "locked") byId("key").focus();
}

const line = new Line({ take, changed, history });

// Hands.

const isTalkKey = (event) =>
  event.key === " " && (event.target === talkButton || !event.target.closest("input, button, select, a"));

document.addEventListener("keydown", (event) => {
  if (isTalkKey(event)) {
    event.preventDefault();
    if (!event.repeat) press(event.timeStamp);
  } else if (event.key === "Escape") {
    if (pressed !== null) release(event.timeStamp, false);
    else interrupt();
  }
});
document.addEventListener("keyup", (event) => {
  if (!isTalkKey(event)) return;
  event.preventDefault();
  release(event.timeStamp);
});
talkButton.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  talkButton.setPointerCapture(event.pointerId);
  press(event.timeStamp);
});
for (const end of ["pointerup", "pointercancel"])
  talkButton.addEventListener(end, (event) => release(event.timeStamp));
// Enter, and screen readers, click without a press: the first click begins, the second one ends.
talkButton.addEventListener("click", (event) => {
  if (event.detail === 0) pressed === null ? press(event.timeStamp) : release(event.timeStamp);
});
talkButton.addEventListener("contextmenu", (event) => event.preventDefault());
window.addEventListener("blur", () => release(performance.now()));

byId("lock").addEventListener("submit", (event) => {
  event.preventDefault();
  line.token = byId("key").value.trim();
  sessionStorage.setItem("token", line.token);
  talkButton.focus();
  line.open();
});

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem("token", given);
  window.history.replaceState(null, "", location.pathname); // it shall not stay in the address
}
line.token = sessionStorage.getItem("token") ?? "";

if (window.isSecureContext && navigator.mediaDevices) line.open();
else {
  talkButton.disabled = true;
  say("There is no microphone here.");
  warn(
    "Browsers give the microphone to https pages and to localhost only. Either forward the port " +
    `(ssh -L 8000:${location.hostname}:${location.port || 80} ${location.hostname}) and open http://localhost:8000, ` +
    "or start the server with --tls-cert and --tls-key.",
  );
}
