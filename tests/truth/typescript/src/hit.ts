declare global { const console: { log(...values: unknown[]): void }; const process: { argv: string[] } }
const seen: string[] = [];

/** Every function says itself that it ran. */
export function hit(name: string): void {
  seen.push(name);
}

export const told = (): string[] => (hit('told'), seen);
