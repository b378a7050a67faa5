//! The `peregrine` binary.

use std::process::ExitCode;

/// A library user keeps their own allocator; the binary takes the fast one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    grow_by_small_pages();
    peregrine::cli::main()
}

/// Has new memory come in pages of 4 KiB, unless the allocator's own variable says something about
/// transparent huge pages.
///
/// `docs/adr/0012-memory-grows-by-small-pages.md`: a hypervisor that takes free huge pages back
/// makes each new one cost milliseconds.
fn grow_by_small_pages() {
    #[cfg(target_os = "linux")]
    if std::env::var_os("MIMALLOC_ALLOW_THP").is_none() {
        // Where the kernel refuses, memory grows as the allocator has it.
        let _ = rustix::thread::disable_transparent_huge_pages(true);
    }
}
