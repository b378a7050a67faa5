//! A server with its agents in a configuration file, which is removed on drop.

use std::{fs, path::PathBuf};

use super::binary::Binary;

pub struct Configured {
    pub server: Binary,
    file: PathBuf,
}

impl Configured {
    /// Starts the server with this text; `test` is part of the file's name.
    pub fn new(test: &str, text: &str) -> Configured {
        let file = std::env::temp_dir().join(format!("peregrine-{test}-{}", std::process::id()));
        fs::write(&file, text).unwrap();
        let server = Binary::start(&["--config", file.to_str().expect("a path")]);
        Configured { server, file }
    }

    /// Makes the server read this text.
    pub fn reload(&self, text: &str) {
        fs::write(&self.file, text).unwrap();
        self.server.signal("-HUP");
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}
