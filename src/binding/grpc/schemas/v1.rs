//! Made from `binding/grpc/proto` by `tests/tidy/generated.rs`: do not edit.

use super::{FieldType as Type, Schema, many, one};

#[rustfmt::skip]
pub static TASK_STATE: &[(i32, &str)] = &[
    (0, "TASK_STATE_UNSPECIFIED"),
    (1, "TASK_STATE_SUBMITTED"),
    (2, "TASK_STATE_WORKING"),
    (3, "TASK_STATE_COMPLETED"),
    (4, "TASK_STATE_FAILED"),
    (5, "TASK_STATE_CANCELED"),
    (6, "TASK_STATE_INPUT_REQUIRED"),
    (7, "TASK_STATE_REJECTED"),
    (8, "TASK_STATE_AUTH_REQUIRED"),
];

#[rustfmt::skip]
pub static ROLE: &[(i32, &str)] = &[
    (0, "ROLE_UNSPECIFIED"),
    (1, "ROLE_USER"),
    (2, "ROLE_AGENT"),
];

#[rustfmt::skip]
pub static SEND_MESSAGE_CONFIGURATION: Schema = Schema(&[
    many(1, "acceptedOutputModes", Type::Text),
    one(2, "taskPushNotificationConfig", Type::Message(&TASK_PUSH_NOTIFICATION_CONFIG)),
    one(3, "historyLength", Type::Int32),
    one(4, "returnImmediately", Type::Flag),
]);

#[rustfmt::skip]
pub static SEND_MESSAGE_REQUEST: Schema = Schema(&[
    one(1, "tenant", Type::Text),
    one(2, "message", Type::Message(&MESSAGE)),
    one(3, "configuration", Type::Message(&SEND_MESSAGE_CONFIGURATION)),
    one(4, "metadata", Type::Struct),
]);

#[rustfmt::skip]
pub static SEND_MESSAGE_RESPONSE: Schema = Schema(&[
    one(1, "task", Type::Message(&TASK)),
    one(2, "message", Type::Message(&MESSAGE)),
]);

#[rustfmt::skip]
pub static STREAM_RESPONSE: Schema = Schema(&[
    one(1, "task", Type::Message(&TASK)),
    one(2, "message", Type::Message(&MESSAGE)),
    one(3, "statusUpdate", Type::Message(&TASK_STATUS_UPDATE_EVENT)),
    one(4, "artifactUpdate", Type::Message(&TASK_ARTIFACT_UPDATE_EVENT)),
]);

#[rustfmt::skip]
pub static TASK: Schema = Schema(&[
    one(1, "id", Type::Text),
    one(2, "contextId", Type::Text),
    one(3, "status", Type::Message(&TASK_STATUS)),
    many(4, "artifacts", Type::Message(&ARTIFACT)),
    many(5, "history", Type::Message(&MESSAGE)),
    one(6, "metadata", Type::Struct),
]);

#[rustfmt::skip]
pub static TASK_STATUS: Schema = Schema(&[
    one(1, "state", Type::Enum(TASK_STATE)),
    one(2, "message", Type::Message(&MESSAGE)),
    one(3, "timestamp", Type::Timestamp),
]);

#[rustfmt::skip]
pub static PART: Schema = Schema(&[
    one(1, "text", Type::Text),
    one(2, "raw", Type::Bytes),
    one(3, "url", Type::Text),
    one(4, "data", Type::Value),
    one(5, "metadata", Type::Struct),
    one(6, "filename", Type::Text),
    one(7, "mediaType", Type::Text),
]);

#[rustfmt::skip]
pub static MESSAGE: Schema = Schema(&[
    one(1, "messageId", Type::Text),
    one(2, "contextId", Type::Text),
    one(3, "taskId", Type::Text),
    one(4, "role", Type::Enum(ROLE)),
    many(5, "parts", Type::Message(&PART)),
    one(6, "metadata", Type::Struct),
    many(7, "extensions", Type::Text),
    many(8, "referenceTaskIds", Type::Text),
]);

