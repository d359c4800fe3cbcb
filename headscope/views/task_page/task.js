/* A task's circuit: heads that can be chosen, their patterns on any prompt, and random sets beside the circuit. */

const CIRCUIT = DATA.circuit, TASK = CIRCUIT.task || {}, JUDGED = CIRCUIT.circuit || {}, EDGES = CIRCUIT.edges || [];
const HEADS = new Map(CIRCUIT.heads.map((head) => [head.name, head]));
const DRAWING = document.querySelector("#drawing svg"), PANEL = document.getElementById("panel"), SETS = document.getElementById("sets");
const INPUTS = { query: "queries", key: "keys", value: "values" };
const SIDES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

const meanOf = (value) => (value !== null && typeof value === "object" ? value.mean ?? null : value ?? null);
const signed = (value) => (meanOf(value) === null ? "–" : `${meanOf(value) > 0 ? "+" : ""}${meanOf(value).toFixed(2)}`.replace("-", "−"));
const level = (value) => (meanOf(value) === null ? "–" : meanOf(value).toFixed(2).replace("-", "−"));
const within = (value, shown = signed) => shown(value) + (value && meanOf(value.low) !== null ? ` [${shown(value.low)}, ${shown(value.high)}]` : "");
const percent = (value) => `${Math.round(100 * value)}\u00a0%`.replace("-", "−");
const unit = TASK.unit ? ` ${TASK.unit}` : "";

const estimateOf = (head) => meanOf(head.smooth) ?? meanOf(head.attribution);

/* A path in words, with all that was measured of it. */
function pathInWords(edge) {
  const isTested = edge.p_value !== null && edge.p_value !== undefined;
  const p = !isTested ? "" : edge.p_value < 0.001 ? ", p < 0.001" : `, p ${edge.p_value.toFixed(3)}`;
  const estimate = edge.estimate === null || edge.estimate === undefined ? "" : `, estimate ${signed(edge.estimate)}`;
  return `${edge.from} → ${edge.to} through its ${INPUTS[edge.via] || edge.via}, at ${visible(String(edge.role ?? "other"))}: ${within(edge.effect)}${unit}${estimate}${p}; ${edge.confirmed ? "confirmed" : "not confirmed"}`;
}

function headInWords(head) {
  const effect = meanOf(head.effect) === null ? `estimated effect ${signed(estimateOf(head))}${unit}` : `effect ${within(head.effect)}${unit}`;
  const joint = meanOf(head.joint ?? null) === null ? "" : `; with heads that may do the same replaced already ${within(head.joint)}`;
  return `${head.name}: ${effect}${joint}${JUDGED.heads?.length ? (head.in_circuit ? "; in the circuit" : "; not in the circuit") : ""}`;
}

/* Show a text beside a shape while it is pointed at or has the focus. Chrome takes each shape that listens to its focus for a stop of Tab. */
function tipOf(node, words) {
  if (!node.hasAttribute("tabindex")) node.setAttribute("tabindex", -1);
  for (const event of ["mouseenter", "focus"]) node.addEventListener(event, () => showTip(words, node));
  for (const event of ["mouseleave", "blur"]) node.addEventListener(event, () => showTip(""));
}

const nodes = [...DRAWING.querySelectorAll("[data-head]")].filter((node) => HEADS.has(node.dataset.head)), edges = [...DRAWING.querySelectorAll("[data-edge]")];
const chosen = () => { const name = addressed()[0]; return HEADS.has(name) ? name : null; };

/* The drawing as parts that keys and screen readers reach: one stop of Tab, arrows between heads. */
function wake() {
  DRAWING.setAttribute("role", "group");
  nodes.forEach((node, i) => {
    const head = HEADS.get(node.dataset.head);
    for (const [name, value] of [["role", "button"], ["tabindex", i ? -1 : 0], ["aria-label", headInWords(head)]]) node.setAttribute(name, value);
    node.addEventListener("click", () => choose(head.name));
    node.addEventListener("keydown", (event) => {
      if (SIDES[event.key]) move(node, SIDES[event.key]);
      else if (event.key === "Enter" || event.key === " ") choose(head.name);
      else if (event.key === "Escape") choose(null);
      else return;
      event.preventDefault();
    });
    tipOf(node, headInWords(head));
  });
  for (const group of edges) {
    const edge = EDGES[Number(group.dataset.edge)], curve = group.firstElementChild.getAttribute("d");
    const hit = svg("path", { class: "hit", d: curve });
    // edges lie below the heads; Tab reaches those of the chosen head after it
    const reach = svg("path", { class: "reach", d: curve, role: "img", "aria-label": pathInWords(edge), "data-path": group.dataset.edge });
    group.append(hit);
    group.parentNode.append(reach);
    group.addEventListener("click", () => showTip(pathInWords(edge), group));
    tipOf(group, pathInWords(edge));
    tipOf(reach, pathInWords(edge));
  }
}

