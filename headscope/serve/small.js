"use strict";
/* Every head's pattern on the sentence as a small picture. */

/* Levels of a packed picture into opacities: the lower triangle row by row, or all of it. */
function paintInto(pixels, side, packed, ink) {
  const levels = bytesOf(packed), whole = levels.length === side * side;
  for (let query = 0, at = 0; query < side; query++) {
    for (let key = 0; key < (whole ? side : query + 1); key++) {
      pixels.set([...ink, levels[at++]], 4 * (query * side + key));
    }
  }
}

function smallPicture(read, row) {
  const place = placeOf(row.layer, row.head), side = read.side;
  const canvas = el("canvas", { class: "thumb", width: side, height: side, "aria-hidden": "true" });
  canvas.redraw = () => {
    const pen = canvas.getContext("2d"), image = pen.createImageData(side, side);
    paintInto(image.data, side, read.cells[place], inkOf(row.primary));
    pen.putImageData(image, 0, 0);
  };
  canvas.redraw();
  return canvas;
}

function smallCell(read, row, choose) {
  const name = headName(row.layer, row.head), place = placeOf(row.layer, row.head), tags = tagsInWords(row);
  const strength = untyped(row.primary) || isSink(row.primary) ? 0 : Math.max(0, Math.min(1, row.lift));
  const describe = (event) => showTip(`${name} – ${tags}\n${number(read.sinks[place])} of its attention is on the first token here`, event.currentTarget);
  return el("button", {
    type: "button", class: cellClass(row), "data-head": name, style: `--strength:${strength.toFixed(2)}`,
    "aria-label": `${name}, ${tags}`, onclick: () => { showTip(""); choose(name); },
    onmouseenter: describe, onmouseleave: () => showTip(""), onfocus: describe, onblur: () => showTip(""),
  }, smallPicture(read, row), el("i", { class: "sink", "aria-hidden": "true", style: `height:${Math.round(100 * read.sinks[place])}%` }),
  el("span", { class: "letter", "aria-hidden": "true" }, headLetter(row)));
}

function smallGrid(read, choose) {
  const head = el("tr", {}, el("td", {}), Array.from({ length: DATA.heads }, (_, h) => el("th", { scope: "col" }, `H${h}`)));
  const rows = DATA.layers.map((layer) => el("tr", {}, el("th", { scope: "row" }, layerName(layer)), Array.from({ length: DATA.heads }, (_, h) => el("td", {}, smallCell(read, rowOf(layer, h), choose)))));
  const box = el("table", { class: "grid pictures", style: `--heads:${DATA.heads}` }, el("caption", { class: "hidden" }, "Heads by layer"), el("thead", {}, head), el("tbody", {}, rows));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const row = step && parseHead(event.target.dataset.head || "");
    if (!row) return;
    event.preventDefault();
    const next = box.querySelector(`[data-head="${headName(DATA.layers[DATA.layers.indexOf(row.layer) + step[0]], row.head + step[1])}"]`);
    if (next) next.focus();
  });
  return savable(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Heads by layer" }, box), `${DATA.name} heads on a sentence`);
}

/* The chosen head is marked among all; of a set of names the others fade, without one none does. */
function markCells(box, chosen) {
  for (const cell of box.querySelectorAll(".cell")) cell.setAttribute("aria-pressed", String(cell.dataset.head === chosen));
}

function fadeCells(box, names) {
  for (const cell of box.querySelectorAll(".cell")) cell.classList.toggle("faded", names !== null && !names.has(cell.dataset.head));
}

function howToRead(read) {
  const long = read.side < read.tokens.length - 1 ? " The sentence is longer than the picture has cells: a cell shows the largest of several values." : "";
  return el("p", { class: "small" }, `Picture: the head's attention on the sentence, queries downward and keys to the right. The first token is excluded; the bar at the left edge is the share of the attention on it.${long} ${read.notes.map((note) => `Note: ${note}.`).join(" ")}`);
}

/* What heads are tagged for, in words: each head's tagged relations. */
const LABELS = DATA.rows.map((_, place) => DATA.relations.filter((r) => r.tagged[place]).map((r) => ({ relation: r, text: `${r.type} ${r.id} ${r.label} ${r.meaning}`.toLowerCase().replaceAll(/[-_/:>]/g, " ") })));

/* Heads that do what is typed: every word must begin a word of one relation's names. Each with the relation that it does so by. */
function headsThat(typed) {
  const words = typed.toLowerCase().split(/[^\p{L}\p{N}+]+/u).filter(Boolean);
  if (!words.length) return [];
  const fits = (text) => words.every((word) => text.split(" ").some((own) => own.startsWith(word)));
  return DATA.rows.flatMap((row, place) => {
    const found = LABELS[place].filter((own) => fits(own.text)).map((own) => own.relation).sort((a, b) => b.lift[place] - a.lift[place])[0];
    return found ? [{ row, relation: found, lift: found.lift[place] }] : [];
  }).sort((a, b) => b.lift - a.lift);
}
