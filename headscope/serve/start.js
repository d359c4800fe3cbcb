"use strict";
/* The page: a sentence, all heads on it, one of them large, and what is lost without some. */

const FIRST = "When Mary and John went to the store, John gave a drink to Mary.";
const state = { text: FIRST, head: null, pin: null, find: "", ablate: [], how: "mean", at: null };
let read = null, without = null, shown = null, explained = null;

const field = el("textarea", { id: "text", rows: 2, spellcheck: "false", autocomplete: "off" });
const stop = el("button", { type: "button", id: "stop", hidden: true, onclick: () => { for (const kind of ["read", "head", "explain", "ablate", "random"]) stopAsking(kind); busy(false); showMessage("Stopped."); } }, "Stop");
const status = el("p", { id: "status", role: "status", "aria-live": "polite", class: "small" });
const search = el("input", { id: "find", type: "search", placeholder: "object, comma, previous token", autocomplete: "off", size: 30 });
const foundBox = el("p", { class: "small", id: "found", "aria-live": "polite" });
const gridBox = el("div", { class: "atlas-grid" }), headBox = el("article", { id: "head", "aria-label": "The head" }), lossBox = el("section", { "aria-label": "Predictions" }), ablationSection = el("section", { "aria-label": "Ablate heads" });
const form = el("form", { id: "ask" }, el("label", { for: "text" }, "A sentence"), field, el("div", { class: "asking" }, el("button", { type: "submit", id: "go" }, "Read it"), stop, status));

document.getElementById("title").textContent = `${DATA.name}, live · ${DATA.layers.length} layers × ${DATA.heads} heads`;
document.getElementById("main").replaceChildren(
  DATA.has_run ? "" : el("p", { class: "lead" }, "No tags, because this model has no run. To see tags: ", el("code", {}, "headscope classify MODEL"), ", then ", el("code", {}, "headscope serve"), " with the run folder."),
  form, el("div", { id: "live", hidden: true },
    DATA.relations.length ? el("div", { class: "finding" }, el("label", { for: "find" }, "Find heads by their tags "), search, foundBox) : "",
    el("div", { class: DATA.layers.length > 10 ? "columns deep" : "columns" }, gridBox, headBox, el("div", { class: "without" }, el("h2", {}, "Predictions"), ablationSection, lossBox))));

const showMessage = (text, wrong = false) => { status.textContent = text; status.classList.toggle("wrong", wrong); };
const busy = (on) => { stop.hidden = !on; form.setAttribute("aria-busy", String(on)); };

/* One question; the page shows its error. Null when there is nothing to show. */
async function question(kind, body, waiting) {
  if (waiting) showMessage(waiting);
  busy(true);
  const answer = await ask(kind, body);
  if (answer === null) return null;
  busy(running.size > 0);
  if (!answer.error) return answer;
  showMessage(answer.error, true);
  return null;
}

async function readText() {
  field.value = state.text;
  keep({ text: state.text });
  const answer = await question("read", { text: state.text }, "Reading …");
  if (!answer) return;
  [read, without, shown] = [answer, null, null];
  state.at = Math.min(state.at ?? Infinity, read.tokens.length - 1);
  document.getElementById("live").hidden = false;
  showMessage(`${read.tokens.length} tokens, with the beginning-of-text token, read in ${number(read.seconds)} s.`);
  gridBox.replaceChildren(...smallGrid(read, chooseHead), howToRead(read));
  drawFound();
  drawAblation();
  await Promise.all([showHead(), readWithout()]);
}

const nameButton = (row) => el("button", { type: "button", class: "name-link", onclick: () => chooseHead(headName(row.layer, row.head)) }, headName(row.layer, row.head));

async function chooseHead(name) {
  state.head = name;
  keep({ head: name });
  await showHead();
  if (headBox.getBoundingClientRect().top > window.innerHeight - 120 || headBox.getBoundingClientRect().bottom < 80) headBox.scrollIntoView({ block: "start" });
}

async function showHead() {
  const row = state.head && parseHead(state.head);
  markCells(gridBox, state.head);
  if (!row || !read) return drawNoHead();
  const answer = await question("head", { text: state.text, head: headName(row.layer, row.head) });
  if (!answer) return undefined;
  [shown, explained] = [answer, null];
  return drawHead(row);
}

/* The features that explain each key. The feature model is fitted when a head is first explained, which takes seconds. */
async function explainHead(row) {
  const answer = await question("explain", { text: state.text, head: headName(row.layer, row.head) }, "Fitting a feature model …");
  if (!answer || shown?.head !== answer.head) return;
  explained = answer;
  showMessage(`On other text the feature model explains ${number(answer.explained)} of the bits of ${answer.head}. It has no word classes, syntax or coreference, because your sentence has no annotation.`);
  drawHead(row);
}

const drawNoHead = () => headBox.replaceChildren(el("p", { class: "lead" }, "Choose a head to see its pattern with the tokens and its tags, and to ablate it."));

