// Numbers with units, and tables whose rows keep their elements, so that neither the focus nor what is being typed is lost. All text is set as text.

const digits = (n) => n.toLocaleString("en", { maximumSignificantDigits: 3 });
const scaled = (n, units, base) => {
  let i = 0;
  while (Math.abs(n) >= base * 0.9995 && i < units.length - 1) { n /= base; i += 1; }
  return (digits(n) + " " + units[i]).trim();
};
const known = (format) => (n) => (n === null || n === undefined ? "-" : format(n));

export const count = known((n) => scaled(n, ["", "k", "M", "G", "T"], 1000));
export const rate = known((n) => scaled(n, ["/s", "k/s", "M/s", "G/s"], 1000));
export const bits = known((n) => scaled(n, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"], 1000));
export const bytes = known((n) => (n < 10000 ? whole(n) + " B" : scaled(n / 1024, ["KiB", "MiB", "GiB", "TiB"], 1024)));
export const micros = known((us) => scaled(us, ["µs", "ms", "s"], 1000));
export const percent = known((n) => Math.round(n) + " %");
export const whole = known((n) => n.toLocaleString("en"));
export const span = known((s) => (s < 120 ? digits(s) + " s" : s < 7200 ? Math.round(s / 60) + " min" : digits(s / 3600) + " h"));

export const node = (id) => document.getElementById(id);
export const element = (name, parent, properties) => parent.appendChild(Object.assign(document.createElement(name), properties));

/** A button that says what it does to what. */
export const button = (parent, control, text, label, act) => {
  const made = element("button", parent, { type: "button", textContent: text });
  made.dataset.control = control;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
};

/** Sets the text only where it is another one. */
export const say = (of, text) => { if (of.textContent !== text) of.textContent = text; };

/**
 * A table in the element `id`; what is returned shows rows in it. A column has a `title`, and `text` of a row or `build`, which fills a cell once and returns
 * what is called with each newer row. `right`: numbers. `wrap`: in several lines. `mark`: whether it is bad.
 */
export const table = (id, columns, key, none) => {
  const box = node(id);
  const made = element("table", box, {});
  const head = element("tr", element("thead", made, {}), {});
  for (const column of columns) element("th", head, { textContent: column.title, scope: "col", className: column.right ? "right" : "" });
  const body = element("tbody", made, {});
  const empty = element("p", box, { className: "none", textContent: none, hidden: true });
  const rows = new Map();
  const make = (row) => {
    const line = document.createElement("tr");
    const cells = columns.map((column) => {
      const cell = element("td", line, { className: column.right ? "right" : column.wrap ? "wrap" : "" });
      const update = column.build ? column.build(cell, row) : null;
      return { cell, column, update };
    });
    return { line, cells };
  };
  return (all) => {
    const focused = document.activeElement;
    const seen = new Set();
    let place = body.firstElementChild;
    for (const row of all) {
      const name = key(row);
      if (seen.has(name)) continue;
      seen.add(name);
      if (!rows.has(name)) rows.set(name, make(row));
      const { line, cells } = rows.get(name);
      for (const { cell, column, update } of cells) {
        if (update) update(row);
        else if (!column.build) say(cell, column.text(row));
        if (column.mark) cell.classList.toggle("bad", column.mark(row));
      }
      if (line === place) place = place.nextElementSibling;
      else body.insertBefore(line, place);
    }
    for (const [name, { line }] of rows) {
      if (seen.has(name)) continue;
      line.remove();
      rows.delete(name);
    }
    if (focused !== document.activeElement && focused && focused.isConnected) focused.focus({ preventScroll: true });
    made.hidden = seen.size === 0;
    empty.hidden = seen.size > 0;
  };
};
