"use strict";
// Filters rows by the fragment of the URL, such as #cause=verdict&service=shop/cart:grpc&family=IPv4&text=10.0.0.1.
(() => {
  const bar = document.getElementById("filters");
  if (!bar) return;
  const fields = ["text", "cause", "service", "family"].map((id) => document.getElementById(id));
  const [text, , service, family] = fields;
  const clear = document.getElementById("clear");
  const expand = document.getElementById("expand");
  const shown = document.getElementById("shown");
  const rows = Array.from(document.querySelectorAll("tbody.row"));
  const sections = Array.from(document.querySelectorAll("section.cause"));
  const rowTexts = new Map();

  const formatCount = (count) => (count === 1 ? "1 row" : `${count} rows`);
  const rowText = (row) => {
    if (!rowTexts.has(row)) rowTexts.set(row, row.textContent.toLowerCase().replace(/\s+/g, " "));
    return rowTexts.get(row);
  };

  const names = new Set(rows.map((row) => row.dataset.service));
  for (const name of Array.from(names).sort()) {
    if (name) service.add(new Option(name, name));
  }
  family.hidden = family.options.length < 3;

  const read = () => {
    const parameters = new URLSearchParams(location.hash.slice(1));
    for (const field of fields) {
      const value = parameters.get(field.id) || "";
      if (field.tagName === "SELECT" && !Array.from(field.options).some((option) => option.value === value)) {
        // A value that no row has stays selected, so that no row is shown rather than all.
        field.add(new Option(value, value));
      }
      field.value = value;
    }
  };

  const write = () => {
    const parameters = new URLSearchParams();
    for (const field of fields) if (field.value) parameters.set(field.id, field.value);
    history.replaceState(null, "", "#" + parameters);
  };

  const filter = () => {
    const searchWords = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const keys = fields.slice(1).filter((field) => field.value);
    let count = 0;
    for (const row of rows) {
      const matches = keys.every((field) => row.dataset[field.id] === field.value)
        && searchWords.every((word) => rowText(row).includes(word));
      row.hidden = !matches;
      if (matches) count += 1;
    }
    for (const section of sections) section.hidden = !section.querySelector("tbody.row:not([hidden])");
    shown.value = count === rows.length ? formatCount(rows.length) : `${count} of ${formatCount(rows.length)}`;
    clear.hidden = !keys.length && !searchWords.length;
  };

  const visibleDetails = () => Array.from(document.querySelectorAll("tbody.row:not([hidden]) details"));

  let timer = 0;
  bar.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { write(); filter(); }, rows.length > 500 ? 150 : 0);
  });
  clear.addEventListener("click", () => {
    for (const field of fields) field.value = "";
    write();
    filter();
    text.focus();
  });
  expand.addEventListener("click", () => {
    const all = visibleDetails();
    const open = all.some((item) => !item.open);
    for (const item of all) item.open = open;
    expand.textContent = open ? "hide rules" : "show rules";
  });
  addEventListener("hashchange", () => { read(); filter(); });

  bar.hidden = false;
  read();
  filter();
})();
