//! The internet layer: routes, fragments out, reassembly in.
