
// A link into a folded part opens it; Escape closes the tooltip of the plot in focus.
const unfold = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target && target.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", unfold);
addEventListener("keydown", event => { if (event.key === "Escape") document.activeElement.blur(); });
unfold();

// A click on a head sorts by its column, better values first; a second click reverses. Cells without a value stay last.
const body = document.querySelector("#numbers-table tbody");
const heads = document.querySelectorAll("#numbers-table th");
for (const head of heads) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  const numeric = head.dataset.kind === "number";
  const key = row => {
    const cell = row.cells[head.cellIndex];
    return numeric ? (cell.dataset.value === undefined ? null : Number(cell.dataset.value)) : cell.textContent;
  };
  button.addEventListener("click", () => {
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : head.dataset.better === "up";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const compare = (a, b) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return (numeric ? a - b : a.localeCompare(b)) * (down ? -1 : 1);
    };
    body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
  });
}
