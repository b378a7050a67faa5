//! What `docs/guide` shows works as it stands there.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use peregrine::agent::script::Script;

/// The blocks of a page in this language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("```{language}\n");
    let behind = page.split(fence.as_str()).skip(1);
    behind.map(|text| text.split("```").next().unwrap()).collect()
}

#[test]
fn every_script_of_the_guide_is_a_script() {
    let page = include_str!("../docs/guide/script.md");
    let scripts = blocks(page, "toml");
    assert!(!scripts.is_empty());
    for script in scripts {
        let script = Script::parse(script).unwrap();
        assert_eq!(script.profile().name, "greeter");
    }
}
