//! Reads a message of either generation into its packed form (A2A 1.0 §4.1.4).

use std::borrow::Cow;

use crate::{
    dialect::ReadCx,
    fault::Fault,
    json::{base64, write::push_escaped},
    model::{
        Generation,
        pack::{Packer, message_tag, part_tag},
    },
    pb::{Fields, Malformed, Value},
};

use super::{
    fields::{v1, v03},
    read::malformed,
    structs::{self, Bounds, NotJson},
};

/// The part metadata with which 0.3 marks data that is not an object (wire §1.9).
pub(super) const MARK: &str = "data_part_compat";

/// The positions of a message's identifiers in the pack.
pub(super) struct Ids {
    pub context_id: Option<(usize, usize)>,
    pub task_id: Option<(usize, usize)>,
}

pub(super) fn missing(field: &'static str) -> Fault {
    Fault::param(field, "is required")
}

/// Appends a string in the model's canonical form.
pub(super) fn canonical(
    field: &'static str,
    value: Value<'_>,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let text = value.text().map_err(malformed)?;
    if text.len() > bytes_max {
        return Err(Fault::param(field, format!("must not be longer than {bytes_max} bytes")));
    }
    push_escaped(out, text);
    Ok(())
}

/// Appends a `Struct` as JSON and returns its position.
pub(super) fn structure(
    cx: &ReadCx<'_>,
    field: &'static str,
    message: &[u8],
    out: &mut Vec<u8>,
) -> Result<(usize, usize), Fault> {
    let start = out.len();
    structs::push_struct(out, message, None, bounds(cx))
        .map_err(|wrong| Fault::param(field, why(wrong, cx)))?;
    Ok((start, out.len()))
}

fn bounds<'a>(cx: &'a ReadCx<'_>) -> Bounds<'a> {
    Bounds { depth_max: cx.limits.json_depth_max, tokens: &cx.tokens }
}

fn why(wrong: NotJson, cx: &ReadCx<'_>) -> Cow<'static, str> {
    match wrong {
        NotJson::Malformed => "does not match its protobuf type".into(),
        NotJson::Number => "must not contain infinite or NaN numbers".into(),
        NotJson::Depth => {
            let most = cx.limits.json_depth_max;
            format!("must not be nested more than {most} levels deep").into()
        }
        NotJson::Tokens => {
            let most = cx.limits.json_tokens_max;
            format!("must not have more than {most} tokens as JSON (json_tokens_max)").into()
        }
    }
}

/// The singular fields of a message.
#[derive(Default)]
struct Singular<'a> {
    message_id: Option<Value<'a>>,
    context_id: Option<Value<'a>>,
    task_id: Option<Value<'a>>,
    role: i32,
    metadata: Option<&'a [u8]>,
    parts: usize,
}

/// Appends the packed message to `pack`.
pub(super) fn read(
    cx: &ReadCx<'_>,
    generation: Generation,
    message: &[u8],
    pack: &mut Vec<u8>,
) -> Result<Ids, Fault> {
    // Both generations use the same numbers for their common fields; 0.3 has no referenced tasks.
    use v1::message as field;
    let mut singular = Singular::default();
    for found in Fields(message) {
        match found.map_err(malformed)? {
            (field::MESSAGE_ID, value) => singular.message_id = Some(value),
            (field::CONTEXT_ID, value) => singular.context_id = Some(value),
            (field::TASK_ID, value) => singular.task_id = Some(value),
            (field::ROLE, value) => singular.role = value.int32().map_err(malformed)?,
            (field::METADATA, value) => {
                singular.metadata = Some(value.bytes().map_err(malformed)?);
            }
            (field::PARTS, _) => singular.parts += 1,
            _ => {}
        }
    }
    let mut packer = Packer(pack);
    let has_id = put_id(cx, "message.messageId", singular.message_id, MESSAGE_ID, &mut packer)?;
    // A2A 1.0 §5.7: REQUIRED, and every known client of this binding sends it.
    has_id.ok_or_else(|| missing("message.messageId"))?;
    let context_id = put_id(cx, "message.contextId", singular.context_id, CONTEXT_ID, &mut packer)?;
    let task_id = put_id(cx, "message.taskId", singular.task_id, TASK_ID, &mut packer)?;
    match singular.role {
        1 | 2 => packer.put(message_tag::ROLE, &[singular.role as u8]),
        0 => return Err(missing("message.role")),
        _ => return Err(Fault::param("message.role", "must be ROLE_USER or ROLE_AGENT")),
    }
    parts(cx, generation, message, singular.parts, &mut packer)?;
    if let Some(metadata) = singular.metadata {
        let nested = packer.open(message_tag::METADATA);
        structure(cx, "message.metadata", metadata, packer.0)?;
        packer.close(nested);
    }
    strings(cx, message, EXTENSIONS, &mut packer)?;
    if generation == Generation::V1 {
        strings(cx, message, REFERENCES, &mut packer)?;
    }
    Ok(Ids { context_id, task_id })
}

const MESSAGE_ID: u8 = message_tag::MESSAGE_ID;
const CONTEXT_ID: u8 = message_tag::CONTEXT_ID;
const TASK_ID: u8 = message_tag::TASK_ID;

