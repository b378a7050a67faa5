//! Encodes parts as messages of their generation.

use crate::{
    json::base64,
    model::{Content, JsonObject, Part, RawText, pack::part_tag},
    pb::Writer,
};

use super::{
    fields::{
        entry,
        other::{structure, value},
        v1, v03,
    },
    from_json::{struct_field, struct_members, text_field, value_field},
    message::MARK,
    write::{some_struct, some_text},
};

/// Appends the fields of a part of 1.0.
pub(super) fn part_v1(writer: &mut Writer<'_>, part: Part<'_>) {
    use v1::part as field;
    match part.content() {
        Content::Text(text) => text_field(writer, field::TEXT, text.raw()),
        Content::Raw(base64) => raw_field(writer, field::RAW, base64.raw()),
        Content::Url(url) => text_field(writer, field::URL, url.raw()),
        Content::Data(json) => value_field(writer.0, field::DATA, json.raw()),
        // The proto has no field for an unknown part, so the part is sent as data.
        Content::Unknown(part) => value_field(writer.0, field::DATA, part.raw()),
    }
    for (tag, bytes) in part.fields() {
        match tag {
            part_tag::METADATA => struct_field(writer.0, field::METADATA, bytes),
            part_tag::FILENAME => text_field(writer, field::FILENAME, bytes),
            part_tag::MEDIA_TYPE => text_field(writer, field::MEDIA_TYPE, bytes),
            _ => {}
        }
    }
}

/// Appends the fields of a part of 0.3.
pub(super) fn part_v03(writer: &mut Writer<'_>, part: Part<'_>) {
    use v03::{data_part, file_part, part as field};
    let metadata = part.metadata();
    match part.content() {
        Content::Text(text) => text_field(writer, field::TEXT, text.raw()),
        Content::Raw(content) | Content::Url(content) => {
            let content = content.raw();
            let file = writer.open(field::FILE, content.len());
            match part.content() {
                Content::Raw(_) => raw_field(writer, file_part::FILE_WITH_BYTES, content),
                _ => text_field(writer, file_part::FILE_WITH_URI, content),
            }
            some_text(writer, file_part::MIME_TYPE, part.media_type().map(RawText::raw));
            some_text(writer, file_part::NAME, part.filename().map(RawText::raw));
            writer.close(file);
        }
        Content::Data(json) => {
            let json = json.raw();
            let data = writer.open(field::DATA, json.len());
            if json.first() == Some(&b'{') {
                struct_field(writer.0, data_part::DATA, json);
                writer.close(data);
            } else {
                // Wire §1.9: data that is not an object is wrapped in an object, and marked.
                let wrapped = writer.open(data_part::DATA, json.len());
                let member = writer.open(structure::FIELDS, json.len());
                writer.bytes(entry::KEY, b"value");
                value_field(writer.0, entry::VALUE, json);
                [member, wrapped, data].into_iter().for_each(|nested| writer.close(nested));
                return marked(writer, field::METADATA, metadata);
            }
        }
        Content::Unknown(part) => {
            let data = writer.open(field::DATA, part.raw().len());
            struct_field(writer.0, data_part::DATA, part.raw());
            writer.close(data);
        }
    }
    some_struct(writer, field::METADATA, metadata);
}

/// Appends part metadata with the mark added.
fn marked(writer: &mut Writer<'_>, number: u32, metadata: Option<JsonObject<'_>>) {
    let metadata = metadata.map_or(&b"{}"[..], JsonObject::raw);
    let object = writer.open(number, metadata.len());
    struct_members(writer.0, metadata);
    let member = writer.open(structure::FIELDS, 0);
    writer.bytes(entry::KEY, MARK.as_bytes());
    let flag = writer.open(entry::VALUE, 0);
    writer.flag(value::BOOL_VALUE, true);
    [flag, member, object].into_iter().for_each(|nested| writer.close(nested));
}

fn raw_field(writer: &mut Writer<'_>, number: u32, base64: &[u8]) {
    let nested = writer.open(number, base64.len() / 4 * 3);
    base64::push_decoded(writer.0, base64);
    writer.close(nested);
}
