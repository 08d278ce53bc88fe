//! Reading `Accept` and `Content-Type`, as pure functions.

use http::HeaderMap;
use http::header::ACCEPT;
use vestibule_terms::Accepts;

/// What the client accepts: for each of our two forms the most specific range decides, by whether
/// its weight is zero. Weights and order decide which form it would rather have.
pub fn accepts(headers: &HeaderMap) -> Accepts {
    let mut values = headers.get_all(ACCEPT).iter();
    if values.next().is_some_and(|value| value == USUAL) && values.next().is_none() {
        return Accepts {
            json: true,
            sse: true,
            sse_named: true,
            sse_first: false,
        };
    }
    read(headers)
}

/// What nearly every client sends, so that it is not taken apart for every request.
const USUAL: &str = "application/json, text/event-stream";

fn read(headers: &HeaderMap) -> Accepts {
    let lines = headers.get_all(ACCEPT).iter();
    let ranges: Vec<Range<'_>> = lines
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(Range::parse)
        .collect();
    if ranges.is_empty() {
        return Accepts::ANY;
    }
    let sse = weight(&ranges, "text", "event-stream");
    Accepts {
        json: weight(&ranges, "application", "json").is_some_and(|(_, wanted)| wanted),
        sse: sse.is_some_and(|(_, wanted)| wanted),
        sse_named: sse == Some((EXACT, true)),
        sse_first: prefers_stream(&ranges),
    }
}

/// Whether both forms are named, and the stream weighs more, or as much and stands first.
fn prefers_stream(ranges: &[Range<'_>]) -> bool {
    let named = |kind, subkind| {
        ranges
            .iter()
            .position(|range| range.names(kind, subkind) == Some(EXACT))
    };
    let (Some(stream), Some(json)) = (named("text", "event-stream"), named("application", "json"))
    else {
        return false;
    };
    let (weight, other) = (ranges[stream].weight, ranges[json].weight);
    weight > other || (weight == other && weight > 0 && stream < json)
}

/// How specific a range is that names the type itself.
const EXACT: u8 = 2;

#[derive(Debug, Clone, Copy)]
struct Range<'a> {
    kind: &'a str,
    subkind: &'a str,
    wanted: bool,
    /// In thousandths.
    weight: u16,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';');
        let (kind, subkind) = parts.next()?.trim().split_once('/')?;
        let weight = parts
            .filter_map(|part| part.split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
        // a weight that is no number says nothing
        let weight = weight
            .and_then(|(_, value)| thousandths(value.trim()))
            .unwrap_or(1000);
        Some(Self {
            kind: kind.trim(),
            subkind: subkind.trim(),
            wanted: weight > 0,
            weight,
        })
    }

    /// How specifically this range names the type; absent when it does not.
    fn names(&self, kind: &str, subkind: &str) -> Option<u8> {
        if self.kind == "*" && self.subkind == "*" {
            return Some(0);
        }
        if !self.kind.eq_ignore_ascii_case(kind) {
            return None;
        }
        if self.subkind == "*" {
            return Some(1);
        }
        self.subkind.eq_ignore_ascii_case(subkind).then_some(EXACT)
    }
}

/// A weight in thousandths, at most one.
fn thousandths(text: &str) -> Option<u16> {
    let weight = text.parse::<f32>().ok()?.clamp(0.0, 1.0);
    (0..=1000).find(|thousandths| f32::from(*thousandths) >= weight * 1000.0)
}

/// The most specific word on a type; among equals, a yes wins.
fn weight(ranges: &[Range<'_>], kind: &str, subkind: &str) -> Option<(u8, bool)> {
    let words = ranges
        .iter()
        .filter_map(|range| Some((range.names(kind, subkind)?, range.wanted)));
    words.max()
}

/// Whether a value of `Content-Type` is JSON in UTF-8.
pub fn is_json(content_type: &str) -> bool {
    let mut parts = content_type.split(';');
    let essence = parts.next().unwrap_or_default().trim();
    let mut parameters = parts.filter_map(|part| part.split_once('='));
    let charset = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    let utf_8 = charset.is_none_or(|(_, value)| {
        let value = value.trim().trim_matches('"');
        value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("utf8")
    });
    essence.eq_ignore_ascii_case("application/json") && utf_8
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_usual_header_is_what_reading_makes_of_it() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, HeaderValue::from_static(USUAL));
        assert_eq!(accepts(&headers), read(&headers));
        headers.append(ACCEPT, HeaderValue::from_static("application/json;q=0"));
        assert!(accepts(&headers) == read(&headers) && accepts(&headers) != Accepts::ANY);
    }
}