/// Packs an identifier unless it is empty, and returns its position.
fn put_id(
    cx: &ReadCx<'_>,
    field: &'static str,
    value: Option<Value<'_>>,
    tag: u8,
    packer: &mut Packer<'_>,
) -> Result<Option<(usize, usize)>, Fault> {
    let Some(value) = value.filter(|value| *value != Value::Bytes(b"")) else { return Ok(None) };
    let nested = packer.open(tag);
    let start = packer.0.len();
    canonical(field, value, cx.limits.identifier_bytes_max, packer.0)?;
    let position = (start, packer.0.len());
    packer.close(nested);
    Ok(Some(position))
}

/// A repeated string of a message.
struct RepeatedString {
    /// The field number.
    number: u32,
    /// The name in faults.
    name: &'static str,
    /// The tag of the packed elements.
    tag: u8,
    /// True: the elements are identifiers.
    has_ids: bool,
}

const EXTENSIONS: RepeatedString = RepeatedString {
    number: v1::message::EXTENSIONS,
    name: "message.extensions",
    tag: message_tag::EXTENSION,
    has_ids: false,
};
const REFERENCES: RepeatedString = RepeatedString {
    number: v1::message::REFERENCE_TASK_IDS,
    name: "message.referenceTaskIds",
    tag: message_tag::REFERENCE,
    has_ids: true,
};

fn strings(
    cx: &ReadCx<'_>,
    message: &[u8],
    repeated: RepeatedString,
    packer: &mut Packer<'_>,
) -> Result<(), Fault> {
    let RepeatedString { number: wanted_number, name, tag, has_ids } = repeated;
    let limits = cx.limits;
    let bytes_max = if has_ids { limits.identifier_bytes_max } else { limits.string_bytes_max };
    let all = Fields(message).filter_map(Result::ok).filter(|(number, _)| *number == wanted_number);
    for (index, (_, value)) in all.enumerate() {
        if index >= limits.references_max {
            let most = limits.references_max;
            let why = format!("must not have more than {most} elements");
            return Err(Fault::param(name, why).of_limit("references_max"));
        }
        let nested = packer.open(tag);
        canonical(name, value, bytes_max, packer.0)?;
        packer.close(nested);
    }
    Ok(())
}

fn parts(
    cx: &ReadCx<'_>,
    generation: Generation,
    message: &[u8],
    count: usize,
    packer: &mut Packer<'_>,
) -> Result<(), Fault> {
    const FIELD: &str = "message.parts";
    if count == 0 {
        return Err(Fault::param(FIELD, "must have at least one part"));
    }
    if count > cx.limits.parts_max {
        let most = cx.limits.parts_max;
        let why = format!("must not have more than {most} parts");
        return Err(Fault::param(FIELD, why).of_limit("parts_max"));
    }
    let all = Fields(message).filter_map(Result::ok).filter(|f| f.0 == v1::message::PARTS);
    for (index, (_, value)) in all.enumerate() {
        let part = value.bytes().map_err(malformed)?;
        let nested = packer.open(message_tag::PART);
        let read = match generation {
            Generation::V1 => part_v1(cx, part, packer),
            Generation::V01 | Generation::V03 => part_v03(cx, part, packer),
        };
        read.map_err(|wrong| Fault::param(FIELD, format!("part {index}: {wrong}")))?;
        packer.close(nested);
    }
    Ok(())
}

/// Why a part is invalid.
type Wrong = Cow<'static, str>;

fn shape(_: Malformed) -> Wrong {
    "does not match its protobuf type".into()
}

fn part_v1(cx: &ReadCx<'_>, part: &[u8], packer: &mut Packer<'_>) -> Result<(), Wrong> {
    use v1::part as field;
    let (mut content, mut metadata, mut names) = (None, None, [None, None]);
    for found in Fields(part) {
        let (number, value) = found.map_err(shape)?;
        match number {
            field::TEXT | field::RAW | field::URL | field::DATA => content = Some((number, value)),
            field::METADATA => metadata = Some(value.bytes().map_err(shape)?),
            field::FILENAME => names[0] = Some(value),
            field::MEDIA_TYPE => names[1] = Some(value),
            _ => {}
        }
    }
    match content.ok_or("must hold exactly one of text, raw, url and data")? {
        (field::TEXT, text) => put_text(part_tag::TEXT, text, packer)?,
        (field::RAW, raw) => put_raw(raw.bytes().map_err(shape)?, packer),
        (field::URL, url) => put_string(cx, part_tag::URL, Some(url), "url", packer)?,
        (_, data) => put_value(cx, data.bytes().map_err(shape)?, packer)?,
    }
    put_metadata(cx, metadata, None, packer)?;
    put_names(cx, names, packer)
}

