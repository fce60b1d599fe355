exports.fromCommonJs = () => import('./module-dependency.mjs').then(() => 'late') && 'cjs';
