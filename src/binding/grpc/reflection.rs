//! Server reflection: describes the services from the compiled descriptors of the proto files.
//!
//! A question is answered by a scan of some 26 KiB; nothing is cached between questions.

use crate::pb::{Fields, Malformed, Writer};

use super::{
    Code, SERVICES, Status,
    fields::other::{
        error_response, file_descriptor_response, list_service_response,
        server_reflection_request as request, server_reflection_response as response,
        service_response,
    },
    frame,
};

/// A `FileDescriptorSet`, made by `tests/tidy/generated.rs`.
const DESCRIPTORS: &[u8] = include_bytes!("proto/descriptors.bin");

/// Field numbers of `google/protobuf/descriptor.proto`, as far as names need them.
mod descriptor {
    pub const SET_FILE: u32 = 1;
    pub const FILE_NAME: u32 = 1;
    pub const FILE_PACKAGE: u32 = 2;
    pub const FILE_MESSAGE: u32 = 4;
    pub const FILE_ENUM: u32 = 5;
    pub const FILE_SERVICE: u32 = 6;
    /// The name, in messages, enums, services, fields, methods and enum values alike.
    pub const NAME: u32 = 1;
    pub const MESSAGE_FIELD: u32 = 2;
    pub const MESSAGE_NESTED: u32 = 3;
    pub const MESSAGE_ENUM: u32 = 4;
    pub const ENUM_VALUE: u32 = 2;
    pub const SERVICE_METHOD: u32 = 2;
}

/// Appends the framed `ServerReflectionResponse` to one `ServerReflectionRequest`.
///
/// # Errors
/// `INVALID_ARGUMENT` when the bytes are not such a message. An unknown name is an answer, not an
/// error.
pub fn answer(out: &mut Vec<u8>, message: &[u8]) -> Result<(), Status> {
    let wrong =
        |_| Status::new(Code::InvalidArgument, "the message does not match its protobuf type");
    let (mut host, mut question) = (&[][..], None);
    for field in Fields(message) {
        match field.map_err(wrong)? {
            (request::HOST, value) => host = value.bytes().map_err(wrong)?,
            (number @ request::FILE_BY_FILENAME..=request::LIST_SERVICES, value) => {
                question = Some((number, value.bytes().map_err(wrong)?));
            }
            _ => {}
        }
    }
    let frame = frame::begin(out);
    let mut writer = Writer(out);
    writer.bytes(response::VALID_HOST, host);
    writer.bytes(response::ORIGINAL_REQUEST, message);
    match question {
        Some((request::LIST_SERVICES, _)) => list(&mut writer),
        Some((request::FILE_BY_FILENAME, name)) => {
            file(&mut writer, |file| text(file, descriptor::FILE_NAME) == name);
        }
        Some((request::FILE_CONTAINING_SYMBOL, symbol)) => {
            let symbol = std::str::from_utf8(symbol).unwrap_or_default();
            file(&mut writer, |file| holds(file, symbol.strip_prefix('.').unwrap_or(symbol)));
        }
        // proto3 has no extensions.
        Some(_) => error(&mut writer, Code::NotFound, "there are no extensions"),
        None => error(&mut writer, Code::InvalidArgument, "the request is empty"),
    }
    frame::finish(out, frame);
    Ok(())
}

fn list(writer: &mut Writer<'_>) {
    let list = writer.open(response::LIST_SERVICES_RESPONSE, 256);
    for name in SERVICES {
        let service = writer.open(list_service_response::SERVICE, name.len());
        writer.bytes(service_response::NAME, name.as_bytes());
        writer.close(service);
    }
    writer.close(list);
}

fn file(writer: &mut Writer<'_>, is_wanted: impl Fn(&[u8]) -> bool) {
    match all(DESCRIPTORS, descriptor::SET_FILE).find(|file| is_wanted(file)) {
        Some(file) => {
            let nested = writer.open(response::FILE_DESCRIPTOR_RESPONSE, file.len());
            writer.bytes(file_descriptor_response::FILE_DESCRIPTOR_PROTO, file);
            writer.close(nested);
        }
        None => error(writer, Code::NotFound, "no such file or symbol"),
    }
}

fn error(writer: &mut Writer<'_>, code: Code, message: &str) {
    let nested = writer.open(response::ERROR_RESPONSE, message.len());
    writer.number(error_response::ERROR_CODE, code as u64);
    writer.bytes(error_response::ERROR_MESSAGE, message.as_bytes());
    writer.close(nested);
}

