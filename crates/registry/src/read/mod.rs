//! From the located tree to checked values. A reader never stops at the first mistake: it notes it
//! and goes on with the default, so that one run shows all of them.

mod secret;
mod server;
mod tenant;
mod top;
mod upstream;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::mistake::Mistake;
use crate::object::Key;
use crate::yaml::{self, Node, Place, Value};

pub(crate) use top::file;

/// A value and the keys that lead to it.
#[derive(Debug, Clone)]
pub(crate) struct Item<'t> {
    pub(crate) path: String,
    pub(crate) node: &'t Node,
}

/// A mapping whose keys were checked against their table.
#[derive(Debug, Clone)]
pub(crate) struct Section<'t> {
    pub(crate) path: String,
    pub(crate) at: Place,
    entries: &'t [(yaml::Key, Node)],
    keys: &'static [Key],
}

impl<'t> Section<'t> {
    /// The value under `name`, if it is there.
    pub(crate) fn get(&self, name: &str) -> Option<Item<'t>> {
        debug_assert!(
            self.keys.iter().any(|key| key.name == name && key.served),
            "`{name}` is not in the table of {}",
            self.path
        );
        let (_, node) = self.entries.iter().find(|(key, _)| key.text == name)?;
        Some(Item {
            path: join(&self.path, name),
            node,
        })
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// Where values come from and where mistakes go.
pub(crate) struct Reader<'w> {
    source: Arc<str>,
    base: PathBuf,
    env: &'w dyn Fn(&str) -> Option<String>,
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) warnings: Vec<String>,
    /// Whether a `command` or `env` was seen: the file's permissions then matter.
    pub(crate) starts_programs: Option<(Place, String)>,
}

impl<'w> Reader<'w> {
    pub(crate) fn new(source: &str, env: &'w dyn Fn(&str) -> Option<String>) -> Self {
        let base = Path::new(source)
            .parent()
            .map_or_else(PathBuf::new, Path::to_path_buf);
        Self {
            source: Arc::from(source),
            base,
            env,
            mistakes: Vec::new(),
            warnings: Vec::new(),
            starts_programs: None,
        }
    }

    // === notes ===

    pub(crate) fn mistake(&mut self, at: Place, path: &str, what: impl Into<String>) {
        self.mistake_of(at, path, what, &[]);
    }

    pub(crate) fn mistake_of(
        &mut self,
        at: Place,
        path: &str,
        what: impl Into<String>,
        one_of: &[&str],
    ) {
        self.mistakes.push(Mistake {
            source: Arc::clone(&self.source),
            line: at.line,
            column: at.column,
            key_path: path.to_owned(),
            what: what.into(),
            one_of: one_of.iter().map(|&text| text.to_owned()).collect(),
        });
    }

    pub(crate) fn warn(&mut self, at: Place, path: &str, what: &str) {
        let Place { line, column } = at;
        let warning = format!("{}:{line}:{column} {path}: {what}", self.source);
        self.warnings.push(warning);
    }

    // === collections ===

    /// The mapping at `item`, its keys checked against `keys`. Anything else is a mistake and reads
    /// as empty.
    pub(crate) fn section<'t>(&mut self, item: &Item<'t>, keys: &'static [Key]) -> Section<'t> {
        let entries = self.entries(item, "a mapping");
        for (key, _) in entries {
            let path = join(&item.path, &key.text);
            match keys.iter().find(|known| known.name == key.text) {
                Some(Key { served: true, .. }) => {}
                Some(Key { served: false, .. }) => {
                    self.mistake(key.at, &path, "not available in this version");
                }
                None => {
                    let served = keys.iter().filter(|known| known.served);
                    let names: Vec<&str> = served.map(|known| known.name).collect();
                    self.mistake_of(key.at, &path, "unknown key", &names);
                }
            }
        }
        Section {
            path: item.path.clone(),
            at: item.node.at,
            entries,
            keys,
        }
    }