/* The focus to the nearest head on a side. */
function move(from, [dx, dy]) {
  const middle = (node) => { const box = node.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; };
  const [x, y] = middle(from);
  const far = (node) => { const [a, b] = middle(node), along = (a - x) * dx + (b - y) * dy, aside = Math.abs((a - x) * dy) + Math.abs((b - y) * dx); return along > 1 ? along + 2 * aside : Infinity; };
  const nearest = nodes.reduce((best, node) => (far(node) < far(best) ? node : best), from);
  if (nearest === from) return;
  for (const node of nodes) node.setAttribute("tabindex", node === nearest ? 0 : -1);
  nearest.focus();
}

const sizeOf = (name) => Math.abs(meanOf(HEADS.get(name).effect) ?? estimateOf(HEADS.get(name)) ?? 0);
const strongest = nodes.map((node) => node.dataset.head).reduce((best, name) => (best && sizeOf(best) >= sizeOf(name) ? best : name), undefined);

function choose(name) {
  const state = addressed()[1];
  const next = name === chosen() ? "" : name || "";
  history.pushState(null, "", `#${encodeURIComponent(next)}${state.size ? `?${state}` : ""}`);
  show();
}

/* The chosen head; without one the strongest head's panel, and all edges alike. */
function show() {
  showTip("");
  const name = chosen(), at = name || strongest;
  DRAWING.classList.toggle("pinned", name !== null && nodes.some((node) => node.dataset.head === name));
  nodes.forEach((node) => {
    node.classList.toggle("current", node.dataset.head === at);
    node.setAttribute("aria-pressed", String(node.dataset.head === name));
  });
  for (const group of edges) {
    const edge = EDGES[Number(group.dataset.edge)], isOwn = edge.from === at || edge.to === at;
    group.classList.toggle("faded", !isOwn);
    const reach = DRAWING.querySelector(`[data-path="${group.dataset.edge}"]`);
    reach.setAttribute("tabindex", isOwn && name ? 0 : -1);
  }
  for (const row of document.querySelectorAll("#heads tbody tr")) row.classList.toggle("current", row.querySelector("a").textContent === at);
  PANEL.hidden = !at;
  if (at) PANEL.replaceChildren(...panelOf(HEADS.get(at)));
  for (const view of PANEL.querySelectorAll(".arcs")) view.redraw();
  if (name && name !== show.last && PANEL.getBoundingClientRect().top > window.innerHeight) PANEL.scrollIntoView({ block: "nearest" });
  show.last = name;
}

function panelOf(head) {
  const paths = EDGES.filter((edge) => edge.to === head.name || edge.from === head.name);
  return [
    el("h3", {}, `${head.name} `, head.tags.map((tag) => chip(tag)), sourceOfTags(head)),
    el("div", {}, el("ul", { class: "sentences" }, [headInWords(head), ...(head.sentences || [])].map((line) => el("li", {}, visible(line)))), patternPart(head)),
    el("div", {}, attentionTable(head), writesPart(head),
      paths.length ? [el("h4", {}, "Paths"), el("ul", { class: "paths small" }, paths.map((edge) => el("li", {}, el("i", { class: `via-${edge.via}${edge.confirmed ? "" : " unsure"}` }), pathInWords(edge))))] : null),
  ];
}

/* What the tags were measured on. A task of a model alone, without a run, knows no tags. */
function sourceOfTags(head) {
  if (head.tags.length) return el("span", { class: "small" }, " on running text");
  const known = [...HEADS.values()].some((other) => other.tags.length);
  return known ? el("span", { class: "small" }, "no tag on running text") : null;
}

/* From role to role: the share of attention beside its control, and the effect of cutting it. */
function attentionTable(head) {
  const entries = head.attention || [];
  if (!entries.length) return null;
  return table("Attention from role to role", ["from → to", "share", "control", `without it,${unit}`], entries.map((entry) => [`${visible(entry.from)} → ${visible(entry.to)}`, within(entry.mass, level), level(entry.control), within(entry.cut)]), [1, 2, 3]);
}

