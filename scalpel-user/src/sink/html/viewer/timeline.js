// What each thread did over time: a bar a window, and the calls themselves where the page has them.

const BAR = 40;
const GUTTER = 190;

class Timeline {
  constructor(app) {
    this.app = app;
    this.canvas = byId("timeline");
    const { recording } = app;
    this.end = Math.max(recording.report.run.duration_ns, 1);
    this.range = [0, this.end];
    this.windows = windowsOf(recording);
    this.lanes = lanesOf(recording, this.windows);
    this.chosen = null;
    this.canvas.addEventListener("mousemove", (event) => this.move(event));
    this.canvas.addEventListener("mousedown", (event) => this.press(event));
    window.addEventListener("mouseup", (event) => this.letGo(event));
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    byId("timeline-reset").addEventListener("click", () => this.reset());
  }

  reset() {
    this.range = [0, this.end];
    this.draw();
  }

  x(time) {
    return GUTTER + (time - this.range[0]) * this.scale;
  }

  time(x) {
    return this.range[0] + (x - GUTTER) / this.scale;
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    this.scale = (width - GUTTER) / (this.range[1] - this.range[0]);
    const lanes = this.app.choice.thread < 0 ? this.lanes : this.lanes.filter(({ thread }) => thread === this.app.choice.thread);
    const { context, height } = ready(this.canvas, 24 + lanes.reduce((sum, lane) => sum + laneHeight(lane), 0));
    this.boxes = [];
    this.width = width;
    let y = 24;
    for (const lane of lanes) {
      this.bars(context, lane, y);
      this.calls(context, lane, y + BAR);
      this.label(context, lane, y);
      y += laneHeight(lane);
    }
    this.axis(context, height);
    this.note(lanes);
  }

  axis(context, height) {
    const style = getComputedStyle(document.documentElement);
    const step = niceStep((this.range[1] - this.range[0]) / 8);
    context.fillStyle = style.getPropertyValue("--faint");
    context.strokeStyle = style.getPropertyValue("--line");
    context.lineWidth = 1;
    for (let time = Math.ceil(this.range[0] / step) * step; time <= this.range[1]; time += step) {
      const x = Math.round(this.x(time)) + 0.5;
      context.beginPath();
      context.moveTo(x, 16);
      context.lineTo(x, height);
      context.stroke();
      context.fillText(step >= 1e8 ? (time / 1e9).toFixed(1) + " s" : duration(time), x + 3, 8);
    }
    const marks = this.drag ? this.drag.map((at) => this.time(at)) : this.spanTimes();
    if (!marks) return;
    const [from, to] = marks.map((time) => this.x(time)).sort((a, b) => a - b);
    context.fillStyle = "rgba(86,180,233,0.22)";
    context.fillRect(from, 16, to - from, height - 16);
  }

  spanTimes() {
    const { span } = this.app.choice;
    const length = this.app.recording.about.window_ns;
    return span && [span[0] * length, (span[1] + 1) * length];
  }

  label(context, lane, y) {
    const style = getComputedStyle(document.documentElement);
    context.fillStyle = style.getPropertyValue("--back");
    context.fillRect(0, y, GUTTER - 4, laneHeight(lane));
    context.fillStyle = style.getPropertyValue("--fore");
    context.fillText(lane.name.slice(0, 25), 0, y + 12);
    context.fillStyle = style.getPropertyValue("--faint");
    context.fillText(lane.note, 0, y + 28);
  }

  /** Busy share of each window: CPU time filled, wall time as a line above it, losses as a mark below. */
  bars(context, lane, y) {
    const { window_ns: length } = this.app.recording.about;
    const style = getComputedStyle(document.documentElement);
    context.fillStyle = style.getPropertyValue("--panel");
    context.fillRect(GUTTER, y, this.width - GUTTER, BAR - 4);
    for (const [window, sums] of lane.windows) {
      const x = Math.max(this.x(window * length), GUTTER);
      const right = Math.min(this.x(Math.min((window + 1) * length, this.end)), this.width);
      if (right <= GUTTER || x >= this.width) continue;
      const tall = (share) => Math.min(1, share) * (BAR - 6);
      const wide = Math.max(right - x - (right - x > 4 ? 1 : 0), 1);
      const filled = tall(this.windows.filled(sums, length));
      context.fillStyle = "rgb(86,180,233)";
      context.fillRect(x, y + BAR - 5 - filled, wide, filled);
      const wall = tall(sums.self_wall_ns / length);
      context.fillStyle = style.getPropertyValue("--faint");
      if (wall > 0) context.fillRect(x, y + BAR - 5 - wall, wide, 1.5);
      if (sums.lost > 0) lossMark(context, x, y, wide);
    }
  }

