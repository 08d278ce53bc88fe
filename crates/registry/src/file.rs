//! The configuration file: read, parsed, checked; all mistakes at once.

use std::path::Path;
use std::sync::Arc;

use crate::checked::Checked;
use crate::mistake::Mistake;
use crate::permission;
use crate::read::{self, Reader};
use crate::yaml;

/// Largest configuration file.
const MAX_FILE: u64 = 16 << 20;

/// Reads and checks the file at `path`, with this process's environment.
///
/// A file that starts programs (`command`, `env`) must belong to root or to this process's user and
/// be writable by nobody else.
pub fn load(path: &Path) -> Result<Checked, Vec<Mistake>> {
    let source = path.display().to_string();
    let whole = |what: String| {
        vec![Mistake {
            source: Arc::from(source.as_str()),
            line: 0,
            column: 0,
            key_path: String::new(),
            what,
            one_of: Vec::new(),
        }]
    };
    let cannot = |error: std::io::Error| whole(format!("cannot be read: {error}"));
    let metadata = std::fs::metadata(path).map_err(cannot)?;
    if metadata.len() > MAX_FILE {
        return Err(whole(format!("is larger than {MAX_FILE} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    let permission = permission::check(&metadata);
    parse_with(&text, &source, &|name| std::env::var(name).ok(), permission)
}

/// Checks `text`; `source_name` stands in messages, and relative paths are taken from its folder.
pub fn parse(
    text: &str,
    source_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Checked, Vec<Mistake>> {
    parse_with(text, source_name, env, Ok(()))
}

fn parse_with(
    text: &str,
    source: &str,
    env: &dyn Fn(&str) -> Option<String>,
    permission: Result<(), &'static str>,
) -> Result<Checked, Vec<Mistake>> {
    let mut reader = Reader::new(source, env);
    let root = match yaml::parse(text) {
        Ok(root) => root,
        Err(error) => {
            reader.mistake(error.at, &error.key_path, error.what);
            return Err(reader.mistakes);
        }
    };
    let mut checked = read::file(&mut reader, &root);
    if let (Some((at, path)), Err(what)) = (reader.starts_programs.take(), permission) {
        reader.mistake(at, &path, what);
    }
    if reader.mistakes.is_empty() {
        checked.warnings = reader.warnings;
        return Ok(checked);
    }
    reader
        .mistakes
        .sort_by_key(|mistake| (mistake.line, mistake.column));
    Err(reader.mistakes)
}
