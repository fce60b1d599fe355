// The first screen: how far to trust the recording, and where the time went.

function card(label, value, warn) {
  return make("div", { class: warn ? "card warn" : "card" }, make("b", {}, value), make("span", {}, (warn ? "! " : "") + label));
}

/** A caller that is known by a return address alone ran, but nothing of it was seen. */
function seen(row) {
  return row.state === "ran" && (row.calls > 0 || row.samples > 0 || row.lost > 0);
}

/** How many of the user's functions that ran are known to the static side. */
function matchCard(report) {
  const known = report.static;
  if (!known) return card("matched: no source was given (record --src)", "-");
  const { matched, ran, share } = known.match_rate;
  return card(`matched with the source: ${count(matched)} of ${count(ran)}`, percent(share), share === null || share < 0.9);
}

function cards({ report }) {
  const lost = report.events + report.lost > 0 ? report.lost / (report.events + report.lost) : 0;
  const ran = report.functions.filter(seen).length;
  return make("div", { class: "cards" },
    card("recorded" + (report.run.cut ? ", then cut short" : ""), duration(report.run.duration_ns), report.run.cut),
    card("events", count(report.events)),
    card("lost: " + percent(lost), count(report.lost), report.lost > 0),
    card("functions ran", count(ran)),
    card("without a name", percent(report.unknown_share), report.unknown_share > 0.05),
    matchCard(report),
    card("threads", count(report.threads.length)));
}

function doubts({ report }) {
  if (report.doubts.length === 0) return make("p", {}, "Nothing to doubt.");
  const line = (doubt) => make("li", {}, make("b", {}, doubt.what), doubt.why ? make("div", {}, doubt.why) : null,
    doubt.do ? make("div", { class: "do" }, "\u2192 " + doubt.do) : null);
  return make("ul", { class: "doubts" }, ...report.doubts.map(line));
}

/** What a bar shows of one function under a weight: its value and the interval that holds the truth. */
function measured(row, weight) {
  if (weight.id === "calls") return row.calls === null ? null : { value: row.calls, low: row.calls, high: row.calls_at_most ?? Infinity };
  if (weight.id === "samples") return row.samples && spread(row.samples, row.samples);
  if (weight.id === "sampled") return row.sampled_self_ns && spread(row.sampled_self_ns, row.samples);
  const value = weight.id === "cpu" ? row.self_cpu_ns : row.self_wall_ns;
  const total = weight.id === "cpu" ? row.total_cpu_ns : row.total_wall_ns;
  // What the probes cost is known of the total time: of the own time it took as much at most.
  return value === null ? null : { value, low: Math.max(0, value - Math.min(row.overhead_ns?.high ?? 0, total)), high: value };
}

/** 95 % of samples drawn by chance fall within two deviations. */
function spread(value, samples) {
  const part = samples ? 1.96 / Math.sqrt(samples) : 0;
  return { value, low: value * Math.max(0, 1 - part), high: value * (1 + part) };
}

function hot(app) {
  const { weight } = app.choice;
  const rows = app.recording.report.functions.map((row, index) => ({ row, func: index + 1, bar: measured(row, weight) }));
  const sorted = rows.filter(({ bar }) => bar && bar.value > 0).sort((a, b) => b.bar.value - a.bar.value).slice(0, 20);
  const most = Math.max(...sorted.map(({ bar }) => (Number.isFinite(bar.high) ? bar.high : bar.value * 1.1)), 1);
  const line = ({ row, func, bar }) => {
    const canvas = make("canvas", { class: "err", role: "img", "aria-label": range(bar, weight) });
    app.later(() => errorBar(canvas, bar, most));
    return make("tr", {},
      make("td", { class: "name" }, make("button", { on: { click: () => app.lookAt(func) } }, row.name), make("span", { class: "faint" }, " " + row.module)),
      make("td", { class: "n" }, weight.unit(bar.value)), make("td", { title: range(bar, weight) }, canvas), make("td", { class: "n" }, calls(row)),
      make("td", { class: "faint" }, [row.unknown && "no name: " + row.unknown, ...row.doubts].filter(Boolean).join("; ")));
  };
  const head = ["Function", weight.label + " in itself", "", "Calls", "Doubts"].map((text, i) => make("th", { class: i === 1 || i === 3 ? "n" : "" }, text));
  return make("table", { class: "hot" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...sorted.map(line)));
}

function range(bar, weight) {
  return `${weight.unit(bar.low)} to ${Number.isFinite(bar.high) ? weight.unit(bar.high) : "unknown"}`;
}

/** A bar, and across it a whisker over the interval; open to the right where nothing bounds it. */
function errorBar(canvas, bar, most) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth || 200, 10];
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const x = (value) => (value / most) * (width - 4);
  context.fillStyle = "rgb(86,180,233)";
  context.fillRect(0, 1, Math.max(x(bar.value), 1), 8);
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--fore");
  const [from, to] = [x(bar.low), Number.isFinite(bar.high) ? x(bar.high) : width];
  if (to - from < 1) return;
  context.beginPath();
  context.moveTo(from, 5);
  context.lineTo(to, 5);
  context.moveTo(from + 0.5, 2);
  context.lineTo(from + 0.5, 8);
  if (Number.isFinite(bar.high)) {
    context.moveTo(to - 0.5, 2);
    context.lineTo(to - 0.5, 8);
  }
  context.stroke();
}

function showFirst(app) {
  const { recording } = app;
  byId("view-first").replaceChildren(cards(recording), make("h2", {}, "What to doubt"), doubts(recording),
    make("h2", {}, "Where the time went"), app.choice.weight ? hot(app) : make("p", {}, "Nothing was measured."));
}
