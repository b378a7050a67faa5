//! `docs/bench.md` lists the load generator's options, and its examples work.

use std::{collections::BTreeSet, path::Path, process::Command};

use peregrine::load::{LoadOperation, Objective};

use crate::support::binary::PATH;

const PAGE: &str = include_str!("../../docs/bench.md");

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let after = PAGE.split(fence.as_str()).skip(1);
    after.map(|text| text.split("```").next().unwrap()).collect()
}

/// The section of the page with this title.
fn section(heading: &str) -> &'static str {
    let rest = PAGE.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    rest.split("\n## ").next().unwrap()
}

/// The names in backquotes in the first cells of a table.
fn first_cells(section: &str) -> impl Iterator<Item = &str> {
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2))
}

#[test]
fn bench_page_lists_exactly_the_options_of_the_help() {
    let output = Command::new(PATH).args(["bench", "-h"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let own = help.split("\nOptions:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let begins = own.lines().map(|line| line.trim_start().split([' ', '\n']).next().unwrap());
    let mut options: BTreeSet<&str> = begins.filter(|word| word.starts_with("--")).collect();
    assert!(options.len() > 30, "{help}");
    // A general option, which all commands have.
    options.insert("--timeout");
    let page = first_cells(section("Options")).map(|cell| cell.split(' ').next().unwrap());
    assert_eq!(page.collect::<BTreeSet<&str>>(), options);
}

#[test]
fn bench_page_lists_every_scenario() {
    let page: Vec<&str> = first_cells(section("Scenarios")).collect();
    for operation in LoadOperation::ALL {
        assert!(page.contains(&operation.name()), "{}", operation.name());
    }
}

#[test]
fn bench_page_objectives_can_be_parsed() {
    let counts = ["errors", "rate", "goodput", "held_back", "never_sent"];
    let mut metrics = 0;
    for metric in first_cells(section("Objectives")) {
        let value = if counts.contains(&metric) { "20" } else { "20ms" };
        Objective::parse(&format!("{metric}<{value}")).unwrap();
        metrics += 1;
    }
    assert!(metrics > 15, "{metrics}");
}

#[test]
fn bench_page_lists_every_error_kind() {
    let page: BTreeSet<&str> = first_cells(section("What is checked")).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/load");
    let mut kinds = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let Ok(source) = std::fs::read_to_string(file.unwrap().path()) else { continue };
        for call in source.split("CallFailure::wrong(").skip(1) {
            let Some(kind) = call.trim_start().strip_prefix('"') else { continue };
            let kind = kind.split('"').next().unwrap();
            assert!(page.contains(kind), "{kind}");
            kinds += 1;
        }
    }
    assert!(kinds > 20, "{kinds}");
}

/// Its first call fails for lack of an agent: the workload was read.
#[test]
fn bench_page_workload_example_is_accepted() {
    let name = format!("peregrine-workload-{}.toml", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, blocks("toml")[0]).unwrap();
    let output = Command::new(PATH)
        .args(["bench", "http://127.0.0.1:9", "--workload", file.to_str().unwrap()])
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
}

#[test]
fn bench_page_quotes_the_example_agents() {
    let programs = [
        ("python", include_str!("../../docs/examples/bench/agent.py")),
        ("js", include_str!("../../docs/examples/bench/agent.mjs")),
    ];
    for (language, program) in programs {
        let blocks = blocks(language);
        assert_eq!(blocks.len(), 1, "{language}");
        assert!(program.contains(blocks[0]), "{language}");
    }
}
