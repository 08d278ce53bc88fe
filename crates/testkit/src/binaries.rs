//! The testkit's own programs, for tests of other packages: Cargo tells only a
//! package's own tests where its binaries are.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use anyhow::{Context, ensure};

/// Builds a binary of the testkit, once per process, and says where it is. It
/// goes beside the running test: same target directory, same profile.
///
/// # Errors
///
/// It cannot be built, or the test does not run from a target directory.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut built = BUILT.lock().expect("no holder panics");
    let built = built.get_or_insert_default();
    if let Some(path) = built.get(name) {
        return Ok(path.clone());
    }
    let path = build(name)?;
    built.insert(name.to_owned(), path.clone());
    Ok(path)
}

fn build(name: &str) -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe().context("a test knows its own path")?;
    let profile = test
        .ancestors()
        .find(|folder| folder.join(".fingerprint").is_dir());
    let profile = profile.context("the test does not run from a target directory")?;
    let target = profile
        .parent()
        .context("a profile's folder is in a target directory")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "vestibule-testkit",
        "--bin",
        name,
    ]);
    cargo
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    cargo.arg("--target-dir").arg(target);
    if let Some(profile) = profile
        .file_name()
        .and_then(|folder| folder.to_str())
        .filter(|folder| *folder != "debug")
    {
        cargo.args(["--profile", profile]);
    }
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "cannot build {name}");
    Ok(profile.join(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
}
