// Tables: all functions, sortable and searched; what was lost, and what nobody could see.

const CHUNK = 150;

const COLUMNS = [
  { id: "name", label: "Function", value: (row) => row.name, text: null },
  { id: "module", label: "Module", value: (row) => row.module, text: (row) => row.module },
  { id: "calls", label: "Calls", value: (row) => row.calls, text: calls, n: true },
  { id: "self_cpu", label: "Self CPU", value: (row) => row.self_cpu_ns, text: (row) => duration(row.self_cpu_ns), n: true },
  { id: "total_cpu", label: "Total CPU", value: (row) => row.total_cpu_ns, text: (row) => duration(row.total_cpu_ns), n: true },
  { id: "self_wall", label: "Self wall", value: (row) => row.self_wall_ns, text: (row) => duration(row.self_wall_ns), n: true },
  { id: "total_wall", label: "Total wall", value: (row) => row.total_wall_ns, text: (row) => duration(row.total_wall_ns), n: true },
  { id: "samples", label: "Samples", value: (row) => row.samples, text: (row) => count(row.samples), n: true },
  { id: "state", label: "State", value: (row) => row.state, text: (row) => STATES[row.state] ?? row.state },
  { id: "definition", label: "In the source", value: (row) => row.definition ?? row.not_found, text: (row) => row.definition ?? (row.not_found && "not found: " + row.not_found) },
  { id: "doubts", label: "Doubts", value: (row) => row.doubts.length || null, text: (row) => [row.unknown && "no name: " + row.unknown, ...row.doubts].filter(Boolean).join("; ") },
];

const STATES = { ran: "ran", "never-ran": "never ran", "not-visible": "not visible", "not-in-build": "not in this build" };

class Functions {
  constructor(app) {
    this.app = app;
    this.rows = app.recording.report.functions.map((row, index) => ({ row, func: index + 1 }));
    const known = (column) => column.id !== "definition" || app.recording.report.static;
    const measured = (column) => known(column) && (!column.n || this.rows.some(({ row }) => column.value(row) > 0));
    this.columns = COLUMNS.filter(measured);
    this.sort = this.columns.find(({ id }) => id === "self_cpu") ?? this.columns.find(({ id }) => id === "calls") ?? this.columns[0];
    this.up = false;
    this.body = make("tbody");
    this.end = make("p", { class: "faint" });
    this.head = make("tr");
    byId("view-functions").replaceChildren(make("table", {}, make("thead", {}, this.head), this.body), this.end);
    new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && this.more()).observe(this.end);
  }

  show() {
    const { app } = this;
    const sign = this.up ? 1 : -1;
    const value = ({ row }) => this.sort.value(row);
    const last = (a) => (a === null || a === undefined ? 1 : 0);
    this.sorted = this.rows.filter(({ func }) => !app.wanted || app.isWanted(func));
    this.sorted.sort((x, y) => {
      const [a, b] = [value(x), value(y)];
      return last(a) - last(b) || sign * (typeof a === "string" ? a.localeCompare(b) : a - b) || x.func - y.func;
    });
    this.head.replaceChildren(...this.columns.map((column) => this.heading(column)));
    this.body.replaceChildren();
    this.more();
  }

  heading(column) {
    const sorted = column === this.sort;
    const press = () => {
      this.up = sorted ? !this.up : column.id === "name" || column.id === "module";
      this.sort = column;
      this.show();
    };
    const arrow = sorted ? (this.up ? " \u25b2" : " \u25bc") : "";
    return make("th", { class: column.n ? "n" : "", "aria-sort": sorted ? (this.up ? "ascending" : "descending") : "none" },
      make("button", { on: { click: press } }, column.label + arrow));
  }

  more() {
    if (!this.sorted) return;
    const shown = this.body.childElementCount;
    this.body.append(...this.sorted.slice(shown, shown + CHUNK).map((each) => this.line(each)));
    const left = this.sorted.length - this.body.childElementCount;
    this.end.textContent = left > 0 ? `${count(left)} more` : `${count(this.sorted.length)} functions`;
  }

  line({ row, func }) {
    const cells = this.columns.map((column) => {
      if (column.id !== "name") return make("td", { class: column.n ? "n" : "" }, column.text(row));
      const where = row.file ? make("span", { class: "faint" }, ` ${row.file}${row.line ? ":" + row.line : ""}`) : null;
      return make("td", { class: "name" }, make("button", { on: { click: () => this.app.lookAt(func) } }, row.name), where);
    });
    return make("tr", {}, ...cells);
  }
}

function rowsTable(head, rows) {
  const line = (row) => make("tr", {}, ...row.map((text, index) => make("td", { class: head[index].startsWith("#") ? "n" : "" }, text)));
  const shown = rows.slice(0, 500);
  const rest = rows.length > shown.length ? make("p", { class: "faint" }, `${count(rows.length - shown.length)} more are in the recording`) : null;
  return make("div", {}, make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { class: text.startsWith("#") ? "n" : "" }, text.replace("#", ""))))),
    make("tbody", {}, ...shown.map(line))), rest);
}

