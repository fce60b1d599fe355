// Callers and callees of one function: all its outermost activations laid on one another.

/** A tree made of contexts: merged below the function, or merged upwards from it. */
class Merged {
  constructor(tree, func, way) {
    const { recording } = tree;
    this.top = { func, own: 0, total: 0, parent: null, depth: 0, below: new Map() };
    for (const context of tree.order) {
      if (recording.func[context] !== func || tree.total[context] === 0 || isBelow(recording, context, func)) continue;
      if (way === "callers") this.up(tree, context);
      else this.down(tree, context, this.top);
    }
  }

  up(tree, context) {
    const { recording } = tree;
    const weight = tree.total[context];
    let node = this.top;
    node.total += weight;
    for (let at = recording.parent[context]; at !== 0; at = recording.parent[at]) {
      node = kid(node, recording.func[at]);
      node.total += weight;
    }
    node.own += weight;
  }

  down(tree, context, node) {
    const queue = [[context, node]];
    while (queue.length) {
      const [at, into] = queue.pop();
      into.total += tree.total[at];
      into.own += tree.own[at];
      for (let i = tree.first[at]; i < tree.first[at + 1]; i++) {
        const child = tree.kids[i];
        if (tree.total[child] > 0) queue.push([child, kid(into, tree.recording.func[child])]);
      }
    }
  }

  root() {
    return this.top;
  }

  children(node) {
    node.children ??= [...node.below.values()].sort((a, b) => b.total - a.total);
    return node.children;
  }
}

function kid(node, func) {
  let found = node.below.get(func);
  if (!found) {
    found = { func, own: 0, total: 0, parent: node, depth: node.depth + 1, below: new Map() };
    node.below.set(func, found);
  }
  return found;
}

/** Whether the function is on the path above already: its recursion counts once. */
function isBelow(recording, context, func) {
  for (let at = recording.parent[context]; at !== 0; at = recording.parent[at]) {
    if (recording.func[at] === func) return true;
  }
  return false;
}

class Sandwich {
  constructor(app) {
    this.app = app;
    this.callers = new Flame(byId("callers"), app, {});
    this.callees = new Flame(byId("callees"), app, {});
    this.callers.flipped = true;
  }

  show() {
    const { app } = this;
    const func = app.chosenFunc ?? app.heaviest();
    const name = byId("sandwich-name");
    if (!func) {
      name.textContent = "Nothing ran here: choose another thread, time or width.";
      return;
    }
    app.chosenFunc = func;
    name.textContent = app.name(func) + " - choose another in the call tree or the functions, then c";
    this.callers.show(new Merged(app.tree, func, "callers"));
    this.callees.show(new Merged(app.tree, func, "callees"));
    this.edges(func);
  }

  /** Exact edges of the whole recording, with their counts. */
  edges(func) {
    const { report } = this.app.recording;
    const key = report.functions[func - 1].key;
    const name = new Map(report.functions.map((row) => [row.key, row.name]));
    const rows = report.edges.filter((edge) => edge.caller === key || edge.callee === key);
    rows.sort((a, b) => (b.calls ?? 0) - (a.calls ?? 0));
    const line = (edge) => make("tr", {},
      make("td", { class: "name" }, name.get(edge.caller) ?? edge.caller), make("td", { class: "name" }, name.get(edge.callee) ?? edge.callee),
      make("td", { class: "n" }, count(edge.calls)), make("td", { class: "n" }, duration(edge.total_cpu_ns)),
      make("td", { class: "n" }, duration(edge.total_wall_ns)), make("td", {}, edge.source));
    const head = ["Caller", "Callee", "Calls", "CPU time", "Wall time", "Known by"].map((text, i) => make("th", { class: i > 1 && i < 5 ? "n" : "" }, text));
    const shown = rows.slice(0, 300);
    byId("edges").replaceChildren(
      make("h2", {}, `Edges of the whole recording: ${count(rows.length)}${rows.length > 300 ? ", the first 300" : ""}`),
      make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...shown.map(line))));
  }
}
