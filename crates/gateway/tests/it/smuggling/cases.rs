//! The corpus: requests as an attacker writes them, byte for byte.
//!
//! Every case carries, or hides, a second call marked `smuggled`. It counts as smuggled when it reaches
//! the upstream although the bytes do not make it a request of its own for every reader.

use super::Want::{self, Answered, Refused, Silent};

/// One case.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    pub(super) want: Want,
}

/// The body of a call.
fn body(mark: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"mark":"{mark}"}},{}}}}}"#,
        crate::talk::META
    )
}

const FIELDS: &str = "Host: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n";

/// A head that says how long its body is in these lines, and the body.
fn post(lines: &str, body: &str) -> Vec<u8> {
    format!("POST /mcp/t/up HTTP/1.1\r\n{FIELDS}{lines}\r\n\r\n{body}").into_bytes()
}

/// The hidden call, in good form.
fn smuggled() -> String {
    let body = body("smuggled");
    let length = body.len();
    format!("POST /mcp/t/up HTTP/1.1\r\n{FIELDS}Content-Length: {length}\r\n\r\n{body}")
}

/// A good body in chunks.
fn chunked(mark: &str) -> String {
    let body = body(mark);
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// `$n` is the length of the good body.
fn sized(lines: &str) -> Vec<u8> {
    let good = body("good");
    let lines = lines.replace("$n", &good.len().to_string());
    post(&lines, &format!("{good}{}", smuggled()))
}

/// A head with these lines and a chunked body, then the hidden call.
fn in_chunks(lines: &str) -> Vec<u8> {
    post(lines, &format!("{}{}", chunked("good"), smuggled()))
}

/// A chunked request whose chunks are written like this; `$n` is the size of the good body in
/// hexadecimal, `$b` the body.
fn chunks(text: &str) -> Vec<u8> {
    let good = body("good");
    let text = text
        .replace("$n", &format!("{:x}", good.len()))
        .replace("$b", &good)
        .replace("$s", &smuggled());
    post("Transfer-Encoding: chunked", &text)
}

/// A good request with another first line, then the hidden call.
fn started(line: &str) -> Vec<u8> {
    let good = body("good");
    let length = good.len();
    let head = format!("{line}\r\n{FIELDS}Content-Length: {length}\r\n\r\n{good}");
    format!("{head}{}", smuggled()).into_bytes()
}

fn case(name: &'static str, bytes: Vec<u8>, want: Want) -> Case {
    Case { name, bytes, want }
}

/// All cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = lengths();
    cases.extend(codings());
    cases.extend(both());
    cases.extend(chunk_forms());
    cases.extend(lines());
    cases.extend(first_lines());
    cases.extend(switches());
    cases
}

/// `Content-Length` alone.
fn lengths() -> Vec<Case> {
    let long = format!("Content-Length: {:0>80}", body("good").len());
    let mut cases: Vec<Case> = [
        (
            "two lengths that differ",
            "Content-Length: $n\r\nContent-Length: 0",
        ),
        (
            "two lengths that differ, the short one first",
            "Content-Length: 0\r\nContent-Length: $n",
        ),
        (
            "the same length twice",
            "Content-Length: $n\r\nContent-Length: $n",
        ),
        ("a list of lengths", "Content-Length: $n, $n"),
        ("a list of lengths that differ", "Content-Length: 0, $n"),
        ("a length with a plus", "Content-Length: +$n"),
        ("a length below zero", "Content-Length: -$n"),
        ("a length in hexadecimal", "Content-Length: 0x$n"),
        ("a length with a blank within", "Content-Length: 1 $n"),
        ("a length with a dot", "Content-Length: $n.0"),
        ("a length with an exponent", "Content-Length: $ne0"),
        ("a length with an underscore", "Content-Length: 1_$n"),
        ("a length in quotes", "Content-Length: \"$n\""),
        ("a length of nothing", "Content-Length:"),
        ("a length with a comment", "Content-Length: $n;x"),
        (
            "a length that overflows",
            "Content-Length: 18446744073709551616",
        ),
        (
            "a length that wraps",
            "Content-Length: 18446744073709552000",
        ),
        ("a length in other digits", "Content-Length: \u{665}"),
        ("a blank before the colon", "Content-Length : $n"),
        ("a tab before the colon", "Content-Length\t: $n"),
        ("a name that is folded", "Content-\r\n Length: $n"),
        ("a value that is folded", "Content-Length:\r\n $n"),
        ("a length behind a fold", "X: y\r\n Content-Length: $n"),
        ("a form feed before the length", "Content-Length: \u{c}$n"),
    ]
    .map(|(name, lines)| case(name, sized(lines), Refused))
    .into();
    cases.push(case("a length of too many zeros", sized(&long), Refused));
    cases.extend([
        case(
            "a length with leading zeros",
            sized("Content-Length: 000$n"),
            Answered(2),
        ),
        case(
            "blanks around a length",
            sized("Content-Length: \t $n \t"),
            Answered(2),
        ),
        case(
            "an alias with an underscore",
            sized("Content_Length: 0\r\nContent-Length: $n"),
            Answered(2),
        ),
        case(
            "a length that does not end",
            post("Content-Length: 9999", &smuggled()),
            Silent,
        ),
        case(
            "no length at all: the body is the next request",
            post("X: y", &smuggled()),
            Answered(1),
        ),
    ]);
    cases
}