#[rustfmt::skip]
pub static ARTIFACT: Schema = Schema(&[
    one(1, "artifactId", Type::Text),
    one(2, "name", Type::Text),
    one(3, "description", Type::Text),
    many(4, "parts", Type::Message(&PART)),
    one(5, "metadata", Type::Struct),
    many(6, "extensions", Type::Text),
]);

#[rustfmt::skip]
pub static TASK_STATUS_UPDATE_EVENT: Schema = Schema(&[
    one(1, "taskId", Type::Text),
    one(2, "contextId", Type::Text),
    one(3, "status", Type::Message(&TASK_STATUS)),
    one(4, "metadata", Type::Struct),
]);

#[rustfmt::skip]
pub static TASK_ARTIFACT_UPDATE_EVENT: Schema = Schema(&[
    one(1, "taskId", Type::Text),
    one(2, "contextId", Type::Text),
    one(3, "artifact", Type::Message(&ARTIFACT)),
    one(4, "append", Type::Flag),
    one(5, "lastChunk", Type::Flag),
    one(6, "metadata", Type::Struct),
]);

#[rustfmt::skip]
pub static AUTHENTICATION_INFO: Schema = Schema(&[
    one(1, "scheme", Type::Text),
    one(2, "credentials", Type::Text),
]);

#[rustfmt::skip]
pub static TASK_PUSH_NOTIFICATION_CONFIG: Schema = Schema(&[
    one(1, "tenant", Type::Text),
    one(2, "id", Type::Text),
    one(3, "taskId", Type::Text),
    one(4, "url", Type::Text),
    one(5, "token", Type::Text),
    one(6, "authentication", Type::Message(&AUTHENTICATION_INFO)),
]);

#[rustfmt::skip]
pub static GET_TASK_REQUEST: Schema = Schema(&[
    one(1, "tenant", Type::Text),
    one(2, "id", Type::Text),
    one(3, "historyLength", Type::Int32),
]);

#[rustfmt::skip]
pub static LIST_TASKS_REQUEST: Schema = Schema(&[
    one(1, "tenant", Type::Text),
    one(2, "contextId", Type::Text),
    one(3, "status", Type::Enum(TASK_STATE)),
    one(4, "pageSize", Type::Int32),
    one(5, "pageToken", Type::Text),
    one(6, "historyLength", Type::Int32),
    one(7, "statusTimestampAfter", Type::Timestamp),
    one(8, "includeArtifacts", Type::Flag),
]);

#[rustfmt::skip]
pub static LIST_TASKS_RESPONSE: Schema = Schema(&[
    many(1, "tasks", Type::Message(&TASK)),
    one(2, "nextPageToken", Type::Text),
    one(3, "pageSize", Type::Int32),
    one(4, "totalSize", Type::Int32),
]);

#[rustfmt::skip]
pub static CANCEL_TASK_REQUEST: Schema = Schema(&[
    one(1, "tenant", Type::Text),
    one(2, "id", Type::Text),
    one(3, "metadata", Type::Struct),
]);

#[rustfmt::skip]
pub static SUBSCRIBE_TO_TASK_REQUEST: Schema = Schema(&[
    one(1, "tenant", Type::Text),
    one(2, "id", Type::Text),
]);

#[rustfmt::skip]
pub static GET_TASK_PUSH_NOTIFICATION_CONFIG_REQUEST: Schema = Schema(&[
    one(1, "tenant", Type::Text),
    one(2, "taskId", Type::Text),
    one(3, "id", Type::Text),
]);

#[rustfmt::skip]
pub static DELETE_TASK_PUSH_NOTIFICATION_CONFIG_REQUEST: Schema = Schema(&[
    one(1, "tenant", Type::Text),
    one(2, "taskId", Type::Text),
    one(3, "id", Type::Text),
]);

#[rustfmt::skip]
pub static LIST_TASK_PUSH_NOTIFICATION_CONFIGS_REQUEST: Schema = Schema(&[
    one(1, "taskId", Type::Text),
    one(2, "pageSize", Type::Int32),
    one(3, "pageToken", Type::Text),
    one(4, "tenant", Type::Text),
]);

