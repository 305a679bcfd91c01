// The session over WebRTC: sound on tracks, events on a data channel. Looks like a WebSocket.

const NORMAL = 1000, ABNORMAL = 1006, TRY_AGAIN = 1013;
const NO_WAY =
  "WebRTC finds no way to the server. It needs UDP, which a forwarded port does not carry. Choose WebSocket.";

export class Call {
  // `onmessage`, `onclose` are those of a WebSocket. `ear` gets the stream of the answers.
  constructor(url, key, ear) {
    this.peer = new RTCPeerConnection();
    this.sender = this.peer.addTransceiver("audio", { direction: "sendrecv" }).sender;
    this.channel = this.peer.createDataChannel("oai-events");
    this.channel.onmessage = (event) => this.onmessage(event);
    this.channel.onclose = () => this.end(NORMAL);
    this.peer.ontrack = ({ track, receiver }) => {
      receiver.jitterBufferTarget = 0; // as short as the network allows
      ear(new MediaStream([track]));
    };
    this.peer.onconnectionstatechange = () => {
      if (this.peer.connectionState !== "failed") return;
      if (this.channel.readyState === "connecting") this.refuse({ code: "no_way", message: NO_WAY });
      else this.end(ABNORMAL);
    };
    this.open(url, key).catch(() => this.end(ABNORMAL));
  }

  async open(url, key) {
    await this.peer.setLocalDescription();
    const answer = await fetch(url, {
      method: "POST", body: this.peer.localDescription.sdp,
      headers: { "Content-Type": "application/sdp", Authorization: `Bearer ${key}` },
    });
    if (!answer.ok) this.refuse((await answer.json()).error);
    else if (this.onclose) await this.peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
  }

  send(text) {
    this.channel.send(text);
  }

  // Sends the sound of a track of the microphone while `talks`, and nothing else.
  async talk(track, talks) {
    if (!this.track && talks) {
      this.track = track.clone();
      await this.sender.replaceTrack(this.track);
    }
    if (this.track) this.track.enabled = talks;
  }

  close() {
    this.onclose = null;
    this.track?.stop();
    this.peer.close();
  }

  refuse(error) {
    this.onmessage({ data: JSON.stringify({ type: "error", error }) });
    this.end(TRY_AGAIN);
  }

  end(code) {
    const tell = this.onclose;
    this.close();
    tell?.({ code });
  }
}
