// What the page holds, unpacked: the report, the contexts, the cells and, if there are any, the calls.
"use strict";

/** The bytes of one element of the page, and how many numbers they are; null if the page has no such element. */
async function block(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const text = atob(element.textContent);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const count = Number(element.dataset.count);
  element.remove();
  return { bytes, count };
}

async function json(id) {
  const found = await block(id);
  return found && JSON.parse(new TextDecoder().decode(found.bytes));
}

/** A column of numbers, as it was pushed. Above 2^31 the shifts of the language end: it is multiplied there. */
async function column(id) {
  const found = await block(id);
  if (!found) return null;
  const { bytes, count } = found;
  const numbers = new Float64Array(count);
  for (let at = 0, n = 0; n < count; n++) {
    let byte = bytes[at++];
    let number = byte & 0x7f;
    for (let scale = 128; byte & 0x80; scale *= 128) {
      byte = bytes[at++];
      number += (byte & 0x7f) * scale;
    }
    numbers[n] = number;
  }
  return numbers;
}

/** A column of differences: even = up by half of it, odd = down. */
async function nearColumn(id) {
  const numbers = await column(id);
  for (let n = 0, last = 0; numbers && n < numbers.length; n++) {
    const zigzag = numbers[n];
    last += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
    numbers[n] = last;
  }
  return numbers;
}

const METRICS = ["calls", "self_wall_ns", "self_cpu_ns", "samples", "sampled_ns", "lost", "timed", "cpu_timed", "suspended_ns", "off_cpu_ns"];

/** Everything, ready for the views. */
async function openRecording() {
  const recording = { report: await json("report"), about: await json("about") };
  recording.parent = Int32Array.from(await nearColumn("context.parent"));
  recording.func = Int32Array.from(await column("context.func"));
  recording.source = Int8Array.from(await column("context.source"));
  const cell = {
    thread: Int32Array.from(await nearColumn("cell.thread")),
    window: Int32Array.from(await nearColumn("cell.window")),
    context: Int32Array.from(await nearColumn("cell.context")),
  };
  for (const name of METRICS) cell[name] = await column("cell." + name);
  recording.cell = cell;
  recording.calls = await openCalls();
  return recording;
}

/** The calls one by one, each thread's in order of their starts; null where the page has the tree only. */
async function openCalls() {
  const about = await json("calls.about");
  if (!about) return null;
  const [start, length, depth, func, state] = [
    await nearColumn("calls.start"), await column("calls.length"), await nearColumn("calls.depth"),
    await column("calls.func"), await column("calls.state"),
  ];
  return { ...about, start, length, depth: Int32Array.from(depth), func: Int32Array.from(func), state: Int8Array.from(state) };
}
