// Where the time of a turn went. Every time is in milliseconds.

// The kind of each stage, and its name in plain words.
const STAGES = {
  hidden: ["hidden", "done before"], microphone: ["wait", "last sound in"], listen: ["wait", "end of speech"], send: ["wait", "sending"],
  encode: ["brain", "your voice"], recognise: ["brain", "your words"], skill: ["brain", "skill"], prefill: ["brain", "reading"],
  token: ["brain", "first word"], clause: ["brain", "first phrase"], voice: ["voice", "voice"],
  network: ["network", "network"], device: ["sound", "your speaker"], writing: ["writing", "the rest"],
};

// Returns the stages as {name, kind, start, end} after the release.
//
// `seen` has the page's moments: `sent` (the commit has left), `received` (the first sound came),
// `heard` (it left the loudspeaker). `told` is the server's field x_voxtui, whose zero is
// the arrival of the commit. No clock is compared with another: what the server did not need of
// the time between `sent` and `received` is the network's, there and back, with both sockets.
export function waterfall(seen, told) {
  const rows = told.stages.map(({ name, start_ms, end_ms }) => ({
    name,
    start: name === "hidden" ? start_ms : seen.sent + start_ms,
    end: name === "hidden" ? end_ms : seen.sent + end_ms,
  }));
  const first = rows.findIndex(({ name }) => name !== "hidden");
  rows.splice(Math.max(first, 0), 0, { name: "microphone", start: 0, end: seen.sent });
  const made = seen.sent + told.first_audio_ms;
  if (told.first_audio_ms !== null && seen.received !== undefined) {
    const beside = rows.findIndex(({ name }) => name === "writing");
    const end = Math.max(made, seen.received);
    const after = [{ name: "network", start: made, end }];
    if (seen.heard !== undefined)
      after.push({ name: "device", start: end, end: Math.max(end, seen.heard) });
    rows.splice(beside < 0 ? rows.length : beside, 0, ...after);
  }
  return rows;
}

// Returns [start, end] of the axis.
export function axis(rows) {
  const end = Math.max(1, ...rows.map(({ end }) => end));
  return [Math.max(Math.min(0, ...rows.map(({ start }) => start)), -end / 2), end];
}

export const shown = (ms) =>
  ms === undefined ? "–" : ms < 999.5 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 9995 ? 2 : 1)} s`;

// Firefox is not asked for its latency: it locks its audio thread out meanwhile, and hangs for good
// if that thread is what the sound server waits for.
const hangs = () => navigator.userAgent.includes("Firefox/");

// Returns the seconds that the device holds sound back.
export const latency = (context) => (hangs() ? 0 : context.outputLatency || 0);

// Returns when what a worklet made at `at` (its clock) leaves the device.
export function heardAt(context, at) {
  const { contextTime, performanceTime } = hangs() ? {} : context.getOutputTimestamp();
  if (performanceTime) return performanceTime + (at - contextTime) * 1000;
  return performance.now() + (at - context.currentTime + latency(context)) * 1000;
}

// Shows the moments of a turn, in ms of performance.now(), and what the server told of it.
export function showTimes({ released: zero, told, ...moments }) {
  const since = Object.fromEntries(Object.entries(moments).map(([name, at]) => [name, at - zero]));
  document.getElementById("times").hidden = since.word === undefined && since.heard === undefined;
  const sound = document.getElementById("first-sound");
  sound.title = shown(since.heard);
  sound.textContent = since.heard === undefined ? "–" : `${(since.heard / 1000).toFixed(2)} s`;
  document.getElementById("first-word").textContent = shown(since.word);
  document.getElementById("full-answer").textContent = shown(since.done);
  const rows = told ? waterfall(since, told) : [];
  const [start, end] = axis(rows);
  const stages = document.getElementById("stages");
  const place = (at) => (100 * (Math.min(Math.max(at, start), end) - start)) / (end - start);
  stages.style.setProperty("--release", `${place(0)}%`);
  stages.style.setProperty("--sound", `${place(since.heard ?? 0)}%`);
  stages.replaceChildren(...rows.filter((row) => row.end - row.start >= 0.5).map((row) => stageRow(row, place)));
}

function stageRow({ name, ...row }, place) {
  const [kind, words] = STAGES[name] ?? [name, name];
  const line = document.createElement("tr"), head = document.createElement("th");
  const track = document.createElement("td"), took = document.createElement("td");
  Object.assign(head, { scope: "row", title: name, textContent: words });
  const frame = document.createElement("div"), bar = document.createElement("i");
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