/// `Transfer-Encoding` alone.
fn codings() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        ("another coding before", "Transfer-Encoding: gzip, chunked"),
        ("another coding behind", "Transfer-Encoding: chunked, gzip"),
        ("identity behind", "Transfer-Encoding: chunked, identity"),
        ("identity alone", "Transfer-Encoding: identity"),
        ("chunked twice", "Transfer-Encoding: chunked, chunked"),
        (
            "chunked in two headers",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        ),
        (
            "identity in a second header",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        ),
        (
            "nonsense in a second header",
            "Transfer-Encoding: chunked\r\nTransfer-encoding: cow",
        ),
        (
            "nonsense in a first header",
            "Transfer-Encoding: cow\r\nTransfer-encoding: chunked",
        ),
        ("an empty element", "Transfer-Encoding: ,chunked"),
        ("a comma behind", "Transfer-Encoding: chunked,"),
        ("a parameter", "Transfer-Encoding: chunked;q=1"),
        ("quotes", "Transfer-Encoding: \"chunked\""),
        ("single quotes", "Transfer-Encoding: 'chunked'"),
        ("a prefix", "Transfer-Encoding: xchunked"),
        ("a suffix", "Transfer-Encoding: chunkedx"),
        ("no value", "Transfer-Encoding:"),
        ("a vertical tab", "Transfer-Encoding: \u{b}chunked"),
        ("a form feed", "Transfer-Encoding: chunked\u{c}"),
        ("a NUL", "Transfer-Encoding: chunked\0"),
        ("a no-break space", "Transfer-Encoding: \u{a0}chunked"),
        ("a blank before the colon", "Transfer-Encoding : chunked"),
        ("a tab before the colon", "Transfer-Encoding\t: chunked"),
        (
            "a blank before the name",
            "X: y\r\n Transfer-Encoding: chunked",
        ),
        ("a folded value", "Transfer-Encoding:\r\n chunked"),
        ("behind a bare CR", "X: y\rTransfer-Encoding: chunked"),
        ("behind a bare LF", "X: y\nTransfer-Encoding: chunked"),
    ]
    .map(|(name, lines)| case(name, in_chunks(lines), Refused))
    .into();
    cases.extend([
        case(
            "another case",
            in_chunks("tRANSFER-eNCODING: CHUNKED"),
            Answered(2),
        ),
        case(
            "a tab behind the colon",
            in_chunks("Transfer-Encoding:\tchunked "),
            Answered(2),
        ),
    ]);
    cases
}

/// Both at once: CL.TE and TE.CL, and a coding that one of two readers does not see.
fn both() -> Vec<Case> {
    let hidden = smuggled();
    let within = format!("0\r\n\r\n{hidden}");
    let length = within.len();
    let mut cases = Vec::new();
    for (name, lines) in [
        (
            "CL.TE",
            format!("Content-Length: {length}\r\nTransfer-Encoding: chunked"),
        ),
        (
            "TE.CL",
            format!("Transfer-Encoding: chunked\r\nContent-Length: {length}"),
        ),
        (
            "CL.TE with a length of nothing",
            "Content-Length: 0\r\nTransfer-Encoding: chunked".to_owned(),
        ),
        (
            "TE.CL with a short length",
            "Transfer-Encoding: chunked\r\nContent-Length: 3".to_owned(),
        ),
        (
            "CL.TE in other cases",
            format!("content-length: {length}\r\nTRANSFER-ENCODING: Chunked"),
        ),
        (
            "CL.TE with identity",
            format!("Content-Length: {length}\r\nTransfer-Encoding: identity"),
        ),
        (
            "CL.TE with a tab",
            format!("Content-Length: {length}\r\nTransfer-Encoding:\tchunked"),
        ),
        (
            "CL.TE with a prefix",
            format!("Content-Length: {length}\r\nTransfer-Encoding: xchunked"),
        ),
        (
            "CL.TE far apart",
            format!(
                "Content-Length: {length}\r\n{}Transfer-Encoding: chunked",
                "X: y\r\n".repeat(60)
            ),
        ),
        (
            "CL.TE behind a long line",
            format!(
                "Content-Length: {length}\r\nX: {}\r\nTransfer-Encoding: chunked",
                "y".repeat(4_000)
            ),
        ),
    ] {
        cases.push(case(name, post(&lines, &within), Refused));
    }
    let te = format!("{}{}", body("good"), smuggled());
    let length = body("good").len();
    cases.extend([
        case(
            "an alias of the coding",
            post(
                &format!("Content-Length: {length}\r\nTransfer_Encoding: chunked"),
                &te,
            ),
            Answered(2),
        ),
        case(
            "TE instead of the coding",
            post(&format!("Content-Length: {length}\r\nTE: chunked"), &te),
            Answered(2),
        ),
    ]);
    cases
}

