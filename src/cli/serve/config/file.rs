//! Files that the configuration names.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// Maximum bytes of a file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Time limit for reading a file: a pipe without a writer, or a device, may have no end.
const READ_TIME_MAX: Duration = Duration::from_secs(5);

/// The content of a file.
///
/// # Errors
/// The file cannot be read, is longer than 1 MiB, or has not ended after 5 s.
pub fn read(file: &Path) -> io::Result<Vec<u8>> {
    let (done, is_done) = mpsc::channel();
    let path = file.to_owned();
    // A thread that waits for a pipe ends only with the process.
    thread::Builder::new().name("file".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        let opened = File::open(path);
        let read = opened.and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        // The receiver is gone after a timeout.
        let _ = done.send(read.map(|_| bytes));
    })?;
    let bytes = is_done.recv_timeout(READ_TIME_MAX).map_err(|error| match error {
        RecvTimeoutError::Timeout => io::Error::other("reading it took longer than 5 s"),
        RecvTimeoutError::Disconnected => io::Error::other("the thread that reads it has failed"),
    })??;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other("larger than 1 MiB")),
        false => Ok(bytes),
    }
}

/// The text of a file.
///
/// # Errors
/// The errors of [`read`], and text that is not UTF-8.
pub fn read_text(file: &Path) -> io::Result<String> {
    String::from_utf8(read(file)?).map_err(|_| io::Error::other("not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_file_is_rejected() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "larger than 1 MiB");
        assert_eq!(read(Path::new("/dev/null")).unwrap(), b"");
        assert!(read(Path::new("/no/such/file")).is_err());
    }
}
