'use strict';
// How deep a recursion goes before the stack ends; the program survives it.
let depth = 0;
function deeper() {
  depth++;
  deeper();
}
try {
  deeper();
} catch (error) {
  if (!(error instanceof RangeError)) throw error;
}
const deepest = depth;
depth = 0;
try {
  deeper();
} catch {
  // As deep as before.
}
console.log(deepest);
