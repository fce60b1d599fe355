export const twice = (x) => 2 * x; export default class { static m() { return 1; } }
