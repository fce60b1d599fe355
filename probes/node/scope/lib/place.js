"use strict";
// Puts the library that cargo built where the package has it: `node lib/place.js release`.
const fs = require("node:fs");
const path = require("node:path");

const root = path.join(__dirname, "../../../..");
const target = process.env.CARGO_TARGET_DIR ?? path.join(root, "target");
const built = path.join(target, process.argv[2], "libscalpel_scope_node.so");
fs.copyFileSync(built, path.join(__dirname, "../scalpel_scope.node"));
