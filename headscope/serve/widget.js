/* All heads on the sentence and one of them large. What is chosen here goes to Python, and what Python chooses is drawn. */

const tagged = (type) => DATA.rows.filter((row) => tagsOf(row).includes(type)).map((row) => headName(row.layer, row.head));
const types = ALL_TYPES.filter((type) => tagged(type).length);
const chooser = el("select", { class: "type", onchange: () => choose({ type: chooser.value }) }, el("option", { value: "" }, "every type"), types.map((type) => el("option", { value: type }, `${type} (${tagged(type).length})`)));
const gridBox = el("div", { class: "atlas-grid" }), headBox = el("article", { id: "head", "aria-label": "The head" });
let pinned = null, width = 0;

PAGE.append(
  el("div", {}, types.length ? el("p", { class: "small" }, el("label", {}, "Heads with a tag of ", chooser)) : "", el("div", { class: "beside" }, gridBox, headBox)),
  el("div", { id: "tip", role: "status", "aria-live": "polite", hidden: true }));

function choose(changes) {
  for (const [name, value] of Object.entries(changes)) traits.set(name, value);
  traits.save_changes();
}

function drawGrid() {
  const read = traits.get("_reading");
  gridBox.replaceChildren(...smallGrid(read, (name) => choose({ head: name })), howToRead(read));
  markChosen();
}

function markChosen() {
  const type = traits.get("type");
  chooser.value = type;
  markCells(gridBox, traits.get("head"));
  fadeCells(gridBox, type ? new Set(tagged(type)) : null);
}

function drawHead() {
  const { head, matrix } = traits.get("_pattern");
  pinned = traits.get("token");
  headBox.replaceChildren(...headView(parseHead(head), traits.get("_reading").tokens, matrix, { pinned, onpin: (to) => { pinned = to; choose({ token: to }); } }));
}

/* A row that was pinned here is drawn already, and a new picture would lose the keyboard's focus. */
const drawToken = () => { if (traits.get("token") !== pinned) drawHead(); };

/* Sizes and colours are the page's, once this stands in it: before that nothing is drawn. */
function draw() {
  if (!PAGE.isConnected || PAGE.clientWidth === width) return;
  width = PAGE.clientWidth;
  drawGrid();
  drawHead();
}

const drawings = { "change:_reading": drawGrid, "change:_pattern": drawHead, "change:token": drawToken, "change:head": markChosen, "change:type": markChosen };
for (const [name, drawing] of Object.entries(drawings)) traits.on(name, drawing);
const watch = new ResizeObserver(draw);
watch.observe(PAGE);
draw();
return () => {
  watch.disconnect();
  for (const [name, drawing] of Object.entries(drawings)) traits.off(name, drawing);
};
