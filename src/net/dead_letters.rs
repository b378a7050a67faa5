//! Dead letters for the operator: `/push/dead` and the paths below it.
//!
//! Invariants: an answer lists all retained letters, whose number is bounded. A letter has ids, an
//! origin and an error, but no secret part of a URL.

use crate::{
    json::write::push_string,
    model::time::rfc3339,
    push::{DeadLetter, ReplayOutcome, Webhooks},
    service::pages::{
        AdminAnswer,
        AdminMethod::{self, Delete, Get, Other, Post},
        AdminRequest, PageAnswer,
    },
};

const JSON: &str = "application/json";

/// The path of the dead letters.
const PATH: &str = "/push/dead";

const NO_LETTER: &str = "no dead letter has this number";
const NO_WEBHOOK: &str =
    "the configuration or the task of the letter is gone, and no copy of the task is retained";

/// The meaning of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LetterPath {
    All,
    ReplayAll,
    One(u64),
    ReplayOne(u64),
}

impl LetterPath {
    fn read(path: &str) -> Option<LetterPath> {
        let rest = path.strip_prefix(PATH)?;
        if rest.is_empty() {
            return Some(LetterPath::All);
        }
        match rest.strip_prefix('/')?.split_once('/') {
            None if rest == "/replay" => Some(LetterPath::ReplayAll),
            None => number(&rest[1..]).map(LetterPath::One),
            Some((text, "replay")) => number(text).map(LetterPath::ReplayOne),
            Some(_) => None,
        }
    }

    const fn methods(self) -> &'static [AdminMethod] {
        match self {
            LetterPath::All | LetterPath::One(_) => &[Get, Delete],
            LetterPath::ReplayAll | LetterPath::ReplayOne(_) => &[Post],
        }
    }
}

/// A letter's number in its canonical form; other forms are refused.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

/// Answers a request of the operator.
pub(super) fn answer(
    webhooks: &Webhooks,
    now_ms: u64,
    request: AdminRequest<'_>,
    out: &mut Vec<u8>,
) -> AdminAnswer {
    let Some(path) = LetterPath::read(request.path) else { return AdminAnswer::Nowhere };
    let status = match (path, request.method) {
        (LetterPath::All, Get) => list(webhooks, out),
        (LetterPath::All, Delete) => count(out, &[("dropped", webhooks.drop_all_dead())]),
        (LetterPath::ReplayAll, Post) => {
            let (resumed, remaining) = webhooks.replay_all(now_ms);
            count(out, &[("replayed", resumed), ("gone", remaining)])
        }
        (LetterPath::One(number), Get) => match webhooks.dead_letter(number) {
            Some(letter) => {
                write(&letter, out);
                200
            }
            None => refuse(out, 404, NO_LETTER),
        },
        (LetterPath::One(number), Delete) => match webhooks.drop_dead(number) {
            true => count(out, &[("dropped", 1)]),
            false => refuse(out, 404, NO_LETTER),
        },
        (LetterPath::ReplayOne(number), Post) => match webhooks.replay(number, now_ms) {
            ReplayOutcome::Resumed => count(out, &[("replayed", 1)]),
            ReplayOutcome::Gone => refuse(out, 409, NO_WEBHOOK),
            ReplayOutcome::Unknown => refuse(out, 404, NO_LETTER),
        },
        (LetterPath::All | LetterPath::One(_), Post | Other)
        | (LetterPath::ReplayAll | LetterPath::ReplayOne(_), Get | Delete | Other) => {
            return AdminAnswer::Allows(path.methods());
        }
    };
    out.push(b'\n');
    AdminAnswer::Page(PageAnswer { status, media: JSON })
}

fn list(webhooks: &Webhooks, out: &mut Vec<u8>) -> u16 {
    out.push(b'[');
    let begin = out.len();
    webhooks.dead(|letter| {
        if out.len() > begin {
            out.push(b',');
        }
        write(letter, out);
    });
    out.push(b']');
    200
}

fn write(letter: &DeadLetter, out: &mut Vec<u8>) {
    let DeadLetter { number, task_id, config_id, origin, seq, why, error, unix_ms, .. } = letter;
    let is_replayable = letter.is_replayable;
    out.extend_from_slice(format!("{{\"number\":{number}").as_bytes());
    for (name, raw) in [("taskId", task_id), ("configId", config_id)] {
        out.extend_from_slice(format!(",\"{name}\":\"").as_bytes());
        // The ids are escaped JSON text.
        out.extend_from_slice(raw);
        out.push(b'"');
    }
    out.extend_from_slice(b",\"origin\":");
    push_string(out, origin);
    out.extend_from_slice(format!(",\"sequence\":{seq},\"reason\":").as_bytes());
    push_string(out, why.name());
    out.extend_from_slice(b",\"error\":");
    push_string(out, error);
    out.extend_from_slice(b",\"time\":\"");
    out.extend_from_slice(&rfc3339(*unix_ms));
    out.extend_from_slice(format!("\",\"replayable\":{is_replayable}}}").as_bytes());
}

/// Writes the actions with their counts.
fn count(out: &mut Vec<u8>, counts: &[(&str, usize)]) -> u16 {
    let rows: Vec<String> = counts.iter().map(|(name, n)| format!("\"{name}\":{n}")).collect();
    out.extend_from_slice(format!("{{{}}}", rows.join(",")).as_bytes());
    200
}

fn refuse(out: &mut Vec<u8>, status: u16, why: &str) -> u16 {
    out.extend_from_slice(b"{\"error\":");
    push_string(out, why);
    out.push(b'}');
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letter_paths_are_matched_exactly() {
        for (path, expected) in [
            ("/push/dead", Some(LetterPath::All)),
            ("/push/dead/replay", Some(LetterPath::ReplayAll)),
            ("/push/dead/7", Some(LetterPath::One(7))),
            ("/push/dead/7/replay", Some(LetterPath::ReplayOne(7))),
            ("/push/dead/", None),
            ("/push/deadly", None),
            ("/push/dead/07", None),
            ("/push/dead/+7", None),
            ("/push/dead/-1", None),
            ("/push/dead/18446744073709551616", None),
            ("/push/dead/7/", None),
            ("/push/dead/7/drop", None),
            ("/push/dead/7/replay/", None),
            ("/push/dead/replay/replay", None),
            ("/push", None),
        ] {
            assert_eq!(LetterPath::read(path), expected, "{path}");
        }
    }
}
