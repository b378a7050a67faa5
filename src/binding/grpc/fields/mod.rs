//! Field numbers, generated from the proto files.

// Generated completely, including messages that this server never uses, to keep the generator
// simple.
#[allow(dead_code, missing_docs)]
pub mod other;
#[allow(dead_code, missing_docs)]
pub mod v03;
#[allow(dead_code, missing_docs)]
pub mod v1;

/// The fields of an entry of a map (proto3 language guide, "Maps").
pub mod entry {
    /// The key.
    pub const KEY: u32 = 1;
    /// The value.
    pub const VALUE: u32 = 2;
}
