//! Made from `binding/grpc/proto` by `tests/tidy/generated.rs`: do not edit.

pub mod send_message_configuration {
    pub const ACCEPTED_OUTPUT_MODES: u32 = 1;
    pub const PUSH_NOTIFICATION: u32 = 2;
    pub const HISTORY_LENGTH: u32 = 3;
    pub const BLOCKING: u32 = 4;
}

pub mod send_message_request {
    pub const REQUEST: u32 = 1;
    pub const CONFIGURATION: u32 = 2;
    pub const METADATA: u32 = 3;
}

pub mod send_message_response {
    pub const TASK: u32 = 1;
    pub const MSG: u32 = 2;
}

pub mod stream_response {
    pub const TASK: u32 = 1;
    pub const MSG: u32 = 2;
    pub const STATUS_UPDATE: u32 = 3;
    pub const ARTIFACT_UPDATE: u32 = 4;
}

pub mod task {
    pub const ID: u32 = 1;
    pub const CONTEXT_ID: u32 = 2;
    pub const STATUS: u32 = 3;
    pub const ARTIFACTS: u32 = 4;
    pub const HISTORY: u32 = 5;
    pub const METADATA: u32 = 6;
}

pub mod task_status {
    pub const STATE: u32 = 1;
    pub const UPDATE: u32 = 2;
    pub const TIMESTAMP: u32 = 3;
}

pub mod part {
    pub const TEXT: u32 = 1;
    pub const FILE: u32 = 2;
    pub const DATA: u32 = 3;
    pub const METADATA: u32 = 4;
}

pub mod file_part {
    pub const FILE_WITH_URI: u32 = 1;
    pub const FILE_WITH_BYTES: u32 = 2;
    pub const MIME_TYPE: u32 = 3;
    pub const NAME: u32 = 4;
}

pub mod data_part {
    pub const DATA: u32 = 1;
}

pub mod message {
    pub const MESSAGE_ID: u32 = 1;
    pub const CONTEXT_ID: u32 = 2;
    pub const TASK_ID: u32 = 3;
    pub const ROLE: u32 = 4;
    pub const CONTENT: u32 = 5;
    pub const METADATA: u32 = 6;
    pub const EXTENSIONS: u32 = 7;
}

pub mod artifact {
    pub const ARTIFACT_ID: u32 = 1;
    pub const NAME: u32 = 3;
    pub const DESCRIPTION: u32 = 4;
    pub const PARTS: u32 = 5;
    pub const METADATA: u32 = 6;
    pub const EXTENSIONS: u32 = 7;
}

pub mod task_status_update_event {
    pub const TASK_ID: u32 = 1;
    pub const CONTEXT_ID: u32 = 2;
    pub const STATUS: u32 = 3;
    pub const FINAL: u32 = 4;
    pub const METADATA: u32 = 5;
}

pub mod task_artifact_update_event {
    pub const TASK_ID: u32 = 1;
    pub const CONTEXT_ID: u32 = 2;
    pub const ARTIFACT: u32 = 3;
    pub const APPEND: u32 = 4;
    pub const LAST_CHUNK: u32 = 5;
    pub const METADATA: u32 = 6;
}

pub mod authentication_info {
    pub const SCHEMES: u32 = 1;
    pub const CREDENTIALS: u32 = 2;
}

pub mod push_notification_config {
    pub const ID: u32 = 1;
    pub const URL: u32 = 2;
    pub const TOKEN: u32 = 3;
    pub const AUTHENTICATION: u32 = 4;
}

pub mod task_push_notification_config {
    pub const NAME: u32 = 1;
    pub const PUSH_NOTIFICATION_CONFIG: u32 = 2;
}

pub mod get_task_request {
    pub const NAME: u32 = 1;
    pub const HISTORY_LENGTH: u32 = 2;
}

pub mod cancel_task_request {
    pub const NAME: u32 = 1;
}

pub mod task_subscription_request {
    pub const NAME: u32 = 1;
}

pub mod get_task_push_notification_config_request {
    pub const NAME: u32 = 1;
}

pub mod delete_task_push_notification_config_request {
    pub const NAME: u32 = 1;
}

pub mod create_task_push_notification_config_request {
    pub const PARENT: u32 = 1;
    pub const CONFIG_ID: u32 = 2;
    pub const CONFIG: u32 = 3;
}

pub mod list_task_push_notification_config_request {
    pub const PARENT: u32 = 1;
    pub const PAGE_SIZE: u32 = 2;
    pub const PAGE_TOKEN: u32 = 3;
}

pub mod list_task_push_notification_config_response {
    pub const CONFIGS: u32 = 1;
    pub const NEXT_PAGE_TOKEN: u32 = 2;
}

pub mod agent_interface {
    pub const URL: u32 = 1;
    pub const TRANSPORT: u32 = 2;
}

