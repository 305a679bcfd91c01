// Talk through @openai/agents over its WebSocket: URL of the API.
// Its WebRTC needs a browser. Run it where its packages are installed (see README.md).
import { RealtimeAgent, RealtimeSession } from "@openai/agents/realtime";

const RATE = 24000;
const PATIENCE_MS = 30000;

const kinds = new Map();

function ended(session) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("no answer")), PATIENCE_MS);
    session.once("agent_end", (context, agent, text) => {
      clearTimeout(timer);
      resolve(text);
    });
  });
}

async function main(url) {
  const agent = new RealtimeAgent({ name: "Assistant", instructions: "Answer in one sentence." });
  const session = new RealtimeSession(agent, {
    transport: "websocket",
    model: "gpt-realtime",
    config: { audio: { input: { turnDetection: null } } },
  });
  let bytes = 0;
  session.on("audio", (event) => (bytes += event.data.byteLength));
  session.on("transport_event", ({ type }) => kinds.set(type, (kinds.get(type) ?? 0) + 1));
  session.on("error", ({ error }) => {
    console.error("error:", JSON.stringify(error));
    process.exit(1);
  });
  await session.connect({ apiKey: "none", url: `${url.replace("http", "ws")}/realtime` });

  let answer = ended(session);
  session.sendMessage("Tell me a short joke.");
  console.log("text:", await answer, bytes, "bytes of sound");

  const tone = Int16Array.from({ length: RATE }, (_, n) => 9000 * Math.cos((440 * Math.PI * n) / RATE));
  bytes = 0;
  answer = ended(session);
  session.sendAudio(tone.buffer, { commit: true });
  session.transport.requestResponse();
  console.log("sound:", await answer, bytes, "bytes of sound");

  answer = ended(session);
  session.sendMessage("Tell me a long story.");
  await new Promise((resolve) => session.once("audio", resolve));
  session.interrupt(); // it truncates what was not played
  await answer;
  console.log("history:", JSON.stringify(session.history.map((item) => [item.role, item.status])));
  console.log("events:", JSON.stringify(Object.fromEntries(kinds)));
  if (!bytes) throw new Error("no sound");
  session.close();
}

await main(process.argv[2]);
