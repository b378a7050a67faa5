//! Metrics of this process that are cheap to read from the system.

use rustix::process::{Resource, getrlimit};

use super::families::{Family, FamilyKind};

/// Descriptors and memory, under the names that the clients of Prometheus use.
pub(in crate::net) fn families() -> Vec<Family> {
    let mut families = Vec::new();
    // The count includes the descriptor of the folder.
    if let Ok(open) = std::fs::read_dir("/dev/fd") {
        let open = open.count().saturating_sub(1) as u64;
        let help = "Open file descriptors";
        families.push(Family::one(FamilyKind::Gauge, "process_open_fds", help, open));
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        let help = "File descriptors that may be open";
        families.push(Family::one(FamilyKind::Gauge, "process_max_fds", help, most));
    }
    if let Some(bytes) = resident_bytes() {
        let help = "Resident memory";
        families.push(Family::one(FamilyKind::Gauge, "process_resident_memory_bytes", help, bytes));
    }
    families
}

/// The second number of `statm` is the resident pages; Linux only.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}
