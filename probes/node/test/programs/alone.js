// Functions that no block may be put around.
function together(x) {
  function x() {
    return 1;
  }
  return x();
}
function within(object) {
  with (object) {
    const get = () => value;
    return get() + seen();
  }
}
function seen() {
  return 1;
}
console.log(together(2), within({ value: 3 }), within({ value: 4 }));
