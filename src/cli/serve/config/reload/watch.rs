//! Detects a changed file by its metadata, once a second.

use std::{fs, path::Path, time::SystemTime};

use super::ConfigOrigin;

/// The version of a file, from its metadata; `None`: the file does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp(Option<(Option<SystemTime>, u64, u64)>);

impl Stamp {
    /// The stamp of the file of a configuration.
    pub fn of(origin: &ConfigOrigin) -> Stamp {
        origin.file.as_ref().map_or(Stamp(None), |file| Stamp::of_file(file))
    }

    /// The stamp of a file.
    pub fn of_file(file: &Path) -> Stamp {
        let metadata = fs::metadata(file).ok();
        Stamp(metadata.map(|metadata| (metadata.modified().ok(), metadata.len(), inode(&metadata))))
    }
}

#[cfg(unix)]
fn inode(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}

/// The observed stamps of a file.
pub struct Watch {
    /// The stamp when the file was last read, with or without success.
    read: Stamp,
    /// The stamp when the file was last checked.
    looked: Stamp,
}

impl Watch {
    /// The state of a file that was read when it had this stamp.
    pub fn new(stamp: Stamp) -> Watch {
        Watch { read: stamp.clone(), looked: stamp }
    }

    /// True if the file differs from the version that was read, and has not changed since the last
    /// check: no program is writing it.
    pub fn has_changed(&mut self, now: Stamp) -> bool {
        let is_settled = self.looked == now;
        let is_other = self.read != now;
        self.looked = now;
        is_settled && is_other
    }

    /// Notes that the file is read.
    pub fn reads(&mut self, now: Stamp) {
        self.read = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_is_read_once_after_it_settles() {
        let stamp = |size| Stamp(Some((None, size, 1)));
        let mut watch = Watch::new(stamp(1));
        assert!(!watch.has_changed(stamp(1)));
        assert!(!watch.has_changed(stamp(2)), "a program may still be writing the file");
        assert!(!watch.has_changed(stamp(3)));
        assert!(watch.has_changed(stamp(3)));
        watch.reads(stamp(3));
        assert!(!watch.has_changed(stamp(3)), "the file was read, whether it was valid or not");
        assert!(!watch.has_changed(Stamp(None)));
        assert!(watch.has_changed(Stamp(None)), "the removal of the file is reported");
    }
}
