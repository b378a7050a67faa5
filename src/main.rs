//! The `peregrine` binary.

use std::process::ExitCode;

/// Programs that use the library choose their allocator; the binary uses a fast one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    grow_by_small_pages();
    peregrine::cli::main()
}

/// Allocates new memory in pages of 4 KiB, unless the allocator's own environment variable sets
/// transparent huge pages.
///
/// `docs/adr/0012-memory-grows-by-small-pages.md`: with a hypervisor that reclaims free huge pages,
/// each new one costs milliseconds.
fn grow_by_small_pages() {
    #[cfg(target_os = "linux")]
    if std::env::var_os("MIMALLOC_ALLOW_THP").is_none() {
        // If the kernel refuses, the allocator's default applies.
        let _ = rustix::thread::disable_transparent_huge_pages(true);
    }
}
