// Calls the functions of the page that need no browser, and prints what they return.

globalThis.AudioWorkletProcessor = class { constructor() { this.port = { posted: [],
  postMessage(data) { this.posted.push(data); } }; } };
globalThis.registerProcessor = () => {};
globalThis.sampleRate = 24000;
globalThis.currentTime = 0;
const { axis, heardAt, latency, shown, waterfall } = await import(`${process.argv[2]}/times.js`);
const { Line } = await import(`${process.argv[2]}/line.js`);
const { Ear, Player, Recorder, Resampler } = await import(`${process.argv[2]}/worklet.js`);

const through = (rate, hz) => {
  const samples = Float32Array.from({ length: rate / 4 }, (_, i) => Math.sin((2 * Math.PI * hz * i) / rate));
  const made = [], changed = new Resampler(rate, 24000);
  for (let i = 0; i < samples.length; i += 128) made.push(...changed.process(samples.subarray(i, i + 128)));
  const middle = made.slice(1000, -1000);
  const power = middle.reduce((sum, x) => sum + x * x, 0) / middle.length;
  return { length: made.length, rms: Math.sqrt(power) };
};

const player = new Player();
const hear = (data) => player.port.onmessage({ data });
const out = new Float32Array(128);
hear({ item: "a", sound: new Int16Array(100).fill(0) });
hear({ item: "a", sound: new Int16Array(100).fill(9000) });
player.process([], [[out]]);
const playing = player.port.posted.splice(0);
hear({ stop: true });
out.fill(0);
player.process([], [[out]]);
const stopped = player.port.posted.splice(0), silent = out.every((x) => x === 0);
hear({ item: "b", sound: new Int16Array(50).fill(9000) });
hear({ item: "b", end: true });
player.process([], [[out]]);

const recorder = new Recorder();
const block = new Float32Array(128).fill(0.5);
for (let i = 0; i < 400; i++) recorder.process([[block]]);
recorder.port.onmessage({ data: { talk: true } });
for (let i = 0; i < 100; i++) recorder.process([[block]]);
recorder.port.onmessage({ data: { talk: false } });
const recorded = recorder.port.posted;

const ear = new Ear();
const listen = (value, data) => {
  ear.port.onmessage({ data });
  const made = [new Float32Array(4), new Float32Array(4)];
  ear.process([[Float32Array.of(0, value, 0, 0)]], [...[made]]);
  return made.map((channel) => channel[1]);
};
const through_ear = [listen(0.5, {}), listen(0, { listens: true }), listen(0.5, {}), listen(0.5, {}), listen(0.5, { muted: true })];

// Firefox hangs when a playing context is asked for its latency, so here it throws.
const playingContext = { currentTime: 2, get outputLatency() { throw new Error("hung"); },
  getOutputTimestamp() { throw new Error("hung"); } };
const asked = (userAgent, context) => {
  Object.defineProperty(globalThis, "navigator", { value: { userAgent }, configurable: true });
  return [latency(context), Math.round(heardAt(context, 2.5) - performance.now())];
};
const heard = [
  asked("Gecko/20100101 Firefox/153.0", playingContext),
  asked("Chrome/156.0.0.0", { outputLatency: 0.04, getOutputTimestamp: () =>
    ({ contextTime: 2, performanceTime: performance.now() + 40 }) }),
  asked("Safari/605", { currentTime: 2, getOutputTimestamp: () => ({ performanceTime: 0 }) }),
];

const told = { first_audio_ms: 30, stages: [
  { name: "hidden", start_ms: -200, end_ms: 0 }, { name: "listen", start_ms: 0, end_ms: 10 },
  { name: "voice", start_ms: 10, end_ms: 30 }, { name: "writing", start_ms: 20, end_ms: 90 } ] };
const rows = waterfall({ sent: 5, received: 50, heard: 70 }, told);