/* Direct effect on the tokens at the end. */
function writesPart(head) {
  const writes = head.writes;
  if (!writes) return null;
  const words = (title, list) => (list && list.length ? el("p", { class: "words" }, `${title}: `, list.map(([token, value]) => [el("span", {}, `${visible(token)} ${signed(value)}`), " "])) : null);
  const parts = ["answer", "wrong", "difference"].filter((name) => meanOf(writes[name]) !== null).map((name) => `${name === "difference" ? "answer − wrong" : name} ${within(writes[name])}`);
  const copies = meanOf(writes.copies) === null ? "" : ` Copies what it attends to: ${level(writes.copies)}.`;
  return [el("h4", {}, "Writes"), el("p", {}, parts.length ? `Direct effect${unit ? `,${unit}` : ""}: ${parts.join("; ")}.${copies}` : copies), words("raises", writes.raises), words("lowers", writes.lowers)];
}

/* The entry of a head's attention that does most, as in the drawing: the first that is listed. */
const mainAttention = (head) => (head.attention || [])[0] ?? null;

/* The head's attention on one prompt, which can be chosen. */
function patternPart(head) {
  const cells = DATA.patterns[head.name];
  if (!cells || !cells.some(Boolean)) return el("p", { class: "small" }, "This page has no pattern of the head.");
  const asked = DATA.prompts.findIndex((prompt) => String(prompt.number) === (stateOf("prompt") ?? String(DATA.first)));
  const place = el("div", {}), main = mainAttention(head);
  const select = el("select", { id: "prompt", onchange: () => go(select.selectedIndex) },
    DATA.prompts.map((prompt) => el("option", { value: prompt.number }, `${prompt.number + 1}: ${shortPrompt(prompt)}`)));
  const step = (by, words) => el("button", { type: "button", "aria-label": words, onclick: () => { go((select.selectedIndex + by + DATA.prompts.length) % DATA.prompts.length); } }, by < 0 ? "←" : "→");
  const go = (i, isFirst = false) => {
    const prompt = DATA.prompts[i];
    select.selectedIndex = i;
    if (!isFirst) setState("prompt", String(prompt.number));
    if (!cells[i]) { place.replaceChildren(el("p", { class: "small" }, "No pattern of this prompt.")); return; }
    const matrix = unpack(cells[i], prompt.tokens.length), at = (role) => prompt.roles.flatMap((own, token) => (own === role ? [token] : []));
    const query = (main ? at(main.from).at(-1) : undefined) ?? prompt.tokens.length - 1;
    const view = { tokens: prompt.tokens, positions: prompt.roles.map(visible), targets: main ? at(main.to).filter((token) => matrix.whole || token <= query) : [], query, matrix, type: head.tags[0] || "", gaps: [], label: `attention pattern of ${head.name} on prompt ${prompt.number + 1}` };
    const clean = meanOf(prompt.clean) === null ? "" : `; ${TASK.metric || "metric"} ${level(prompt.clean)}${unit}`;
    const whole = el("details", { class: "whole" }, el("summary", {}, "whole pattern"));
    const arcs = arcView(view);
    whole.addEventListener("toggle", () => { if (whole.open && !whole.querySelector("canvas")) whole.append(heatView(view, (token) => arcs.querySelector(`[data-token="${token}"]`)?.click())); });
    place.replaceChildren(arcs, el("p", { class: "small" }, `Answer “${visible(String(prompt.answer ?? "–")).trim()}”${prompt.wrong === null || prompt.wrong === undefined ? "" : `, wrong “${visible(String(prompt.wrong)).trim()}”`}${clean}. Framed: ${main ? visible(main.from) : "the last token"}.${main ? ` Underlined: ${visible(main.to)}.` : ""}`), whole);
  };
  go(Math.max(0, asked), true);
  return el("div", {}, el("div", { class: "prompt-line" }, el("label", { for: "prompt" }, "Pattern on prompt"), el("span", {}, step(-1, "previous prompt"), select, step(1, "next prompt"))), place);
}

const shortPrompt = (prompt) => { const words = prompt.tokens.map(visible).join("").trim(); return words.length > 60 ? `${words.slice(0, 59)}…` : words; };