/// The values of a repeated field of strings or messages.
fn all(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let fields = Fields(message).filter_map(Result::ok).filter(move |f| f.0 == number);
    fields.filter_map(|(_, value)| Result::<_, Malformed>::ok(value.bytes()))
}

fn text(message: &[u8], number: u32) -> &[u8] {
    all(message, number).next().unwrap_or_default()
}

/// The rest of `symbol` after `name` and a dot; empty: nothing.
fn below<'s>(symbol: &'s str, name: &[u8]) -> Option<&'s str> {
    let rest = symbol.strip_prefix(std::str::from_utf8(name).ok()?)?;
    match rest.strip_prefix('.') {
        Some(below) => Some(below).filter(|below| !below.is_empty()),
        None => rest.is_empty().then_some(rest),
    }
}

/// Whether a file defines a symbol: a message, enum, service, or a name within one.
fn holds(file: &[u8], symbol: &str) -> bool {
    let Some(symbol) = below(symbol, text(file, descriptor::FILE_PACKAGE)) else { return false };
    !symbol.is_empty()
        && (all(file, descriptor::FILE_MESSAGE).any(|message| names(message, symbol))
            || all(file, descriptor::FILE_ENUM)
                .any(|item| member(item, symbol, &[descriptor::ENUM_VALUE]))
            || all(file, descriptor::FILE_SERVICE)
                .any(|item| member(item, symbol, &[descriptor::SERVICE_METHOD])))
}

/// Whether a symbol names a message, or one nested in it.
fn names(message: &[u8], symbol: &str) -> bool {
    let (mut message, mut symbol) = (message, symbol);
    loop {
        if member(message, symbol, &[descriptor::MESSAGE_FIELD]) {
            return true;
        }
        let Some(rest) = below(symbol, text(message, descriptor::NAME)) else { return false };
        if all(message, descriptor::MESSAGE_ENUM)
            .any(|item| member(item, rest, &[descriptor::ENUM_VALUE]))
        {
            return true;
        }
        let is_next = |nested: &&[u8]| below(rest, text(nested, descriptor::NAME)).is_some();
        match all(message, descriptor::MESSAGE_NESTED).find(is_next) {
            Some(nested) => (message, symbol) = (nested, rest),
            None => return false,
        }
    }
}

/// Whether a symbol is an item itself or a member of it.
fn member(item: &[u8], symbol: &str, members: &[u32]) -> bool {
    let Some(rest) = below(symbol, text(item, descriptor::NAME)) else { return false };
    let named = |number: &u32| {
        all(item, *number).any(|member| text(member, descriptor::NAME) == rest.as_bytes())
    };
    rest.is_empty() || members.iter().any(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(symbol: &str) -> Option<String> {
        let mut files = all(DESCRIPTORS, descriptor::SET_FILE);
        let file = files.find(|file| holds(file, symbol))?;
        Some(String::from_utf8_lossy(text(file, descriptor::FILE_NAME)).into_owned())
    }

    #[test]
    fn symbols_are_found() {
        for (symbol, file) in [
            ("lf.a2a.v1.A2AService", "a2a_v1.proto"),
            ("lf.a2a.v1.A2AService.GetTask", "a2a_v1.proto"),
            ("lf.a2a.v1.Task", "a2a_v1.proto"),
            ("lf.a2a.v1.Task.id", "a2a_v1.proto"),
            ("lf.a2a.v1.TaskState", "a2a_v1.proto"),
            ("a2a.v1.A2AService", "a2a_v03.proto"),
            ("a2a.v1.A2aService", "a2a_json.proto"),
            ("grpc.health.v1.HealthCheckResponse.ServingStatus", "health.proto"),
            ("grpc.reflection.v1.ServerReflection", "reflection_v1.proto"),
            ("google.protobuf.Struct.FieldsEntry", "google/protobuf/struct.proto"),
        ] {
            assert_eq!(file_of(symbol).as_deref(), Some(file), "{symbol}");
        }
        for symbol in ["", "lf", "lf.a2a.v1", "lf.a2a.v1.Tas", "lf.a2a.v1.Task.", "Task", "a.b"] {
            assert_eq!(file_of(symbol), None, "{symbol}");
        }
    }

    #[test]
    fn every_service_is_described() {
        for service in SERVICES {
            assert!(file_of(service).is_some(), "{service}");
        }
    }
}
