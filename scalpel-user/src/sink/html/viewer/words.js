// Numbers and small pieces of the page as people read them.

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];

function digits(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function duration(ns) {
  if (ns === null || ns === undefined) return "-";
  if (ns === 0) return "0";
  const [scale, unit] = UNITS.find(([least]) => Math.abs(ns) >= least) ?? UNITS[3];
  return (scale === 1 ? Math.round(ns).toString() : digits(ns / scale)) + " " + unit;
}

function count(value) {
  if (value === null || value === undefined) return "-";
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

function percent(share) {
  if (share === null || share === undefined) return "-";
  if (share === 0) return "0 %";
  return share < 0.0005 ? "< 0.1 %" : (100 * share).toFixed(1) + " %";
}

/** A number with what is not certain about it: calls are at least what was seen. */
function calls(row) {
  if (row.calls === null) return "-";
  if (row.calls_at_most === null) return ">= " + count(row.calls);
  return row.calls_at_most > row.calls ? count(row.calls) + " to " + count(row.calls_at_most) : count(row.calls);
}

/** An element with text and children. Text from the recording goes through here and nowhere else. */
function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  const { on, ...attributes } = options;
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const [event, handler] of Object.entries(on ?? {})) element.addEventListener(event, handler);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const byId = (id) => document.getElementById(id);

/** What the search field means: null for nothing, a test of names, or an error. */
function meaning(text) {
  const wanted = text.trim();
  if (!wanted) return null;
  const form = /^\/(.*)\/$/.exec(wanted);
  if (!form) {
    const plain = wanted.toLowerCase();
    return (name) => name.toLowerCase().includes(plain);
  }
  const expression = new RegExp(form[1]);
  return (name) => expression.test(name);
}
