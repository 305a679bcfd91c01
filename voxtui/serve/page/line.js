// The connection to the server. It comes back by itself, and keeps what is sent meanwhile.

import { Call } from "./call.js";

const SESSION = {
  type: "realtime",
  audio: { input: { turn_detection: null, transcription: { model: "whisper-1" } } },
  x_voxtui: true, // the words while one speaks, and the stages of each answer
};
const RETRY_SECONDS = [1, 2, 4, 8, 10];
const FULL_SECONDS = 10;
const KEY_SECONDS = 30; // it is needed at once
const NORMAL = 1000, TRY_AGAIN = 1013;

export class Line {
  // `take` gets each event of the server, `changed` the new state and why. `history` returns the
  // items of the conversation so far: a new session begins with them. `ear` gets the stream of a call.
  constructor({ take, changed, history, ear }) {
    Object.assign(this, { take, changed, history, ear, token: "", state: "paused", waiting: [] });
    this.transport = "websocket";
    this.away = null; // the state in which nobody is there to hear
    this.tries = 0;
  }

  // The session as a call over WebRTC; null: over a WebSocket.
  get call() {
    return this.socket instanceof Call ? this.socket : null;
  }

  // Goes on over another transport: "websocket" or "webrtc".
  use(transport) {
    this.transport = transport;
    if (this.socket) {
      this.socket.onclose = null;
      this.socket.close();
    }
    this.close("paused");
    this.open();
  }

  send(event) {
    if (this.state === "ready") this.post(event);
    else {
      this.waiting.push(event);
      this.again();
    }
  }

  // Tries at once, and says what comes of it.
  again() {
    this.away = null;
    return this.open();
  }

  post(event) {
    this.socket.send(JSON.stringify(event));
  }

  async open() {
    if (this.state === "connecting" || this.state === "ready") return;
    clearTimeout(this.timer);
    this.state = "connecting";
    try {
      const transport = this.transport, key = await this.key();
      if (transport !== this.transport) return; // another one was chosen meanwhile
      this.socket = transport !== "webrtc" ? this.connect(key) : new Call(new URL("v1/realtime/calls", document.baseURI), key, this.ear);
    } catch (problem) {
      this.close(problem.state ?? "gone", problem.state ? problem.message : "");
      return;
    }
    let said = null; // the server's last error
    this.socket.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (event.type === "session.created") this.begin();
      else if (event.type === "error") said = event.error;
      this.take(event);
    };
    this.socket.onclose = ({ code }) => {
      if (code === TRY_AGAIN) this.close(said?.code === "session_limit_reached" ? "full" : "refused", said?.message);
      else if (code === NORMAL) this.close("paused");
      else this.close("gone", said?.message);
    };
  }

  connect(key) {
    const url = new URL("v1/realtime", document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    return new WebSocket(url, ["realtime", `openai-insecure-api-key.${key}`]);
  }

  // Returns a key that opens a session only. The API key itself stays in headers.
  async key() {
    const answer = await fetch(new URL("v1/realtime/client_secrets", document.baseURI), {
      method: "POST",
      headers: this.token ? { Authorization: `Bearer ${this.token}` } : {},
      body: JSON.stringify({
        expires_after: { anchor: "created_at", seconds: KEY_SECONDS }, session: SESSION,
      }),
    });
    if (answer.ok) return (await answer.json()).value;
    const message = (await answer.json()).error.message;
    throw Object.assign(new Error(message), { state: answer.status === 401 ? "locked" : "refused" });
  }

  begin() {
    this.tries = 0;
    this.away = null;
    this.state = "ready";
    for (const item of this.history()) this.post({ type: "conversation.item.create", item });
    for (const event of this.waiting.splice(0)) this.post(event);
    this.changed("ready");
  }

  close(state, why = "") {
    const seconds = { full: FULL_SECONDS, gone: RETRY_SECONDS[Math.min(this.tries, RETRY_SECONDS.length - 1)] }[state];
    if (seconds) this.timer = setTimeout(() => this.open(), seconds * 1000);
    const again = seconds && this.tries++ > 0 && this.away === state; // said already
    this.state = state;
    this.away = state === "paused" ? null : state;
    this.waiting = [];
    if (!again) this.changed(state, why);
  }
}
