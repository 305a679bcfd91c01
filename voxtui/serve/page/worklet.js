// The audio thread: records and plays 16-bit mono sound at RATE.

export const RATE = 24000;
const CHUNK = RATE / 50; // 20 ms
const PRE_ROLL = 15; // chunks before the press, because people speak as they press
const AUDIBLE = 10 ** (-50 / 20);
const ZEROS = 16; // zero crossings of the low-pass on each side
const FINE = 512; // entries of its table per sample

// Changes the rate with a windowed sinc. The rates need not divide each other.
export class Resampler {
  constructor(from, to) {
    const scale = Math.max(1, from / to);
    this.step = from / to;
    this.half = Math.ceil(ZEROS * scale);
    this.kernel = Float32Array.from({ length: this.half * FINE + 1 }, (_, i) => {
      const x = i / FINE / scale;
      const sinc = x ? Math.sin(Math.PI * x) / (Math.PI * x) : 1;
      return x < ZEROS ? sinc * (0.5 + 0.5 * Math.cos((Math.PI * x) / ZEROS)) / scale : 0;
    });
    this.rest = new Float32Array(this.half);
    this.at = this.half;
  }

  process(samples) {
    const all = new Float32Array(this.rest.length + samples.length);
    all.set(this.rest);
    all.set(samples, this.rest.length);
    const made = [];
    for (; this.at + this.half < all.length; this.at += this.step) {
      let sum = 0;
      for (let i = Math.ceil(this.at - this.half); i <= this.at + this.half; i++)
        sum += all[i] * this.kernel[Math.round(Math.abs(i - this.at) * FINE)];
      made.push(sum);
    }
    const done = Math.max(0, Math.floor(this.at) - this.half);
    this.rest = all.slice(done);
    this.at -= done;
    return made;
  }
}

const pcm = (samples) =>
  Int16Array.from(samples, (value) => Math.max(-1, Math.min(1, value)) * 32767);

// {talk: true} begins to post the sound, with some from before; {talk: false} ends it.
export class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate, RATE);
    this.samples = [];
    this.before = [];
    this.talking = false;
    this.port.onmessage = ({ data }) => (data.talk ? this.begin() : this.end());
  }

  begin() {
    this.talking = true;
    for (const chunk of this.before.splice(0)) this.port.postMessage({ sound: chunk });
  }

  end() {
    if (this.samples.length) this.port.postMessage({ sound: pcm(this.samples.splice(0)) });
    this.talking = false;
    this.port.postMessage({ ended: true });
  }

  process([[samples]]) {
    if (!samples) return true; // the device is about to start
    this.samples.push(...this.resampler.process(samples));
    while (this.samples.length >= CHUNK) {
      const chunk = pcm(this.samples.splice(0, CHUNK));
      if (this.talking) this.port.postMessage({ sound: chunk });
      else if (this.before.push(chunk) > PRE_ROLL) this.before.shift();
    }
    return true;
  }
}

// {item, sound} queues sound of an item, {item, end: true} says that this was all of it, and
// {stop: true} drops what is queued. Posts when an item is first heard, ends or is stopped.
export class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = [];
    this.item = null; // that is played
    this.played = 0; // its samples
    this.heard = false;
    this.port.onmessage = ({ data }) => (data.stop ? this.stop() : this.queue.push({ ...data, at: 0 }));
  }

  stop() {
    this.queue = [];
    this.port.postMessage({ stopped: true, item: this.item, played: this.played });
    this.item = null;
  }

  process(_, [[out]]) {
    let filled = 0;
    while (filled < out.length && this.queue.length) {
      const head = this.queue[0];
      if (head.item !== this.item) Object.assign(this, { item: head.item, played: 0, heard: false });
      if (head.end) {
        this.queue.shift();
        this.port.postMessage({ ended: true, item: head.item });
        this.item = null;
        continue;
      }
      const count = Math.min(out.length - filled, head.sound.length - head.at);
      for (let i = 0; i < count; i++) {
        const value = head.sound[head.at + i] / 32768;
        out[filled + i] = value;
        if (!this.heard && Math.abs(value) > AUDIBLE) {
          this.heard = true;
          this.port.postMessage({ heard: true, item: head.item, at: currentTime + (filled + i) / sampleRate });
        }
      }
      filled += count;
      head.at += count;
      this.played += count;
      if (head.at === head.sound.length) this.queue.shift();
    }
    return true;
  }
}

// Lets the sound of a call through, unless {muted: true}. After {listens: true} it posts when the
// next sound is heard.
export class Ear extends AudioWorkletProcessor {
  constructor() {
    super();
    this.port.onmessage = ({ data }) => Object.assign(this, data);
  }

  process([sounds], [outs]) {
    if (!this.muted) outs.forEach((out, i) => sounds.length && out.set(sounds[Math.min(i, sounds.length - 1)]));
    const first = this.listens && sounds[0] ? sounds[0].findIndex((value) => Math.abs(value) > AUDIBLE) : -1;
    if (first >= 0) {
      this.listens = false;
      this.port.postMessage({ at: currentTime + first / sampleRate });
    }
    return true;
  }
}

registerProcessor("ear", Ear);
registerProcessor("recorder", Recorder);
registerProcessor("player", Player);
