//! T02, case 98, against the readers that servers are made of: whatever the scanner takes, Node's
//! `JSON.parse` and Python's `json` take too, and they read the same method, name, uri, id and
//! progress token. A disagreement that is forwarded is how a call gets past policy.
//!
//! The inputs are the corpora of the fuzz targets, texts written to be misread, generated messages,
//! and damaged variants of them all; with `VESTIBULE_FUZZ_FOUND` also those of the folder it names, as
//! a long run of a fuzz target leaves it. A reader that is not installed is left out, unless `VESTIBULE_TEST_STRICT=1`.

#[path = "../fuzz/checks/mod.rs"]
#[allow(dead_code, reason = "one of the checks is used here")]
mod checks;
#[path = "../it/generate.rs"]
#[allow(dead_code, reason = "messages are generated here, not edited")]
mod generate;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use checks::reading::{Field, Reading, ours};
use generate::Random;

/// How many messages are generated.
const GENERATED: u64 = 2_000;

const NODE: &str = include_str!("read.js");
const PYTHON: &str = include_str!("read.py");

/// Texts that one reader or another is known to take differently.
const HOSTILE: [&str; 24] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#,
    r#"{"jsonrpc":"2.0","id":1,"m\u0065thod":"tools/call"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools\/call","params":{"name":"\u0061","nam\u0065":"b"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"__proto__":{"name":"x"}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","__proto__":{"params":{"name":"x"}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"__proto__":{"progressToken":1}}}}"#,
    r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"m"}"#,
    r#"{"jsonrpc":"2.0","id":-0,"method":"m"}"#,
    r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"m"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1e400}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":-0.0}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":1.0}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":NaN}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":Infinity,"uri":-Infinity}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"\ud83d\ude00\u0000"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"\ud83d"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":["a"],"uri":{"name":"b"}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":true,"uri":false,"x":"\ud800"}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"name":"x","name":"y","a":1e999}}}"#,
    r#"{"jsonrpc":"2.0","id":"1","result":{"_meta":{"progressToken":7}}}"#,
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#,
    "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\u{2028}\u{7f}\"}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\0",
];

/// All inputs: each as it is, and damaged in places that depend on its bytes.
fn inputs() -> BTreeSet<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut inputs: BTreeSet<Vec<u8>> = HOSTILE
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
    let found = std::env::var_os("VESTIBULE_FUZZ_FOUND").map(PathBuf::from);
    let corpora = [corpus.join("reading"), corpus.join("scanner")];
    for folder in corpora.into_iter().chain(found) {
        for entry in std::fs::read_dir(folder).expect("a corpus") {
            inputs.insert(std::fs::read(entry.expect("an entry").path()).expect("an input"));
        }
    }
    let mut damages: Vec<Vec<u8>> = inputs.iter().flat_map(|text| damaged(text, 12)).collect();
    for seed in 0..GENERATED {
        let mut random = Random::new(seed);
        let request = !random.one_in(4);
        let text = random.message(request).text().into_bytes();
        damages.extend(damaged(&text, 3));
        inputs.insert(text);
    }
    inputs.extend(damages);
    inputs
}

/// Bytes that a parser may stumble over, put in or over others at a few places.
fn damaged(text: &[u8], variants: usize) -> Vec<Vec<u8>> {
    let marks = b"\"\\{}[],:0-e.\0\n \xc3\xa9un";
    let seed: usize = text.iter().map(|byte| usize::from(*byte)).sum();
    let one = |round: usize| {
        let mut bytes = text.to_vec();
        let mark = marks[(seed + round) % marks.len()];
        let at = (seed * 31 + round * 17) % (bytes.len() + 1);
        match round % 3 {
            0 if at < bytes.len() => bytes[at] = mark,
            1 if at < bytes.len() => drop(bytes.remove(at)),
            _ => bytes.insert(at, mark),
        }
        bytes
    };
    (0..variants).map(one).collect()
}

/// Runs a reader over the inputs: one line of hexadecimal in, one line out. None when it is missing.
fn read_by(program: &str, arguments: &[&str], inputs: &[&Vec<u8>]) -> Option<Vec<String>> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let strict =
                std::env::var_os("VESTIBULE_TEST_STRICT").is_some_and(|value| value == "1");
            assert!(!strict, "{program}: {error}");
            return None;
        }
    };
    let mut lines = String::new();
    for input in inputs {
        for byte in *input {
            write!(lines, "{byte:02x}").expect("a string grows");
        }
        lines.push('\n');
    }
    let mut stdin = child.stdin.take().expect("a pipe");
    // The readers answer when all of their input is there, so the pipes cannot block each other.
    stdin.write_all(lines.as_bytes()).expect("the reader reads");
    drop(stdin);
    let output = child.wait_with_output().expect("the reader ends");
    assert!(output.status.success(), "{program} failed");
    let text = String::from_utf8(output.stdout).expect("ASCII");
    Some(text.lines().map(str::to_owned).collect())
}

/// A reading as the readers print it: `-` for absent, `s` and the UTF-8 of a string in hexadecimal,
/// `n` and the bits of a number as a double, else the letter of a type.
fn printed(reading: &Reading) -> String {
    let fields = reading.iter().map(|field| match field {
        Field::Absent => "-".to_owned(),
        Field::Text(text) => {
            let bytes = text.bytes().map(|byte| format!("{byte:02x}"));
            format!("s{}", bytes.collect::<String>())
        }
        Field::Token(token) => match token.as_bytes().first() {
            Some(b'{') => "o".to_owned(),
            Some(b'[') => "a".to_owned(),
            Some(b't' | b'f') => format!("b{token}"),
            _ => {
                let number: f64 = token.parse().expect("a number");
                // Python reads the integer -0 as 0, which no policy tells apart.
                let number = if number == 0.0 { 0.0 } else { number };
                format!("n{:016x}", number.to_bits())
            }
        },
    });
    fields.collect::<Vec<_>>().join(" ")
}

fn compare(program: &str, arguments: &[&str]) {
    let inputs = inputs();
    let inputs: Vec<&Vec<u8>> = inputs.iter().collect();
    let Some(lines) = read_by(program, arguments, &inputs) else {
        return;
    };
    assert_eq!(lines.len(), inputs.len());
    let mut taken = 0;
    let mut refused_by_us_alone = 0;
    for (input, line) in inputs.iter().zip(lines) {
        match ours(input) {
            Some(reading) => {
                let text = String::from_utf8_lossy(input);
                assert_eq!(line, printed(&reading), "{program} reads {text}");
                taken += 1;
            }
            None => refused_by_us_alone += usize::from(line != "refused"),
        }
    }
    assert!(taken > 3_000, "{taken} inputs are taken");
    assert!(
        refused_by_us_alone > 50,
        "what only we refuse is tried, too"
    );
}

/// T02, case 98.
#[test]
fn t02_case_98_node_reads_what_we_read() {
    compare("node", &["-e", NODE]);
}

/// T02, case 98.
#[test]
fn t02_case_98_python_reads_what_we_read() {
    compare("python3", &["-c", PYTHON]);
}
