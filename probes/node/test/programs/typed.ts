// Run as it is: Node.js strips the types.
interface Point { x: number; y?: number }
type Maybe<T> = T | undefined;
class Shape<T extends Point> { private points: T[] = []; constructor(first: Maybe<T>) { if (first) this.points.push(first); } get size(): number { return this.points.length; } }
function distance(a: Point, b: Point = { x: 0 }): number { return Math.abs((a.x as number) - b.x); }
const later = async <T,>(value: T): Promise<T> => { await null; return value satisfies unknown as T; };
later(new Shape({ x: 1 }).size + distance({ x: 5 })).then((sum: number) => console.log(sum, new Error('at').stack!.split('\n')[1].replace(/.*programs/, '')));
