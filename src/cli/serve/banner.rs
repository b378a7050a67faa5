//! The text that `serve` prints when it is ready: its addresses, a call to paste, and its limits.

use std::fmt::Write;

use peregrine::{limits::Limits, net::Running};

use super::places::ServedPaths;

/// The limits that the banner shows.
const GLANCE: [&str; 6] = [
    "body_bytes_max",
    "connections_max",
    "streams_max",
    "tasks_max",
    "store_bytes_max",
    "task_ttl_ms",
];

/// The facts that the banner shows.
pub struct Banner {
    /// The paths of agents and mounts.
    pub served_paths: ServedPaths,
    /// The connections that the configuration allows.
    pub connections_max: usize,
    /// Whether webhooks are enabled.
    pub has_push: bool,
    /// Whether the terms of the memory sum are listed.
    pub shows_memory: bool,
}

impl Banner {
    /// The text for a running server.
    pub fn text(&self, running: &Running) -> String {
        let (url, limits) = (running.base_url(), running.limits());
        let mut text = format!("peregrine {} serves A2A\n", env!("CARGO_PKG_VERSION"));
        // Writing to a String never fails.
        let _ = writeln!(text, "  url     {url}/");
        let scheme = url.split(':').next().unwrap_or_default();
        for addr in running.addrs().iter().skip(1) {
            let _ = writeln!(text, "  also    {scheme}://{addr}/");
        }
        for path in running.paths() {
            let _ = writeln!(text, "  also    {path}");
        }
        if let Some(admin) = running.admin() {
            let _ = writeln!(text, "  admin   {admin}");
        }
        let socket = running.paths().first().filter(|_| running.addrs().is_empty());
        let socket = socket.map(|path| path.trim_start_matches("unix:"));
        text.push_str(&self.served_paths.lines(url, socket));
        let _ = writeln!(text, "  push    {}", push(self.has_push, running.has_push()));
        if limits.connections_max < self.connections_max {
            let _ = writeln!(
                text,
                "  files   at most {} connections, because of the hard limit of open files \
                 (ulimit -Hn)",
                limits.connections_max,
            );
        }
        text.push_str("  tasks   in memory only: tasks of an earlier run are gone\n");
        let (workers, is_secure) = (running.workers(), scheme == "https");
        text.push_str(&memory(limits, workers, is_secure, self.shows_memory));
        text.push_str(&glance(limits));
        text
    }
}

/// Whether webhooks are enabled, and if not, the reason.
fn push(is_wanted: bool, is_on: bool) -> &'static str {
    match (is_wanted, is_on) {
        (_, true) => "webhooks are on (--no-push turns them off)",
        (false, false) => "webhooks are off",
        (true, false) => {
            "webhooks are off: other machines reach this server, and callers are not \
             authenticated (push.anonymous = true allows webhooks)"
        }
    }
}

/// The memory limit, with its terms if `shows_terms`.
fn memory(limits: &Limits, workers: usize, is_secure: bool, shows_terms: bool) -> String {
    let sum = bytes(limits.memory_bytes_max(workers, is_secure));
    if !shows_terms {
        return format!("  memory  at most {sum} (--memory SIZE; --show-memory lists its parts)\n");
    }
    let mut terms = limits.memory_bytes_terms(workers);
    terms.extend(is_secure.then(|| limits.tls_bytes_term()));
    let plural = if workers == 1 { "" } else { "s" };
    let mut text =
        format!("  memory  at most {sum} with {workers} worker{plural} (--memory SIZE):\n");
    for (label, size) in terms {
        // Writing to a String never fails.
        let _ = writeln!(text, "          {:>9}  {label}", bytes(size));
    }
    text
}

fn glance(limits: &Limits) -> String {
    let mut text = String::new();
    let rows = limits.rows().into_iter().filter(|(name, _)| GLANCE.contains(name));
    let rows: Vec<String> = rows.map(|(name, value)| format!("{name}={value}")).collect();
    let _ = writeln!(text, "  limits  {}", rows[..3].join(" "));
    let _ = writeln!(text, "          {} (--limit NAME=VALUE)", rows[3..].join(" "));
    text
}

/// A number of bytes with three digits and a binary unit.
fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1000.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if value < 10.0 && unit > 0 {
        format!("{value:.1} {}", units[unit])
    } else {
        format!("{value:.0} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sizes_are_formatted_with_units() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1024, "1.0 KiB"),
            (1000 * 1024, "1.0 MiB"),
            (64 * 1024 * 1024, "64 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn banner_shows_memory_terms_and_main_limits() {
        let limits = Limits::default();
        let text = memory(&limits, 2, false, true);
        for (label, _) in Limits::default().memory_bytes_terms(2) {
            assert!(text.contains(label));
        }
        assert!(GLANCE.iter().all(|name| glance(&limits).contains(name)));
        assert!(text.contains("with 2 workers") && !text.contains("TLS"));
        assert!(memory(&limits, 1, false, true).contains("with 1 worker "));
        assert!(memory(&limits, 1, true, true).contains("TLS sessions"));
        assert_eq!(memory(&limits, 1, true, false).lines().count(), 1);
    }
}