  /** One box a call; where calls are narrower than a pixel, one for all that begin in it. */
  calls(context, lane, y) {
    const { calls } = this.app.recording;
    lane.depths.forEach((indexes, depth) => {
      const top = y + depth * ROW;
      const { start, length } = calls;
      let at = lowerBound(indexes, (index) => start[index] + length[index] >= this.range[0]);
      while (at < indexes.length && start[indexes[at]] <= this.range[1]) {
        const call = indexes[at];
        const x = Math.max(this.x(start[call]), GUTTER);
        const right = Math.min(this.x(start[call] + length[call]), this.width);
        const name = this.app.name(calls.func[call]) + (calls.state[call] ? ` [${calls.states[calls.state[call]]}]` : "");
        const faint = this.app.wanted && !this.app.isWanted(calls.func[call]);
        const look = this.app.paint.of(calls.func[call]);
        box(context, calls.state[call] ? { ...look, unknown: true } : look, x, top, Math.max(right - x, 1), ROW, name, faint);
        this.boxes.push({ call, x, width: Math.max(right - x, 1), y: top });
        const next = right - x >= 1 ? at + 1 : lowerBound(indexes, (index) => this.x(start[index]) >= x + 1, at + 1);
        // Of the calls that begin in one pixel only the last can be wider than it.
        const last = indexes[next - 1];
        at = next - 1 > at && this.x(start[last] + length[last]) - this.x(start[last]) >= 1 ? next - 1 : next;
      }
    });
  }

  note(lanes) {
    const { about, calls } = this.app.recording;
    const parts = ["Filled: CPU time. Line: wall time in watched functions. Triangle: events lost."];
    if (about.windows_joined) parts.push(`Windows were joined to ${duration(about.window_ns)} to fit the page.`);
    if (about.threads_joined) parts.push("All threads stand as one: there are too many cells for a page.");
    parts.push(calls ? callsNote(calls, lanes) : "The page has no single calls: make it of a stream (record --keep-stream) to see them.");
    parts.push("Drag to choose a part of the time for all views.");
    byId("timeline-note").textContent = parts.join(" ");
  }

  move(event) {
    if (this.drag) {
      this.drag[1] = this.at(event).x;
      this.draw();
      return;
    }
    const { x, y } = this.at(event);
    const found = this.boxes?.findLast((each) => x >= each.x && x < each.x + each.width && y >= each.y && y < each.y + ROW);
    this.app.detail(found ? this.describe(found.call) : x > GUTTER ? "at " + duration(this.time(x)) : "");
  }

  describe(call) {
    const { calls } = this.app.recording;
    const state = calls.state[call] ? `, ${calls.states[calls.state[call]]}` : "";
    return `${this.app.name(calls.func[call])}: ${duration(calls.length[call])} from ${duration(calls.start[call])}${state}`;
  }

  at(event) {
    const area = this.canvas.getBoundingClientRect();
    return { x: event.clientX - area.left, y: event.clientY - area.top };
  }

  press(event) {
    const { x } = this.at(event);
    if (x > GUTTER) this.drag = [x, x];
  }

  letGo() {
    if (!this.drag) return;
    const [from, to] = this.drag.map((x) => this.time(x)).sort((a, b) => a - b);
    const wide = Math.abs(this.drag[1] - this.drag[0]) > 3;
    this.drag = null;
    if (wide) {
      const length = this.app.recording.about.window_ns;
      this.app.setSpan([Math.max(0, Math.floor(from / length)), Math.floor(Math.min(to, this.end - 1) / length)]);
    }
    this.draw();
  }

