// What both sides have said.

const words = document.getElementById("words");
export const entries = new Map(); // by the id of the item
const NAMES = { user: "You", assistant: "voxtui" };

export function addEntry(role) {
  const entry = { role, text: "", line: document.createElement("li"), body: document.createElement("span") };
  const who = document.createElement("b");
  who.textContent = NAMES[role];
  entry.line.className = role === "user" ? "question" : "answer";
  entry.line.append(who, entry.body);
  words.append(entry.line);
  return entry;
}

export function setText(entry, text, unheard = "") {
  entry.text = text;
  entry.body.textContent = text;
  entry.line.classList.toggle("cut", unheard !== "");
  if (unheard) {
    const rest = document.createElement("span");
    rest.className = "unheard";
    rest.textContent = unheard;
    entry.body.append(rest);
  }
}

export function clear() {
  entries.clear();
  words.replaceChildren();
}

// What was not heard has left the conversation.
export const asMarkdown = () =>
  [...entries.values()].map(({ role, text }) => `**${NAMES[role]}:** ${text}\n`).join("\n");

export function drop(entry) {
  entry?.line.remove();
  for (const [id, other] of entries) if (other === entry) entries.delete(id);
}

export const history = () =>
  [...entries.values()].filter(({ text }) => text.trim()).slice(-20).map(({ role, text }) => ({
    type: "message", role,
    content: [{ type: role === "user" ? "input_text" : "output_text", text }],
  }));