    /// The mapping of freely chosen keys at `item`.
    pub(crate) fn map<'t>(&mut self, item: Option<Item<'t>>) -> Vec<(&'t yaml::Key, Item<'t>)> {
        let Some(item) = item else { return Vec::new() };
        let entries = self.entries(&item, "a mapping");
        let items = entries.iter().map(|(key, node)| {
            let path = join(&item.path, &key.text);
            (key, Item { path, node })
        });
        items.collect()
    }

    fn entries<'t>(&mut self, item: &Item<'t>, wanted: &str) -> &'t [(yaml::Key, Node)] {
        let Value::Mapping(entries) = &item.node.value else {
            if !item.node.is_null() {
                let what = format!("must be {wanted}, not {}", item.node.kind());
                self.mistake(item.node.at, &item.path, what);
            }
            return &[];
        };
        let mut seen = HashSet::new();
        for (key, _) in entries {
            if !seen.insert(key.text.as_str()) {
                let path = join(&item.path, &key.text);
                self.mistake(key.at, &path, "this key stands here twice");
            }
        }
        entries
    }

    /// The list at `item`.
    pub(crate) fn list<'t>(&mut self, item: Option<Item<'t>>) -> Vec<Item<'t>> {
        let Some(item) = item else { return Vec::new() };
        let Value::Sequence(nodes) = &item.node.value else {
            let what = format!("must be a list, not {}", item.node.kind());
            self.mistake(item.node.at, &item.path, what);
            return Vec::new();
        };
        let items = nodes.iter().enumerate().map(|(index, node)| Item {
            path: format!("{}[{index}]", item.path),
            node,
        });
        items.collect()
    }

    /// The list at `item`, each element read by `parse`; bad elements are left out.
    pub(crate) fn list_of<T>(
        &mut self,
        item: Option<Item<'_>>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let items = self.list(item);
        let values = items.iter().filter_map(|item| self.value(item, &parse));
        values.collect()
    }

    // === single values ===

    /// The text at `item`, with `${NAME}` expanded.
    pub(crate) fn text(&mut self, item: &Item<'_>) -> Option<String> {
        let Value::Scalar { text, .. } = &item.node.value else {
            let what = format!("must be a single value, not {}", item.node.kind());
            self.mistake(item.node.at, &item.path, what);
            return None;
        };
        if item.node.is_null() {
            self.mistake(item.node.at, &item.path, "has no value");
            return None;
        }
        match expand(text, self.env) {
            Ok(text) => Some(text),
            Err(what) => {
                self.mistake(item.node.at, &item.path, what);
                None
            }
        }
    }

    /// The value at `item` as `parse` understands it.
    pub(crate) fn value<T>(
        &mut self,
        item: &Item<'_>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(item)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(what) => {
                let what = format!("{} {what}", shown(item.node));
                self.mistake(item.node.at, &item.path, what);
                None
            }
        }
    }

    /// The value at `item`, or `default` when it is absent or wrong.
    pub(crate) fn value_or<T>(
        &mut self,
        item: Option<Item<'_>>,
        default: T,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        item.and_then(|item| self.value(&item, parse))
            .unwrap_or(default)
    }

    /// One of `choices` by name; names in `later` are known and not served yet.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        item: Option<Item<'_>>,
        default: T,
        choices: &[(&str, T)],
        later: &[&str],
    ) -> T {
        let Some(item) = item else { return default };
        let Some(text) = self.text(&item) else {
            return default;
        };
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return *value;
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let what = if later.contains(&text.as_str()) {
            "is not available in this version"
        } else {
            "is not a valid choice"
        };
        let what = format!("{} {what}", shown(item.node));
        self.mistake_of(item.node.at, &item.path, what, &names);
        default
    }

    /// A path; relative ones are taken from the folder of the configuration file.
    pub(crate) fn path(&mut self, item: &Item<'_>) -> Option<PathBuf> {
        let text = self.text(item)?;
        if text.is_empty() {
            self.mistake(item.node.at, &item.path, "must be a path");
            return None;
        }
        Some(self.base.join(text))
    }

    /// A path beside the file.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// Notes that `key` is missing in `section`.
    pub(crate) fn missing(&mut self, section: &Section<'_>, key: &str, one_of: &[&str]) {
        let path = join(&section.path, key);
        self.mistake_of(section.at, &path, "is missing", one_of);
    }
}

/// The text as it stands in the file, for a message: environment variables stay unexpanded.
fn shown(node: &Node) -> String {
    let Value::Scalar { text, .. } = &node.value else {
        return node.kind().to_owned();
    };
    let mut cut: String = text.chars().take(60).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    format!("`{cut}`")
}

/// Replaces every `${NAME}`; `$${` stands for `${` itself.
fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        expanded.push_str(before);
        let (name, after) = after
            .split_once('}')
            .ok_or("`${` is not closed by `}` (write $${ for the characters themselves)")?;
        let is_name = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name {
            return Err("`${…}` must hold the name of an environment variable".to_owned());
        }
        let value =
            env(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_are_expanded_once() {
        let env = |name: &str| (name == "A").then(|| "x${A}".to_owned());
        assert_eq!(expand("1 ${A} 2", &env).unwrap(), "1 x${A} 2");
        assert_eq!(expand("$${A} $", &env).unwrap(), "${A} $");
        assert!(expand("${B}", &env).unwrap_err().contains("B is not set"));
        assert!(expand("${A", &env).is_err());
        assert!(expand("${A-b}", &env).is_err());
    }
}