/* The curve of faithfulness, and random sets beside the circuit on the same scale. */
const curve = JUDGED.curve || [], random = (JUDGED.random || []).map((set, i) => ({ ...set, number: i + 1 })).filter((set) => meanOf(set.faithfulness) !== null).sort((a, b) => meanOf(a.faithfulness) - meanOf(b.faithfulness));
const size = (JUDGED.heads || []).length, own = JUDGED.faithfulness ? { heads: size, faithfulness: JUDGED.faithfulness } : curve.find((step) => step.heads === size);

function setsPart() {
  if (SETS.hidden) return;
  const plot = el("div", { class: "chart plot" }), message = el("p", { class: "message small", "aria-live": "polite" });
  const range = el("input", { type: "range", id: "set", min: 0, max: Math.max(0, random.length - 1), oninput: () => pick(Number(range.value)) });
  const pick = (i) => {
    const set = random[i];
    if (!set) return;
    range.value = i;
    setState("set", String(set.number));
    plot.querySelectorAll(".set").forEach((dot) => dot.classList.toggle("current", Number(dot.dataset.set) === i));
    const shared = set.heads.filter((name) => (JUDGED.heads || []).includes(name));
    range.setAttribute("aria-valuetext", `set ${set.number} keeps ${percent(meanOf(set.faithfulness))}`);
    message.textContent = `Random set ${set.number}: ${set.heads.join(", ")}. It keeps ${percent(meanOf(set.faithfulness))}${own ? `, the circuit ${percent(meanOf(own.faithfulness))}` : ""}; ${plural(shared.length, "head")} of the circuit in it.`;
  };
  const draw = () => { plot.replaceChildren(chart(Math.min(860, plot.clientWidth || 620), pick)); };
  SETS.replaceChildren(el("h3", {}, "Beside random sets"), el("p", { class: "lead" }, `Faithfulness: what a set of heads keeps while all others are replaced, as a share of what replacing all heads takes${meanOf(JUDGED.total_effect ?? null) === null ? "" : ` (${level(JUDGED.total_effect)}${unit})`}, on prompts that did not choose the heads. Random sets have as many heads, of similar layers and norms; heads of the circuit may be among them.`), setFacts(), plot,
    random.length ? el("p", { class: "pick" }, el("label", { for: "set" }, "Compare with a random set "), range) : "", message);
  draw();
  new ResizeObserver(() => { if (Math.abs(draw.width - plot.clientWidth) > 1) { draw(); if (stateOf("set")) pick(Number(range.value)); } draw.width = plot.clientWidth; }).observe(plot);
  const asked = random.findIndex((set) => String(set.number) === stateOf("set"));
  if (asked >= 0) pick(asked);
  else message.textContent = random.length ? "Choose a dot or move the slider." : "No random set was measured.";
  SETS.pick = pick;
}

function setFacts() {
  const halves = JUDGED.halves || {}, other = JUDGED.other_words, pairs = [
    [`p beside ${plural(random.length, "random set")}`, meanOf(JUDGED.p_value ?? null) === null ? null : small(JUDGED.p_value)],
    ["area below the curve (CPR)", JUDGED.cpr], ["distance to 1 (CMD)", JUDGED.cmd], ["completeness: share that replacing these heads takes", JUDGED.completeness], ["its p", meanOf(JUDGED.completeness_p_value ?? null) === null ? null : small(JUDGED.completeness_p_value)],
    ["agreement of halves (Jaccard)", halves.jaccard], ["in other words", other && within(other.faithfulness, level) + (meanOf(other.jaccard) === null ? "" : `, agreement ${level(other.jaccard)}`)],
  ];
  return el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, typeof value === "string" ? visible(value) : within(value, level)))));
}

