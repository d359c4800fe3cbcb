"use strict";
/* A head's whole pattern with its tokens: queries downward, keys to the right. Pointing at a row shows it, a click pins it. */

const LABELLED = 11; // pixels of a cell from which on tokens fit next to it
const PLAIN = 4, LABELS_WIDE = 100;

/* Pixels of a cell and of the margin: the pattern fits the width of its place, with tokens where they can be read. */
function measures(size) {
  const room = Math.min(650, PAGE.querySelector("#head").clientWidth), unit = (margin) => Math.min(26, Math.floor((room - margin) / size));
  return unit(LABELS_WIDE) >= LABELLED ? { unit: unit(LABELS_WIDE), margin: LABELS_WIDE } : { unit: Math.max(3, unit(PLAIN)), margin: PLAIN };
}

function patternView(tokens, matrix, mark, { name, pinned, onpin, explanation = null }) {
  const size = tokens.length, { unit, margin } = measures(size), labelled = margin > PLAIN, side = size * unit, canvas = el("canvas", { class: "whole-pattern", tabindex: "0", role: "img", "aria-label": `${name}: ${size} queries downward, ${size} keys to the right; arrow keys move the row` });
  const message = el("p", { class: "small message", "aria-live": "polite" }), why = el("div", { class: "why" });
  let over = null, at = pinned;
  const row = () => over ?? at;

  canvas.redraw = () => {
    const sharp = window.devicePixelRatio || 1, pen = canvas.getContext("2d"), ink = inkOf(mark), style = getComputedStyle(PAGE);
    canvas.width = (margin + side) * sharp;
    canvas.height = (margin + side) * sharp;
    canvas.style.width = `${margin + side}px`;
    pen.scale(sharp, sharp);
    pen.font = `${Math.min(13, unit - 2)}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    pen.fillStyle = style.getPropertyValue("--soft");
    pen.fillRect(margin, margin, side, side);
    matrix.forEach((shares, query) => shares.forEach((share, key) => {
      if (share <= 0) return;
      pen.fillStyle = `rgba(${ink}, ${Math.sqrt(Math.min(1, share))})`;
      pen.fillRect(margin + key * unit, margin + query * unit, unit, unit);
    }));
    if (labelled) labels(pen, style.color);
    pen.strokeStyle = style.color;
    pen.strokeRect(margin + 0.5, margin + row() * unit + 0.5, side - 1, unit - 1);
  };

  function labels(pen, colour) {
    tokens.forEach((token, i) => {
      const text = short(visible(token).trim());
      pen.fillStyle = colour;
      pen.globalAlpha = i === row() ? 1 : 0.75;
      pen.textAlign = "right";
      pen.fillText(text, margin - 6, margin + (i + 0.5) * unit);
      pen.save();
      pen.translate(margin + (i + 0.5) * unit, margin - 6);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(text, 0, 0);
      pen.restore();
    });
    pen.globalAlpha = 1;
  }

  function describe() {
    const shares = matrix[row()], best = shares.map((share, key) => [share, key]).sort((a, b) => b[0] - a[0]).slice(0, 3).filter(([share]) => share >= 0.05);
    message.textContent = `“${visible(tokens[row()]).trim()}” (token ${row()}) attends to ${best.map(([share, key]) => `“${visible(tokens[key]).trim()}” ${number(share)}`).join(", ") || "no token for more than 0.05"}${row() === at ? " – pinned" : ""}`;
    if (explanation) why.replaceChildren(termsOf(tokens, shares, explanation.queries[row()]));
  }

  const show = (pointed, kept) => { [over, at] = [pointed, kept]; canvas.redraw(); describe(); };
  const change = (to) => show(to, at);
  const pin = (to) => { show(null, to); onpin(to); };
  const rowAt = (event) => {
    const box = canvas.getBoundingClientRect(), y = ((event.clientY - box.top) / box.height) * (margin + side);
    return Math.min(size - 1, Math.max(0, Math.floor((y - margin) / unit)));
  };
  canvas.addEventListener("mousemove", (event) => change(rowAt(event)));
  canvas.addEventListener("mouseleave", () => change(null));
  canvas.addEventListener("click", (event) => pin(rowAt(event)));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    pin(Math.min(size - 1, Math.max(0, at + step)));
  });
  canvas.redraw();
  describe();
  return el("div", {}, el("div", { class: "scroll" }, canvas), message, why, saveButtons(canvas, `${name} pattern`));
}

/* The keys of a query with the head's attention, the share of its feature model, and the terms that made the share. */
function termsOf(tokens, shares, keys) {
  const rows = keys.map(([key, share, terms]) => el("tr", {}, el("td", {}, visible(tokens[key]).trim()), el("td", {}, number(shares[key])), el("td", {}, number(share)), el("td", {}, terms || "no feature")));
  return el("table", { class: "terms" }, el("tr", {}, ["key", "attention", "feature model", "terms in logits"].map((name) => el("th", { scope: "col" }, name))), rows);
}

const short = (text) => (text.length > 12 ? `${text.slice(0, 11)}…` : text);

/* A head with its tags, what it does in words, and its pattern. */
function headView(row, tokens, matrix, { pinned, onpin, control = "", explanation = null }) {
  const name = headName(row.layer, row.head);
  return [
    el("h2", {}, `${name} `, tagsOf(row).length ? tagsOf(row).map((tag) => chip(tag, markedTag(row, tag))) : chip(row.primary)), control,
    DATA.has_run ? plainSentence(row, placeOf(row.layer, row.head)) : "",
    patternView(tokens, matrix, row.primary, { name, pinned, onpin, explanation }),
  ];
}
