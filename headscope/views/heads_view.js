/* Small multiples of attention patterns; a click opens one head with its tokens. VIEW is the element, DATA the heads. */
((VIEW, DATA) => {
  "use strict";
  const INK = [59, 130, 196]; // a middle blue is seen on light pages and on dark ones
  const LEAST = 0.02; // attention that the large picture draws
  const size = DATA.tokens.length, levels = new Map();
  const SIDE = 56; // pixels of a small picture
  const UNIT = Math.max(4, Math.min(14, Math.floor(2400 / size))); // pixels of a large cell
  const LABELS = UNIT < 10 ? 4 : 96; // labels need cells of ten pixels

  /* An element with attributes and children; text goes in as text, never as HTML. */
  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  }

  /* Attention of a head in steps of 1/255, row by row; a causal head's rows end at their query. */
  function levelsOf(head) {
    if (!levels.has(head.name)) levels.set(head.name, Uint8Array.from(atob(head.levels), (c) => c.charCodeAt(0)));
    return levels.get(head.name);
  }

  function eachCell(head, visit) {
    const packed = levelsOf(head);
    for (let query = 0, at = 0; query < size; query++) {
      const keys = DATA.whole ? size : query + 1;
      for (let key = 0; key < keys; key++) visit(query, key, packed[at++] / 255);
    }
  }

  function small(head) {
    const canvas = el("canvas", { width: size, height: size, style: `width:${SIDE}px;height:${SIDE}px;image-rendering:pixelated;background:#8882;display:block` });
    const pen = canvas.getContext("2d"), image = pen.createImageData(size, size);
    // roots, so that weak attention is seen in a small picture
    eachCell(head, (query, key, share) => image.data.set([...INK, Math.round(255 * Math.sqrt(share))], 4 * (query * size + key)));
    pen.putImageData(image, 0, 0);
    return canvas;
  }

  function button(head) {
    const style = "border:1px solid #8886;background:none;color:inherit;padding:1px;margin:1px;cursor:pointer;font:11px system-ui,sans-serif";
    const open = (event) => choose(head, event.currentTarget.parentElement);
    return el("button", { type: "button", "data-head": head.name, "aria-pressed": "false", style, onclick: open }, small(head), head.name);
  }

  const short = (text) => (text.length > 13 ? `${text.slice(0, 12)}…` : text);

  function label(pen, text, x, y, turn) {
    pen.save();
    pen.translate(x, y);
    pen.rotate(turn);
    pen.fillText(text, 0, 0);
    pen.restore();
  }

  /* The whole pattern: queries downward, keys to the right. */
  function large(head, message) {
    const side = LABELS + size * UNIT, sharp = window.devicePixelRatio || 1;
    const canvas = el("canvas", { width: side * sharp, height: side * sharp, style: `width:${side}px;height:${side}px`, role: "img", "aria-label": `${head.name}: queries downward, keys to the right` });
    const pen = canvas.getContext("2d"), shares = new Map();
    pen.scale(sharp, sharp);
    pen.fillStyle = "#8882";
    pen.fillRect(LABELS, LABELS, size * UNIT, size * UNIT);
    eachCell(head, (query, key, share) => {
      shares.set(query * size + key, share);
      if (share < LEAST) return;
      pen.fillStyle = `rgba(${INK}, ${share})`;
      pen.fillRect(LABELS + key * UNIT, LABELS + query * UNIT, UNIT, UNIT);
    });
    pen.fillStyle = getComputedStyle(VIEW).color;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    if (UNIT >= 10) DATA.tokens.forEach((token, i) => {
      const middle = LABELS + (i + 0.5) * UNIT;
      pen.textAlign = "right";
      label(pen, short(token), LABELS - 5, middle, 0);
      pen.textAlign = "left";
      label(pen, short(token), middle, LABELS - 5, -Math.PI / 2);
    });
    canvas.addEventListener("mousemove", (event) => {
      const box = canvas.getBoundingClientRect();
      const key = Math.floor((event.clientX - box.left - LABELS) / UNIT), query = Math.floor((event.clientY - box.top - LABELS) / UNIT);
      const share = key >= 0 && query >= 0 && key < size ? shares.get(query * size + key) : undefined;
      message.textContent = share === undefined ? "" : `query “${DATA.tokens[query]}” attends to key “${DATA.tokens[key]}”: ${share.toFixed(2)}`;
    });
    return canvas;
  }

  const opened = el("div", { style: "overflow-x:auto", "aria-live": "polite" });

  /* Open a head below its row, so that it is seen wherever the row is. */
  function choose(head, row) {
    const message = el("p", { style: "min-height:1.2em;margin:2px" });
    const close = el("button", { type: "button", onclick: () => opened.remove() }, "close");
    opened.replaceChildren(el("b", {}, `${head.name} `), close, message, large(head, message));
    row.after(opened);
    for (const cell of VIEW.querySelectorAll("[data-head]")) cell.setAttribute("aria-pressed", String(cell.dataset.head === head.name));
    for (const cell of VIEW.querySelectorAll("[data-head]")) cell.style.outline = cell.dataset.head === head.name ? "2px solid #3b82c4" : "none";
  }

  const rows = Map.groupBy ? Map.groupBy(DATA.heads, (head) => head.layer) : DATA.heads.reduce((all, head) => all.set(head.layer, [...(all.get(head.layer) ?? []), head]), new Map());
  const grid = el("div", { style: "overflow-x:auto" });
  for (const heads of rows.values()) grid.append(el("div", { style: "white-space:nowrap" }, ...heads.map(button)));
  const legend = el("p", { style: "margin:2px" }, "Queries downward, keys to the right; opacity of small pictures: the square root of the attention. A click opens a head.");
  VIEW.replaceChildren(legend, grid);
})(document.getElementById(__ID__), __DATA__);
