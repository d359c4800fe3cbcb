/* Which page is shown: the part of the address after #. */

const RUN_TITLE = document.title;

function navigation(current) {
  const types = ALL_TYPES.filter((t) => HAD_TYPES.includes(t) || current === `#type=${encodeURIComponent(t)}`);
  const link = (hash, text) => el("a", { href: hash, "aria-current": hash === current ? "page" : null }, text);
  document.getElementById("nav").replaceChildren(
    link("#", "Atlas"), link("#scatter", "Scatter"), ...types.map((t) => link(`#type=${encodeURIComponent(t)}`, t)), link("#about", "About"));
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
  const view = row ? headName(row.layer, row.head) : type || { scatter: "Scatter", about: "About" }[hash] || "Atlas";
  document.title = `${view} – ${RUN_TITLE}`;
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
/* What follows # names a view, so this link moves the focus without it. */
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
});
window.addEventListener("hashchange", show);
show();
