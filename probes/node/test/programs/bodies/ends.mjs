export const ended = [1].map((x) => x);
