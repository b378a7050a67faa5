//! Cards: any bytes are read or refused, and a card means the same in its canonical form.

use peregrine::client::{
    HttpOrigin, ProtocolVersion,
    card::{
        AgentCard, CardKeys, FindingLevel, Preferences, SignatureOutcome, choose, lint, validate,
        verify,
    },
};

/// A card is read, chosen from, linted and verified without a panic. Its canonical form reads as
/// the same card and gives the same interface. For an unreadable card the linter reports an error,
/// and violations of the schema are errors.
pub fn canonical_card_reads_as_the_same_card(bytes: &[u8]) {
    let url = HttpOrigin::parse("https://h.example/.well-known/agent-card.json").unwrap();
    let findings = lint(bytes, Some(&url));
    let errors = findings.iter().filter(|one| one.level == FindingLevel::Error).count();
    assert!(validate(bytes).len() <= errors + 1);
    let Ok(card) = AgentCard::read(bytes) else {
        return assert!(errors > 0, "it cannot be read, and nothing is wrong with it");
    };
    let canonical = card.to_v1_json();
    let again = AgentCard::read(canonical.as_bytes()).expect("its own canonical form");
    assert_eq!(again.to_v1_json(), canonical);
    assert_eq!(again.interfaces.len(), card.interfaces.len());
    for floor in [ProtocolVersion::V1_0, ProtocolVersion::V0_1] {
        let wants = Preferences { floor, ..Preferences::default() };
        let chosen = choose(&card, Some(&url), &wants);
        let of_canonical = choose(&again, Some(&url), &wants);
        assert_eq!(chosen.clone().ok(), of_canonical.ok());
        if let Ok(chosen) = chosen {
            assert!(chosen.version >= floor);
        }
    }
    let outcome = verify(&card, &CardKeys::default());
    assert_eq!(outcome == SignatureOutcome::Absent, card.signatures.is_empty());
}

/// Each member of a card in turn is removed, or replaced by another value.
#[test]
fn changed_card_means_the_same_in_canonical_form() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/cards");
    for entry in std::fs::read_dir(corpus).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let Ok(card) = serde_json::from_str::<serde_json::Value>(&text) else { continue };
        assert!(AgentCard::read(text.as_bytes()).is_ok(), "{text}");
        let names: Vec<String> = card.as_object().unwrap().keys().cloned().collect();
        let others = ["null", "true", "7", "\"x\"", "[]", "{}", "[{}]", "{\"x\":{}}", "[[7]]"];
        for name in names {
            for other in others {
                let mut changed = card.clone();
                changed[&name] = serde_json::from_str(other).unwrap();
                canonical_card_reads_as_the_same_card(changed.to_string().as_bytes());
            }
        }
    }
}