// The line: a server that is gone, comes back, is full, and wants a key.
globalThis.document = { baseURI: "http://127.0.0.1:8000/" };
const timers = [], sockets = [], states = [], taken = [];
globalThis.setTimeout = (go, ms) => timers.push({ go, ms });
globalThis.clearTimeout = () => {};
globalThis.WebSocket = class {
  constructor(url, protocols) { Object.assign(this, { url: url.href, protocols, sent: [] }); sockets.push(this); }
  send(text) { this.sent.push(JSON.parse(text).type); }
  close() {}
};
let server = "gone";
globalThis.fetch = async (url, { headers }) => {
  if (server === "gone") throw new TypeError("Failed to fetch");
  const locked = server === "locked" && headers.Authorization !== "Bearer secret";
  const json = async () => (locked ? { error: { message: "The API key is wrong." } } : { value: "ek_1" });
  return { ok: !locked, status: locked ? 401 : 200, json };
};
const line = new Line({
  take: (event) => taken.push(event.type), changed: (state, why) => states.push([state, why ?? ""]),
  history: () => [{ type: "message" }],
});
const receive = (event) => sockets.at(-1).onmessage({ data: JSON.stringify(event) });
const error = (code) => receive({ type: "error", error: { code, message: code } });
await line.open();
await line.open();
await line.again(); // a person asks, so the same answer is said again
const away = [line.away];
server = "there";
await line.open();
line.send({ type: "input_audio_buffer.append" });
const early = [...sockets.at(-1).sent];
receive({ type: "session.created" });
away.push(line.away);
line.send({ type: "input_audio_buffer.commit" });
sockets.at(-1).onclose({ code: 1006 });
await line.open();
error("session_limit_reached");
sockets.at(-1).onclose({ code: 1013 });
await line.open();
error("model_not_found");
sockets.at(-1).onclose({ code: 1013 });
await line.open();
receive({ type: "session.created" });
sockets.at(-1).onclose({ code: 1000 });
server = "locked";
await line.open();
await line.open();
line.token = "secret";
await line.open();

// The same line over WebRTC.
const peers = [];
globalThis.MediaStream = class {};
globalThis.RTCPeerConnection = class {
  constructor() { peers.push(this); this.sender = { replaceTrack: async (track) => { this.track = track; } }; }
  addTransceiver(kind, { direction }) { this.added = [kind, direction]; return { sender: this.sender }; }
  createDataChannel(name) { return (this.channel = { name, sent: [], send(text) { this.sent.push(JSON.parse(text).type); } }); }
  async setLocalDescription() { this.localDescription = { sdp: "offer" }; }
  async setRemoteDescription(answer) { this.answer = answer; }
  close() { this.closed = true; }
};
const posts = [];
let calls = { ok: true, text: async () => "answer" };
const secret = globalThis.fetch;
globalThis.fetch = async (url, options) => {
  if (!url.href.endsWith("/calls")) return secret(url, options);
  posts.push([url.href, options.body, options.headers]);
  return calls;
};
server = "there";
line.state = "ready";
const before = states.length, waits = timers.map(({ ms }) => ms), settle = () => new Promise((done) => setImmediate(done));
line.use("webrtc");
await settle();
peers[0].channel.onmessage({ data: JSON.stringify({ type: "session.created" }) });
line.send({ type: "input_audio_buffer.commit" });
const microphone = { clone: () => ({ stop() { this.stopped = true; } }) };
await line.call.talk(microphone, true);
await line.call.talk(null, false);
peers[0].connectionState = "failed";
peers[0].channel.readyState = "open";
peers[0].onconnectionstatechange();
calls = { ok: false, json: async () => ({ error: { code: "webrtc_not_installed", message: "pip install" } }) };
await line.open();
await settle();

console.log(JSON.stringify({
  call: { posts, sent: peers[0].channel.sent, answer: peers[0].answer, track: peers[0].track, closed: peers[0].closed,
    states: states.slice(before), channel: peers[0].channel.name },
  through_ear, ear: ear.port.posted, heard,
  states: states.slice(0, before), away, early, sent: sockets[0].sent, protocols: sockets[0].protocols, url: sockets[0].url,
  waits, opened: sockets.length,
  speech: through(48000, 1000), odd: through(44100, 1000), too_high: through(48000, 15000),
  playing, stopped, silent, ended: player.port.posted,
  recorded: recorded.map(({ sound }) => sound?.length ?? 0), last: recorded.at(-1),
  rows: rows.map(({ name, start, end }) => [name, start, end]), axis: axis(rows),
  silence: waterfall({ sent: 5 }, { first_audio_ms: null, stages: [] }).length,
  shown: [shown(undefined), shown(12.4), shown(12400)],
}));
