//! All text files of the repository.

use std::{fs, path::Path, sync::LazyLock};

use crate::{
    SKIPPED,
    rust::{Rust, test_files},
};

pub struct File {
    /// Relative to the root of the repository, with slashes.
    pub name: String,
    pub text: String,
    /// Empty for files other than Rust.
    pub rust: Rust,
}

/// Read once for all rules.
pub static TREE: LazyLock<Tree> = LazyLock::new(Tree::read);

impl File {
    pub fn is_rust(&self) -> bool {
        self.name.ends_with(".rs")
    }
}

pub struct Tree {
    pub files: Vec<File>,
}

impl Tree {
    /// All text files of the repository.
    pub fn read() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let skipped: Vec<&str> = ignored.lines().chain(SKIPPED.iter().copied()).collect();
        let mut tree = Tree { files: Vec::new() };
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder").flatten() {
                let path = entry.path();
                let name = path.strip_prefix(root).expect("below the root").to_string_lossy();
                let name = name.replace('\\', "/");
                match entry.file_type().expect("a kind of file") {
                    _ if skipped.iter().any(|pattern| is_match(pattern, &name)) => {}
                    kind if kind.is_dir() => folders.push(path),
                    kind if kind.is_file() => tree.add(name, &path),
                    _ => {}
                }
            }
        }
        tree.files.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(tree.files.iter().any(|file| file.name == "src/lib.rs"), "the sources are gone");
        tree
    }

    /// Files that are not UTF-8 are skipped.
    pub fn add(&mut self, name: String, path: &Path) {
        if let Ok(text) = fs::read_to_string(path) {
            let rust = Rust::of(if name.ends_with(".rs") { &text } else { "" });
            self.files.push(File { name, text, rust });
        }
    }

    /// The library and the binary, without files that are tests as a whole.
    pub fn sources(&self) -> impl Iterator<Item = &File> {
        let all = || self.files.iter().filter(|f| f.is_rust() && f.name.starts_with("src/"));
        let tests: Vec<String> = all().flat_map(|f| test_files(&f.name, &f.text)).collect();
        all().filter(move |file| !tests.contains(&file.name))
    }

    pub fn text(&self, name: &str) -> String {
        let file = self.files.iter().find(|file| file.name == name);
        file.map(|file| file.text.clone()).unwrap_or_default()
    }
}

/// A line of `.gitignore`: `/path`, or the name of a file anywhere; with one star at most.
pub fn is_match(pattern: &str, name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let (pattern, text) = match pattern.strip_prefix('/') {
        Some(path) => (path, name),
        None => (pattern, last),
    };
    match pattern.split_once('*') {
        Some((head, tail)) => text.starts_with(head) && text.ends_with(tail),
        None => text == pattern,
    }
}
