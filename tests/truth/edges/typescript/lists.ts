export type Kind = 'square' | 'other';
export function length(all: readonly number[]): number { return helper(all); } //: length = lists.helper
const helper = (all: readonly number[]): number => all.length; //: lists.helper
export class Base {
  constructor() { void length([]); } //: Base.new = length
  shared(): number { return 1; } //: Base.shared
}
export default (): number => helper([]); //: default = lists.helper
