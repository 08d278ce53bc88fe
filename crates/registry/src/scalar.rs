//! What the texts of the configuration mean: durations, sizes, rates, dates, names. Pure functions
//! whose error is a sentence without the text itself, so that they can be used on secrets too.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// Longest duration that is accepted anywhere.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// So many in that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many; 0 means none.
    pub count: u32,
    /// In how much time; never zero.
    pub per: Duration,
}

impl Rate {
    /// `count` a second.
    pub const fn per_second(count: u32) -> Self {
        Self {
            count,
            per: Duration::from_secs(1),
        }
    }
}

/// `60s`, `2m`, `500ms`; never zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = duration_or_zero(text)?;
    if duration.is_zero() {
        return Err("must be longer than 0".to_owned());
    }
    Ok(duration)
}

/// `60s`, `2m`, `500ms`, `0s`.
pub fn duration_or_zero(text: &str) -> Result<Duration, String> {
    let what = "is not a duration such as 500ms, 60s or 10m";
    let duration = humantime::parse_duration(text).map_err(|_error| what.to_owned())?;
    if duration > LONGEST {
        return Err("is longer than a year".to_owned());
    }
    Ok(duration)
}

/// `4MiB`, `512 KiB`, `1048576`; never zero.
pub fn size(text: &str) -> Result<usize, String> {
    let what = "is not a size such as 512KiB, 4MiB or 1048576";
    let bytes: bytesize::ByteSize = text.parse().map_err(|_error| what.to_owned())?;
    match usize::try_from(bytes.as_u64()) {
        Ok(0) => Err("must be larger than 0".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err("is larger than this machine can address".to_owned()),
    }
}

/// `50/s`, `300/m`, `1000/h`, or `0` for none.
pub fn rate(text: &str) -> Result<Rate, String> {
    let what = || "is not a rate such as 50/s, 300/m or 1000/h".to_owned();
    if text == "0" {
        return Ok(Rate::per_second(0));
    }
    let (count, unit) = text.split_once('/').ok_or_else(what)?;
    let seconds = match unit.trim() {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(what()),
    };
    Ok(Rate {
        count: count.trim().parse().map_err(|_error| what())?,
        per: Duration::from_secs(seconds),
    })
}

/// `true` or `false`.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "True" | "TRUE" => Ok(true),
        "false" | "False" | "FALSE" => Ok(false),
        _ => Err("is neither true nor false".to_owned()),
    }
}

/// A whole number from 0.
pub fn count(text: &str) -> Result<u32, String> {
    let what = "is not a whole number from 0 to 4294967295";
    text.parse().map_err(|_error| what.to_owned())
}

/// `2027-01-01` (the day's beginning in UTC) or an RFC 3339 time in UTC, as milliseconds since
/// the epoch.
pub fn instant(text: &str) -> Result<u64, String> {
    let what = "is not a date such as 2027-01-01 or 2027-01-01T12:00:00Z";
    let day_alone = text.len() == "2027-01-01".len();
    let full = if day_alone {
        format!("{text}T00:00:00Z")
    } else {
        text.to_owned()
    };
    let time = humantime::parse_rfc3339(&full).map_err(|_error| what.to_owned())?;
    let since = time
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|_error| what.to_owned())?;
    u64::try_from(since.as_millis()).map_err(|_error| what.to_owned())
}

/// `10.0.0.0/8`, or one address.
pub fn network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let what = "is not a network such as 10.0.0.0/8 or fd00::/8";
    text.parse::<IpNet>()
        .map(|network| network.trunc())
        .map_err(|_error| what.to_owned())
}

/// A host name, or one with `*.` before it, in lower case.
pub fn name_pattern(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    host_name(name)
        .map(|name| match text.strip_prefix("*.") {
            Some(_) => format!("*.{name}"),
            None => name,
        })
        .map_err(|_what| "is neither a network nor a name such as *.internal".to_owned())
}

/// A host as it may stand in `Host`, without a port: a name or an address; in lower case.
pub fn host_name(text: &str) -> Result<String, String> {
    let what = "is not a host name (no scheme, no port, no path)";
    let host = url::Host::parse(text).map_err(|_error| what.to_owned())?;
    if text.contains(['/', '@', '*']) {
        return Err(what.to_owned());
    }
    Ok(host.to_string())
}

/// An origin a browser sends: scheme, host and port, nothing else. Returned as browsers write it.
pub fn origin(text: &str) -> Result<String, String> {
    let what = "is not an origin such as https://chat.example.com (scheme, host and port alone)";
    let url = url::Url::parse(text).map_err(|_error| what.to_owned())?;
    let origin = url.origin();
    let bare = matches!(url.path(), "/" | "")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
        && !text.ends_with('/');
    if !origin.is_tuple() || !bare {
        return Err(what.to_owned());
    }
    Ok(origin.ascii_serialization())
}

/// An absolute `http` or `https` address without credentials and fragment.
pub fn http_url(text: &str) -> Result<url::Url, String> {
    let url = url::Url::parse(text).map_err(|error| format!("is not an address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("is not an http or https address".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("carries credentials: those belong under `auth`".to_owned());
    }
    if url.fragment().is_some() {
        return Err("carries a fragment (#…), which is never sent".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_name_their_unit() {
        assert_eq!(rate("50/s").unwrap(), Rate::per_second(50));
        assert_eq!(rate("60 / m").unwrap().per, Duration::from_secs(60));
        assert_eq!(rate("0").unwrap().count, 0);
        for bad in ["50", "50/d", "-1/s", "1.5/s", "/s", ""] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_and_durations_are_positive_and_have_units() {
        assert_eq!(size("4MiB").unwrap(), 4 << 20);
        assert_eq!(size("1048576").unwrap(), 1 << 20);
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        for bad in ["", "0", "-1", "4 furlongs"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        for bad in ["", "0s", "60", "-1s", "900y"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_date_alone_is_the_beginning_of_that_day() {
        assert_eq!(instant("1970-01-02").unwrap(), 86_400_000);
        assert_eq!(instant("1970-01-01T00:00:01Z").unwrap(), 1000);
        for bad in ["", "tomorrow", "2027-13-01", "1969-01-01"] {
            assert!(instant(bad).is_err(), "{bad}");
        }
    }

    /// T19: what is configured is one exact origin, written as browsers write it.
    #[test]
    fn t19_origins_are_bare_and_normalised() {
        assert_eq!(
            origin("HTTPS://Chat.Example:443").unwrap(),
            "https://chat.example"
        );
        assert_eq!(origin("http://a.b:8080").unwrap(), "http://a.b:8080");
        for bad in [
            "null",
            "*",
            "https://a.b/",
            "https://a.b/x",
            "https://u@a.b",
            "a.b",
            "data:x",
            "https://a.b?x",
            "file:///x",
        ] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }
}