#[rustfmt::skip]
pub static LIST_TASK_PUSH_NOTIFICATION_CONFIGS_RESPONSE: Schema = Schema(&[
    many(1, "configs", Type::Message(&TASK_PUSH_NOTIFICATION_CONFIG)),
    one(2, "nextPageToken", Type::Text),
]);

#[rustfmt::skip]
pub static GET_EXTENDED_AGENT_CARD_REQUEST: Schema = Schema(&[
    one(1, "tenant", Type::Text),
]);

#[rustfmt::skip]
pub static AGENT_INTERFACE: Schema = Schema(&[
    one(1, "url", Type::Text),
    one(2, "protocolBinding", Type::Text),
    one(3, "tenant", Type::Text),
    one(4, "protocolVersion", Type::Text),
]);

#[rustfmt::skip]
pub static AGENT_CARD: Schema = Schema(&[
    one(1, "name", Type::Text),
    one(2, "description", Type::Text),
    many(3, "supportedInterfaces", Type::Message(&AGENT_INTERFACE)),
    one(4, "provider", Type::Message(&AGENT_PROVIDER)),
    one(5, "version", Type::Text),
    one(6, "documentationUrl", Type::Text),
    one(7, "capabilities", Type::Message(&AGENT_CAPABILITIES)),
    one(8, "securitySchemes", Type::Map(&Type::Message(&SECURITY_SCHEME))),
    many(9, "securityRequirements", Type::Message(&SECURITY_REQUIREMENT)),
    many(10, "defaultInputModes", Type::Text),
    many(11, "defaultOutputModes", Type::Text),
    many(12, "skills", Type::Message(&AGENT_SKILL)),
    many(13, "signatures", Type::Message(&AGENT_CARD_SIGNATURE)),
    one(14, "iconUrl", Type::Text),
]);

#[rustfmt::skip]
pub static AGENT_PROVIDER: Schema = Schema(&[
    one(1, "url", Type::Text),
    one(2, "organization", Type::Text),
]);

#[rustfmt::skip]
pub static AGENT_CAPABILITIES: Schema = Schema(&[
    one(1, "streaming", Type::Flag),
    one(2, "pushNotifications", Type::Flag),
    many(3, "extensions", Type::Message(&AGENT_EXTENSION)),
    one(4, "extendedAgentCard", Type::Flag),
]);

#[rustfmt::skip]
pub static AGENT_EXTENSION: Schema = Schema(&[
    one(1, "uri", Type::Text),
    one(2, "description", Type::Text),
    one(3, "required", Type::Flag),
    one(4, "params", Type::Struct),
]);

#[rustfmt::skip]
pub static AGENT_SKILL: Schema = Schema(&[
    one(1, "id", Type::Text),
    one(2, "name", Type::Text),
    one(3, "description", Type::Text),
    many(4, "tags", Type::Text),
    many(5, "examples", Type::Text),
    many(6, "inputModes", Type::Text),
    many(7, "outputModes", Type::Text),
    many(8, "securityRequirements", Type::Message(&SECURITY_REQUIREMENT)),
]);

#[rustfmt::skip]
pub static AGENT_CARD_SIGNATURE: Schema = Schema(&[
    one(1, "protected", Type::Text),
    one(2, "signature", Type::Text),
    one(3, "header", Type::Struct),
]);

#[rustfmt::skip]
pub static STRING_LIST: Schema = Schema(&[
    many(1, "list", Type::Text),
]);

#[rustfmt::skip]
pub static SECURITY_REQUIREMENT: Schema = Schema(&[
    one(1, "schemes", Type::Map(&Type::Message(&STRING_LIST))),
]);

