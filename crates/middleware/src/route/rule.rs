//! The grammar of addresses.

/// The default tenant and the default server of every tenant.
const DEFAULT: &str = "default";

/// A tenant and one of its servers, as the path names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The server.
    pub server: &'a str,
}

/// The address that `path` is, if it is one.
pub fn address(path: &str) -> Option<Address<'_>> {
    let rest = path.strip_prefix("/mcp")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() {
        return Some(Address {
            tenant: DEFAULT,
            server: DEFAULT,
        });
    }
    let rest = rest.strip_prefix('/')?;
    let (tenant, server) = rest.split_once('/').unwrap_or((rest, DEFAULT));
    (is_label(tenant) && is_label(server)).then_some(Address { tenant, server })
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}
