//! Comparable JSON: values that differ from run to run, and empty ones, are removed.

use std::collections::HashMap;

use serde_json::{Map, Number, Value};

/// Replaces ids by their kind and order of appearance, and drops times and the members that
/// ProtoJSON omits: empty lists and texts (except those of parts), `false`, and empty metadata.
pub fn plain(value: &Value) -> Value {
    Plain::default().value(value)
}

#[derive(Default)]
struct Plain {
    names: HashMap<String, String>,
    counts: HashMap<&'static str, usize>,
}

impl Plain {
    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(members) => self.object(members),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Number(number) => whole(number),
            Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
        }
    }

    fn object(&mut self, members: &Map<String, Value>) -> Value {
        // A task is the only kind of object with an `id` and a status.
        let is_task = members.contains_key("status") && members.contains_key("id");
        // A user's own JSON is compared unchanged.
        let is_free = |key: &str| matches!(key, "metadata" | "data" | "params");
        let mut plain = Map::new();
        // In the order of their names, in whichever order they arrived.
        let mut members: Vec<_> = members.iter().collect();
        members.sort_unstable_by_key(|(key, _)| key.as_str());
        for (key, value) in members {
            let kind = match key.as_str() {
                "id" if is_task => Some("task"),
                "taskId" => Some("task"),
                "contextId" => Some("context"),
                "messageId" => Some("message"),
                _ => None,
            };
            let value = match (kind, value) {
                (Some(kind), Value::String(id)) => Value::String(self.name(kind, id)),
                _ if is_free(key) => numbers(value),
                _ => self.value(value),
            };
            let is_empty = match &value {
                Value::String(text) => text.is_empty() && key != "text",
                Value::Array(items) => items.is_empty(),
                Value::Bool(flag) => !flag,
                Value::Object(members) => members.is_empty() && key == "metadata",
                Value::Number(_) => false,
                Value::Null => !is_free(key),
            };
            if !is_empty && key != "timestamp" {
                plain.insert(key.clone(), value);
            }
        }
        Value::Object(plain)
    }

    fn name(&mut self, kind: &'static str, id: &str) -> String {
        if id.is_empty() {
            return String::new();
        }
        let Plain { names, counts } = self;
        let name = names.entry(format!("{kind} {id}")).or_insert_with(|| {
            let count = counts.entry(kind).or_default();
            *count += 1;
            format!("{kind} {count}")
        });
        name.clone()
    }
}

/// Free JSON, in which only numbers may be written in two ways.
fn numbers(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members.iter().map(|(key, value)| (key.clone(), numbers(value))).collect(),
        ),
        Value::Array(items) => items.iter().map(numbers).collect(),
        Value::Number(number) => whole(number),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// `1.0` is `1`: protobuf has no integers in free JSON.
fn whole(number: &Number) -> Value {
    let as_float = number.as_f64().filter(|_| number.is_f64());
    match as_float.filter(|float| float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0) {
        Some(float) => Value::from(float as i64),
        None => Value::Number(number.clone()),
    }
}

#[test]
fn plain_json_numbers_ids_and_drops_times_and_empty_members() {
    let task = serde_json::json!({
        "id": "x", "contextId": "c", "status": {"state": "S", "timestamp": "now"},
        "history": [
            {"messageId": "m", "taskId": "x", "parts": [{"text": "", "filename": ""}]},
            {"messageId": "n", "taskId": "y", "parts": [{"data": {"one": 1.0, "e": ""}}]},
        ],
        "artifacts": [],
    });
    let expected = serde_json::json!({
        "id": "task 1", "contextId": "context 1", "status": {"state": "S"},
        "history": [
            {"messageId": "message 1", "taskId": "task 1", "parts": [{"text": ""}]},
            {"messageId": "message 2", "taskId": "task 2", "parts": [{"data": {"one": 1, "e": ""}}]},
        ],
    });
    assert_eq!(plain(&task), expected);
}