/** Parts of the page about how the run meets the sources. */
function matchParts({ report }, part) {
  const known = report.static;
  if (!known) return part("Matched with the source", "", null, 0);
  const rate = (what, { matched, ran, share }) => [what, count(matched), count(ran), percent(share)];
  const rates = [rate("User-written functions that ran: the match rate", known.match_rate), rate("Everything that ran", known.raw_rate),
    rate("Module and class bodies, comprehensions", known.bodies), ...Object.entries(known.languages).map(([language, share]) => rate("User-written, " + language, share))];
  const name = (row) => row.name + (row.module ? " (" + row.module + ")" : "");
  const lost = report.functions.filter((row) => row.not_found && seen(row));
  const unseen = (state) => report.unseen.filter((row) => row.state === state);
  const where = (row) => (row.line ? `${row.file}:${row.line}` : row.file);
  const list = (title, why, rows) => part(title, why, rowsTable(["Function", "Kind", "Where", "Why"], rows.map((row) => [row.name, row.kind, where(row), row.why ?? ""])), rows.length);
  return [
    ...part("Matched with the source", "How much of what ran is known to the static side; the target is 90 % of what a user wrote.",
      rowsTable(["What", "#Found", "#Ran", "#Share"], rates), true),
    ...part("Ran and not found in the source", "By reason. Those that count are in the denominator of the match rate.",
      rowsTable(["Why", "#Functions", "#Events", "#That count"], known.unmatched.map((row) => [row.text, count(row.functions), count(row.events), count(row.written)])), known.unmatched.length),
    ...part("Functions that ran and were not found", "", rowsTable(["Function", "#Calls", "Why"], lost.map((row) => [name(row), calls(row), row.not_found])), lost.length),
    ...part("States of the functions of the source", "User-written functions. Not visible: nobody knows whether it ran. Not in this build: it has no code there.",
      rowsTable(["State", "Why", "#Functions"], known.states.map((row) => [STATES[row.state] ?? row.state, row.why ?? "", count(row.functions)])), known.states.length),
    ...list("Never ran", "Watched all the time, and not called.", unseen("never-ran")),
    ...list("Not visible to the probes", "", unseen("not-visible")),
    ...list("Not in this build", "", unseen("not-in-build")),
  ];
}

/** Everything that limits what the other views may say. */
function showTrust(recording) {
  const { report, about } = recording;
  const name = new Map(report.functions.map((row) => [row.key, row.name]));
  const named = (key) => (key ? name.get(key) ?? key : "-");
  const states = Object.entries(STATES).map(([state, text]) => [text, count(report.functions.filter((row) => row.state === state).length)]);
  const part = (title, why, table, rows) => [make("h2", {}, title), make("p", { class: "faint" }, why), rows ? table : make("p", {}, "None.")];
  const reasons = report.unknown?.reasons ?? [];
  const [whole, single] = [report.losses.filter((loss) => !loss.function), report.losses.filter((loss) => loss.function)];
  single.sort((a, b) => b.count - a.count);
  byId("view-trust").replaceChildren(
    ...part("States of the recorded functions", "Never ran: it was watched all the time and was not called. Not visible: it was not watched, so nobody knows.",
      rowsTable(["State", "#Functions"], states), true),
    ...matchParts(recording, part),
    ...part("Without a name", "What ran and could not be named, by reason.",
      rowsTable(["Reason", "#Functions", "#Events"], reasons.map((each) => [each.reason, count(each.functions), count(each.events)])), reasons.length),
    ...part("Lost, all functions", "Events that found no room. The numbers of the functions concerned are lower bounds.",
      rowsTable(["What", "Processor", "#Events"], whole.map((loss) => [loss.class, loss.cpu ?? "-", count(loss.count)])), whole.length),
    ...part("Lost, by function", "The same losses as above, counted once more where their function is known.",
      rowsTable(["What", "Function", "#Events"], single.map((loss) => [loss.class, named(loss.function), count(loss.count)])), single.length),
    ...part("Not watched, or not to the end", "",
      rowsTable(["Function", "#Since", "Why"], report.bounds.map((bound) => [named(bound.function), bound.since_ns === null ? "never" : duration(bound.since_ns), bound.reason])), report.bounds.length),
    ...part("Blind spots", "What the mechanisms of this recording cannot see.",
      make("ul", {}, ...report.blind_spots.map((spot) => make("li", {}, spot))), report.blind_spots.length),
    ...part("Folded", "Calls deeper or more branched than the caps: their numbers are whole, their paths are not.",
      make("p", {}, count(about.folded_calls) + " calls"), about.folded_calls));
}
