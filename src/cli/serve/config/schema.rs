//! The JSON Schema (2020-12) of a configuration, generated from the tables of its keys.

use peregrine::limits::Unit;
use serde_json::{Map, Value, json};

use super::{
    sections,
    tree::{Key, Shape},
};

/// The pattern of an agent's name, as in `peregrine::model::is_agent_name`.
const NAME: &str = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$";

/// The schema.
pub fn schema() -> Value {
    let mut schema = object(sections::KEYS);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("The configuration of a Peregrine server");
    schema
}

/// The schema of a table with these keys.
fn object(keys: &[Key]) -> Value {
    let properties: Map<String, Value> =
        keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

fn property(key: &Key) -> Value {
    let mut schema = match &key.shape {
        Shape::Switch => json!({"type": "boolean"}),
        Shape::SwitchOr(word) => {
            json!({"anyOf": [{"type": "boolean"}, {"enum": [word]}, variable()]})
        }
        Shape::Whole { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Shape::Measure(unit) => measure(*unit),
        Shape::Text | Shape::Path => json!({"type": "string"}),
        // A variable may replace any of the words.
        Shape::Choice(words) => json!({"type": "string", "anyOf": [{"enum": words}, variable()]}),
        Shape::Texts | Shape::Paths => texts(),
        Shape::Numbers => {
            json!({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}})
        }
        Shape::TextsOr(word) => json!({"anyOf": [{"enum": [word]}, variable(), texts()]}),
        Shape::Section(keys) => object(keys()),
        Shape::Sections(keys) => json!({"type": "array", "items": object(keys())}),
        Shape::Named(keys) => json!({
            "type": "object",
            "propertyNames": {"pattern": NAME},
            "additionalProperties": object(keys()),
        }),
    };
    schema["description"] = json!(key.help);
    if let Some(default) = default(key) {
        schema["default"] = default;
    }
    schema
}

fn texts() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

fn variable() -> Value {
    json!({"type": "string", "pattern": r"\$\{"})
}

fn measure(unit: Unit) -> Value {
    let units = match unit {
        Unit::Bytes => "([Bb]|[KkMmGgTt]([Ii][Bb])?)?",
        Unit::Millis => "([Mm][Ss]|[Ss]|[Mm]|[Mm][Ii][Nn]|[Hh])?",
        Unit::Count => "",
    };
    let text = json!({"type": "string", "pattern": format!("^[0-9_]+{units}$")});
    json!({"anyOf": [{"type": "integer", "minimum": 1}, text, variable()]})
}

/// The default of a key, if TOML can express it.
fn default(key: &Key) -> Option<Value> {
    let whole = format!("it = {}", key.default);
    let table: Map<String, Value> = toml::from_str(&whole).ok()?;
    table.get("it").cloned()
}
