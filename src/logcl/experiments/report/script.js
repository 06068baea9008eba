"use strict";

// "12.3 kB", "99.44 ± 0.02", "3.4 min", "1,024" → a number; "–" and other text → null.
const FACTORS = { kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, min: 60, h: 3600 };
function parsed(text) {
  const found = /^([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*(?:±.*|([%a-zA-Z]*))$/.exec(text.replace("−", "-"));
  return found ? Number(found[1].replaceAll(",", "")) * (FACTORS[found[2]] ?? 1) : null;
}

function compared(a, b) {
  const [x, y] = [parsed(a), parsed(b)];
  if (x !== null && y !== null) return x - y;
  return a.localeCompare(b, "en", { numeric: true });
}

function sort(table, column, descending) {
  const body = table.tBodies[0];
  const text = (row) => row.cells[column].textContent.trim();
  const rows = [...body.rows];
  const known = rows.filter((row) => text(row) !== "–");
  known.sort((a, b) => compared(text(a), text(b)) * (descending ? -1 : 1));
  // Unknown values come last in either direction.
  body.append(...known, ...rows.filter((row) => text(row) === "–"));
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sort(table, column, descending);
    });
  });
}

// Browsers show the <title> of a mark on hover, but not on touch.
const tip = document.getElementById("tip");
document.addEventListener("pointerdown", (event) => {
  const title = event.pointerType === "mouse" ? null : event.target.closest?.("svg *")?.querySelector(":scope > title");
  tip.hidden = !title;
  if (title) tip.textContent = title.textContent;
});

// Print with all details open.
const folded = [];
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = true;
    folded.push(part);
  }
});
addEventListener("afterprint", () => {
  for (const part of folded.splice(0)) part.open = false;
});
