//! The name by which programs find the library at run time, whatever cargo calls its file; and it stays loaded: its threads run in it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnetchan.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
