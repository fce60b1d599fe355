// Colours and boxes. Hue tells the module and never more; what is uncertain has a pattern, so that it can be told
// apart without colours too. The hues are those that colour-blind people can tell apart (Okabe and Ito, 2008).

const HUES = [[86, 180, 233], [230, 159, 0], [0, 158, 115], [240, 228, 66], [204, 121, 167], [213, 94, 0], [0, 114, 178]];

function hash(text) {
  let sum = 2166136261;
  for (let i = 0; i < text.length; i++) sum = Math.imul(sum ^ text.charCodeAt(i), 16777619);
  return sum >>> 0;
}

/** Modules by weight: the first seven have a hue of their own, the rest are grey. */
function huesOf(recording) {
  const weight = new Map();
  for (const row of recording.report.functions) {
    const own = (row.self_cpu_ns ?? 0) + (row.sampled_self_ns ?? 0) + (row.calls ?? 0) / 1e3;
    weight.set(row.module, (weight.get(row.module) ?? 0) + own);
  }
  const sorted = [...weight].sort((a, b) => b[1] - a[1]).map(([module]) => module);
  return new Map(sorted.slice(0, HUES.length).map((module, index) => [module, HUES[index]]));
}

class Paint {
  constructor(recording) {
    this.recording = recording;
    this.hues = huesOf(recording);
    this.known = new Map();
  }

  /** Fill, colour of the text on it, and whether a pattern says that its name is unknown. */
  of(func) {
    const known = this.known.get(func);
    if (known) return known;
    const row = func > 0 ? this.recording.report.functions[func - 1] : null;
    const [r, g, b] = (row && this.hues.get(row.module)) ?? [150, 156, 163];
    const light = 0.78 + (hash(row ? row.name : "") % 100) / 450;
    const rgb = [r, g, b].map((part) => Math.min(255, Math.round(part * light)));
    const bright = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 118;
    const made = { fill: `rgb(${rgb.join(",")})`, text: bright ? "#101418" : "#ffffff", unknown: func === 0 || Boolean(row?.unknown) };
    this.known.set(func, made);
    return made;
  }
}

/** Which hue is which module, and what the pattern means. */
function legend(paint) {
  const entry = (look, text) => {
    const canvas = make("canvas", { class: "swatch", role: "img", "aria-label": "" });
    canvas.width = 18;
    canvas.height = 12;
    box(canvas.getContext("2d"), look, 0, 0, 19, 13, "", false);
    return make("span", {}, canvas, " " + text);
  };
  const module = ([name, rgb]) => entry({ fill: `rgb(${rgb.join(",")})`, unknown: false }, name);
  const more = new Set(paint.recording.report.functions.map((row) => row.module)).size > paint.hues.size;
  const grey = { fill: "rgb(150,156,163)", unknown: false };
  return [...[...paint.hues].map(module), more ? entry(grey, "other modules") : null, entry({ ...grey, unknown: true }, "no name, or folded")].filter(Boolean);
}

/** A canvas in device pixels, cleared; drawing is in CSS pixels. */
function ready(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '12px ui-monospace, "DejaVu Sans Mono", monospace';
  context.textBaseline = "middle";
  return { context, width, height };
}

const CHARACTER = 7.3;

/** One call as a box with as much of its name as fits. */
function box(context, look, x, y, width, height, name, faint) {
  context.globalAlpha = faint ? 0.25 : 1;
  context.fillStyle = look.fill;
  context.fillRect(x, y, Math.max(width - 0.5, 0.5), height - 1);
  if (look.unknown && width > 3) stripes(context, x, y, width - 0.5, height - 1);
  const room = Math.floor((width - 6) / CHARACTER);
  if (room >= 3) {
    context.fillStyle = look.text;
    context.fillText(name.length > room ? name.slice(0, room - 1) + "\u2026" : name, x + 3, y + height / 2);
  }
  context.globalAlpha = 1;
}

function stripes(context, x, y, width, height) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = "rgba(0,0,0,0.35)";
  context.lineWidth = 1;
  context.beginPath();
  for (let at = x - height; at < x + width; at += 6) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}

function outline(context, x, y, width, height) {
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--fore");
  context.lineWidth = 2;
  context.strokeRect(x + 1, y + 1, Math.max(width - 2, 1), height - 3);
}