fn part_v03(cx: &ReadCx<'_>, part: &[u8], packer: &mut Packer<'_>) -> Result<(), Wrong> {
    use v03::part as field;
    let (mut content, mut metadata) = (None, None);
    for found in Fields(part) {
        let (number, value) = found.map_err(shape)?;
        match number {
            field::TEXT | field::FILE | field::DATA => content = Some((number, value)),
            field::METADATA => metadata = Some(value.bytes().map_err(shape)?),
            _ => {}
        }
    }
    match content.ok_or("must hold exactly one of text, file and data")? {
        (field::TEXT, text) => put_text(part_tag::TEXT, text, packer)?,
        (field::FILE, file) => {
            return put_file(cx, file.bytes().map_err(shape)?, metadata, packer);
        }
        (_, data) => {
            let data = inner_data(data.bytes().map_err(shape)?)?;
            let wrapped = metadata.filter(|metadata| structs::is_true(metadata, MARK));
            if let Some(value) = wrapped.and_then(|_| structs::only(data, "value")) {
                put_value(cx, value, packer)?;
                let others = metadata.filter(|metadata| structs::count(metadata) > 1);
                return put_metadata(cx, others, Some(MARK), packer);
            }
            let nested = packer.open(part_tag::DATA);
            structs::push_struct(packer.0, data, None, bounds(cx))
                .map_err(|wrong| format!("data {}", why(wrong, cx)))?;
            packer.close(nested);
        }
    }
    put_metadata(cx, metadata, None, packer)
}

/// `DataPart.data`; an empty object if the field is not set.
fn inner_data(part: &[u8]) -> Result<&[u8], Wrong> {
    let mut data = &[][..];
    for field in Fields(part) {
        if let (v03::data_part::DATA, value) = field.map_err(shape)? {
            data = value.bytes().map_err(shape)?;
        }
    }
    Ok(data)
}

fn put_file(
    cx: &ReadCx<'_>,
    file: &[u8],
    metadata: Option<&[u8]>,
    packer: &mut Packer<'_>,
) -> Result<(), Wrong> {
    use v03::file_part as field;
    let (mut content, mut names) = (None, [None, None]);
    for found in Fields(file) {
        let (number, value) = found.map_err(shape)?;
        match number {
            field::FILE_WITH_URI | field::FILE_WITH_BYTES => content = Some((number, value)),
            field::NAME => names[0] = Some(value),
            field::MIME_TYPE => names[1] = Some(value),
            _ => {}
        }
    }
    match content.ok_or("file must hold exactly one of bytes and uri")? {
        (field::FILE_WITH_URI, uri) => put_string(cx, part_tag::URL, Some(uri), "uri", packer)?,
        (_, bytes) => put_raw(bytes.bytes().map_err(shape)?, packer),
    }
    put_metadata(cx, metadata, None, packer)?;
    // An empty name or type counts as unset.
    let names = names.map(|name| name.filter(|name| *name != Value::Bytes(b"")));
    put_names(cx, names, packer)
}

fn put_text(tag: u8, text: Value<'_>, packer: &mut Packer<'_>) -> Result<(), Wrong> {
    let text = text.text().map_err(shape)?;
    let nested = packer.open(tag);
    push_escaped(packer.0, text);
    packer.close(nested);
    Ok(())
}

/// Packs raw bytes as base64, the format of all bindings; they are copied only once.
fn put_raw(raw: &[u8], packer: &mut Packer<'_>) {
    let nested = packer.open(part_tag::RAW);
    base64::push_encoded(packer.0, raw);
    packer.close(nested);
}

fn put_value(cx: &ReadCx<'_>, value: &[u8], packer: &mut Packer<'_>) -> Result<(), Wrong> {
    let nested = packer.open(part_tag::DATA);
    structs::push_value(packer.0, value, bounds(cx))
        .map_err(|wrong| format!("data {}", why(wrong, cx)))?;
    packer.close(nested);
    Ok(())
}

fn put_metadata(
    cx: &ReadCx<'_>,
    metadata: Option<&[u8]>,
    skip: Option<&str>,
    packer: &mut Packer<'_>,
) -> Result<(), Wrong> {
    let Some(metadata) = metadata else { return Ok(()) };
    let nested = packer.open(part_tag::METADATA);
    structs::push_struct(packer.0, metadata, skip, bounds(cx))
        .map_err(|wrong| format!("metadata {}", why(wrong, cx)))?;
    packer.close(nested);
    Ok(())
}

fn put_names(
    cx: &ReadCx<'_>,
    [filename, media_type]: [Option<Value<'_>>; 2],
    packer: &mut Packer<'_>,
) -> Result<(), Wrong> {
    let set = |value: &Value<'_>| *value != Value::Bytes(b"");
    put_string(cx, part_tag::FILENAME, filename.filter(set), "filename", packer)?;
    put_string(cx, part_tag::MEDIA_TYPE, media_type.filter(set), "mediaType", packer)
}

fn put_string(
    cx: &ReadCx<'_>,
    tag: u8,
    value: Option<Value<'_>>,
    name: &str,
    packer: &mut Packer<'_>,
) -> Result<(), Wrong> {
    let Some(value) = value else { return Ok(()) };
    let text = value.text().map_err(shape)?;
    let most = cx.limits.string_bytes_max;
    if text.len() > most {
        return Err(format!("{name} must not be longer than {most} bytes").into());
    }
    put_text(tag, value, packer)
}