  wheel(event) {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 0.7 : 1 / 0.7, this.time(Math.max(this.at(event).x, GUTTER)));
  }

  zoom(factor, around = (this.range[0] + this.range[1]) / 2) {
    const from = around - (around - this.range[0]) * factor;
    const length = Math.max((this.range[1] - this.range[0]) * factor, 100);
    this.look(from, Math.min(length, this.end));
  }

  look(from, length) {
    const start = Math.min(Math.max(from, 0), this.end - length);
    this.range = [start, start + length];
    this.draw();
  }

  key(event) {
    const length = this.range[1] - this.range[0];
    if (event.key === "+" || event.key === "=") this.zoom(0.7);
    else if (event.key === "-") this.zoom(1 / 0.7);
    else if (event.key === "ArrowLeft") this.look(this.range[0] - length / 5, length);
    else if (event.key === "ArrowRight") this.look(this.range[0] + length / 5, length);
    else return;
    event.preventDefault();
  }
}

function lossMark(context, x, y, wide) {
  context.fillStyle = "rgb(213,94,0)";
  context.beginPath();
  context.moveTo(x + wide / 2, y + BAR - 12);
  context.lineTo(x + wide / 2 + 5, y + BAR - 4);
  context.lineTo(x + wide / 2 - 5, y + BAR - 4);
  context.fill();
}

function laneHeight(lane) {
  return BAR + lane.depths.length * ROW + 6;
}

function callsNote(calls, lanes) {
  const shown = lanes.reduce((sum, lane) => sum + lane.depths.reduce((all, indexes) => all + indexes.length, 0), 0);
  const cut = calls.left_out > 0 ? ` ${count(calls.left_out)} calls outside ${duration(calls.from_ns)} to ${duration(calls.to_ns)} are left out.` : "";
  return `${count(shown)} calls.${cut}`;
}

/** Sums a thread and window; how a bar is filled depends on what was measured at all. */
function windowsOf(recording) {
  const { cell } = recording;
  const most = { self_cpu_ns: 0, sampled_ns: 0, self_wall_ns: 0, calls: 0, lost: 0 };
  const threads = new Map();
  for (let i = 0; i < cell.thread.length; i++) {
    let windows = threads.get(cell.thread[i]);
    if (!windows) threads.set(cell.thread[i], (windows = new Map()));
    let sums = windows.get(cell.window[i]);
    if (!sums) windows.set(cell.window[i], (sums = { self_cpu_ns: 0, sampled_ns: 0, self_wall_ns: 0, calls: 0, lost: 0 }));
    for (const name of Object.keys(most)) {
      sums[name] += cell[name][i];
      most[name] = Math.max(most[name], sums[name]);
    }
  }
  const filled = most.self_cpu_ns > 0 ? (sums, length) => Math.max(sums.self_cpu_ns, sums.sampled_ns) / length
    : most.sampled_ns > 0 ? (sums, length) => sums.sampled_ns / length
      : (sums) => (most.calls > 0 ? sums.calls / most.calls : 0);
  return { threads, filled };
}

function lanesOf(recording, { threads }) {
  const { calls, report } = recording;
  const lanes = report.threads.map((thread, index) => ({
    thread: index,
    name: thread.name ?? "?",
    note: `${thread.pid}/${thread.tid}${thread.lost ? `, ${count(thread.lost)} lost` : ""}`,
    windows: threads.get(index) ?? new Map(),
    depths: [],
  }));
  for (const { thread, first, count: size } of calls?.threads ?? []) {
    for (let at = first; at < first + size; at++) (lanes[thread].depths[calls.depth[at]] ??= []).push(at);
    lanes[thread].depths = Array.from(lanes[thread].depths, (indexes) => Int32Array.from(indexes ?? []));
  }
  return lanes.filter((lane) => lane.windows.size > 0 || lane.depths.length > 0);
}

/** The first place from `low` on where the test holds; it holds for all that follow. */
function lowerBound(indexes, test, low = 0) {
  let high = indexes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(indexes[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  return power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
}
