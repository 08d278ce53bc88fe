//! A stdio server that follows a script of JSON lines, for tests of stdio
//! upstreams. The program is `scripted-stdio`; [`Script`] writes its file.
//!
//! A step is one object:
//!
//! - `{"expect": METHOD, "reply": [LINE, …]}`: waits for a message of that
//!   method and writes the lines; another method ends the program with status 3;
//! - `{"always": METHOD, "reply": [LINE, …]}`: from now on answers that method
//!   whenever it comes and is not the one waited for;
//! - `{"noise": TEXT}`, `{"partial": TEXT}`: writes text to standard output,
//!   with or without a line end; `{"stderr": TEXT}`: a line to standard error;
//! - `{"silence": true}`: reads and answers nothing more;
//! - `{"relay": ADDRESS}`: connects to that address, hands on every line it reads and writes what comes
//!   back, until its input ends: the test itself is the server then;
//! - `{"stubborn": true}`: from now on outlives the end of its input and SIGTERM;
//! - `{"exit": STATUS}`: ends at once.
//!
//! After the last step it goes on with its `always` answers until its input
//! ends. In a line, `"$id"` becomes the id of the message answered and
//! `"$token"` its progress token, both as they came. A line is an object or,
//! where its very bytes matter, a string.

use std::{
    collections::HashMap,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin},
    net::TcpStream,
};

/// The exit status when another method came than the one expected.
pub const UNEXPECTED: i32 = 3;

/// One step.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Step {
    /// Wait for a method, then reply.
    Expect {
        /// The method waited for.
        expect: String,
        /// What to write then.
        #[serde(default)]
        reply: Vec<Value>,
    },
    /// Answer a method whenever it comes.
    Always {
        /// The method.
        always: String,
        /// What to write.
        #[serde(default)]
        reply: Vec<Value>,
    },
    /// A line that is no message.
    Noise {
        /// Its text.
        noise: String,
    },
    /// Text without a line end.
    Partial {
        /// The text.
        partial: String,
    },
    /// A line on standard error.
    Stderr {
        /// Its text.
        stderr: String,
    },
    /// Answer nothing more.
    Silence {
        /// Always true.
        silence: bool,
    },
    /// Be the standard streams of a server elsewhere.
    Relay {
        /// Where that server listens.
        relay: String,
    },
    /// Outlive the end of the input and SIGTERM.
    Stubborn {
        /// Always true.
        stubborn: bool,
    },
    /// End at once.
    Exit {
        /// The exit status.
        exit: i32,
    },
}

/// A script on disk, and the file in which the program records what it read.
#[derive(Debug)]
pub struct Script {
    folder: PathBuf,
}

impl Script {
    /// Writes a script into a new folder below the system's temporary one.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn new(steps: &[Value]) -> anyhow::Result<Self> {
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("scripted-stdio-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).context("cannot make the script's folder")?;
        let lines: String = steps.iter().map(|step| format!("{step}\n")).collect();
        std::fs::write(folder.join("script.jsonl"), lines).context("cannot write the script")?;
        Ok(Self { folder })
    }

    /// The arguments that make `scripted-stdio` follow this script.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let path = |name: &str| self.folder.join(name).display().to_string();
        vec![
            "--script".to_owned(),
            path("script.jsonl"),
            "--record".to_owned(),
            path("record"),
        ]
    }

    /// The lines read so far, by all programs that followed this script.
    #[must_use]
    pub fn record(&self) -> Vec<String> {
        let record = std::fs::read_to_string(self.folder.join("record")).unwrap_or_default();
        record.lines().map(str::to_owned).collect()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // What is left in the temporary folder harms nobody.
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// The parts of a message that a script refers to, as they came.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    token: Option<&'a RawValue>,
}

/// Writes a script's line in answer to a message.
fn fill_in(line: &Value, message: &Message<'_>) -> String {
    let line = line
        .as_str()
        .map_or_else(|| line.to_string(), str::to_owned);
    let id = message.id.map_or("null", RawValue::get);
    let token = message
        .params
        .as_ref()
        .and_then(|params| params.meta.as_ref())
        .and_then(|meta| meta.token);
    line.replace("\"$id\"", id)
        .replace("\"$token\"", token.map_or("null", RawValue::get))
}

/// The program while it runs.
struct Actor {
    input: Lines<BufReader<Stdin>>,
    record: Option<std::fs::File>,
    always: HashMap<String, Vec<Value>>,
    stubborn: bool,
}

/// Follows a script on standard input and output; gives the exit status.
///
/// # Errors
///
/// The script is none, or the streams broke.
pub async fn follow(script: &Path, record: Option<&Path>) -> anyhow::Result<i32> {
    let script = std::fs::read_to_string(script).context("cannot read the script")?;
    let steps = script.lines().filter(|line| !line.trim().is_empty());
    let steps =
        steps.map(|line| serde_json::from_str(line).with_context(|| format!("no step: {line}")));
    let steps = steps.collect::<anyhow::Result<Vec<Step>>>()?;
    let open = |path| {
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
    };
    let record = record
        .map(open)
        .transpose()
        .context("cannot open the record")?;
    let input = BufReader::new(tokio::io::stdin()).lines();
    let mut actor = Actor {
        input,
        record,
        always: HashMap::new(),
        stubborn: false,
    };
    for step in steps {
        if let Some(status) = actor.step(step).await? {
            return Ok(status);
        }
    }
    while actor.answer().await? {}
    actor.rest().await;
    Ok(0)
}

