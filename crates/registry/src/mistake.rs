//! One mistake in a configuration, and the form in which it is shown.

use std::fmt;
use std::sync::Arc;

/// A mistake with its place, its key and the valid alternatives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Name of the source, as given by whoever read it.
    pub source: Arc<str>,
    /// Line, from 1; 0 when the mistake is about the file as a whole.
    pub line: usize,
    /// Column, from 1; 0 when the mistake is about the file as a whole.
    pub column: usize,
    /// Keys from the top, joined by dots; empty for the file as a whole.
    pub key_path: String,
    /// What is wrong, in one sentence. Never the value of a secret or of an environment variable.
    pub what: String,
    /// What would have been valid, where that is a short list.
    pub one_of: Vec<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if self.key_path.is_empty() {
            write!(f, ": {}", self.what)?;
        } else {
            write!(f, " {}: {}", self.key_path, self.what)?;
        }
        if !self.one_of.is_empty() {
            write!(f, "; one of: {}", self.one_of.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistake {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_prints_place_key_and_alternatives() {
        let mistake = Mistake {
            source: Arc::from("a.yaml"),
            line: 3,
            column: 7,
            key_path: "telemetry.log".to_owned(),
            what: "`xml` is not a log format".to_owned(),
            one_of: vec!["text".to_owned(), "json".to_owned()],
        };
        assert_eq!(
            mistake.to_string(),
            "a.yaml:3:7 telemetry.log: `xml` is not a log format; one of: text, json"
        );
        let whole = Mistake {
            line: 0,
            key_path: String::new(),
            one_of: Vec::new(),
            ..mistake
        };
        assert_eq!(whole.to_string(), "a.yaml: `xml` is not a log format");
    }
}
