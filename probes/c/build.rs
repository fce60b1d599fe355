//! The shared library carries the number of its interface in its name, for whoever links to it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libscalpel_scope.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
