"use strict";
// Filters rows by what is in the URL's fragment, such as #cause=verdict&service=shop/cart:grpc&family=IPv4&text=10.0.0.1.
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
  const said = new Map();

  const counted = (count) => (count === 1 ? "1 row" : `${count} rows`);
  const words = (row) => {
    if (!said.has(row)) said.set(row, row.textContent.toLowerCase().replace(/\s+/g, " "));
    return said.get(row);
  };

  const names = new Set(rows.map((row) => row.dataset.service));
  for (const name of Array.from(names).sort()) {
    if (name) service.add(new Option(name, name));
  }
  family.hidden = family.options.length < 3;

  const read = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    for (const field of fields) {
      const value = wanted.get(field.id) || "";
      if (field.tagName === "SELECT" && !Array.from(field.options).some((option) => option.value === value)) {
        // What nothing has is said, not passed over: the page would show everything.
        field.add(new Option(value, value));
      }
      field.value = value;
    }
  };

  const write = () => {
    const wanted = new URLSearchParams();
    for (const field of fields) if (field.value) wanted.set(field.id, field.value);
    history.replaceState(null, "", "#" + wanted);
  };

  const filter = () => {
    const sought = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const keys = fields.slice(1).filter((field) => field.value);
    let count = 0;
    for (const row of rows) {
      const fits = keys.every((field) => row.dataset[field.id] === field.value)
        && sought.every((word) => words(row).includes(word));
      row.hidden = !fits;
      if (fits) count += 1;
    }
    for (const section of sections) section.hidden = !section.querySelector("tbody.row:not([hidden])");
    shown.value = count === rows.length ? counted(rows.length) : `${count} of ${counted(rows.length)}`;
    clear.hidden = !keys.length && !sought.length;
  };

  const folded = () => Array.from(document.querySelectorAll("tbody.row:not([hidden]) details"));

  let waiting = 0;
  bar.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { write(); filter(); }, rows.length > 500 ? 150 : 0);
  });
  clear.addEventListener("click", () => {
    for (const field of fields) field.value = "";
    write();
    filter();
    text.focus();
  });
  expand.addEventListener("click", () => {
    const all = folded();
    const open = all.some((item) => !item.open);
    for (const item of all) item.open = open;
    expand.textContent = open ? "hide rules" : "show rules";
  });
  addEventListener("hashchange", () => { read(); filter(); });

  bar.hidden = false;
  read();
  filter();
})();
