// The page itself: one choice (weight, thread, time, search) that all views follow, tabs and keys.

const VIEWS = ["first", "flame", "sandwich", "timeline", "functions", "trust"];

class App {
  constructor(recording) {
    this.recording = recording;
    this.weights = weightsOf(recording);
    this.choice = { weight: this.weights[0] ?? null, thread: -1, span: null };
    this.paint = new Paint(recording);
    this.wanted = null;
    this.waiting = [];
    this.flame = new Flame(byId("flame"), this, { rootName: () => "all threads", drawn: () => this.flamePath() });
    this.sandwich = new Sandwich(this);
    this.timeline = new Timeline(this);
    this.functions = new Functions(this);
    showTrust(recording);
    this.heading();
    this.tools();
    this.keys();
    window.addEventListener("resize", () => this.show(this.view));
    this.rebuild();
  }

  heading() {
    const { run } = this.recording.report;
    byId("command").textContent = run.command || "(no command)";
    const when = new Date(run.started / 1e6).toISOString().slice(0, 19).replace("T", " ");
    byId("where").textContent = `process ${run.pid} on ${run.host}, Linux ${run.kernel}, ${when} UTC, ${run.mode}, scalpel ${run.version}`;
  }

  tools() {
    const { report } = this.recording;
    byId("weight").replaceChildren(...this.weights.map(({ id, label }) => make("option", { value: id }, label)));
    byId("weight").addEventListener("change", (event) => {
      this.choice.weight = this.weights.find(({ id }) => id === event.target.value);
      this.rebuild();
    });
    const threads = this.recording.about.threads_joined ? [] : report.threads;
    byId("thread").replaceChildren(make("option", { value: -1 }, "all"),
      ...threads.map((thread, index) => make("option", { value: index }, `${thread.name ?? "?"} ${thread.pid}/${thread.tid}`)));
    byId("thread").addEventListener("change", (event) => {
      this.choice.thread = Number(event.target.value);
      this.rebuild();
    });
    byId("search").addEventListener("input", () => this.search());
    byId("span-clear").addEventListener("click", () => this.setSpan(null));
    byId("theme").addEventListener("click", () => this.theme());
    byId("help-open").addEventListener("click", () => byId("help").showModal());
    byId("flame-flip").addEventListener("click", () => this.flip());
    byId("flame-reset").addEventListener("click", () => this.flame.zoom(this.tree.root()));
    for (const view of VIEWS) byId("tab-" + view).addEventListener("click", () => this.show(view));
  }

  /** The tree under the present choice, then whatever is on the screen. */
  rebuild() {
    if (this.choice.weight) {
      this.tree = new Tree(this.recording, this.choice);
      this.flame.show(this.tree);
    }
    this.show(this.view ?? "first");
  }

  show(view) {
    this.view = view;
    for (const each of VIEWS) {
      byId("view-" + each).hidden = each !== view;
      byId("tab-" + each).setAttribute("aria-selected", String(each === view));
      byId("tab-" + each).tabIndex = each === view ? 0 : -1;
    }
    if (view === "first") showFirst(this);
    if (view === "flame") this.flame.draw();
    if (view === "sandwich" && this.tree) this.sandwich.show();
    if (view === "timeline") this.timeline.draw();
    if (view === "functions") this.functions.show();
    this.waiting.splice(0).forEach((draw) => draw());
  }

  /** What can only be drawn once it is on the screen. */
  later(draw) {
    this.waiting.push(draw);
  }

  setSpan(span) {
    this.choice.span = span;
    const length = this.recording.about.window_ns;
    byId("span-note").textContent = span ? `Time: ${duration(span[0] * length)} to ${duration((span[1] + 1) * length)}` : "";
    byId("span-clear").hidden = !span;
    this.rebuild();
  }

  search() {
    const field = byId("search");
    field.classList.remove("bad");
    try {
      const test = meaning(field.value);
      this.wanted = test && new Set(this.recording.report.functions.flatMap((row, index) => (test(row.name) ? [index + 1] : [])));
    } catch {
      field.classList.add("bad");
      this.detail("not a regular expression: " + field.value);
      return;
    }
    this.detail(this.wanted ? `${count(this.wanted.size)} functions match` : "");
    this.show(this.view === "flame" || this.view === "timeline" || this.view === "functions" ? this.view : "functions");
  }

  isWanted(func) {
    return this.wanted.has(func);
  }

  name(func) {
    return nameOf(this.recording, func);
  }

  detail(text) {
    byId("detail").textContent = text;
  }

  flamePath() {
    const { top } = this.flame;
    byId("legend").replaceChildren(...legend(this.paint));
    byId("flame-path").textContent = top.func < 0 ? `${this.choice.weight.label}: ${this.choice.weight.unit(top.total)}` : this.flame.describe(top);
  }

  heaviest() {
    const own = new Map();
    this.tree.own.forEach((weight, context) => {
      const func = this.recording.func[context];
      if (func > 0 && weight > 0) own.set(func, (own.get(func) ?? 0) + weight);
    });
    return [...own].sort((a, b) => b[1] - a[1])[0]?.[0];
  }

  lookAt(func) {
    this.chosenFunc = func;
    this.show("sandwich");
  }

  flip() {
    this.flame.flipped = !this.flame.flipped;
    this.flame.draw();
  }

  theme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    this.show(this.view);
  }

  keys() {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey || byId("help").open) return;
      const typing = event.target.matches?.("input, select");
      if (event.key === "Escape") this.escape(typing);
      else if (!typing && this.press(event.key)) event.preventDefault();
    });
  }

  escape(typing) {
    if (typing) byId("search").blur();
    else if (this.view === "flame") this.flame.zoom(this.tree.root());
    else if (this.view === "timeline") this.timeline.reset();
  }

  /** Whether the key means something. */
  press(key) {
    const view = VIEWS[Number(key) - 1];
    if (view) {
      this.show(view);
      byId(view)?.focus();
      return true;
    }
    const actions = {
      "/": () => byId("search").focus(), "?": () => byId("help").showModal(), t: () => this.theme(), f: () => this.flip(),
      c: () => this.show("sandwich"),
    };
    actions[key]?.();
    return key in actions;
  }
}

openRecording().then((recording) => {
  window.scalpel = new App(recording);
  byId("opening").remove();
  document.documentElement.dataset.state = "ready";
}).catch((error) => {
  byId("opening").textContent = "This page cannot be opened: " + error.message;
  document.documentElement.dataset.state = "failed";
});
