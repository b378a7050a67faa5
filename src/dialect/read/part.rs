//! Reads a part: by `kind`, by `type` or by its member, in every generation.

use std::borrow::Cow;

use crate::{
    json::{Kind, Value, base64},
    model::{
        Generation,
        pack::{Packer, part_tag},
    },
};

use super::{ReadCx, Rules, is_empty_list, set, slots};

slots!(PartSlots {
    kind: "kind";
    type_: "type";
    text: "text";
    raw: "raw";
    url: "url";
    data = "data";
    file: "file";
    metadata: "metadata";
    filename: "filename";
    media: "mediaType" | "media_type" | "mimeType" | "mime_type";
});

slots!(FileSlots {
    bytes: "bytes" | "fileWithBytes" | "file_with_bytes" | "raw";
    uri: "uri" | "fileWithUri" | "file_with_uri" | "url";
    name: "name" | "filename";
    media: "mimeType" | "mime_type" | "mediaType" | "media_type";
});

/// Why a part is invalid.
pub(super) type PartError = Cow<'static, str>;

/// The value of `kind` or `type`, if it is one of the three names of 0.x.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Text,
    File,
    Data,
}

/// Appends the fields of one part, content first; `REPLY`: a part of a server's message.
pub(super) fn read<const REPLY: bool>(
    rules: &Rules,
    cx: &ReadCx<'_>,
    value: Value<'_>,
    packer: &mut Packer<'_>,
) -> Result<(), PartError> {
    if let Some(text) = only_text(value) {
        packer.put(part_tag::TEXT, text);
        return Ok(());
    }
    if value.kind() != Kind::Object {
        return Err("must be an object".into());
    }
    let mut slots = PartSlots::default();
    slots.fill(value);
    let named =
        value.at(slots.kind).and_then(named).or_else(|| value.at(slots.type_).and_then(named));
    let is_named = |slot| value.at(slot).is_some_and(|name| name.kind() == Kind::String);
    // ProtoJSON has no such member, and ignores unknown members.
    if rules.strict && !rules.proto && named.is_none() && is_named(slots.kind) {
        return Err("kind must be text, file or data".into());
    }
    if rules.strict && !rules.proto && named.is_none() && is_named(slots.type_) {
        return Err("type must be text, file or data".into());
    }
    let at = |slot| value.at(slot);
    let all = [at(slots.text), at(slots.raw), at(slots.url), at(slots.file), at(slots.data)];
    let [text, raw, url, file, data] = if is_one_of(named, all) {
        all
    } else {
        match without_empty::<REPLY>(named, all) {
            Some(all) => all,
            None if REPLY && !rules.judges => return put_unknown(value, packer),
            None => return Err(ONE_OF.into()),
        }
    };
    let metadata = value.at(slots.metadata).filter(|value| !is_empty_list(*value));
    if metadata.is_some_and(|value| value.kind() != Kind::Object) {
        return Err("metadata must be an object".into());
    }
    if let Some(data) = data {
        let data = if rules.proto && named.is_none() { inner_data(data) } else { data };
        put_data(rules, data, metadata, packer);
        return put_names::<REPLY>(cx, value.at(slots.filename), value.at(slots.media), packer);
    }
    let metadata = metadata.map(|value| value.raw());
    let Some(file) = file else {
        put_content(cx, text, raw, url, packer)?;
        packer.put_some(part_tag::METADATA, metadata);
        return put_names::<REPLY>(cx, value.at(slots.filename), value.at(slots.media), packer);
    };
    if file.kind() != Kind::Object {
        return Err("file must be an object".into());
    }
    let mut of_file = FileSlots::default();
    of_file.fill(file);
    put_file(rules, cx, [file.at(of_file.bytes), file.at(of_file.uri)], packer)?;
    packer.put_some(part_tag::METADATA, metadata);
    // The name may be next to the file: a part of 1.0 inside a message of 0.x (ACTS).
    let name = file.at(of_file.name).or(value.at(slots.filename));
    let media_type = file.at(of_file.media).or(value.at(slots.media));
    put_names::<REPLY>(cx, name, media_type, packer)
}

const ONE_OF: &str = "must hold exactly one of text, raw, url (or file) and data";

/// The possible contents of a part, in the order of [`ONE_OF`].
type Contents<'p> = [Option<Value<'p>>; 5];

/// The contents without empty values; `None`: not exactly one is left.
#[cold]
fn without_empty<const REPLY: bool>(
    named: Option<Named>,
    mut all: Contents<'_>,
) -> Option<Contents<'_>> {
    // ProtoJSON: `null` is a value of `data`; next to another content it is an unset field of a
    // serialised model.
    all[4] = all[4].and_then(set);
    if REPLY && !is_one_of(named, all) {
        // Servers write fields that ProtoJSON omits (wire §1.5).
        all = all.map(|content| content.filter(|content| content.raw() != b"\"\""));
    }
    is_one_of(named, all).then_some(all)
}

