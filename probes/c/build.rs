//! The shared library carries the number of its interface in its name, for whoever links to it, and it stays when it is
//! closed: its signal handler may never go away.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libscalpel_scope.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
