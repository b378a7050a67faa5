//! Faults of programs: one process per message, and long-running ones.

use std::fs;

use super::{COMPLETED, FAILED, FaultCase, Soak, SoakedServer};

/// Turns of one process end together with it.
const EITHER: &[&str] = &["COMPLETED", "FAILED"];

/// Does what its text says.
const TEXT_PROGRAM: &str = r#"
read -r word
case $word in
exit) echo partial; exit 3 ;;
killed) echo partial; kill -9 $$ ;;
garbage) printf '\377\376\001\n' ;;
silent) sleep 600 ;;
closed) exec >&- 2>&-; sleep 600 ;;
flood) head -c 3000000 /dev/zero | tr '\0' x ;;
errors) head -c 100000 /dev/zero | tr '\0' e >&2; exit 1 ;;
orphan) sleep 600 & echo left ;;
*) echo "$word" ;;
esac
"#;

#[rustfmt::skip]
const TEXT_FAULTS: [FaultCase; 9] = [
    FaultCase { word: "good", ends: COMPLETED },
    FaultCase { word: "exit", ends: FAILED },
    FaultCase { word: "killed", ends: FAILED },
    FaultCase { word: "garbage", ends: COMPLETED },
    FaultCase { word: "silent", ends: FAILED },
    FaultCase { word: "closed", ends: FAILED },
    FaultCase { word: "flood", ends: FAILED },
    FaultCase { word: "errors", ends: FAILED },
    FaultCase { word: "orphan", ends: COMPLETED },
];

/// Does what the text of each turn says, after an event: a process that ends before its first event
/// is restarted after a pause.
const LINES_PROGRAM: &str = r#"
while read -r line; do
  turn=${line#*'"turn":"'}
  turn=${turn%%'"'*}
  event() { printf '{"turn":"%s",%s}\n' "$turn" "$1"; }
  case $line in '{"type":"cancel"'*) continue ;; esac
  event '"status":"working"'
  case $line in
  *'"die"'*) exit 3 ;;
  *'"killed"'*) kill -9 $$ ;;
  *'"garbage"'*) printf 'Traceback \377\n{"turn":\n'; event '"status":"completed"' ;;
  *'"wrong"'*) event '"status":"tired"' ;;
  *'"silent"'*) ;;
  *'"hangs"'*) sleep 600 ;;
  *'"huge"'*) head -c 4300000 /dev/zero | tr '\0' x; echo ;;
  *'"half"'*) printf '{"turn":"%s","sta' "$turn"; exit 0 ;;
  *'"orphan"'*) sleep 600 & exit 1 ;;
  *'"closed"'*) exec >&-; sleep 600 ;;
  *) event '"artifact":{"text":"done"}'; event '"status":"completed"' ;;
  esac
done
"#;

#[rustfmt::skip]
const LINES_FAULTS: [FaultCase; 11] = [
    FaultCase { word: "good", ends: EITHER },
    FaultCase { word: "die", ends: FAILED },
    FaultCase { word: "killed", ends: FAILED },
    FaultCase { word: "garbage", ends: EITHER },
    FaultCase { word: "wrong", ends: FAILED },
    FaultCase { word: "silent", ends: FAILED },
    FaultCase { word: "hangs", ends: FAILED },
    FaultCase { word: "huge", ends: FAILED },
    FaultCase { word: "half", ends: FAILED },
    FaultCase { word: "orphan", ends: FAILED },
    FaultCase { word: "closed", ends: FAILED },
];

/// A kind of program, and its source.
struct Program {
    kind: &'static str,
    text: &'static str,
    faults: &'static [FaultCase],
    /// Long-running processes.
    long_running: usize,
    /// Long enough for a program to start on a busy machine, where the test distinguishes silence
    /// from its end.
    silence_ms: u64,
}

const TEXT: Program = Program {
    kind: "exec",
    text: TEXT_PROGRAM,
    faults: &TEXT_FAULTS,
    long_running: 0,
    silence_ms: 1_500,
};
const LINES: Program = Program {
    kind: "exec+jsonl",
    text: LINES_PROGRAM,
    faults: &LINES_FAULTS,
    long_running: 4,
    silence_ms: 300,
};

impl Program {
    fn soak(&self, count: usize) {
        let Program { kind, text, faults, long_running, silence_ms } = self;
        let name = format!("peregrine-soak-{kind}-{count}-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        // No other process sleeps for exactly this long, nor one of another soak.
        let marker = format!("600.{}{long_running}{count}", std::process::id());
        fs::write(&file, text.replace("600", &marker)).unwrap();
        let config = file.with_extension("toml");
        let processes = if *long_running == 0 { 16 } else { *long_running };
        let keys = format!(
            "[agents.program]\nkind = \"{kind}\"\ncommand = \"sh {}\"\nsilence_ms = {silence_ms}\n\
             processes = {processes}\n[limits]\ntask_bytes_max = 1_048_576\n\
             store_bytes_max = \"16M\"\ntasks_max = 500\n",
            file.display(),
        );
        fs::write(&config, keys).unwrap();
        let flags = ["--config", config.to_str().expect("a path")];
        let server = SoakedServer::start(&format!("soak-{kind}-{count}"), &flags);
        // A long-running process has three pipes.
        let soak = Soak {
            server: &server,
            faults,
            pooled_max: long_running * 3,
            // Each may hang in a child.
            processes_max: long_running * 2,
            meanwhile: None,
            marker: &marker,
        };
        soak.run(count);
        for file in [config, file] {
            fs::remove_file(file).unwrap();
        }
    }
}

#[test]
fn dozens_of_program_faults_leak_no_resources() {
    TEXT.soak(90);
}

#[test]
fn dozens_of_line_protocol_faults_leak_no_resources() {
    LINES.soak(110);
}

#[test]
#[ignore = "minutes; the nightly run has it"]
fn ten_thousand_program_faults_leak_no_resources() {
    TEXT.soak(10_000);
}

#[test]
#[ignore = "minutes; the nightly run has it"]
fn ten_thousand_line_protocol_faults_leak_no_resources() {
    LINES.soak(10_000);
}