function drawHead(row) {
  const pinned = Math.min(state.pin ?? Infinity, read.tokens.length - 1);
  const ablation = read.no_ablation_reason ? "" : el("p", { id: "switch" }, ablationSwitch(row, headName(row.layer, row.head)));
  const explain = explained ? "" : el("button", { type: "button", id: "explain", onclick: () => explainHead(row) }, "Explain each key");
  headBox.replaceChildren(...headView(row, read.tokens, shown.matrix, { pinned, onpin: pinRow, control: el("div", {}, ablation, explain), explanation: explained }));
}

/* A head that goes with an ablated type cannot be kept alone. */
function ablationSwitch(row, name) {
  const by = tagsOf(row).find((tag) => state.ablate.includes(tag));
  return el("label", {}, el("input", { type: "checkbox", id: "ablate-head", checked: Boolean(by) || state.ablate.includes(name), disabled: Boolean(by), onchange: () => toggle(name) }), by ? ` ${name} is ablated with all ${by} heads` : ` ablate ${name}`);
}

/* Ablated heads are crossed out in the grid, and marked at the head that is shown. */
function markSilent() {
  const heads = read.no_ablation_reason ? [] : headsOf(state.ablate), row = state.head && parseHead(state.head), place = document.getElementById("switch");
  for (const cell of gridBox.querySelectorAll(".cell")) cell.classList.toggle("silent", heads.includes(cell.dataset.head));
  if (row && place) place.replaceChildren(ablationSwitch(row, headName(row.layer, row.head)));
}

function pinRow(to) {
  state.pin = to;
  state.at = to;
  keep({ pin: String(to) });
  drawLoss();
}

function drawFound() {
  const found = headsThat(state.find), names = new Set(found.map(({ row }) => headName(row.layer, row.head)));
  fadeCells(gridBox, state.find.trim() ? names : null);
  foundBox.replaceChildren(...(!state.find.trim() ? [] : !found.length ? ["No head has such a tag."] : [`${found.length} ${found.length === 1 ? "head" : "heads"}: `, ...found.slice(0, 8).flatMap(({ row, relation, lift }) => [nameButton(row), ` ${relation.label} (${number(lift)}) `])]));
}

function drawAblation() {
  ablationSection.replaceChildren(read.no_ablation_reason ? "" : ablationBox(state.ablate, toggle, state.how, (how) => { state.how = how; keep({ how }); readWithout(); }));
  markSilent();
  drawLoss();
}

const drawLoss = () => lossBox.replaceChildren(predictionsView(read, without, state.at, (i) => { state.at = i; state.pin = i; keep({ pin: String(i) }); drawLoss(); if (shown && parseHead(state.head)) drawHead(parseHead(state.head)); }));

function toggle(item) {
  state.ablate = state.ablate.includes(item) ? state.ablate.filter((own) => own !== item) : [...state.ablate, item];
  keep({ ablate: state.ablate.join(",") });
  drawAblation();
  readWithout();
}

async function readWithout() {
  const heads = headsOf(state.ablate);
  if (!read || read.no_ablation_reason) return;
  stopAsking("ablate");
  stopAsking("random");
  if (!heads.length) without = null;
  else {
    const body = { text: state.text, heads, method: state.how };
    const answer = await question("ablate", body);
    if (!answer) return;
    without = { ...answer, heads };
    readRandomSets(body);
  }
  drawLoss();
}

/* The control of an ablation: random sets of as many other heads, which take longer. */
async function readRandomSets(body) {
  const ablation = without;
  const answer = await question("random", body);
  if (!answer || without !== ablation) return;
  ablation.random = answer.losses;
  drawLoss();
}

/* The head that is shown before one is chosen: the largest lift of heads that are not only sinks. */
const clearestRow = () => DATA.rows.filter((row) => !untyped(row.primary) && !isSink(row.primary)).sort((a, b) => b.lift - a.lift)[0];

/* The address as the state; what it asks that is not there is passed over. */
function fromAddress() {
  const asked = inAddress(), pin = Number.parseInt(asked.get("pin"), 10);
  state.text = asked.get("text") ?? state.text;
  const row = parseHead(asked.get("head") ?? "") ?? clearestRow();
  state.head = row && headName(row.layer, row.head);
  state.pin = Number.isNaN(pin) || pin < 0 ? null : pin;
  state.at = state.pin;
  state.find = asked.get("find") ?? "";
  search.value = state.find;
  state.ablate = (asked.get("ablate") ?? "").split(",").filter((item) => ALL_TYPES.includes(item) || parseHead(item));
  state.how = asked.get("how") === "zero" ? "zero" : "mean";
}

form.addEventListener("submit", (event) => { event.preventDefault(); state.text = field.value; readText(); });
field.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); } });
search.addEventListener("input", () => { state.find = search.value; keep({ find: state.find }); drawFound(); });
window.addEventListener("hashchange", () => { fromAddress(); readText(); });
fromAddress();
readText();
