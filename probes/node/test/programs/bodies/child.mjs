import './throws.mjs';
export const never = 1;
