#!/usr/bin/env node
'use strict';
export function thrower() {
  throw new Error('at once');
}
thrower();
