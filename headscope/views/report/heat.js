/* A whole pattern as a small picture: queries downward, keys to the right, the target cells framed; a click on a row shows it in the arcs. */

const ZOOMS = [8, 14, 22];

function heatView(view, onrow = () => {}) {
  const size = view.tokens.length, canvas = el("canvas", { class: "heat", role: "img", "aria-label": `${view.label}: ${size} queries downward, ${size} keys to the right` });
  const said = el("p", { class: "small said" }, "Queries downward, keys to the right. Framed: the targets of the query. Point at a cell for its number.");
  let zoom = 0;
  canvas.redraw = () => {
    const unit = ZOOMS[zoom], pen = canvas.getContext("2d"), ink = inkOf(view.type);
    canvas.width = canvas.height = size * unit;
    view.matrix.forEach((row, query) => row.forEach((share, key) => {
      pen.fillStyle = `rgba(${ink}, ${Math.sqrt(Math.min(1, share))})`;
      if (share > 0) pen.fillRect(key * unit, query * unit, unit, unit);
    }));
    pen.strokeStyle = getComputedStyle(document.body).color;
    for (const key of view.targets) pen.strokeRect(key * unit + 0.5, view.query * unit + 0.5, unit - 1, unit - 1);
  };
  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientY - box.top, event.clientX - box.left].map((at) => Math.min(size - 1, Math.max(0, Math.floor((at / box.width) * size))));
  };
  const place = (i) => (view.positions && view.positions.length ? ` at ${view.positions[i]}` : "");
  canvas.addEventListener("mousemove", (event) => {
    const [query, key] = cellAt(event);
    said.textContent = `“${visible(view.tokens[query]).trim()}”${place(query)} gives “${visible(view.tokens[key]).trim()}”${place(key)} ${number(view.matrix[query][key])}`;
  });
  canvas.addEventListener("click", (event) => onrow(cellAt(event)[0]));
  const larger = el("button", { type: "button", class: "fold", onclick: () => { zoom = (zoom + 1) % ZOOMS.length; canvas.redraw(); } }, "zoom");
  const box = el("div", { class: `heat-view type-${typeClass(view.type)}` }, el("div", { class: "scroll" }, canvas), said, larger, " ", saveButtons(canvas, `${view.label} pattern`));
  canvas.redraw();
  return box;
}
