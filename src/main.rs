//! The `peregrine` binary.

use std::process::ExitCode;

mod cli;

/// A library user keeps their own allocator; the binary takes the fast one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
