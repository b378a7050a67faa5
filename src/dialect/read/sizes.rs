//! The sizes of a message and its files, computed from their text: nothing is decoded, and only
//! base64 with escapes is copied.

use crate::{
    fault::Fault,
    json::{Value, base64},
};

use super::{part, slots};

slots!(ParamsSlots {
    message: "message";
});

slots!(MessageSlots {
    parts: "parts";
});

/// The documented size limits of a dialect, each with the name of the limit.
pub(in crate::dialect) struct Sizes {
    /// Bytes of a file, decoded.
    pub file: (usize, &'static str),
    /// Bytes of a message as received, without the base64 of its files.
    pub message: (usize, &'static str),
}

impl Sizes {
    /// Checks the message in these params, if any.
    ///
    /// # Errors
    /// `InvalidParams`, which names the limit.
    pub(in crate::dialect) fn check(&self, params: Value<'_>) -> Result<(), Fault> {
        let mut slots = ParamsSlots::default();
        slots.fill(params);
        match params.at(slots.message) {
            // A message smaller than both limits cannot exceed either.
            Some(message) if message.raw().len() > self.message.0.min(self.file.0) => {
                self.check_message(message)
            }
            Some(_) | None => Ok(()),
        }
    }

    #[cold]
    fn check_message(&self, message: Value<'_>) -> Result<(), Fault> {
        let mut slots = MessageSlots::default();
        slots.fill(message);
        let mut bytes = message.raw().len();
        let parts = message.at(slots.parts);
        for (index, value) in parts.iter().flat_map(Value::elements).enumerate() {
            let texts = part::files(value).into_iter().flatten();
            for text in texts.filter_map(|text| text.string_raw_str()) {
                bytes -= text.len();
                let (most, name) = self.file;
                if base64::decoded_len(text) > most {
                    let wrong = format!("part {index}: its file exceeds {most} bytes ({name})");
                    return Err(Fault::param("message.parts", wrong));
                }
            }
        }
        let (most, name) = self.message;
        if bytes > most {
            let wrong =
                format!("must not be longer than {most} bytes, not counting its files ({name})");
            return Err(Fault::param("message", wrong));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::json::Parser;

    const SIZES: Sizes = Sizes { file: (6, "files"), message: (100, "messages") };

    fn check(params: &str) -> Option<String> {
        let mut parser = Parser::new();
        let value = parser.parse(params.as_bytes(), 16).unwrap();
        SIZES.check(value).err().map(|fault| format!("{} {}", fault.field.unwrap(), fault.detail))
    }

    fn of(parts: &str) -> Option<String> {
        check(&format!(r#"{{"message":{{"parts":[{parts}]}}}}"#))
    }

    #[test]
    fn file_size_is_its_decoded_size() {
        for fits in ["", "AAAAAAAA", "AAAAAAA", "AAAAAAA=", r"\/\u002F\/\/AAAA", "AA", "===="] {
            for part in [
                format!(r#"{{"raw":"{fits}"}}"#),
                format!(r#"{{"type":"file","file":{{"bytes":"{fits}"}}}}"#),
                format!(r#"{{"file":{{"fileWithBytes":"{fits}"}}}}"#),
            ] {
                assert_eq!(of(&part), None, "{part}");
            }
        }
        let wrong = "message.parts part 1: its file exceeds 6 bytes (files)";
        for large in ["AAAAAAAAAA", "AAAAAAAAAA==", "AAAAAAAAAAA=", "AAAAAAAAAAAA", r"\/AAAAAAAAA"]
        {
            for part in [
                format!(r#"{{"raw":"{large}"}}"#),
                format!(r#"{{"type":"file","file":{{"file_with_bytes":"{large}"}}}}"#),
                format!(r#"{{"file":{{"bytes":"x","bytes":"{large}"}}}}"#),
            ] {
                assert_eq!(of(&format!(r#"{{"text":"a"}},{part}"#)).as_deref(), Some(wrong));
            }
        }
    }

    #[test]
    fn message_size_excludes_files() {
        let sized = |bytes: usize, file: &str| {
            let frame = r#"{"parts":[{"text":""},{"raw":""}]}"#;
            let text = "x".repeat(bytes - frame.len());
            check(&format!(r#"{{"message":{{"parts":[{{"text":"{text}"}},{{"raw":"{file}"}}]}}}}"#))
        };
        let wrong = "message must not be longer than 100 bytes, not counting its files (messages)";
        for file in ["", "AAAAAAAA", r"\/\/\/\/"] {
            assert_eq!(sized(100, file), None);
            assert_eq!(sized(101, file).as_deref(), Some(wrong));
        }
        // Text under another name is not a file, and an invalid message is rejected later by the
        // reader.
        let long = "A".repeat(101);
        assert_eq!(of(&format!(r#"{{"data":"{long}"}}"#)).as_deref(), Some(wrong));
        let repeated = format!(r#"{{"message":{{}},"message":"{long}"}}"#);
        assert_eq!(check(&repeated).as_deref(), Some(wrong));
        for others in
            ["null", "[]", r#"{"message":null}"#, r#"{"message":[{"raw":"AAAAAAAAAAAA"}]}"#]
        {
            assert_eq!(check(others), None, "{others}");
        }
    }
}