/* Both panels as one picture of a width: text keeps its size on a narrow screen. */
function chart(width, pick) {
  const height = 270, [left, bottom, top] = [44, 36, 12], strip = random.length ? Math.max(96, width * 0.26) : 0, end = width - strip - (strip ? 26 : 8);
  const values = [0, 1, ...curve.flatMap((step) => [step.faithfulness.low, step.faithfulness.high, meanOf(step.faithfulness)]), ...random.map((set) => meanOf(set.faithfulness))].map(meanOf).filter((value) => value !== null);
  const low = Math.min(...values) - 0.05, high = Math.max(...values) + 0.08, most = Math.max(1, ...curve.map((step) => step.heads));
  const log = (heads) => Math.log2(Math.max(0.5, heads)) + 1; // none stands a step before one
  const first = Math.min(...curve.map((step) => log(step.heads)), log(1)), x = (heads) => left + 8 + ((log(heads) - first) / Math.max(1, log(most) - first)) * (end - left - 16), y = (value) => height - bottom - ((value - low) / (high - low)) * (height - bottom - top);
  const label = (at, up, words, look = "", anchor = "middle") => { const node = svg("text", { x: at, y: up, "text-anchor": anchor, class: look }); node.textContent = words; return node; };
  const about = `Faithfulness by number of heads: ${curve.map((step) => `${step.heads} heads ${percent(meanOf(step.faithfulness))}`).join(", ")}.${random.length ? ` ${random.length} random sets: ${percent(meanOf(random[0].faithfulness))} to ${percent(meanOf(random.at(-1).faithfulness))}.` : ""}`;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": about });
  for (const t of [...new Set([0, 0.5, 1, 1.5, 2, -0.5, -1].filter((t) => t > low && t < high))]) root.append(svg("line", { x1: left, x2: width - 4, y1: y(t), y2: y(t), class: "grid-line" }), label(left - 6, y(t) + 4, percent(t), "", "end"));
  let free = left;
  for (const { heads } of curve) {
    const half = 4 * String(heads).length + 3;
    if (x(heads) - half < free) continue;
    free = x(heads) + half;
    root.append(label(x(heads), height - bottom + 16, String(heads)));
  }
  root.append(label((left + end) / 2, height - 3, "heads kept (log scale)"));
  const path = (pairs) => pairs.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
  const banded = curve.filter((each) => meanOf(each.faithfulness.low ?? null) !== null);
  if (banded.length) root.append(svg("path", { class: "band", d: `${path([...banded.map((each) => [x(each.heads), y(each.faithfulness.high)]), ...banded.reverse().map((each) => [x(each.heads), y(each.faithfulness.low)])])}Z` }));
  if (own) root.append(svg("line", { class: "level", x1: x(size), x2: width - 4, y1: y(meanOf(own.faithfulness)), y2: y(meanOf(own.faithfulness)) }));
  root.append(svg("path", { class: "curve", d: path(curve.map((each) => [x(each.heads), y(meanOf(each.faithfulness))])) }));
  const steps = own ? [...curve.filter((each) => each.heads !== size), own] : curve;
  for (const each of steps) root.append(svg("circle", { class: each === own ? "step own" : "step", r: each === own ? 5 : 3, cx: x(each.heads), cy: y(meanOf(each.faithfulness)) }));
  if (own) root.append(label(width - 4, y(meanOf(own.faithfulness)) - 6, `circuit ${percent(meanOf(own.faithfulness))}`, "strong", "end"));
  if (random.length) dots(root, width - strip, width - 6, y, pick), root.append(label(width - strip / 2, height - 3, `${plural(random.length, "random set")}`));
  return root;
}

/* Random sets as dots beside each other where they are alike. */
function dots(root, from, to, y, pick) {
  const middle = (from + to) / 2, placed = [];
  random.forEach((set, i) => {
    const up = y(meanOf(set.faithfulness));
    let slot = 0;
    const side = () => middle + Math.ceil(slot / 2) * (slot % 2 ? 9 : -9);
    while (placed.some(([a, b]) => Math.hypot(a - side(), b - up) < 8.5) && Math.abs(side() - middle) < (to - from) / 2 - 6) slot++;
    placed.push([side(), up]);
    const dot = svg("circle", { class: "set", r: 4, cx: side(), cy: up, "data-set": i });
    dot.addEventListener("click", () => pick(i));
    tipOf(dot, `random set ${set.number}: ${percent(meanOf(set.faithfulness))}`);
    root.append(dot);
  });
}


wake();
document.getElementById("hint").textContent = nodes.length ? "Point at a head or a path for its numbers. A click or Enter chooses a head; arrows move between heads, Escape shows all. " : "";
document.getElementById("save").append(
  el("button", { type: "button", class: "save-figure", onclick: () => {
    const address = URL.createObjectURL(new Blob([DATA.figure], { type: "image/svg+xml" }));
    el("a", { href: address, download: "circuit.svg" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  } }, "SVG for a paper"), " ",
  random.length ? el("button", { type: "button", onclick: () => { SETS.scrollIntoView({ block: "nearest" }); SETS.pick(Math.floor(Math.random() * random.length)); } }, "compare with a random set") : "");
const scroller = DRAWING.parentElement;
scroller.scrollLeft = scroller.scrollWidth;
setsPart();
show();
window.addEventListener("hashchange", show);
window.addEventListener("popstate", show);
