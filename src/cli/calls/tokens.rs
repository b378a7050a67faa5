//! The file of tokens that `auth login` obtained.
//!
//! Invariant: only the owner of the file can read it. It has mode 0600 before it contains a secret,
//! and it is replaced as a whole; a file that other users can read is rejected. A token is stored
//! for the origin of the agent's card and sent to no other origin.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use peregrine::client::{
    HttpOrigin,
    credentials::{Secret, Token},
};
use serde_json::{Value, json};

use super::super::{
    failure::{CommandFailure, FailureCode},
    reference::CardReference,
    settings::is_open,
};

/// The file, in the folder of the user's configuration.
const FILE: &str = "tokens.json";
/// Maximum bytes of the file; a longer file is not a file of tokens.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A token, and the data to renew it.
#[derive(Clone, Debug)]
pub struct StoredToken {
    /// The token.
    pub token: Token,
    /// The token endpoint for renewals.
    pub token_url: String,
    /// True: the user named that URL or its issuer. False: a card named it, so no secret is sent to
    /// it.
    pub is_named_by_user: bool,
    /// The id of the client.
    pub client_id: String,
}

/// The file of tokens.
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// The file in the user's configuration folder.
    pub fn of(folder: &Path) -> TokenFile {
        TokenFile { path: folder.join(FILE) }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The token for an agent, if one is stored.
    ///
    /// # Errors
    /// A [`CommandFailure`]: other users can read the file, or it is not a token file.
    pub fn get(&self, agent: &str) -> Result<Option<StoredToken>, CommandFailure> {
        let all = self.read()?;
        Ok(all.get(agent).and_then(token_of))
    }

    /// Stores a token for an agent.
    ///
    /// # Errors
    /// A [`CommandFailure`]: the file cannot be written.
    pub fn put(&self, agent: &str, stored: &StoredToken) -> Result<(), CommandFailure> {
        let mut all = self.read()?;
        all.insert(
            agent.to_owned(),
            json!({
                "access_token": stored.token.access.expose(),
                "refresh_token": stored.token.refresh.as_ref().map(Secret::expose),
                "expires_at_unix_ms": stored.token.expires_at_unix_ms,
                "renew_at_unix_ms": stored.token.renew_at_unix_ms,
                "token_url": stored.token_url,
                "token_url_is_named_by_user": stored.is_named_by_user,
                "client_id": stored.client_id,
            }),
        );
        let text = serde_json::to_string_pretty(&all).unwrap_or_default();
        self.write(text.as_bytes()).map_err(|error| {
            let line = format!("cannot write {}: {error}", self.path.display());
            CommandFailure::new(FailureCode::Internal, line)
        })
    }

    fn read(&self) -> Result<BTreeMap<String, Value>, CommandFailure> {
        let shown = self.path.display();
        let metadata = match fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => {
                return Err(CommandFailure::usage(format!("cannot read {shown}: {error}")));
            }
        };
        if is_open(&metadata) {
            let line = format!("{shown} holds tokens and is readable by other users");
            return Err(CommandFailure::usage(line).hint(format!("chmod 600 {shown}")));
        }
        let text = match metadata.len() {
            0..=FILE_BYTES_MAX => fs::read_to_string(&self.path).unwrap_or_default(),
            _ => String::new(),
        };
        serde_json::from_str(&text).map_err(|_| {
            let line = format!("{shown} is not a token file");
            CommandFailure::usage(line).hint(format!("rm {shown}, and peregrine auth login"))
        })
    }

    fn write(&self, text: &[u8]) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let draft = folder.join(format!(".{FILE}-{}", std::process::id()));
        // A draft of an earlier process with the same id.
        let _ = fs::remove_file(&draft);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&draft)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&draft, &self.path)
    }
}

fn token_of(value: &Value) -> Option<StoredToken> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(StoredToken {
        token: Token {
            access: Secret::new(text("access_token")?),
            refresh: text("refresh_token").map(Secret::new),
            expires_at_unix_ms: value["expires_at_unix_ms"].as_u64(),
            renew_at_unix_ms: value["renew_at_unix_ms"].as_u64(),
        },
        token_url: text("token_url")?,
        is_named_by_user: value["token_url_is_named_by_user"].as_bool().unwrap_or(false),
        client_id: text("client_id")?,
    })
}

/// The key under which an agent's token is stored: the origin of its card, or the path of its card.
///
/// # Errors
/// A [`CommandFailure`] of usage: the reference is invalid.
pub fn agent_key(reference: &CardReference) -> Result<String, CommandFailure> {
    match reference {
        CardReference::Origin(url) | CardReference::Url(url) => {
            let url =
                HttpOrigin::parse(url).map_err(|error| CommandFailure::usage(error.to_string()))?;
            Ok(url.origin.to_string())
        }
        CardReference::File(path) => {
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            Ok(format!("file://{}", path.display()))
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn stored(access: &str) -> StoredToken {
        let token = Token {
            access: Secret::new(access),
            refresh: None,
            expires_at_unix_ms: Some(7),
            renew_at_unix_ms: None,
        };
        let (token_url, client_id) = ("https://t".to_owned(), "me".to_owned());
        StoredToken { token, token_url, is_named_by_user: true, client_id }
    }

    #[test]
    fn token_file_must_be_private_to_its_owner() {
        let name = format!("peregrine-tokens-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let file = TokenFile::of(&folder);
        assert!(file.get("a").unwrap().is_none());
        file.put("a", &stored("hidden-1")).unwrap();
        file.put("b", &stored("hidden-2")).unwrap();
        let mode = fs::metadata(file.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = file.get("a").unwrap().unwrap();
        assert_eq!(
            (read.token.access.expose(), read.token.expires_at_unix_ms),
            ("hidden-1", Some(7))
        );
        assert!(read.is_named_by_user);
        assert!(file.get("c").unwrap().is_none());
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let failure = file.get("a").unwrap_err();
        assert!(failure.message.contains("readable by other users"), "{failure:?}");
        assert!(!format!("{read:?}").contains("hidden"));
        fs::remove_dir_all(folder).unwrap();
    }
}
