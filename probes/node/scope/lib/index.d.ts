/** How instructions are seen. One that is asked for by name is used or skipped, never replaced. */
export declare const HwBackend: {
  readonly Auto: "auto";
  readonly SingleStep: "single-step";
  readonly IntelPt: "intel-pt";
  readonly AmdLbr: "amd-lbr";
};
export type HwBackend = (typeof HwBackend)[keyof typeof HwBackend];

/** A scope that cannot be closed. */
export declare class ScopeError extends Error {
  readonly code:
    | "AlreadyClosed"
    | "WrongOrder"
    | "OtherThread"
    | "NoSuchScope"
    | "NotClosed";
}

/** Native code from one address up to another. */
export declare class Code {
  readonly start: bigint;
  readonly end: bigint;
  constructor(start: bigint, end: bigint);
  /** The `length` bytes at `start`. */
  static range(start: bigint, length: number | bigint): Code;
  /** The whole function at an address, or of that name, as its file's symbols say. */
  static function(function_: NativeFunction): Code;
  /** Machine code in memory of its own, for ever. */
  static bytes(bytes: Iterable<number>): Code;
}

/** An address, the name of a symbol, or code that begins with the function. */
export type NativeFunction = bigint | string | Code;

export interface Options {
  backend?: HwBackend;
  /** true: a folded call tree on stdout; a path: the full assembly there; a function: the tree; false or null: nothing. */
  emit?: boolean | null | string | ((text: string) => void);
  /** At most 100,000, which is the default. */
  maxTraps?: number;
  /** Since the open; 1 by default. */
  maxSeconds?: number;
}

export interface Step {
  address: bigint;
  /** How often in a row: above 1 only for `rep` string instructions. */
  count: number;
  /** In hexadecimal. */
  bytes: string;
  next: bigint;
}

/** One scope, and its trace once it is closed. */
export declare class ScopedTrace<T = unknown> {
  private constructor();
  /** What the function returned. */
  readonly value: T;
  /** Where it was opened: full path, line, column. */
  readonly site: string;
  /** The instructions that ran, as assembly: each once, with how often it ran. */
  readonly path: string;
  /** Something was recorded, and all of it: the interrupted flow of this thread, signal handlers excluded. */
  readonly complete: boolean;
  /** Something may be missing: see `reasons`. */
  readonly truncated: boolean;
  readonly reasons: string[];
  readonly tier: string;
  /** Why nothing was recorded; null if something was. */
  readonly skipReason: string | null;
  readonly instructions: number;
  readonly traps: number;
  readonly addresses: bigint[];
  readonly steps: Step[];
  readonly totals: { passes: number; traps: number; seconds: number };
  tree(lines?: number): string;
  assembly(syntax?: "intel" | "att"): string;
  json(syntax?: "intel" | "att"): string;
  /** Ends the scope, or throws a `ScopeError`. */
  close(): void;
}

/** Calls `body` in a scope of the native `code`; null is everything that this thread runs. */
export declare function scope<T>(
  code: NativeFunction | null,
  body: (scope: ScopedTrace<T>) => T,
  options?: Options,
): ScopedTrace<T>;

/** Opens a scope for `using`, or for `close()`. */
export declare function open(
  code?: NativeFunction | null,
  options?: Options,
): ScopedTrace<undefined>;

/** Calls a C function of at most six integers in a scope of its own, and nothing else in it. */
export declare function call(
  function_: NativeFunction,
  args?: Iterable<number | bigint>,
  options?: Options & { code?: NativeFunction | null },
): ScopedTrace<bigint>;
