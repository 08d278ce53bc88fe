//! `store.path/sealing.key`: the key under which handles are sealed when the operator configured
//! none, so that they outlive the process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use vestibule_terms::Secret;

use super::folder::{DiskError, private, refused};
use crate::seal::{Keyring, random};

const FILE: &str = "sealing.key";
/// The id under which handles name it.
const ID: &str = "store";
const NO_KEY: &str = "holds no key of 32 bytes in base64";

/// The key of the folder, made when it is first asked for (mode 0600).
pub(super) fn keyring(folder: &Path) -> Result<Keyring, DiskError> {
    let path = folder.join(FILE);
    if !path.exists() {
        make(folder, &path).map_err(refused(&path))?;
    }
    let secret = read(&path)?;
    Keyring::new(vec![(ID.to_owned(), secret)]).map_err(|_length| wrong(&path, NO_KEY))
}

fn wrong(path: &Path, what: &'static str) -> DiskError {
    DiskError::Key {
        path: path.to_owned(),
        what,
    }
}

/// Written beside and renamed: a key file is whole or not there.
fn make(folder: &Path, path: &Path) -> io::Result<()> {
    let beside = folder.join("sealing.key.new");
    let text = Secret::new(format!("{}\n", STANDARD.encode(random::<32>())));
    let mut file = private().create(true).truncate(true).open(&beside)?;
    file.write_all(text.expose().as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

/// What others can read is no secret; a file that holds no key is not replaced by itself, since
/// every handle sealed under the right one would be refused from then on.
fn read(path: &Path) -> Result<Secret<Vec<u8>>, DiskError> {
    let mut file = File::open(path).map_err(refused(path))?;
    let mode = file.metadata().map_err(refused(path))?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(wrong(path, "is open to others than its owner: chmod 600"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(refused(path))?;
    let text = Secret::new(text);
    let bytes = STANDARD.decode(text.expose().trim());
    bytes.map(Secret::new).map_err(|_what| wrong(path, NO_KEY))
}
