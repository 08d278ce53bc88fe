//! `vestibule check`: every mistake of a configuration file, offline.

use std::path::Path;

use vestibule_registry as file;

/// Prints mistakes and warnings, one line each; true when there is no mistake.
pub(super) fn run(path: &Path) -> anyhow::Result<bool> {
    match file::load(path) {
        Ok(checked) => {
            for warning in &checked.warnings {
                super::say(&format!("warning: {warning}"));
            }
            let servers: usize = checked
                .tenants
                .iter()
                .map(|tenant| tenant.servers.len())
                .sum();
            let upstreams: usize = checked
                .tenants
                .iter()
                .map(|tenant| tenant.upstreams.len())
                .sum();
            super::say(&format!(
                "{}: valid: {} tenants, {servers} servers, {upstreams} upstreams",
                path.display(),
                checked.tenants.len(),
            ));
            Ok(true)
        }
        Err(mistakes) => {
            for mistake in &mistakes {
                super::say(&mistake.to_string());
            }
            Ok(false)
        }
    }
}
