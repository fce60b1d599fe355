const seen = [];
export function hit(name) { seen.push(name); }
export const told = () => { hit('told'); return seen; };
export const same = () => { hit('same.too'); return 2; };
export class Shape { area() { hit('Shape.area'); return 1; } unused() { hit('Shape.unused'); } }
export const lazy = () => { hit('lazy'); return 3; };
const renamed = function () { hit('again'); return 4; };
export { renamed as again };
export default () => { hit('default'); return 5; };
