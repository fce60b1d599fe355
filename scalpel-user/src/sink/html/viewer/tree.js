// The calling-context tree under a choice: which weight, which thread, which part of the time.

const WEIGHTS = [
  { id: "cpu", label: "CPU time", metric: "self_cpu_ns", unit: duration },
  { id: "sampled", label: "CPU time by samples", metric: "sampled_ns", unit: duration },
  { id: "wall", label: "Wall time", metric: "self_wall_ns", unit: duration },
  { id: "off", label: "Time off the processor", metric: "off_cpu_ns", unit: duration },
  { id: "samples", label: "Samples", metric: "samples", unit: count },
  { id: "calls", label: "Calls", metric: "calls", unit: count },
];

/** Weights of which anything was measured: what was not measured is not offered. */
function weightsOf(recording) {
  return WEIGHTS.filter(({ metric }) => recording.cell[metric].some((value) => value > 0));
}

/** Name of a function by its number; 0 is what the caps folded. */
function nameOf(recording, func) {
  return func === 0 ? "[folded]" : recording.report.functions[func - 1]?.name ?? "<function " + func + ">";
}

/** Own and inclusive weight of each context, and its children, the heaviest first. Index 0 is the root. */
class Tree {
  constructor(recording, choice) {
    this.recording = recording;
    const size = recording.parent.length;
    this.own = new Float64Array(size);
    this.total = new Float64Array(size);
    const { cell } = recording;
    const metric = cell[choice.weight.metric];
    for (let i = 0; i < metric.length; i++) {
      const wanted = (choice.thread < 0 || cell.thread[i] === choice.thread)
        && (!choice.span || (cell.window[i] >= choice.span[0] && cell.window[i] <= choice.span[1]));
      if (wanted) this.own[cell.context[i]] += metric[i];
    }
    this.order = parentsFirst(recording.parent);
    this.total.set(this.own);
    for (let i = size - 1; i > 0; i--) {
      const at = this.order[i];
      this.total[recording.parent[at]] += this.total[at];
    }
    this.link();
  }

  /** Children of each context as one array with a start a context. */
  link() {
    const { parent } = this.recording;
    const size = parent.length;
    this.first = new Int32Array(size + 1);
    for (let at = 1; at < size; at++) this.first[parent[at] + 1]++;
    for (let at = 0; at < size; at++) this.first[at + 1] += this.first[at];
    const next = this.first.slice(0, size);
    this.kids = new Int32Array(Math.max(0, size - 1));
    for (let at = 1; at < size; at++) this.kids[next[parent[at]]++] = at;
  }

  root() {
    return { context: 0, func: -1, own: this.own[0], total: this.total[0], parent: null, depth: 0 };
  }

  /** Children with any weight, the heaviest first; made when they are asked for. */
  children(node) {
    if (node.children) return node.children;
    const found = [];
    for (let i = this.first[node.context]; i < this.first[node.context + 1]; i++) {
      const context = this.kids[i];
      if (this.total[context] > 0) {
        found.push({ context, func: this.recording.func[context], own: this.own[context], total: this.total[context], parent: node, depth: node.depth + 1 });
      }
    }
    found.sort((a, b) => b.total - a.total || a.context - b.context);
    node.children = found;
    return found;
  }
}

/** The contexts so that each stands behind its parent, whatever their numbers are. */
function parentsFirst(parent) {
  const size = parent.length;
  const order = new Int32Array(size);
  const placed = new Uint8Array(size);
  let filled = 0;
  const path = [];
  for (let start = 0; start < size; start++) {
    for (let at = start; !placed[at]; at = parent[at]) {
      path.push(at);
      placed[at] = 1;
      if (at === 0) break;
    }
    while (path.length) order[filled++] = path.pop();
  }
  return order;
}