/// How chunks are written.
fn chunk_forms() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        ("a size with 0x", "0x$n\r\n$b\r\n0\r\n\r\n$s"),
        ("a size with a plus", "+$n\r\n$b\r\n0\r\n\r\n$s"),
        ("a size below zero", "-$n\r\n$b\r\n0\r\n\r\n$s"),
        ("a size with an underscore", "0_$n\r\n$b\r\n0\r\n\r\n$s"),
        ("a blank before a size", " $n\r\n$b\r\n0\r\n\r\n$s"),
        ("a blank behind a size", "$n \r\n$b\r\n0\r\n\r\n$s"),
        ("a size that overflows", "10000000000000000\r\n$b\r\n0\r\n\r\n$s"),
        ("a size that wraps", "ffffffffffffffff\r\n$b\r\n0\r\n\r\n$s"),
        ("a size of too many zeros", "000000000000000000000000000000000000000000000000000000000000000000000$n\r\n$b\r\n0\r\n\r\n$s"),
        ("no size", "\r\n$b\r\n0\r\n\r\n$s"),
        ("a size that ends in LF", "$n\n$b\r\n0\r\n\r\n$s"),
        ("a size that ends in CR", "$n\r$b\r\n0\r\n\r\n$s"),
        ("an extension with LF", "$n;x\n$b\r\n0\r\n\r\n$s"),
        ("an extension with CR", "$n;x\ry\r\n$b\r\n0\r\n\r\n$s"),
        ("no line end behind data", "$n\r\n$b0\r\n\r\n$s"),
        ("LF behind data", "$n\r\n$b\n0\r\n\r\n$s"),
        ("CR behind data", "$n\r\n$b\r0\r\n\r\n$s"),
        ("more data than size", "1\r\n$b\r\n0\r\n\r\n$s"),
        ("a last chunk that ends in LF", "$n\r\n$b\r\n0\n\r\n$s"),
        ("an end that is LF", "$n\r\n$b\r\n0\r\n\n$s"),
        ("trailers that end in LF", "$n\r\n$b\r\n0\r\nx: y\n\n$s"),
        ("trailers that are none", "$n\r\n$b\r\n0\r\n$s"),
    ]
    .map(|(name, text)| case(name, chunks(text), Refused))
    .into();
    cases.extend([
        case("an extension", chunks("$n;x=\"y\"\r\n$b\r\n0;z\r\n\r\n$s"), Answered(2)),
        case("leading zeros of a size", chunks("0000$n\r\n$b\r\n000\r\n\r\n$s"), Answered(2)),
        case("trailers that look like framing", chunks("$n\r\n$b\r\n0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\nAuthorization: Bearer z\r\n\r\n$s"), Answered(2)),
        case("a chunk that does not end", chunks("ffff\r\n$b\r\n0\r\n\r\n$s"), Silent),
    ]);
    cases
}

