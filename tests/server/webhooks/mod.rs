//! Webhooks over real sockets: what receivers are told, whatever they do, and whom nobody reaches.

mod bounds;
mod challenge;
mod ending;
mod failing;
mod forbidden;
mod load;
pub mod receiver;
mod settings;

/// Notes that this machine lacks what a test needs; where everything must be tested, it fails.
#[track_caller]
fn cannot_run(why: &str) {
    assert!(std::env::var_os("PEREGRINE_NAMESPACES").is_none(), "{why}");
    eprintln!("skipped: {why}");
}
