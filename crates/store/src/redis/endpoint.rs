//! The forms of URL, read. Errors never repeat the URL, which holds the password.

use vestibule_terms::Secret;

/// What the servers at the addresses are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// The server.
    Single,
    /// Sentinels that know the primary of that name.
    Sentinel {
        /// The name.
        master: String,
    },
    /// Some nodes of a cluster.
    Cluster,
}

/// A user, who may be the default one, and a password.
#[derive(Debug, Clone, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret<String>>,
}

/// A URL, taken apart.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) form: Form,
    pub(super) tls: bool,
    pub(super) addresses: Vec<(String, u16)>,
    pub(super) login: Login,
    /// That of the sentinels themselves.
    pub(super) sentinel_login: Login,
    pub(super) database: i64,
}

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

impl Endpoint {
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = url.split_once("://").ok_or("has no scheme")?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Login::parse(login)?, hosts),
            None => (Login::default(), authority),
        };
        let tls = scheme.starts_with("rediss");
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let (form, port) = match scheme {
            "redis" | "rediss" => (Form::Single, PORT),
            "redis-cluster" | "rediss-cluster" => (Form::Cluster, PORT),
            "redis-sentinel" | "rediss-sentinel" => {
                let master = parts.next().ok_or("does not name the primary")?;
                let master = decoded(master)?;
                (Form::Sentinel { master }, SENTINEL_PORT)
            }
            _ => return Err("has an unknown scheme"),
        };
        let database = parts.next().map_or(Ok(0), str::parse);
        let database = database.map_err(|_no_number| "has a database that is no number")?;
        let addresses = addresses(hosts, port)?;
        if form == Form::Cluster && database != 0 {
            return Err("names a database, and clusters have only one");
        }
        if form == Form::Single && addresses.len() > 1 {
            return Err("names several servers that are neither sentinels nor a cluster");
        }
        if parts.next().is_some() || database < 0 {
            return Err("has a path that says nothing");
        }
        let sentinel_login = options(query, &form)?;
        Ok(Self {
            form,
            tls,
            addresses,
            login,
            sentinel_login,
            database,
        })
    }
}

impl Login {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let some = |text: String| (!text.is_empty()).then_some(text);
        Ok(Self {
            user: some(decoded(user)?),
            password: some(decoded(password)?).map(Secret::new),
        })
    }
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<(String, u16)>, &'static str> {
    hosts.split(',').map(|host| address(host, port)).collect()
}

/// `host`, `host:port`, and with brackets an address of IPv6.
fn address(text: &str, default: u16) -> Result<(String, u16), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("has an open bracket")?;
            (host, after.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err("names no host");
    }
    let port = port.map_or(Ok(default), str::parse);
    let port = port.map_err(|_no_number| "has a port that is no number")?;
    Ok((host.to_owned(), port))
}

fn options(query: &str, form: &Form) -> Result<Login, &'static str> {
    let mut login = Login::default();
    for option in query.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option
            .split_once('=')
            .ok_or("has an option without a value")?;
        let value = decoded(value)?;
        match (name, form) {
            ("sentinel_user", Form::Sentinel { .. }) => login.user = Some(value),
            ("sentinel_password", Form::Sentinel { .. }) => {
                login.password = Some(Secret::new(value));
            }
            _ => return Err("has an unknown option"),
        }
    }
    Ok(login)
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> Result<String, &'static str> {
    const WRONG: &str = "is not percent-encoded as it should be";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || (rest.next()? as char).to_digit(16);
        let (high, low) = digit().zip(digit()).ok_or(WRONG)?;
        bytes.push(u8::try_from(high * 16 + low).map_err(|_no_byte| WRONG)?);
    }
    String::from_utf8(bytes).map_err(|_no_text| WRONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Endpoint {
        Endpoint::parse(url).unwrap()
    }

    #[test]
    fn a_single_server() {
        let plain = parse("redis://localhost");
        assert_eq!(plain.addresses, [("localhost".to_owned(), 6379)]);
        assert_eq!(
            (plain.form, plain.tls, plain.database),
            (Form::Single, false, 0)
        );
        let full = parse("rediss://us%40er:p%3A%2f%25w@[::1]:7000/3");
        assert_eq!(full.addresses, [("::1".to_owned(), 7000)]);
        assert_eq!((full.tls, full.database), (true, 3));
        assert_eq!(full.login.user.as_deref(), Some("us@er"));
        assert_eq!(full.login.password.unwrap().expose(), "p:/%w");
        let no_user = parse("redis://:secret@host:1/").login;
        assert_eq!(no_user.user, None);
        assert_eq!(no_user.password.unwrap().expose(), "secret");
    }

    #[test]
    fn sentinels_and_clusters() {
        let url = "redis-sentinel://u:p@a,b:7,c/main/2?sentinel_user=s&sentinel_password=q%3f";
        let sentinels = parse(url);
        let master = "main".to_owned();
        assert_eq!(sentinels.form, Form::Sentinel { master });
        let at = |host: &str, port| (host.to_owned(), port);
        assert_eq!(
            sentinels.addresses,
            [at("a", 26379), at("b", 7), at("c", 26379)]
        );
        assert_eq!(sentinels.database, 2);
        assert_eq!(sentinels.sentinel_login.user.as_deref(), Some("s"));
        assert_eq!(sentinels.sentinel_login.password.unwrap().expose(), "q?");
        let cluster = parse("rediss-cluster://a,b:7");
        assert_eq!((cluster.form, cluster.tls), (Form::Cluster, true));
        assert_eq!(cluster.addresses, [at("a", 6379), at("b", 7)]);
    }

    #[test]
    fn t69_a_wrong_url_is_refused_and_its_password_not_shown() {
        for url in [
            "",
            "localhost",
            "http://:hunter2@host",
            "redis://:hunter2@",
            "redis://:hunter2@host:port",
            "redis://:hunter2@a,b",
            "redis://:hunter2@host/x",
            "redis://:hunter2@host/-1",
            "redis://:hunter2@host/1/2",
            "redis://:hunter2@host?sentinel_user=x",
            "redis://:hunter2%4@host",
            "redis://:hunter2%ff@host",
            "redis://:hunter2@[::1",
            "redis-sentinel://:hunter2@host",
            "redis-cluster://:hunter2@host/1",
        ] {
            let error = Endpoint::parse(url).unwrap_err();
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
        let shown = format!("{:?}", parse("redis://u:hunter2@host"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
