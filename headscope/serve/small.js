"use strict";
/* Every head's pattern on the sentence as a small picture; with a second model it lies above the diagonal, mirrored. */

const PAIR = DATA.names.length > 1;

/* Levels of a packed picture into opacities: the lower triangle row by row, or all of it; mirrored, keys run downward. */
function paintInto(pixels, side, packed, ink, mirrored) {
  const levels = bytesOf(packed), whole = levels.length === side * side;
  for (let query = 0, at = 0; query < side; query++) {
    for (let key = 0; key < (whole ? side : query + 1); key++) {
      const level = levels[at++];
      if (mirrored && key === query) continue;
      pixels.set([...ink, level], 4 * (mirrored ? key * side + query : query * side + key));
    }
  }
}

function smallPicture(read, row) {
  const place = placeOf(row.layer, row.head), side = read.side;
  const canvas = el("canvas", { class: "thumb", width: side, height: side, "aria-hidden": "true" });
  canvas.redraw = () => {
    const pen = canvas.getContext("2d"), image = pen.createImageData(side, side);
    paintInto(image.data, side, read.cells[place], inkOf(row.mark), false);
    if (read.other && !canBeWhole(read, place)) paintInto(image.data, side, read.other.cells[place], inkOf(row.mark), true);
    pen.putImageData(image, 0, 0);
  };
  canvas.redraw();
  return canvas;
}

/* Whether a picture has cells above its diagonal: then no second one has room there. */
const canBeWhole = (read, place) => read.side > 1 && bytesOf(read.cells[place]).length === read.side * read.side;

function smallCell(read, row, choose) {
  const name = headName(row.layer, row.head), place = placeOf(row.layer, row.head), tags = tagsOf(row);
  const strength = row.primary === UNCLASSIFIED || rests(row.mark) ? 0 : Math.max(0, Math.min(1, row.lift));
  const tell = (event) => showTip(`${name} – ${tags.join(", ") || label(row.mark)}\n${number(read.sinks[place])} of its attention on the first token here${read.apart ? `\n${number(read.apart[place])} of it lies elsewhere in ${DATA.names[1]}` : ""}`, event.currentTarget);
  return el("button", {
    type: "button", class: `cell type-${typeClass(row.mark)}`, "data-head": name, style: `--strength:${strength.toFixed(2)}`,
    "aria-label": `${name}, ${tags.join(", ") || label(row.mark)}`, onclick: () => { showTip(""); choose(name); },
    onmouseenter: tell, onmouseleave: () => showTip(""), onfocus: tell, onblur: () => showTip(""),
  }, smallPicture(read, row), el("i", { class: "sink", "aria-hidden": "true", style: `height:${Math.round(100 * read.sinks[place])}%` }),
  el("span", { class: "letter", "aria-hidden": "true" }, letter(row.mark)));
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
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Heads by layer" }, box);
}

function howToRead(read) {
  return el("p", { class: "small" }, `Picture: the head's attention on the sentence, queries downward and keys to the right, the first token left out; the bar at the left is its share of all attention.${read.side < read.tokens.length - 1 ? " The sentence is longer than a picture is wide: a cell is the largest of several." : ""}${PAIR && read.other ? ` Below the diagonal ${DATA.names[0]}, above it ${DATA.names[1]}, mirrored: what both do lies on both sides.` : ""}`);
}

/* What heads are tagged for, in words: each head's tagged relations. */
const SPOKEN = DATA.rows.map((_, place) => DATA.relations.filter((r) => r.tagged[place]).map((r) => ({ relation: r, text: `${r.type} ${r.id} ${r.spoken} ${r.meaning}`.toLowerCase().replaceAll(/[-_/:>]/g, " ") })));

/* Heads that do what is typed: every word must begin a word of one relation's names. Each with the relation that it does so by. */
function headsThat(typed) {
  const words = typed.toLowerCase().split(/[^\p{L}\p{N}+]+/u).filter(Boolean);
  if (!words.length) return [];
  const fits = (text) => words.every((word) => text.split(" ").some((own) => own.startsWith(word)));
  return DATA.rows.flatMap((row, place) => {
    const found = SPOKEN[place].filter((own) => fits(own.text)).map((own) => own.relation).sort((a, b) => b.lift[place] - a.lift[place])[0];
    return found ? [{ row, relation: found, lift: found.lift[place] }] : [];
  }).sort((a, b) => b.lift - a.lift);
}
