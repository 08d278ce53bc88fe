//! Crate directions and owners of outside worlds, as `docs/ARCHITECTURE.md` draws them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Each room and the rooms it may use, in rows: a crate uses only rows above its own.
/// A new edge is a decision: it is made here, in `docs/ARCHITECTURE.md` and in an ADR.
const ROOMS: &[(&str, &[&str])] = &[
    ("terms", &[]),
    ("frame", &["terms"]),
    ("metrics", &["terms"]),
    ("store", &["terms"]),
    ("egress", &["terms"]),
    ("exchange", &["terms", "frame"]),
    ("registry", &["terms", "store", "metrics"]),
    ("listener", &["terms", "metrics"]),
    ("streamlog", &["terms", "frame", "store", "metrics"]),
    ("auth", &["terms", "store", "egress", "metrics"]),
    (
        "catalog",
        &["terms", "frame", "exchange", "store", "registry", "metrics"],
    ),
    (
        "middleware",
        &["terms", "frame", "auth", "store", "metrics"],
    ),
    (
        "upstream",
        &[
            "terms", "frame", "exchange", "auth", "egress", "store", "metrics",
        ],
    ),
    (
        "session",
        &[
            "terms",
            "frame",
            "exchange",
            "store",
            "streamlog",
            "metrics",
        ],
    ),
    (
        "interact",
        &[
            "terms",
            "frame",
            "exchange",
            "store",
            "streamlog",
            "metrics",
        ],
    ),
    (
        "router",
        &["terms", "frame", "exchange", "catalog", "metrics"],
    ),
    (
        "admin",
        &[
            "terms",
            "auth",
            "registry",
            "catalog",
            "store",
            "streamlog",
            "metrics",
        ],
    ),
    ("examples", &["terms", "frame", "listener"]),
    (
        "gateway",
        &[
            "terms",
            "frame",
            "metrics",
            "store",
            "egress",
            "exchange",
            "registry",
            "listener",
            "streamlog",
            "auth",
            "catalog",
            "middleware",
            "upstream",
            "session",
            "interact",
            "router",
            "admin",
            "examples",
        ],
    ),
    ("testkit", &["terms", "frame"]),
    ("loadtests", &["terms", "frame"]),
    ("ledger", &[]),
    ("xtask", &[]),
];

/// The one room that may name each outside world.
const OWNERS: &[(&str, &[&str])] = &[
    ("redis", &["store"]),
    ("redb", &["store"]),
    ("jsonwebtoken", &["auth"]),
    ("oauth2", &["auth"]),
    ("simd-json", &["frame"]),
    ("prometheus", &["metrics"]),
    ("tower_governor", &["middleware"]),
    ("cedar-policy", &["catalog"]),
    ("kube", &["operator"]),
    ("hyper-rustls", &["egress"]),
    ("rmcp", &["testkit"]),
    (
        "anyhow",
        &["gateway", "testkit", "loadtests", "ledger", "xtask"],
    ),
];

/// Rooms whose sources may bind a listening socket (tests aside).
const ACCEPTS: &[&str] = &["listener", "admin", "examples", "testkit", "loadtests"];

/// Checks the workspace; the error names every wrong edge and what to do about it.
pub(crate) fn check(root: &Path) -> Result<String> {
    let packages = packages(root)?;
    let mut wrong = Vec::new();
    for (room, dependencies) in &packages {
        check_room(room, dependencies, &mut wrong);
        check_sockets(root, room, &mut wrong)?;
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    let edges: usize = packages
        .values()
        .map(|dependencies| dependencies.iter().filter(|name| is_ours(name)).count())
        .sum();
    Ok(format!(
        "rooms: {} crates, {edges} edges, all as drawn",
        packages.len()
    ))
}

fn check_room(room: &str, dependencies: &[String], wrong: &mut Vec<String>) {
    let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| name == &room) else {
        wrong.push(format!(
            "{room}: a room that is not drawn: add it to docs/ARCHITECTURE.md"
        ));
        return;
    };
    for dependency in dependencies {
        let ours = dependency.strip_prefix("vestibule-");
        if let Some(used) = ours.filter(|used| !allowed.contains(used)) {
            wrong.push(format!(
                "{room} uses {used}: not an edge of docs/ARCHITECTURE.md; hand the thing over in \
                 gateway/src/app.rs, or move it to a row above both"
            ));
        }
        let owners = OWNERS
            .iter()
            .find(|(world, _)| world == dependency)
            .map(|(_, by)| *by);
        if let Some(owners) = owners.filter(|owners| !owners.contains(&room)) {
            wrong.push(format!(
                "{room} names {dependency}: only {} may",
                owners.join(", ")
            ));
        }
    }
}

fn check_sockets(root: &Path, room: &str, wrong: &mut Vec<String>) -> Result<()> {
    let folder = root.join("crates").join(room).join("src");
    if ACCEPTS.contains(&room) || !folder.is_dir() {
        return Ok(());
    }
    for path in crate::sources(&folder)? {
        let is_test = path.components().any(|part| part.as_os_str() == "tests")
            || path.file_name().is_some_and(|name| name == "tests.rs");
        let text = std::fs::read_to_string(&path)?;
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        if !is_test && code.contains("TcpListener::bind") {
            let shown = path.strip_prefix(root).unwrap_or(&path).display();
            wrong.push(format!(
                "{shown} binds a socket: only {} may",
                ACCEPTS.join(", ")
            ));
        }
    }
    Ok(())
}

fn is_ours(name: &str) -> bool {
    name.starts_with("vestibule-")
}

/// Rooms by folder name, with the names of their normal dependencies.
fn packages(root: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let mut found = BTreeMap::new();
    for package in packages {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let room = manifest
            .parent()
            .and_then(Path::file_name)
            .context("no folder")?;
        let dependencies = package["dependencies"]
            .as_array()
            .context("no dependencies")?;
        let normal = dependencies
            .iter()
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect();
        found.insert(room.to_string_lossy().into_owned(), normal);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The drawing itself has no cycle: every room uses only rooms drawn before it.
    #[test]
    fn rooms_are_drawn_in_rows() {
        for (index, (room, allowed)) in ROOMS.iter().enumerate() {
            for used in *allowed {
                let above = ROOMS[..index].iter().any(|(name, _)| name == used);
                assert!(above, "{room} uses {used}, which is not drawn above it");
            }
        }
    }

    #[test]
    fn a_new_edge_and_a_stolen_world_are_reported() {
        let mut wrong = Vec::new();
        let dependencies = ["vestibule-router".to_owned(), "prometheus".to_owned()];
        check_room("session", &dependencies, &mut wrong);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        check_room("cellar", &[], &mut wrong);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
    }
}
