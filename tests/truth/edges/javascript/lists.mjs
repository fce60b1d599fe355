export function length(all) { return helper(all); } //: length = lists.helper
const helper = (all) => all.length; //: lists.helper
export class Base {
  constructor() { this.made = true; } //: Base.new
  shared() { return length([]); } //: Base.shared = length
}
export default function () { return helper([]); } //: default = lists.helper