/// Whether exactly one content is present, and has the named kind.
#[inline]
fn is_one_of(named: Option<Named>, [text, raw, url, file, data]: Contents<'_>) -> bool {
    let is_file = raw.is_some() || url.is_some() || file.is_some();
    let fits = match named {
        Some(Named::Text) => text.is_some(),
        Some(Named::File) => is_file,
        Some(Named::Data) => data.is_some(),
        None => true,
    };
    let contents = [text, raw, url, file, data].map(|content| u32::from(content.is_some()));
    contents.iter().sum::<u32>() == 1 && fits
}

/// A part of an unknown kind (A2A 1.0 §5.7: a later minor version may have more).
#[cold]
fn put_unknown(value: Value<'_>, packer: &mut Packer<'_>) -> Result<(), PartError> {
    packer.put(part_tag::UNKNOWN, value.raw());
    Ok(())
}

/// The members of a part that may be the base64 of a file, in every wire format.
pub(super) fn files(part: Value<'_>) -> [Option<Value<'_>>; 2] {
    let (mut slots, mut of_file) = (PartSlots::default(), FileSlots::default());
    slots.fill(part);
    let file = part.at(slots.file);
    file.inspect(|file| of_file.fill(*file));
    [part.at(slots.raw), file.and_then(|file| file.at(of_file.bytes))]
}

/// The text of a part without other members; nearly all parts of 1.0 are like this.
#[inline]
fn only_text<'p>(value: Value<'p>) -> Option<&'p [u8]> {
    let mut members = value.members();
    let (key, text) = members.next()?;
    let is_it = key.plain() == Some(b"text") && members.next().is_none();
    if is_it { text.string_raw() } else { None }
}

fn named(value: Value<'_>) -> Option<Named> {
    let names = [("text", Named::Text), ("file", Named::File), ("data", Named::Data)];
    names.iter().find(|(name, _)| value.str_eq(name)).map(|(_, named)| *named)
}

fn put_content(
    cx: &ReadCx<'_>,
    text: Option<Value<'_>>,
    raw: Option<Value<'_>>,
    url: Option<Value<'_>>,
    packer: &mut Packer<'_>,
) -> Result<(), PartError> {
    if let Some(text) = text {
        let text = text.string_raw().ok_or("text must be a string")?;
        packer.put(part_tag::TEXT, text);
        Ok(())
    } else if let Some(raw) = raw {
        put_bytes(raw, packer)
    } else {
        put_string(cx, part_tag::URL, url, "url", packer)
    }
}

#[inline(always)] // Most parts have neither name nor media type.
fn put_names<const REPLY: bool>(
    cx: &ReadCx<'_>,
    filename: Option<Value<'_>>,
    media_type: Option<Value<'_>>,
    packer: &mut Packer<'_>,
) -> Result<(), PartError> {
    // Servers write fields that ProtoJSON omits (wire §1.5).
    let is_present = |value: &Value<'_>| !REPLY || !value.str_eq("");
    let (filename, media_type) = (filename.filter(is_present), media_type.filter(is_present));
    put_string(cx, part_tag::FILENAME, filename, "filename", packer)?;
    put_string(cx, part_tag::MEDIA_TYPE, media_type, "mediaType", packer)
}

fn put_bytes(value: Value<'_>, packer: &mut Packer<'_>) -> Result<(), PartError> {
    let base64 = value.string_raw_str().and_then(base64::normalise);
    packer.put(part_tag::RAW, base64.ok_or("its bytes must be base64")?.as_bytes());
    Ok(())
}

#[inline(always)] // Most parts have no such string.
fn put_string(
    cx: &ReadCx<'_>,
    tag: u8,
    value: Option<Value<'_>>,
    name: &str,
    packer: &mut Packer<'_>,
) -> Result<(), PartError> {
    match value {
        Some(value) => put_text(cx, tag, value, name, packer),
        None => Ok(()),
    }
}

fn put_text(
    cx: &ReadCx<'_>,
    tag: u8,
    value: Value<'_>,
    name: &str,
    packer: &mut Packer<'_>,
) -> Result<(), PartError> {
    let raw = value.string_raw().ok_or_else(|| format!("{name} must be a string"))?;
    let most = cx.limits.string_bytes_max;
    if raw.len() > most {
        return Err(format!("{name} must not be longer than {most} bytes").into());
    }
    packer.put(tag, raw);
    Ok(())
}

