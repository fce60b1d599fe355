// A tree of calls as boxes: width is weight, each below its caller (icicle) or above it (flame).

const ROW = 19;

class Flame {
  /** `tree` has root() and children(node); `app` tells names, looks and what is searched for. */
  constructor(canvas, app, options = {}) {
    this.canvas = canvas;
    this.app = app;
    this.options = options;
    this.flipped = false;
    this.boxes = [];
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("click", (event) => this.click(event));
    canvas.addEventListener("dblclick", () => this.zoom(this.chosen));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(tree) {
    this.tree = tree;
    this.top = tree.root();
    this.chosen = this.top;
    this.draw();
  }

  /** The callers of the zoomed node, outermost first, then everything below it that is wide enough to see. */
  draw() {
    if (!this.tree) return;
    const path = [];
    for (let node = this.top; node; node = node.parent) path.unshift(node);
    const width = this.canvas.parentElement.clientWidth;
    this.boxes = path.map((node, level) => ({ node, x: 0, width, level }));
    if (this.top.total > 0) this.place(this.top, 0, width, path.length);
    const levels = this.boxes.reduce((most, each) => Math.max(most, each.level), 0) + 1;
    const { context, height } = ready(this.canvas, levels * ROW);
    for (const each of this.boxes) {
      each.y = this.flipped ? height - (each.level + 1) * ROW : each.level * ROW;
      this.box(context, each);
    }
    this.options.drawn?.(this);
  }

  place(node, left, width, level) {
    const scale = width / node.total;
    const queue = [[node, left, level]];
    while (queue.length) {
      const [above, from, depth] = queue.pop();
      let x = from;
      for (const child of this.tree.children(above)) {
        const wide = child.total * scale;
        // The children are sorted: all that follow are narrower still.
        if (wide < 0.4) break;
        this.boxes.push({ node: child, x, width: wide, level: depth });
        queue.push([child, x, depth + 1]);
        x += wide;
      }
    }
  }

  box(context, { node, x, y, width }) {
    const name = node.func < 0 ? this.options.rootName?.() ?? "all" : this.app.name(node.func);
    const faint = this.app.wanted && (node.func < 0 || !this.app.isWanted(node.func));
    const look = node.func < 0 ? { fill: "rgb(140,148,157)", text: "#101418" } : this.app.paint.of(node.func);
    box(context, look, x, y, width, ROW, name, faint);
    if (node === this.chosen) outline(context, x, y, width, ROW);
  }

  at(event) {
    const area = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    return this.boxes.findLast((each) => x >= each.x && x < each.x + each.width && y >= each.y && y < each.y + ROW)?.node;
  }

  hover(event) {
    const node = this.at(event);
    this.canvas.title = node && node.func >= 0 ? this.app.name(node.func) : "";
    if (node) this.app.detail(this.describe(node));
  }

  click(event) {
    const node = this.at(event);
    if (node) this.choose(node);
  }

  choose(node) {
    this.chosen = node;
    if (node.func > 0) this.app.chosenFunc = node.func;
    this.app.detail(this.describe(node));
    this.draw();
  }

  zoom(node) {
    if (!node) return;
    this.top = node;
    this.chosen = node;
    this.draw();
  }

  key(event) {
    const node = this.chosen;
    const siblings = node.parent ? this.tree.children(node.parent) : [node];
    const index = siblings.indexOf(node);
    const down = this.tree.children(node)[0];
    const [inward, outward] = this.flipped ? ["ArrowUp", "ArrowDown"] : ["ArrowDown", "ArrowUp"];
    const to = { [inward]: down, [outward]: node.parent, ArrowRight: siblings[index + 1], ArrowLeft: siblings[index - 1] }[event.key];
    if (event.key === "Enter") this.zoom(node);
    else if (to) this.choose(to);
    else return;
    event.preventDefault();
  }

  describe(node) {
    const { unit } = this.app.choice.weight;
    const all = this.tree.root().total;
    const shares = `${unit(node.total)} (${percent(all ? node.total / all : 0)}), itself ${unit(node.own)}`;
    if (node.func < 0) return `${this.options.rootName?.() ?? "all"}: ${shares}`;
    const row = this.app.recording.report.functions[node.func - 1];
    const from = row ? ` [${row.module}]${row.file ? ` ${row.file}${row.line ? ":" + row.line : ""}` : ""}` : "";
    const known = node.context ? this.app.recording.source[node.context] : null;
    const source = known === 0 ? " - edge known from samples only" : known === 3 ? " - inlined, known from samples only" : "";
    return `${this.app.name(node.func)}${from}: ${shares}${source}`;
  }
}
