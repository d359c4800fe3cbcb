/* Circuit lines: from each head to the earlier one whose writes its keys read most, by the weights. */

const KEYS_KNOWN = DATA.rows.some((row) => row.keys_from);
const sourceOf = (row) => (row.keys_from ? parseHead(row.keys_from[0]) : null);
const readersOf = (row) => DATA.rows.filter((own) => own.keys_from && own.keys_from[0] === headName(row.layer, row.head)).sort((a, b) => b.keys_from[1] - a.keys_from[1]);

/* The atlas' button for them; nothing where the weights were not asked. */
function linesButton() {
  if (!KEYS_KNOWN) return null;
  const button = el("button", {
    type: "button", class: "filter", "aria-pressed": String(stateOf("circuits") === "1"),
    onclick: () => { setState("circuits", stateOf("circuits") === "1" ? null : "1"); drawLines(); },
  }, "circuit lines");
  return el("span", { class: "group lines-button" }, button);
}

/* Lines over the grid: all of them faintly, those of the head that is pointed at strongly. */
function drawLines(pointed = null) {
  const box = document.querySelector(".atlas-grid .scroll"), on = stateOf("circuits") === "1";
  if (!box) return;
  for (const old of box.querySelectorAll(".circuit-lines")) old.remove();
  const button = document.querySelector(".lines-button button");
  if (button) button.setAttribute("aria-pressed", String(on));
  if (!on) return;
  const table = box.querySelector("table"), width = box.scrollWidth, height = box.scrollHeight, home = box.getBoundingClientRect();
  const centre = (row) => {
    const at = table.querySelector(`.cell[data-head="${headName(row.layer, row.head)}"]`).getBoundingClientRect();
    return [at.left - home.left + box.scrollLeft + at.width / 2, at.top - home.top + box.scrollTop + at.height / 2];
  };
  const most = Math.max(...DATA.rows.map((row) => (row.keys_from ? row.keys_from[1] : 0)));
  const layer = svg("svg", { class: "circuit-lines", width, height, "aria-hidden": "true" });
  for (const row of DATA.rows.filter((own) => own.keys_from)) {
    const source = sourceOf(row), [x, y] = centre(row), [from, top] = centre(source);
    const own = pointed && (row === pointed || source === pointed);
    layer.append(svg("path", { d: `M${from},${top} C${from},${(top + y) / 2} ${x},${(top + y) / 2} ${x},${y}`, class: own ? "own" : pointed ? "other" : "", "stroke-opacity": (0.15 + 0.75 * (row.keys_from[1] / most) ** 2).toFixed(2) }));
  }
  box.append(layer);
}

/* On a head's page, in words. */
function keysLine(row) {
  const source = sourceOf(row), readers = readersOf(row);
  if (!source && !readers.length) return null;
  const tagged = (head) => [headLink(head), tagsOf(head).length ? ` (${tagsOf(head).join(", ")})` : ""];
  const few = 6;
  return el("p", { class: "keys" },
    source ? ["In the weights, its keys read the output of ", tagged(source), ` most: K-composition ${number(row.keys_from[1])}, which 99.9 % of random matrices keep below ${number(row.keys_from[2])}. `] : "",
    readers.length ? ["Its output is what the keys of ", listed(readers.slice(0, few).map(tagged)), readers.length > few ? ` and ${readers.length - few} more` : "", " read most."] : "");
}
