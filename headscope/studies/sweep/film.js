/* A slider over the revisions; what is shown stands in the address. */
const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const LOOKS = Object.fromEntries(DATA.types.map((type) => [type.name, type]));
const NO_TYPE = ["not identifiable", "unclassified"];
const state = { reel: 0, at: 0, timer: null };
let cells = [], items = [], cursor = null;

function el(tag, attributes = {}, ...children) {
  const svg = ["svg", "polyline", "line", "text", "circle"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const current = () => DATA.reels[state.reel];
const countOf = (frame, type) => frame.types.filter((name) => name === type).length;

/* The table, the curves and the list of a reel; `show` fills them with a revision. */
function build() {
  const own = current(), last = own.frames.length - 1;
  $("at").max = last;
  $("play").disabled = $("at").disabled = last === 0;
  cells = own.frames[0].types.map((_, i) => {
    const cell = el("span", { class: "cell", "data-head": own.frames[0].names[i], tabindex: "0", role: "img" });
    cell.addEventListener("mouseenter", () => tip(i)); cell.addEventListener("focus", () => tip(i));
    cell.addEventListener("mouseleave", () => tip(null)); cell.addEventListener("blur", () => tip(null));
    return cell;
  });
  const head = el("tr", {}, el("td"), ...Array.from({ length: own.width }, (_, h) => el("th", { scope: "col" }, `H${h}`)));
  const rows = own.rows.map((row, l) => el("tr", {}, el("th", { scope: "row" }, row), ...cells.slice(l * own.width, (l + 1) * own.width).map((cell) => el("td", {}, cell))));
  $("grid").replaceChildren(el("table", { class: "grid", style: `--heads:${own.width}` }, el("caption", { class: "hidden" }, "Heads by layer"), el("thead", {}, head), el("tbody", {}, ...rows)));
  const types = DATA.types.filter((type) => own.frames.some((frame) => frame.types.includes(type.name)));
  items = types.map((type) => [type, el("strong"), el("span", { class: "small" })]);
  $("counts").replaceChildren(...items.map(([type, count, change]) => el("li", { class: type.look }, el("span", { class: "letter", "aria-hidden": "true" }, type.letter), ` ${type.name} `, count, " ", change)));
  curves(own, types);
}

function curves(own, types) {
  const last = Math.max(1, own.frames.length - 1), most = Math.max(1, ...types.flatMap((type) => own.frames.map((frame) => countOf(frame, type.name))));
  const x = (i) => 34 + (400 * i) / last, y = (count) => 150 - (136 * count) / most;
  const lines = types.map((type) => el("polyline", { class: `curve ${type.look}`, points: own.frames.map((frame, i) => `${x(i).toFixed(1)},${y(countOf(frame, type.name)).toFixed(1)}`).join(" ") }));
  cursor = el("line", { class: "now", y1: 10, y2: 154 });
  cursor.place = (i) => { cursor.setAttribute("x1", x(i)); cursor.setAttribute("x2", x(i)); };
  const root = el("svg", { viewBox: "0 0 450 172", role: "img", "aria-label": `heads of each type at ${own.frames.length} revisions` },
    el("line", { class: "grid-line", x1: 34, x2: 434, y1: 150, y2: 150 }), el("text", { x: 28, y: 154, "text-anchor": "end" }, "0"), el("text", { x: 28, y: 18, "text-anchor": "end" }, String(most)),
    el("text", { x: 34, y: 169 }, own.revisions[0]), ...(own.frames.length > 1 ? [el("text", { x: 434, y: 169, "text-anchor": "end" }, own.revisions.at(-1))] : []), ...lines, cursor);
  $("curves").replaceChildren(root, el("figcaption", { class: "small" }, "Number of heads of each primary type at each revision. Dotted: without a tag."));
}

function describe(i) {
  const frame = current().frames[state.at], lift = frame.lifts[i];
  return `${frame.names[i]}, ${frame.tags[i] || frame.types[i]}${lift === null ? "" : `, lift ${lift.toFixed(2)}`}`;
}

function show() {
  const own = current(), frame = own.frames[state.at], before = own.frames[state.at - 1];
  cells.forEach((cell, i) => {
    const type = LOOKS[frame.types[i]], pale = type.rests || NO_TYPE.includes(type.name);
    const changed = Boolean(before) && before.types[i] !== frame.types[i];
    cell.className = `cell ${type.look}${changed ? " changed" : ""}`;
    cell.textContent = type.name === "unclassified" ? "" : type.letter;
    cell.style.setProperty("--strength", pale ? 0 : Math.max(0, Math.min(1, frame.lifts[i] || 0)));
    cell.setAttribute("aria-label", describe(i) + (changed ? `, was ${before.types[i]}` : ""));
  });
  for (const [type, count, change] of items) {
    const now = countOf(frame, type.name), by = before ? now - countOf(before, type.name) : 0;
    count.textContent = now;
    change.textContent = by ? `${by > 0 ? "+" : "−"}${Math.abs(by)}` : "";
  }
  cursor.place(state.at);
  $("at").value = state.at;
  $("now").textContent = own.revisions[state.at];
  $("at").setAttribute("aria-valuetext", `${own.revisions[state.at]}, ${state.at + 1} of ${own.frames.length}`);
  $("title").textContent = own.title;
}

function tip(i) {
  $("tip").hidden = i === null;
  if (i === null) return;
  $("tip").textContent = describe(i);
  const box = cells[i].getBoundingClientRect();
  $("tip").style.left = `${Math.max(4, Math.min(box.left, document.documentElement.clientWidth - $("tip").offsetWidth - 8))}px`;
  $("tip").style.top = `${box.bottom + 6}px`;
}

function go(at) {
  state.at = Math.max(0, Math.min(current().frames.length - 1, at));
  const asked = new URLSearchParams([...(state.reel ? [["model", state.reel]] : []), ["at", state.at]]);
  history.replaceState(null, "", `#?${asked}`);
  show();
}

function play(on) {
  clearInterval(state.timer);
  state.timer = on ? setInterval(() => (state.at + 1 < current().frames.length ? go(state.at + 1) : play(false)), 900) : null;
  $("play").textContent = on ? "Stop" : "Play";
  $("play").setAttribute("aria-pressed", String(on));
}

function read() {
  const asked = new URLSearchParams(location.hash.replace(/^#\??/, "")), number = (name) => Math.max(0, Number.parseInt(asked.get(name), 10) || 0);
  state.reel = Math.min(DATA.reels.length - 1, number("model"));
  $("reel").value = state.reel;
  build();
  state.at = Math.min(current().frames.length - 1, number("at"));
  show();
}

$("reel").replaceChildren(...DATA.reels.map((own, i) => el("option", { value: i }, own.title)));
$("which").hidden = DATA.reels.length === 1;
$("tools").hidden = false;
$("tools").addEventListener("submit", (event) => event.preventDefault());
$("reel").addEventListener("change", (event) => { play(false); state.reel = Number(event.target.value); build(); go(state.at); });
$("at").addEventListener("input", (event) => { play(false); go(Number(event.target.value)); });
$("play").addEventListener("click", () => { if (!state.timer && state.at === current().frames.length - 1) go(0); play(!state.timer); });
document.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], idle = !["INPUT", "SELECT", "BUTTON"].includes(document.activeElement.tagName);
  if (step && idle) { event.preventDefault(); play(false); go(state.at + step); }
  if (event.key === " " && idle) { event.preventDefault(); $("play").click(); }
});
window.addEventListener("hashchange", read);
read();
