use super::*;

/// Feeds the text in pieces of every size; the verdict must not depend on them. What the library may
/// see, and whether a head is at fault.
fn fault(text: &str) -> Option<(String, u64, bool)> {
    let verdict = |size: usize| {
        let mut framing = Framing::new();
        let mut before = 0;
        for piece in text.as_bytes().chunks(size) {
            if let Some(fault) = framing.follow(piece) {
                return Some((before + fault.seen, fault.request, fault.in_head));
            }
            before += piece.len();
        }
        None
    };
    let whole = verdict(text.len());
    for size in 1..text.len() {
        let pieces = verdict(size);
        let rule = |found: Option<(usize, u64, bool)>| found.map(|(_, at, head)| (at, head));
        assert_eq!(rule(pieces), rule(whole), "{text:?} by {size}");
        if let (Some((seen, _, head)), Some((most, ..))) = (pieces, whole) {
            // of a line at fault the library may have seen a beginning, and never its end
            assert!(seen == most || !head, "{text:?} by {size}");
            let more = text.get(most..seen).unwrap_or_default();
            assert!(!more.contains('\n'), "{text:?} by {size}: {more:?}");
        }
    }
    whole.map(|(seen, request, head)| (text.split_at(seen).0.to_owned(), request, head))
}

fn head(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\n{lines}\r\n\r\n")
}

const CHUNKED: &str =
    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nx: y\r\n\r\n";
const SIZED: &str =
    "POST / HTTP/1.1\r\ncontent-length: 31\r\n\r\na\r\nTransfer-Encoding: chunked\r\n\r\n";
const PLAIN: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
const BOTH: &str = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";

/// T16: heads of which nobody can say where their request ends, first on a connection or later. The
/// library sees the head to its end, and nothing that follows.
#[test]
fn t16_heads_that_can_be_read_in_two_ways_are_refused() {
    let long = format!("content-length: {:0>70}", 31);
    for lines in [
        "Content-Length: 13\r\nTransfer-Encoding: chunked",
        "TRANSFER-ENCODING: chunked\r\nhost: x\r\ncontent-length:0",
        "content-length: 1\r\ntransfer-encoding: identity",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\ncontent-length: 5",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length: 5.0",
        "Content-Length:",
        "Content-Length: 18446744073709551617",
        &long,
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding: chunked;x=1",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding:",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "x: y\r\n folded: z",
        "x: y\r\n\tfolded: z",
        "x: y\nhost: x",
        "x: y\r\nhost: x\n",
    ] {
        let text = format!("{}{PLAIN}", head(lines));
        let head = head(lines);
        for (count, before) in [(0, ""), (0, "\r\n"), (1, CHUNKED), (1, SIZED), (1, PLAIN)] {
            let found = fault(&format!("{before}{text}"));
            let expected = (format!("{before}{head}"), count, true);
            if lines.ends_with('\n') {
                // the empty line is the one that ends in LF alone
                assert!(matches!(found, Some((_, _, true))), "{lines:?}");
                continue;
            }
            assert_eq!(found, Some(expected), "{lines:?} after {before:?}");
        }
    }
}

/// T27: what stands behind a `#` would be dropped from a target.
#[test]
fn t27_a_target_with_a_fragment_is_refused() {
    for target in ["/#x", "/a#", &format!("/{}#x", "a".repeat(100))] {
        let text = format!("{PLAIN}GET {target} HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(fault(&text), Some((text.clone(), 1, true)));
    }
    let elsewhere = "GET / HTTP/1.1\r\nx: #\r\ncontent-length: 1\r\n\r\n#";
    assert_eq!(fault(&format!("{elsewhere}{PLAIN}")), None);
}

/// T16: chunks and trailers of which nobody can say where they end; the library does not see the end
/// of the line that is at fault.
#[test]
fn t16_chunks_that_can_be_read_in_two_ways_are_refused() {
    let start = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
    let long = format!("{:0>70}\r\nhello\r\n", 5);
    for chunks in [
        "5\nhello\r\n",
        "5;x\nhello\r\n",
        "0x5\r\nhello\r\n",
        "+5\r\nhello\r\n",
        "-5\r\nhello\r\n",
        " 5\r\nhello\r\n",
        "5 \r\nhello\r\n",
        "5 5\r\nhello\r\n",
        "5,\r\nhello\r\n",
        "\r\nhello\r\n",
        "zz\r\n",
        "fffffffffffffffff\r\n",
        "ffffffffffffffff\r\n",
        &long,
    ] {
        let found = fault(&format!("{start}{chunks}0\r\n\r\n{PLAIN}"));
        assert_eq!(found, Some((start.to_owned(), 0, false)), "{chunks:?}");
        let before = format!("{PLAIN}{start}3\r\nabc\r\n");
        let found = fault(&format!("{before}{chunks}0\r\n\r\n{PLAIN}"));
        assert_eq!(found, Some((before, 1, false)), "{chunks:?}");
    }
    for trailers in ["x: y\n\n", "\n", "x: y\n\r\n"] {
        let before = format!("{start}0\r\n");
        let found = fault(&format!("{before}{trailers}{PLAIN}"));
        assert_eq!(found, Some((before, 0, false)), "{trailers:?}");
    }
}

#[test]
fn what_every_reader_takes_alike_passes() {
    let sized = format!(
        "POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{BOTH}",
        BOTH.len()
    );
    let chunk = format!("{:x}\r\n{BOTH}\r\n0\r\n\r\n", BOTH.len());
    let chunked = format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{chunk}");
    let mixed = format!("\r\n{CHUNKED}{SIZED}{PLAIN}{CHUNKED}\r\n{PLAIN}");
    let spelt = "POST / HTTP/1.1\r\nTrAnSfEr-EnCoDiNg:\tCHUNKED \r\n\r\n\
                 0005 ; x=\"y\"\r\nhello\r\nA\r\n0123456789\r\n000\r\ncontent-length: 3\r\n\r\n";
    let zeros = "POST / HTTP/1.1\r\nContent-Length: 0000005\r\n\r\nhello";
    let other = "POST / HTTP/1.1\r\nContent_Length: 9\r\nTE: trailers\r\n\r\n";
    let long = format!("GET /{0} HTTP/1.1\r\nx-{0}: {0}\r\n\r\n", "a".repeat(200));
    for text in [&sized, &chunked, &mixed, spelt, zeros, other, &long] {
        for behind in ["", PLAIN] {
            assert_eq!(fault(&format!("{text}{behind}")), None, "{text:?}");
        }
        // and it was followed rightly: a fault behind it is found
        assert!(fault(&format!("{text}{BOTH}")).is_some(), "{text:?}");
    }
}

/// HTTP/2 has no such framing; only the first line of a connection opens it.
#[test]
fn http_2_is_not_followed() {
    let preface = format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{BOTH}");
    assert_eq!(fault(&preface), None);
    assert!(fault(&format!("{PLAIN}{preface}")).is_some());
}