/// Header lines.
fn lines() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        ("a NUL in a value", "X: a\0b\r\nContent-Length: $n"),
        ("a NUL in a name", "X\0Y: a\r\nContent-Length: $n"),
        (
            "a bare CR in a value",
            "X: a\rContent-Length: 0\r\nContent-Length: $n",
        ),
        ("a bare LF in a value", "X: a\nContent-Length: $n"),
        ("CR CR LF", "X: a\r\r\nContent-Length: $n"),
        ("a line without a colon", "Xa\r\nContent-Length: $n"),
        ("a line without a name", ": a\r\nContent-Length: $n"),
        ("a blank in a name", "X Y: a\r\nContent-Length: $n"),
        (
            "a name in other letters",
            "X\u{e9}: a\r\nContent-Length: $n",
        ),
        ("a DEL in a name", "X\u{7f}: a\r\nContent-Length: $n"),
        ("a head that ends in LF", "Content-Length: $n\r\nX: y\n"),
    ]
    .map(|(name, lines)| case(name, sized(lines), Refused))
    .into();
    // refused, but everyone knows where it ends: what follows is a request of its own
    cases.push(case(
        "a second Host",
        sized("Host: other\r\nContent-Length: $n"),
        Answered(1),
    ));
    cases
}

/// Request lines.
fn first_lines() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        ("a tab between the parts", "POST\t/mcp/t/up\tHTTP/1.1"),
        ("no version", "POST /mcp/t/up"),
        ("a version of its own", "POST /mcp/t/up HTTP/1.2"),
        ("version 2 in the line", "POST /mcp/t/up HTTP/2.0"),
        ("a version in lower case", "POST /mcp/t/up http/1.1"),
        ("something behind the version", "POST /mcp/t/up HTTP/1.1 x"),
        ("a blank in the target", "POST /mcp/t/up x HTTP/1.1"),
        ("a NUL in the target", "POST /mcp/t/up\0 HTTP/1.1"),
        ("a NUL in the method", "PO\0ST /mcp/t/up HTTP/1.1"),
        ("a blank before the method", " POST /mcp/t/up HTTP/1.1"),
        (
            "a header in the line",
            "POST /mcp/t/up HTTP/1.1\nContent-Length: 0",
        ),
    ]
    .map(|(name, line)| case(name, started(line), Refused))
    .into();
    cases.extend([
        case(
            "another authority in the target",
            started("POST http://other.example/mcp/t/up HTTP/1.1"),
            Answered(1),
        ),
        case(
            "empty lines before",
            started("\r\n\r\nPOST /mcp/t/up HTTP/1.1"),
            Answered(2),
        ),
        case(
            "the authority in the target",
            started("POST http://127.0.0.1/mcp/t/up HTTP/1.1"),
            Answered(2),
        ),
    ]);
    cases
}

/// Other protocols and other methods.
fn switches() -> Vec<Case> {
    let good = body("good");
    let length = good.len();
    let then = |lines: &str| {
        post(
            &format!("Content-Length: {length}\r\n{lines}"),
            &format!("{good}{}", smuggled()),
        )
    };
    let hidden = smuggled();
    let get = |method: &str, target: &str| {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        );
        format!("{head}Content-Length: {}\r\n\r\n{hidden}", hidden.len()).into_bytes()
    };
    vec![
        case(
            "an upgrade to h2c",
            then(
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
            ),
            Answered(2),
        ),
        case(
            "an upgrade to a websocket",
            then("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x"),
            Answered(2),
        ),
        case(
            "an upgrade to anything",
            then("Connection: Upgrade\r\nUpgrade: x"),
            Answered(2),
        ),
        case(
            "headers that a hop should drop",
            then("Connection: Content-Length, Host, Mcp-Name, Authorization"),
            Answered(1),
        ),
        case("an expectation", then("Expect: 100-continue"), Answered(2)),
        case(
            "an unknown expectation",
            then("Expect: something"),
            Answered(2),
        ),
        case("two good requests at once", then("X: y"), Answered(2)),
        case(
            "a call hidden in the body of a GET",
            get("GET", "/mcp/t/up?sse=x"),
            Answered(0),
        ),
        case(
            "a call hidden in the body of a DELETE",
            get("DELETE", "/mcp/t/up"),
            Answered(0),
        ),
        case(
            "a call hidden in the body of an OPTIONS",
            get("OPTIONS", "/mcp/t/up"),
            Answered(0),
        ),
        case(
            "a call hidden in the body of nothing",
            get("POST", "/nowhere"),
            Answered(0),
        ),
        case(
            "a call hidden behind a CONNECT",
            get("CONNECT", "127.0.0.1:80"),
            Answered(0),
        ),
        case(
            "the preface of HTTP/2 behind a request",
            post(
                &format!("Content-Length: {length}"),
                &format!("{good}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{hidden}"),
            ),
            Answered(1),
        ),
        case(
            "half a preface",
            format!("PRI * HTTP/2.0\r\nContent-Length: 0\r\n\r\n{hidden}").into_bytes(),
            Refused,
        ),
    ]
}
