//! Sends the table of malformed and smuggling requests through a connection, at once and one byte
//! at a time: the answers, and whether the connection stays open.

use peregrine::engine::Setup;

use crate::support::{Lab, reply::Reply};

const TABLE: &str = include_str!("../data/http/smuggling.txt");

/// One line of the table.
struct Row {
    line: usize,
    outcome: &'static str,
    clause: &'static str,
    bytes: Vec<u8>,
}

fn rows() -> impl Iterator<Item = Row> {
    let lines = TABLE.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    lines.map(|(index, text)| {
        let mut columns = text.splitn(3, " | ");
        let mut column = || columns.next().unwrap_or_else(|| panic!("line {}: {text}", index + 1));
        let (outcome, clause, bytes) = (column(), column(), column());
        Row { line: index + 1, outcome, clause, bytes: unescape(bytes) }
    })
}

fn unescape(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let (mark, tail) = rest[at + 1..].split_at(1);
        rest = tail;
        match mark {
            "r" => out.push(b'\r'),
            "n" => out.push(b'\n'),
            "t" => out.push(b'\t'),
            "0" => out.push(0),
            "\\" => out.push(b'\\'),
            "x" => {
                out.push(u8::from_str_radix(&rest[..2], 16).expect(text));
                rest = &rest[2..];
            }
            "{" => {
                let (count, tail) = rest.split_once(':').expect(text);
                let (unit, tail) = tail.split_once('}').expect(text);
                out.extend(unit.repeat(count.parse().expect(text)).into_bytes());
                rest = tail;
            }
            other => panic!("an unknown escape {other}: {text}"),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// The statuses of all answers and the end, in the table's notation.
fn outcome<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> String {
    let mut lab = Lab::new(Setup { test_echo: Some("/echo".to_owned()), ..Setup::default() });
    let peer = lab.open();
    for piece in pieces {
        lab.write(peer, piece);
    }
    let (open, replies) = (lab.is_open(peer), Reply::parse_all(lab.received(peer), false));
    let mut words: Vec<String> = replies.iter().map(|reply| reply.status.to_string()).collect();
    // Only the last answer announces the close.
    for (index, reply) in replies.iter().enumerate() {
        assert_eq!(reply.closes(), !open && index + 1 == replies.len(), "{replies:?}");
    }
    words.push((if open { "open" } else { "closed" }).to_owned());
    words.join(" ")
}

#[test]
fn smuggling_table_outcomes_hold_whole_and_bytewise() {
    let mut wrong = Vec::new();
    for row in rows() {
        let whole = outcome([&row.bytes[..]].into_iter());
        let bytewise = outcome(row.bytes.chunks(1));
        for (how, got) in [("whole", whole), ("bytewise", bytewise)] {
            if got != row.outcome {
                let (line, clause, expected) = (row.line, row.clause, row.outcome);
                wrong.push(format!("line {line}, {clause}: {how} {got}, expected {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn smuggling_table_rows_are_unique_and_cite_a_clause() {
    let rows: Vec<Row> = rows().collect();
    for (index, row) in rows.iter().enumerate() {
        assert!(!row.clause.is_empty());
        let same = rows[..index].iter().find(|other| other.bytes == row.bytes);
        assert!(same.is_none(), "line {} repeats line {}", row.line, same.unwrap().line);
    }
    assert!(rows.len() > 100);
}
