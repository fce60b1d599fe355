//! How the addon is linked: it stays loaded when a worker ends, and `napi_*` are the program's own.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Of its own tests too, which no Node.js loads.
    println!("cargo:rustc-link-arg=-Wl,--unresolved-symbols=ignore-all");
}
