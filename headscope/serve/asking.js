"use strict";
/* What is asked of the server, and what of the page's state stands in the address. */

const running = new Map();

/* Post a question to the address with the page's token; a newer one of the same kind calls the older off, and the server stops working on it. Null for one that was called off. */
async function ask(kind, body) {
  stopAsking(kind);
  const control = new AbortController();
  running.set(kind, control);
  let answer;
  try {
    const response = await fetch(`/${kind}${location.search}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: control.signal });
    answer = await response.json();
  } catch (error) {
    if (control.signal.aborted) return null;
    return { error: error instanceof SyntaxError ? "The server's answer cannot be read." : "The server does not answer any more; start headscope serve again." };
  } finally {
    if (running.get(kind) === control) running.delete(kind);
  }
  return control.signal.aborted ? null : answer;
}

function stopAsking(kind) {
  if (running.has(kind)) running.get(kind).abort();
  running.delete(kind);
}

/* The state: text, head, pin, find, ablate (heads and types), how. */
const inAddress = () => new URLSearchParams(location.hash.slice(1));

function keep(changes) {
  const state = inAddress();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") state.delete(name);
    else state.set(name, value);
  }
  history.replaceState(null, "", `#${state}`);
}
