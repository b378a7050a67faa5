//! Webhooks over real sockets: what receivers get, even faulty ones, and which targets are
//! unreachable.

mod bounds;
mod challenge;
mod ending;
mod failing;
mod forbidden;
mod load;
pub mod receiver;
mod settings;

/// Reports that this machine lacks what a test needs; fails where every test must run.
#[track_caller]
fn cannot_run(why: &str) {
    assert!(std::env::var_os("PEREGRINE_NAMESPACES").is_none(), "{why}");
    eprintln!("skipped: {why}");
}