impl Actor {
    /// Does a step; gives the exit status when it is the last.
    async fn step(&mut self, step: Step) -> anyhow::Result<Option<i32>> {
        match step {
            Step::Expect { expect, reply } => return self.expect(&expect, &reply).await,
            Step::Always { always, reply } => {
                self.always.insert(always, reply);
            }
            Step::Noise { noise } => write(&format!("{noise}\n")).await?,
            Step::Partial { partial } => write(&partial).await?,
            Step::Stderr { stderr } => writeln!(std::io::stderr(), "{stderr}")?,
            Step::Silence { .. } => {
                while self.next().await?.is_some() {}
                self.rest().await;
                return Ok(Some(0));
            }
            Step::Relay { relay } => {
                self.relay(&relay).await?;
                return Ok(Some(0));
            }
            Step::Stubborn { .. } => {
                self.stubborn = true;
                ignore_termination()?;
            }
            Step::Exit { exit } => return Ok(Some(exit)),
        }
        Ok(None)
    }

    async fn expect(&mut self, method: &str, reply: &[Value]) -> anyhow::Result<Option<i32>> {
        loop {
            let Some(line) = self.next().await? else {
                self.rest().await;
                return Ok(Some(0));
            };
            let Ok(message) = serde_json::from_str::<Message<'_>>(&line) else {
                return Ok(Some(UNEXPECTED));
            };
            let came = message.method.as_deref().unwrap_or_default();
            if came == method {
                write_all(reply, &message).await?;
                return Ok(None);
            }
            let Some(reply) = self.always.get(came) else {
                writeln!(std::io::stderr(), "expected {method}, got {line}")?;
                return Ok(Some(UNEXPECTED));
            };
            write_all(reply, &message).await?;
        }
    }

    /// Reads one line and gives its standing answer; false at the end.
    async fn answer(&mut self) -> anyhow::Result<bool> {
        let Some(line) = self.next().await? else {
            return Ok(false);
        };
        let Ok(message) = serde_json::from_str::<Message<'_>>(&line) else {
            return Ok(true);
        };
        if let Some(reply) = self
            .always
            .get(message.method.as_deref().unwrap_or_default())
        {
            write_all(reply, &message).await?;
        }
        Ok(true)
    }

    /// Hands lines on and writes what comes back.
    async fn relay(&mut self, address: &str) -> anyhow::Result<()> {
        let server = TcpStream::connect(address).await;
        let (mut answers, mut server) = server.context("no server to relay to")?.into_split();
        let back = tokio::spawn(async move {
            let mut output = tokio::io::stdout();
            tokio::io::copy(&mut answers, &mut output).await
        });
        while let Some(line) = self.next().await? {
            let line = format!("{line}\n");
            let sent = server.write_all(line.as_bytes()).await;
            sent.context("the server has gone")?;
        }
        back.abort();
        Ok(())
    }

    async fn next(&mut self) -> anyhow::Result<Option<String>> {
        let line = self.input.next_line().await.context("the input broke")?;
        if let (Some(line), Some(record)) = (&line, &mut self.record) {
            writeln!(record, "{line}").context("cannot record")?;
        }
        Ok(line)
    }

    /// The end of the input ends the program, unless it is stubborn.
    async fn rest(&self) {
        if self.stubborn {
            std::future::pending::<()>().await;
        }
    }
}

async fn write_all(lines: &[Value], message: &Message<'_>) -> anyhow::Result<()> {
    for line in lines {
        write(&format!("{}\n", fill_in(line, message))).await?;
    }
    Ok(())
}

async fn write(text: &str) -> anyhow::Result<()> {
    let mut output = tokio::io::stdout();
    output
        .write_all(text.as_bytes())
        .await
        .context("the output broke")?;
    output.flush().await.context("the output broke")
}

/// Takes SIGTERM and does nothing about it.
fn ignore_termination() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminations = signal(SignalKind::terminate()).context("no signals here")?;
    tokio::spawn(async move { while terminations.recv().await.is_some() {} });
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Message, Step, fill_in};

    #[test]
    fn ids_and_tokens_are_filled_in_as_they_came() {
        let message: Message<'_> = serde_json::from_str(
            r#"{"id":1.0,"method":"x","params":{"_meta":{"progressToken":"t\u0041"}}}"#,
        )
        .unwrap();
        let line = json!({ "id": "$id", "token": "$token" });
        assert_eq!(fill_in(&line, &message), r#"{"id":1.0,"token":"t\u0041"}"#);
        assert_eq!(
            fill_in(&json!(r#"{ "id" : "$id" }"#), &message),
            r#"{ "id" : 1.0 }"#
        );
    }

    #[test]
    fn an_unknown_step_is_refused() {
        assert!(serde_json::from_str::<Step>(r#"{"exepct":"x"}"#).is_err());
        assert!(serde_json::from_str::<Step>(r#"{"exit":1}"#).is_ok());
    }
}
