//! What is made from `src/binding/grpc/proto` is committed, and current: the field numbers that the
//! binding reads and writes, the schemas by which a client's messages become ProtoJSON and back, the
//! descriptors that reflection serves, and the client of the tests.
//!
//! `REGENERATE=1 cargo test --test tidy generated` makes them anew; protoc is not needed.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use prost::Message;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

const FILES: [&str; 7] = [
    "a2a_v1.proto",
    "a2a_v03.proto",
    "a2a_json.proto",
    "health.proto",
    "reflection_v1.proto",
    "reflection_v1alpha.proto",
    "rpc_status.proto",
];

/// Modules of field numbers: where, and from which files.
const FIELDS: [(&str, &[&str]); 3] = [
    ("src/binding/grpc/fields/v1.rs", &["a2a_v1.proto"]),
    ("src/binding/grpc/fields/v03.rs", &["a2a_v03.proto"]),
    (
        "src/binding/grpc/fields/other.rs",
        &[
            "a2a_json.proto",
            "health.proto",
            "reflection_v1.proto",
            "rpc_status.proto",
            "google/protobuf/any.proto",
            "google/protobuf/duration.proto",
            "google/protobuf/struct.proto",
            "google/protobuf/timestamp.proto",
        ],
    ),
];

/// Modules of schemas: where, and from which file.
const SCHEMAS: [(&str, &str); 2] = [
    ("src/binding/grpc/schemas/v1.rs", "a2a_v1.proto"),
    ("src/binding/grpc/schemas/v03.rs", "a2a_v03.proto"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn descriptors() -> FileDescriptorSet {
    let folder = root().join("src/binding/grpc/proto");
    let mut set = protox::compile(FILES, [folder]).expect("the proto files compile");
    for file in &mut set.file {
        file.source_code_info = None;
    }
    set
}

#[test]
fn generated_files_are_current() {
    let set = descriptors();
    let mut wanted: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    wanted.insert("src/binding/grpc/proto/descriptors.bin".to_owned(), set.encode_to_vec());
    for (path, files) in FIELDS {
        let files = files.iter().map(|name| {
            set.file.iter().find(|file| file.name() == *name).expect("a file of the set")
        });
        wanted.insert(path.to_owned(), fields(files).into_bytes());
    }
    for (path, name) in SCHEMAS {
        let file = set.file.iter().find(|file| file.name() == name).expect("a file of the set");
        wanted.insert(path.to_owned(), schemas(file).into_bytes());
    }
    // Two services of one package have names that Rust spells alike: one goes to a file of its own.
    let (json, others): (Vec<_>, Vec<_>) =
        set.file.into_iter().partition(|file| file.name() == "a2a_json.proto");
    for (file, prefix) in [(json, "json."), (others, "")] {
        for (name, code) in client(FileDescriptorSet { file }) {
            wanted.insert(format!("tests/support/proto/{prefix}{name}"), code);
        }
    }
    let regenerate = std::env::var_os("REGENERATE").is_some();
    for (name, content) in wanted {
        let path = root().join(&name);
        if regenerate {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &content).unwrap();
        }
        let found = fs::read(&path).unwrap_or_default();
        assert!(found == content, "{name} is not current: run this test with REGENERATE=1");
    }
}

/// Clients for these files, as prost and tonic make them.
fn client(set: FileDescriptorSet) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("grpc_generated");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut config = tonic_prost_build::Config::new();
    config.bytes(["."]);
    tonic_prost_build::configure()
        .out_dir(&folder)
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(set, config)
        .unwrap();
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
    let files = files
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    files.filter(|(name, _)| !name.starts_with("google.protobuf")).collect()
}

/// The field numbers of every message, as constants.
fn fields<'f>(files: impl Iterator<Item = &'f FileDescriptorProto>) -> String {
    let mut text = String::from(
        "//! Made from `binding/grpc/proto` by `tests/tidy/generated.rs`: do not edit.\n",
    );
    for file in files {
        for message in &file.message_type {
            module(&mut text, message);
        }
    }
    text
}