/// Wire §1.6, Part: `file` of the 0.x generations.
fn put_file(
    rules: &Rules,
    cx: &ReadCx<'_>,
    [bytes, uri]: [Option<Value<'_>>; 2],
    packer: &mut Packer<'_>,
) -> Result<(), PartError> {
    match (bytes, uri) {
        (Some(bytes), None) => put_bytes(bytes, packer),
        (None, Some(_)) => put_string(cx, part_tag::URL, uri, "uri", packer),
        // 0.1: both may be absent; then the file only has a name.
        (None, None) if rules.generation == Generation::V01 => {
            packer.put(part_tag::URL, b"");
            Ok(())
        }
        (None, None) | (Some(_), Some(_)) => {
            Err("file must hold exactly one of bytes and uri".into())
        }
    }
}

/// Wire §3.4: the Struct inside a DataPart, `{"data":{…}}`; any other value is the data itself.
fn inner_data(data: Value<'_>) -> Value<'_> {
    let mut members = data.members();
    match (members.next(), members.next()) {
        (Some((key, inner)), None) if key.eq("data") && inner.kind() == Kind::Object => inner,
        _ => data,
    }
}

fn put_data(rules: &Rules, data: Value<'_>, metadata: Option<Value<'_>>, packer: &mut Packer<'_>) {
    let wrapped = match rules.generation {
        Generation::V1 => None,
        Generation::V01 | Generation::V03 => {
            metadata.filter(|metadata| is_marked(*metadata)).and_then(|_| only_value(data))
        }
    };
    let Some(value) = wrapped else {
        packer.put(part_tag::DATA, data.raw());
        packer.put_some(part_tag::METADATA, metadata.map(|value| value.raw()));
        return;
    };
    packer.put(part_tag::DATA, value.raw());
    if let Some(metadata) = metadata {
        put_unmarked(metadata, packer);
    }
}

/// The part metadata with which 0.x marks data that is not an object (wire §1.9).
const MARK: &str = "data_part_compat";
/// The mark as `json_out::wrapped_mark` appends it to metadata that is not empty.
const MARK_AS_WRITTEN: &[u8] = b",\"data_part_compat\":true}";

fn is_marked(metadata: Value<'_>) -> bool {
    let mark = metadata.members().filter(|(key, _)| key.eq(MARK)).last();
    mark.is_some_and(|(_, value)| value.as_bool() == Some(true))
}

/// The value `X` in `{"value": X}`.
fn only_value(data: Value<'_>) -> Option<Value<'_>> {
    let mut members = data.members();
    let (key, value) = members.next()?;
    (key.eq("value") && members.next().is_none()).then_some(value)
}

/// Appends metadata without the mark; verbatim if Peregrine has written the mark.
fn put_unmarked(metadata: Value<'_>, packer: &mut Packer<'_>) {
    let raw = metadata.raw();
    let before = raw.strip_suffix(MARK_AS_WRITTEN);
    let others = || metadata.members().filter(|(key, _)| !key.eq(MARK));
    if before.is_none() && others().next().is_none() {
        return;
    }
    let nested = packer.open(part_tag::METADATA);
    if let Some(before) = before {
        packer.0.extend_from_slice(before);
    } else {
        for (index, (key, value)) in others().enumerate() {
            packer.0.extend_from_slice(if index == 0 { b"{\"" } else { b",\"" });
            packer.0.extend_from_slice(key.raw());
            packer.0.extend_from_slice(b"\":");
            packer.0.extend_from_slice(value.raw());
        }
    }
    packer.0.push(b'}');
    packer.close(nested);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{json::Parser, limits::Limits, model::Op};

    fn packed(part: &str) -> Result<Vec<u8>, PartError> {
        let (limits, mut parser, mut pack) = (Limits::default(), Parser::new(), Vec::new());
        let cx = ReadCx {
            op: Op::Send,
            limits: &limits,
            fresh_id: b"",
            after: None,
            task: None,
            tokens: Cell::new(100),
            tenant: Cell::default(),
        };
        let value = parser.parse(part.as_bytes(), 8).unwrap();
        read::<false>(&Rules::of(Generation::V1), &cx, value, &mut Packer(&mut pack)).map(|()| pack)
    }

    #[test]
    fn text_part_fast_path_agrees_with_general_reader() {
        let alone = packed(r#"{"text":"x\"y"}"#).unwrap();
        for same in [r#"{"text":"x\"y","url":null}"#, r#"{"te\u0078t":"x\"y"}"#] {
            assert_eq!(packed(same).unwrap(), alone, "{same}");
        }
        let more = packed(r#"{"text":"x\"y","filename":"f"}"#).unwrap();
        assert!(more.starts_with(&alone) && more.len() > alone.len());
        for wrong in [r#"{"text":1}"#, r#"{"text":null}"#, r#"{"texts":"x"}"#, r#""text""#] {
            assert!(packed(wrong).is_err(), "{wrong}");
        }
    }
}