pub mod agent_card {
    pub const NAME: u32 = 1;
    pub const DESCRIPTION: u32 = 2;
    pub const URL: u32 = 3;
    pub const PROVIDER: u32 = 4;
    pub const VERSION: u32 = 5;
    pub const DOCUMENTATION_URL: u32 = 6;
    pub const CAPABILITIES: u32 = 7;
    pub const SECURITY_SCHEMES: u32 = 8;
    pub const SECURITY: u32 = 9;
    pub const DEFAULT_INPUT_MODES: u32 = 10;
    pub const DEFAULT_OUTPUT_MODES: u32 = 11;
    pub const SKILLS: u32 = 12;
    pub const SUPPORTS_AUTHENTICATED_EXTENDED_CARD: u32 = 13;
    pub const PREFERRED_TRANSPORT: u32 = 14;
    pub const ADDITIONAL_INTERFACES: u32 = 15;
    pub const PROTOCOL_VERSION: u32 = 16;
    pub const SIGNATURES: u32 = 17;
    pub const ICON_URL: u32 = 18;
}

pub mod agent_provider {
    pub const URL: u32 = 1;
    pub const ORGANIZATION: u32 = 2;
}

pub mod agent_capabilities {
    pub const STREAMING: u32 = 1;
    pub const PUSH_NOTIFICATIONS: u32 = 2;
    pub const EXTENSIONS: u32 = 3;
}

pub mod agent_extension {
    pub const URI: u32 = 1;
    pub const DESCRIPTION: u32 = 2;
    pub const REQUIRED: u32 = 3;
    pub const PARAMS: u32 = 4;
}

pub mod agent_skill {
    pub const ID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const DESCRIPTION: u32 = 3;
    pub const TAGS: u32 = 4;
    pub const EXAMPLES: u32 = 5;
    pub const INPUT_MODES: u32 = 6;
    pub const OUTPUT_MODES: u32 = 7;
    pub const SECURITY: u32 = 8;
}

pub mod agent_card_signature {
    pub const PROTECTED: u32 = 1;
    pub const SIGNATURE: u32 = 2;
    pub const HEADER: u32 = 3;
}

pub mod string_list {
    pub const LIST: u32 = 1;
}

pub mod security {
    pub const SCHEMES: u32 = 1;
}

pub mod security_scheme {
    pub const API_KEY_SECURITY_SCHEME: u32 = 1;
    pub const HTTP_AUTH_SECURITY_SCHEME: u32 = 2;
    pub const OAUTH2_SECURITY_SCHEME: u32 = 3;
    pub const OPEN_ID_CONNECT_SECURITY_SCHEME: u32 = 4;
    pub const MTLS_SECURITY_SCHEME: u32 = 5;
}

pub mod api_key_security_scheme {
    pub const DESCRIPTION: u32 = 1;
    pub const LOCATION: u32 = 2;
    pub const NAME: u32 = 3;
}

pub mod http_auth_security_scheme {
    pub const DESCRIPTION: u32 = 1;
    pub const SCHEME: u32 = 2;
    pub const BEARER_FORMAT: u32 = 3;
}

pub mod o_auth2_security_scheme {
    pub const DESCRIPTION: u32 = 1;
    pub const FLOWS: u32 = 2;
    pub const OAUTH2_METADATA_URL: u32 = 3;
}

pub mod open_id_connect_security_scheme {
    pub const DESCRIPTION: u32 = 1;
    pub const OPEN_ID_CONNECT_URL: u32 = 2;
}

pub mod mutual_tls_security_scheme {
    pub const DESCRIPTION: u32 = 1;
}

pub mod o_auth_flows {
    pub const AUTHORIZATION_CODE: u32 = 1;
    pub const CLIENT_CREDENTIALS: u32 = 2;
    pub const IMPLICIT: u32 = 3;
    pub const PASSWORD: u32 = 4;
}

pub mod authorization_code_o_auth_flow {
    pub const AUTHORIZATION_URL: u32 = 1;
    pub const TOKEN_URL: u32 = 2;
    pub const REFRESH_URL: u32 = 3;
    pub const SCOPES: u32 = 4;
}

pub mod client_credentials_o_auth_flow {
    pub const TOKEN_URL: u32 = 1;
    pub const REFRESH_URL: u32 = 2;
    pub const SCOPES: u32 = 3;
}

pub mod implicit_o_auth_flow {
    pub const AUTHORIZATION_URL: u32 = 1;
    pub const REFRESH_URL: u32 = 2;
    pub const SCOPES: u32 = 3;
}

pub mod password_o_auth_flow {
    pub const TOKEN_URL: u32 = 1;
    pub const REFRESH_URL: u32 = 2;
    pub const SCOPES: u32 = 3;
}
