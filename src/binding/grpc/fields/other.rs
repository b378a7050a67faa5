//! Made from `binding/grpc/proto` by `tests/tidy/generated.rs`: do not edit.

pub mod json_payload {
    pub const DATA: u32 = 1;
}

pub mod health_check_request {
    pub const SERVICE: u32 = 1;
}

pub mod health_check_response {
    pub const STATUS: u32 = 1;
}

pub mod server_reflection_request {
    pub const HOST: u32 = 1;
    pub const FILE_BY_FILENAME: u32 = 3;
    pub const FILE_CONTAINING_SYMBOL: u32 = 4;
    pub const FILE_CONTAINING_EXTENSION: u32 = 5;
    pub const ALL_EXTENSION_NUMBERS_OF_TYPE: u32 = 6;
    pub const LIST_SERVICES: u32 = 7;
}

pub mod extension_request {
    pub const CONTAINING_TYPE: u32 = 1;
    pub const EXTENSION_NUMBER: u32 = 2;
}

pub mod server_reflection_response {
    pub const VALID_HOST: u32 = 1;
    pub const ORIGINAL_REQUEST: u32 = 2;
    pub const FILE_DESCRIPTOR_RESPONSE: u32 = 4;
    pub const ALL_EXTENSION_NUMBERS_RESPONSE: u32 = 5;
    pub const LIST_SERVICES_RESPONSE: u32 = 6;
    pub const ERROR_RESPONSE: u32 = 7;
}

pub mod file_descriptor_response {
    pub const FILE_DESCRIPTOR_PROTO: u32 = 1;
}

pub mod extension_number_response {
    pub const BASE_TYPE_NAME: u32 = 1;
    pub const EXTENSION_NUMBER: u32 = 2;
}

pub mod list_service_response {
    pub const SERVICE: u32 = 1;
}

pub mod service_response {
    pub const NAME: u32 = 1;
}

pub mod error_response {
    pub const ERROR_CODE: u32 = 1;
    pub const ERROR_MESSAGE: u32 = 2;
}

pub mod status {
    pub const CODE: u32 = 1;
    pub const MESSAGE: u32 = 2;
    pub const DETAILS: u32 = 3;
}

pub mod error_info {
    pub const REASON: u32 = 1;
    pub const DOMAIN: u32 = 2;
    pub const METADATA: u32 = 3;
}

pub mod retry_info {
    pub const RETRY_DELAY: u32 = 1;
}

pub mod bad_request {
    pub const FIELD_VIOLATIONS: u32 = 1;
}

pub mod field_violation {
    pub const FIELD: u32 = 1;
    pub const DESCRIPTION: u32 = 2;
}

pub mod any {
    pub const TYPE_URL: u32 = 1;
    pub const VALUE: u32 = 2;
}

pub mod duration {
    pub const SECONDS: u32 = 1;
    pub const NANOS: u32 = 2;
}

pub mod structure {
    pub const FIELDS: u32 = 1;
}

pub mod value {
    pub const NULL_VALUE: u32 = 1;
    pub const NUMBER_VALUE: u32 = 2;
    pub const STRING_VALUE: u32 = 3;
    pub const BOOL_VALUE: u32 = 4;
    pub const STRUCT_VALUE: u32 = 5;
    pub const LIST_VALUE: u32 = 6;
}

pub mod list_value {
    pub const VALUES: u32 = 1;
}

pub mod timestamp {
    pub const SECONDS: u32 = 1;
    pub const NANOS: u32 = 2;
}
