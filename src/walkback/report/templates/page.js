
// The page: the picture, chips, claims, verdicts and the sentence follow the sliders.
const byId = id => document.getElementById(id);
const SIGNS = { trustworthy: "✓", walked_back: "✗", inconclusive: "?", cannot_be_judged: "?" };
const WORDS = { trustworthy: "trustworthy", walked_back: "needs walk-back", inconclusive: "inconclusive",
  cannot_be_judged: "cannot be judged" };
const KINDS = { trustworthy: "good", walked_back: "bad", inconclusive: "warn", cannot_be_judged: "warn" };
const CLAIM_KINDS = { stands: "good", trivial: "good", walked_back: "bad", invalid: "bad", cannot_be_judged: "bad",
  not_made: "none", not_applicable: "none" };
const KIND_SIGNS = { good: "✓", bad: "✗", warn: "?", none: "–" };
const short = value => value !== 0 && (value < 1e-3 || value >= 1e4) ? value.toExponential().replace("+", "")
  : String(value);

function setKind(element, kind, sign) {
  element.classList.remove("good", "bad", "warn", "none");
  element.classList.add(kind);
  element.querySelector(".sign").textContent = sign;
}

// The same sentence as report/audit_page/sentence.py.
function sentence(methods, edition) {
  const n = methods.length, count = test => methods.filter(test).length;
  if (edition !== "claims") {
    const forms = { walked_back: ["needs walk-back", "need walk-back"],
      cannot_be_judged: ["cannot be judged", "cannot be judged"], inconclusive: ["is inconclusive", "are inconclusive"],
      trustworthy: ["is trustworthy", "are trustworthy"] };
    const parts = Object.entries(forms).map(([name, words]) => [count(m => m.verdict === name), words])
      .filter(([many]) => many).map(([many, words]) => `${many} ${words[many > 1 ? 1 : 0]}`);
    return `By the rule of edition ${edition}, of ${n === 1 ? "the method" : `${n} methods`}: ${parts.join(", ")}.`;
  }
  const may = count(m => m.depth.outcome === "stands");
  const mayNot = count(m => ["walked_back", "cannot_be_judged"].includes(m.depth.outcome));
  const undecided = n - may - mayNot;
  let text;
  if (undecided === n) {
    text = `Whether ${n === 1 ? "the method trains" : `the ${n} methods train`} this network’s depth is not decided.`;
  } else if (n === 1) {
    text = `The method ${may ? "may" : "may not"} claim that it trains this network’s depth.`;
  } else {
    const lead = mayNot || may;
    text = `Of ${n} methods, ${lead} ${mayNot ? "may not" : "may"} claim that ` +
      `${lead === 1 ? "it trains" : "they train"} this network’s depth`;
    if (may && mayNot) text += `; ${may} may`;
    text += undecided ? `; for ${undecided} this is not decided.` : ".";
  }
  const unaligned = count(m => ["walked_back", "invalid"].includes(m.alignment.outcome));
  return unaligned ? `${text} ${n === 1 ? "It" : unaligned} may not claim that ` +
    `${unaligned === 1 ? "its" : "their"} training signal is aligned with the gradient.` : text;
}

function showClaim(cell, claim) {
  const kind = CLAIM_KINDS[claim.outcome] ?? "warn";
  setKind(cell.querySelector(".claim"), kind, KIND_SIGNS[kind]);
  cell.querySelector(".shown").textContent = claim.shown;
  cell.querySelector(".why").textContent = claim.reason;
}

