//! The ledger file: a line an entry, forced to disk before anybody acts on it.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use tokio::sync::{mpsc, oneshot};

use crate::history::Entry;

/// Lines that may wait for the disk.
const WAITING: usize = 1024;

struct Line {
    text: Vec<u8>,
    written: oneshot::Sender<()>,
}

/// The writing end; one thread writes what all of them hand over, many lines to a sync.
#[derive(Debug, Clone)]
pub struct Ledger(mpsc::Sender<Line>);

/// The disk does not take any more.
#[derive(Debug)]
pub(super) struct DiskFailed;

impl Ledger {
    /// Begins a ledger.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        let (sender, lines) = mpsc::channel(WAITING);
        std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || {
                // whoever waits for a line that was not written does not act
                let _failed = keep(&file, lines);
            })?;
        Ok(Self(sender))
    }

    /// Returns when the entry is on disk.
    pub(super) async fn enter(&self, entry: &Entry) -> Result<(), DiskFailed> {
        let mut text = serde_json::to_vec(entry).map_err(|_| DiskFailed)?;
        text.push(b'\n');
        let (written, done) = oneshot::channel();
        let line = Line { text, written };
        self.0.send(line).await.map_err(|_| DiskFailed)?;
        done.await.map_err(|_| DiskFailed)
    }
}

fn keep(file: &File, mut lines: mpsc::Receiver<Line>) -> io::Result<()> {
    let mut file = file;
    while let Some(first) = lines.blocking_recv() {
        let mut batch = vec![first];
        while let Ok(line) = lines.try_recv() {
            batch.push(line);
        }
        let text: Vec<u8> = batch
            .iter()
            .flat_map(|line| line.text.iter().copied())
            .collect();
        file.write_all(&text)?;
        file.sync_data()?;
        for line in batch {
            // it may have been cancelled meanwhile
            let _gone = line.written.send(());
        }
    }
    Ok(())
}

/// Reads a ledger; a last line that is not whole was never acted on.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path)?;
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_entered_is_read_back_and_half_a_line_is_not() {
        let path = std::env::temp_dir().join(format!("ledger-{}", std::process::id()));
        let ledger = Ledger::create(&path).unwrap();
        let entries: Vec<Entry> = (1..=3)
            .map(|number| Entry::Emitted {
                at: number,
                key: "k".to_owned(),
                number,
            })
            .collect();
        for entry in &entries {
            ledger.enter(entry).await.unwrap();
        }
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"what\":\"emit").unwrap();
        assert_eq!(read(&path).unwrap(), entries);
        std::fs::remove_file(&path).unwrap();
    }
}
