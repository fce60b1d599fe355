'use strict';
// A program that does nothing: what it takes is the start.
