/* Which page is shown: the part of the address after #. */

function navigation(current) {
  const link = (hash, text) => el("a", { href: hash, "aria-current": hash === current ? "page" : null }, text);
  document.getElementById("nav").replaceChildren(
    link("#", "Atlas"), link("#scatter", "Scatter"), ...ALL_TYPES.map((t) => link(`#type=${encodeURIComponent(t)}`, t)), link("#about", "About this run"));
}

function show() {
  showTip("");
  const [hash] = addressed();
  const row = parseHead(hash);
  const type = hash.startsWith("type=") ? hash.slice(5) : null;
  const page = row ? headPage(row)
    : type && ALL_TYPES.includes(type) ? typePage(type)
      : hash === "scatter" ? scatterPage() : hash === "about" ? aboutPage() : atlasPage();
  navigation(row ? "" : type ? `#type=${encodeURIComponent(type)}` : `#${hash}`);
  document.getElementById("main").replaceChildren(page);
  window.scrollTo(0, 0);
}

const layersSaid = () => (DATA.model.attention_layers ? `${DATA.layers.length} of ${DATA.model.layers} layers` : `${DATA.layers.length} layers`);
document.getElementById("title").textContent = `${DATA.model.name.replace(/\/+$/, "").split("/").pop()} · ${layersSaid()} × ${DATA.heads} heads`;
document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = document.getElementById("find");
  const row = parseHead(field.value);
  field.setCustomValidity(row ? "" : `No head ${field.value}; they go up to ${headName(DATA.layers.at(-1), DATA.heads - 1)}.`);
  if (row) location.hash = headName(row.layer, row.head);
  else field.reportValidity();
});
document.getElementById("find").addEventListener("input", (event) => event.target.setCustomValidity(""));
window.addEventListener("hashchange", show);
show();