#[rustfmt::skip]
pub static SECURITY_SCHEME: Schema = Schema(&[
    one(1, "apiKeySecurityScheme", Type::Message(&API_KEY_SECURITY_SCHEME)),
    one(2, "httpAuthSecurityScheme", Type::Message(&HTTP_AUTH_SECURITY_SCHEME)),
    one(3, "oauth2SecurityScheme", Type::Message(&O_AUTH2_SECURITY_SCHEME)),
    one(4, "openIdConnectSecurityScheme", Type::Message(&OPEN_ID_CONNECT_SECURITY_SCHEME)),
    one(5, "mtlsSecurityScheme", Type::Message(&MUTUAL_TLS_SECURITY_SCHEME)),
]);

#[rustfmt::skip]
pub static API_KEY_SECURITY_SCHEME: Schema = Schema(&[
    one(1, "description", Type::Text),
    one(2, "location", Type::Text),
    one(3, "name", Type::Text),
]);

#[rustfmt::skip]
pub static HTTP_AUTH_SECURITY_SCHEME: Schema = Schema(&[
    one(1, "description", Type::Text),
    one(2, "scheme", Type::Text),
    one(3, "bearerFormat", Type::Text),
]);

#[rustfmt::skip]
pub static O_AUTH2_SECURITY_SCHEME: Schema = Schema(&[
    one(1, "description", Type::Text),
    one(2, "flows", Type::Message(&O_AUTH_FLOWS)),
    one(3, "oauth2MetadataUrl", Type::Text),
]);

#[rustfmt::skip]
pub static OPEN_ID_CONNECT_SECURITY_SCHEME: Schema = Schema(&[
    one(1, "description", Type::Text),
    one(2, "openIdConnectUrl", Type::Text),
]);

#[rustfmt::skip]
pub static MUTUAL_TLS_SECURITY_SCHEME: Schema = Schema(&[
    one(1, "description", Type::Text),
]);

#[rustfmt::skip]
pub static O_AUTH_FLOWS: Schema = Schema(&[
    one(1, "authorizationCode", Type::Message(&AUTHORIZATION_CODE_O_AUTH_FLOW)),
    one(2, "clientCredentials", Type::Message(&CLIENT_CREDENTIALS_O_AUTH_FLOW)),
    one(3, "implicit", Type::Message(&IMPLICIT_O_AUTH_FLOW)),
    one(4, "password", Type::Message(&PASSWORD_O_AUTH_FLOW)),
    one(5, "deviceCode", Type::Message(&DEVICE_CODE_O_AUTH_FLOW)),
]);

#[rustfmt::skip]
pub static AUTHORIZATION_CODE_O_AUTH_FLOW: Schema = Schema(&[
    one(1, "authorizationUrl", Type::Text),
    one(2, "tokenUrl", Type::Text),
    one(3, "refreshUrl", Type::Text),
    one(4, "scopes", Type::Map(&Type::Text)),
    one(5, "pkceRequired", Type::Flag),
]);

#[rustfmt::skip]
pub static CLIENT_CREDENTIALS_O_AUTH_FLOW: Schema = Schema(&[
    one(1, "tokenUrl", Type::Text),
    one(2, "refreshUrl", Type::Text),
    one(3, "scopes", Type::Map(&Type::Text)),
]);

#[rustfmt::skip]
pub static IMPLICIT_O_AUTH_FLOW: Schema = Schema(&[
    one(1, "authorizationUrl", Type::Text),
    one(2, "refreshUrl", Type::Text),
    one(3, "scopes", Type::Map(&Type::Text)),
]);

#[rustfmt::skip]
pub static PASSWORD_O_AUTH_FLOW: Schema = Schema(&[
    one(1, "tokenUrl", Type::Text),
    one(2, "refreshUrl", Type::Text),
    one(3, "scopes", Type::Map(&Type::Text)),
]);

#[rustfmt::skip]
pub static DEVICE_CODE_O_AUTH_FLOW: Schema = Schema(&[
    one(1, "deviceAuthorizationUrl", Type::Text),
    one(2, "tokenUrl", Type::Text),
    one(3, "refreshUrl", Type::Text),
    one(4, "scopes", Type::Map(&Type::Text)),
]);