fn module(text: &mut String, message: &DescriptorProto) {
    let is_map = |nested: &&DescriptorProto| {
        nested.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry)
    };
    if !message.field.is_empty() {
        // `struct` alone is a word of the language.
        let name = snake(message.name()).replace("struct", "structure");
        write!(text, "\npub mod {name} {{\n").unwrap();
        for field in &message.field {
            let name = field.name().to_uppercase();
            writeln!(text, "    pub const {name}: u32 = {};", field.number()).unwrap();
        }
        text.push_str("}\n");
    }
    for nested in message.nested_type.iter().filter(|nested| !is_map(nested)) {
        module(text, nested);
    }
}

/// The fields of every message, with their names in ProtoJSON and their types, as constants.
fn schemas(file: &FileDescriptorProto) -> String {
    let mut text = String::from(
        "//! Made from `binding/grpc/proto` by `tests/tidy/generated.rs`: do not edit.\n\n\
         use super::{FieldType as Type, Schema, many, one};\n",
    );
    for names in &file.enum_type {
        enumeration(&mut text, names);
    }
    for message in &file.message_type {
        schema(&mut text, message);
    }
    text
}

fn enumeration(text: &mut String, names: &EnumDescriptorProto) {
    let name = snake(names.name()).to_uppercase();
    write!(text, "\n#[rustfmt::skip]\npub static {name}: &[(i32, &str)] = &[\n").unwrap();
    for value in &names.value {
        writeln!(text, "    ({}, \"{}\"),", value.number(), value.name()).unwrap();
    }
    text.push_str("];\n");
}

fn schema(text: &mut String, message: &DescriptorProto) {
    for names in &message.enum_type {
        enumeration(text, names);
    }
    let is_map = |nested: &DescriptorProto| {
        nested.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry)
    };
    let name = snake(message.name()).to_uppercase();
    write!(text, "\n#[rustfmt::skip]\npub static {name}: Schema = Schema(&[\n").unwrap();
    for field in &message.field {
        let entry = message.nested_type.iter().find(|nested| {
            is_map(nested) && field.type_name().ends_with(&format!(".{}", nested.name()))
        });
        let (label, kind) = match entry {
            Some(entry) => ("one", format!("Type::Map(&{})", field_type(&entry.field[1]))),
            None if field.label() == Label::Repeated => ("many", field_type(field)),
            None => ("one", field_type(field)),
        };
        let (number, name) = (field.number(), field.json_name());
        writeln!(text, "    {label}({number}, \"{name}\", {kind}),").unwrap();
    }
    text.push_str("]);\n");
    for nested in message.nested_type.iter().filter(|nested| !is_map(nested)) {
        schema(text, nested);
    }
}

fn field_type(field: &FieldDescriptorProto) -> String {
    let named = || {
        let name = field.type_name().rsplit('.').next().unwrap();
        snake(name).to_uppercase()
    };
    match (field.r#type(), field.type_name()) {
        (Type::String, _) => "Type::Text".to_owned(),
        (Type::Bytes, _) => "Type::Bytes".to_owned(),
        (Type::Bool, _) => "Type::Flag".to_owned(),
        (Type::Int32, _) => "Type::Int32".to_owned(),
        (Type::Enum, _) => format!("Type::Enum({})", named()),
        (Type::Message, ".google.protobuf.Struct") => "Type::Struct".to_owned(),
        (Type::Message, ".google.protobuf.Value") => "Type::Value".to_owned(),
        (Type::Message, ".google.protobuf.Timestamp") => "Type::Timestamp".to_owned(),
        (Type::Message, _) => format!("Type::Message(&{})", named()),
        (other, _) => panic!("{other:?} of {} has no type of ours", field.name()),
    }
}

fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, &letter) in letters.iter().enumerate() {
        let begins = letter.is_uppercase()
            && at > 0
            && (!letters[at - 1].is_uppercase()
                || letters.get(at + 1).is_some_and(|next| next.is_lowercase()));
        if begins {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