// What the depth claim asks for, and the shaded nulls.
function showThresholds(row, seed, t) {
  const { low, high, ends } = page.axes, margin = t[seed.line];
  const line = row.querySelector(".needed"), at = row.querySelector("[data-frozen]");
  if (line && at) {
    const value = Number(at.dataset.frozen) + (seed.line === "frozen_acc_margin_pp" ? margin / 100 : -margin);
    const x = `${(3 + 94 * (Math.min(Math.max(value, low), high) - low) / (high - low)).toFixed(2)}%`;
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  }
  const y = value => 35 - (value - ends[0]) / (ends[1] - ends[0]) * 30;
  for (const band of row.querySelectorAll("[data-null]")) {
    const half = t.null_z * Number(band.dataset.null);
    const [above, below] = [y(Math.min(half, ends[1])), y(Math.max(-half, ends[0]))];
    band.setAttribute("y", above.toFixed(1));
    band.setAttribute("height", (below - above).toFixed(1));
  }
}

function show(methods, edition, t, isStored) {
  byId("sentence").textContent = sentence(methods, edition);
  methods.forEach((found, at) => {
    const { depth, alignment } = isStored ? page.rows[at].claims : found;
    const picture = byId(`picture-${at}`), claims = byId(`method-${at}`);
    for (const mark of [picture.querySelector(".verdict"), claims.querySelector(".verdict")]) {
      setKind(mark, KINDS[found.verdict], SIGNS[found.verdict]);
      mark.querySelector(".word").textContent = WORDS[found.verdict];
    }
    const fails = name => found.checks.some(check => check[name] === true);
    const passes = name => found.checks.every(check => check[name] === false);
    const kinds = { depth: CLAIM_KINDS[depth.outcome] ?? "warn", alignment: CLAIM_KINDS[alignment.outcome] ?? "warn" };
    for (const name of ["D1", "D2"]) kinds[name] = fails(name) ? "bad" : passes(name) ? "good" : "warn";
    for (const chip of picture.querySelectorAll(".chip"))
      setKind(chip, kinds[chip.dataset.chip], KIND_SIGNS[kinds[chip.dataset.chip]]);
    showClaim(claims.querySelector(".depth"), depth);
    showClaim(claims.querySelector(".alignment"), alignment);
    for (const line of claims.querySelectorAll("[data-check]")) line.hidden = !fails(line.dataset.check);
    claims.querySelector(".nothing").hidden = ["D1", "D2", "D3"].some(fails);
    showThresholds(picture, page.rows[at].seeds[0], t);
  });
}

function start() {
  const inputs = Object.fromEntries(Object.keys(page.thresholds).map(name => [name, byId(name)]));
  const nearest = (values, value) => values.reduce((best, each, at) =>
    Math.abs(each - value) < Math.abs(values[best] - value) ? at : best, 0);
  let t = { ...page.thresholds };
  const update = () => {
    const edition = byId("edition").value;
    for (const [name, input] of Object.entries(inputs)) {
      byId(`${name}-value`).textContent = short(t[name]);
      input.setAttribute("aria-valuetext", short(t[name]));
    }
    for (const text of document.querySelectorAll("[data-threshold]"))
      text.textContent = short(t[text.dataset.threshold]);
    const changed = Object.keys(t).filter(name => t[name] !== page.thresholds[name]);
    const notes = changed.map(name => `${inputs[name].dataset.words} ${short(t[name])}, stored ${
      short(page.thresholds[name])}`);
    if (edition !== page.edition) notes.push(`rule ${edition}, stored ${page.edition}`);
    byId("changed").hidden = !notes.length;
    byId("changed").querySelector(".what").textContent = notes.join("; ");
    document.body.classList.toggle("rejudged", notes.length > 0);
    byId("reset").disabled = !notes.length;
    show(judge(t, edition), edition, t, !changed.length);
  };
  const reset = () => {
    t = { ...page.thresholds };
    for (const [name, input] of Object.entries(inputs)) input.value = nearest(page.sliders[name], t[name]);
    byId("edition").value = page.edition;
    update();
  };
  for (const [name, input] of Object.entries(inputs))
    input.addEventListener("input", () => { t[name] = page.sliders[name][input.value]; update(); });
  byId("edition").addEventListener("change", update);
  byId("reset").addEventListener("click", () => { reset(); byId("edition").focus(); });
  byId("thresholds").hidden = false;
  reset();
}
start();
