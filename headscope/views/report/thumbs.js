/* Small pictures of heads: the mean pattern of the first tokens, in the colour of the type. */

const THUMB = DATA.means ? DATA.means.side : 0;
const dark = window.matchMedia("screen and (prefers-color-scheme: dark)");
const probes = new Map();

/* The colour in which a type's patterns are drawn, as red, green and blue; it can be read on the page in either theme. */
function inkOf(mark) {
  const key = `${typeClass(mark)} ${dark.matches}`;
  if (!probes.has(key)) {
    const probe = el("i", { class: `ink type-${typeClass(mark)}` });
    PAGE.append(probe);
    const canvas = el("canvas", { width: 1, height: 1 }), pen = canvas.getContext("2d");
    pen.fillStyle = getComputedStyle(probe).color; // oklab in words: only a canvas gives its bytes
    pen.fillRect(0, 0, 1, 1);
    probes.set(key, [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3));
    probe.remove();
  }
  return probes.get(key);
}

/* Paint a packed picture: its levels, square roots of attention, become opacities; the first token's row and column are not in it. */
function paint(pixels, packed, ink) {
  const levels = bytesOf(packed), whole = levels.length === THUMB * THUMB;
  for (let query = 0, at = 0; query < THUMB; query++) {
    for (let key = 0; key < (whole ? THUMB : query + 1); key++) {
      const to = 4 * (query * THUMB + key);
      pixels[to] = ink[0];
      pixels[to + 1] = ink[1];
      pixels[to + 2] = ink[2];
      pixels[to + 3] = levels[at++];
    }
  }
}

/* What a head's picture shows: its mean attention on the stimulus that its primary relation is read on. */
const pictureOf = (row) => `mean attention, ${DATA.means.shown[DATA.means.stimulus[placeOf(row.layer, row.head)]]}`;

function thumb(row) {
  const place = placeOf(row.layer, row.head);
  if (!THUMB || !DATA.means.cells[place]) return null;
  const canvas = el("canvas", { class: "thumb", width: THUMB, height: THUMB, "aria-hidden": "true" });
  canvas.redraw = () => {
    const pen = canvas.getContext("2d"), image = pen.createImageData(THUMB, THUMB);
    paint(image.data, DATA.means.cells[place], inkOf(row.primary));
    pen.putImageData(image, 0, 0);
  };
  canvas.redraw();
  return canvas;
}

dark.addEventListener("change", () => { for (const canvas of PAGE.querySelectorAll("canvas")) if (canvas.redraw) canvas.redraw(); });

/* The share of attention on the sink, as a bar at the picture's edge. */
function sinkBar(row) {
  const share = Number.isFinite(row.sink_share) && row.sink_share ? row.first_token_mass + row.sink_share : row.first_token_mass;
  return Number.isFinite(share) ? el("i", { class: "sink", "aria-hidden": "true", style: `height:${Math.round(100 * Math.min(1, share))}%` }) : null;
}
