// Judges the methods again under other thresholds: the rules of walkback.judge, applied to the numbers in the page.
// The tests compare every outcome with `DiagnosticReport.rejudge`.
const page = JSON.parse(document.getElementById("numbers").textContent);

const VERDICTS = ["walked_back", "cannot_be_judged", "inconclusive", "trustworthy"]; // Worst first.
const ALIGNMENTS = ["invalid", "walked_back", "inconclusive", "not_made", "not_applicable", "detectable_small", "stands",
  "trivial"];
const worst = (order, outcomes) => order.find(outcome => outcomes.includes(outcome));

// A check fails (true), passes (false), or was not measured (null).
function checksOf(seed, t) {
  const { growth, reference, margin } = seed;
  const D1 = growth.infinite || (growth.value !== null && growth.value > t.h_norm_explosion_ratio) ? true
    : growth.all ? false : null;
  const D2 = reference.value === null ? null : reference.value < t.g_norm_floor;
  return { D1, D2, D3: margin === null ? null : margin < t[seed.line],
    fitted: D2 && reference.fitted_up_to >= t.g_norm_floor };
}

// A paper's edition: walked back if all checks of a term fail; inconclusive if unknown checks could still do that.
function byEdition(rules, seed, checks) {
  if (seed.withheld) return "inconclusive";
  const value = name => rules.excuses_fitted && name === "D2" && checks.fitted ? false : checks[name];
  const terms = rules.terms.filter(term => !(rules.skips_depth && !seed.baseline && term.includes("D3")));
  if (terms.some(term => term.every(name => value(name) === true))) return "walked_back";
  if (seed.not_finite) return "cannot_be_judged";
  return terms.some(term => term.every(name => value(name) !== false)) ? "inconclusive" : "trustworthy";
}

// The default edition, from the claims.
function byClaims(depth, alignment, isClaimed) {
  const fails = isClaimed && ["walked_back", "invalid"].includes(alignment);
  const holds = !isClaimed || ["stands", "trivial", "not_made"].includes(alignment);
  if (depth === "cannot_be_judged") return depth;
  if (depth === "walked_back" || fails) return "walked_back";
  return depth === "stands" && holds ? "trustworthy" : "inconclusive";
}

function depthOf(seed, t) {
  const facts = seed.depth, line = t[seed.line];
  if (facts.fixed) return { ...facts.fixed, level: -1 };
  const [low, high] = facts.levels[0], { gate, margin, unit } = facts;
  const found = (outcome, reason) => ({ outcome, shown: facts.shown[outcome], reason: `${margin}${reason}`,
    // The smallest share of alpha at which the margin differs from the line: alpha / level. 0: not even at alpha.
    level: outcome === "not_informative" ? -1 : facts.levels.filter(([a, b]) => line < a || line > b).length });
  if (low >= line) return found("stands", `: at or above ${line} ${unit}`);
  if (gate && gate[1] < line) return found("not_informative", ": depth is not needed here, backprop gains no more");
  if (!gate || gate[0] < line) return found("inconclusive", "; whether depth is needed here is not decided");
  if (high < line) return found("walked_back", `: under ${line} ${unit}`);
  return found("inconclusive", `: ${line} ${unit} lies inside`);
}

// Holm's correction over the audited methods: a claim that is not significant after it is inconclusive.
function correctForNumber(claims) {
  const family = claims.filter(claim => claim.audited && claim.level >= 0).sort((a, b) => b.level - a.level);
  const significant = family.findIndex((claim, at) => claim.level < family.length - at);
  for (const claim of significant < 0 ? [] : family.slice(significant))
    if (claim.level > 0 && claim.outcome !== "inconclusive") {
      claim.outcome = claim.shown = "inconclusive";
      claim.reason += `; not significant after Holm's correction over ${family.length} methods`;
    }
}

function alignmentOf(row, t) {
  const found = row.seeds.map(seed => seed.alignment.findLast(step => step.from <= t.null_z) ?? seed.alignment[0]);
  const outcome = worst(ALIGNMENTS, found.map(claim => claim.outcome));
  const agreeing = found.filter(claim => claim.outcome === outcome);
  const share = found.length > 1 ? `in ${agreeing.length} of ${found.length} seeds: ` : "";
  return { outcome, shown: agreeing[0].shown, reason: share + agreeing[0].reason, seeds: found };
}

function judge(t, edition) {
  const depths = page.rows.map(row => {
    const found = row.seeds.map(seed => depthOf(seed, t));
    return { ...(found.find(claim => claim.outcome === "cannot_be_judged") ?? found[0]), audited: row.audited };
  });
  correctForNumber(depths);
  return page.rows.map((row, at) => {
    const depth = depths[at], alignment = alignmentOf(row, t);
    const checks = row.seeds.map(seed => checksOf(seed, t));
    const verdicts = {};
    for (const [name, rules] of Object.entries(page.editions))
      verdicts[name] = worst(VERDICTS, row.seeds.map((seed, seat) => byEdition(rules, seed, checks[seat])));
    const alone = row.seeds.map((seed, seat) => seed.withheld ? "inconclusive"
      : byClaims(depthOf(seed, t).outcome, alignment.seeds[seat].outcome, row.claims_alignment));
    const lacksEvidence = row.seeds.some((seed, seat) => seed.withheld || alone[seat] === "trustworthy");
    verdicts.claims = lacksEvidence && worst(VERDICTS, alone) === "inconclusive" ? "inconclusive"
      : byClaims(depth.outcome, alignment.outcome, row.claims_alignment);
    return { depth, alignment, checks, verdicts, verdict: verdicts[edition] };
  });
}
