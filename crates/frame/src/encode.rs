//! Messages that the gateway writes itself: valid JSON by construction.
//!
//! Raw parts (`result`, `params`, `data`) are JSON text that the caller got from a frame or from
//! another builder; they are put in as they are.

use bytes::Bytes;

use crate::message::Id;
use crate::text;

/// An error response. Without an id the member is left out, never null (FRM-21).
pub fn error(id: Option<&Id>, code: i64, message: &str, data: Option<&[u8]>) -> Bytes {
    let mut out = open(id);
    out.extend_from_slice(b",\"error\":{\"code\":");
    out.extend_from_slice(code.to_string().as_bytes());
    out.extend_from_slice(b",\"message\":");
    text::quote_into(&mut out, message);
    if let Some(data) = data {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(data);
    }
    out.extend_from_slice(b"}}");
    Bytes::from(out)
}

/// A successful response.
pub fn result(id: &Id, result: &[u8]) -> Bytes {
    let mut out = open(Some(id));
    out.extend_from_slice(b",\"result\":");
    close(out, result)
}

/// A request.
pub fn request(id: &Id, method: &str, params: Option<&[u8]>) -> Bytes {
    call(open(Some(id)), method, params)
}

/// A notification.
pub fn notification(method: &str, params: Option<&[u8]>) -> Bytes {
    call(open(None), method, params)
}

/// An array of messages.
pub fn batch(messages: &[Bytes]) -> Bytes {
    let mut out = vec![b'['];
    for message in messages {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(message);
    }
    out.push(b']');
    Bytes::from(out)
}

/// An object of keys and raw values, in order.
pub fn object(members: &[(&str, &[u8])]) -> Bytes {
    let mut out = vec![b'{'];
    for (key, value) in members {
        if out.len() > 1 {
            out.push(b',');
        }
        text::quote_into(&mut out, key);
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.push(b'}');
    Bytes::from(out)
}

/// A message in one line: CR and LF, which valid JSON has only between tokens, are left out.
pub fn single_line(payload: &[Bytes]) -> Bytes {
    if let [whole] = payload
        && memchr::memchr2(b'\r', b'\n', whole).is_none()
    {
        return whole.clone();
    }
    let mut out = Vec::with_capacity(payload.iter().map(Bytes::len).sum());
    payload.iter().for_each(|chunk| push_line(&mut out, chunk));
    Bytes::from(out)
}

/// Appends `chunk` without its CR and LF.
pub(crate) fn push_line(out: &mut Vec<u8>, chunk: &[u8]) {
    let mut from = 0;
    for at in memchr::memchr2_iter(b'\r', b'\n', chunk) {
        out.extend_from_slice(chunk.get(from..at).unwrap_or_default());
        from = at + 1;
    }
    out.extend_from_slice(chunk.get(from..).unwrap_or_default());
}

fn open(id: Option<&Id>) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\"");
    if let Some(id) = id {
        out.extend_from_slice(b",\"id\":");
        out.extend_from_slice(id.as_bytes());
    }
    out
}

fn call(mut out: Vec<u8>, method: &str, params: Option<&[u8]>) -> Bytes {
    out.extend_from_slice(b",\"method\":");
    text::quote_into(&mut out, method);
    if let Some(params) = params {
        out.extend_from_slice(b",\"params\":");
        out.extend_from_slice(params);
    }
    close(out, b"")
}

fn close(mut out: Vec<u8>, last: &[u8]) -> Bytes {
    out.extend_from_slice(last);
    out.push(b'}');
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::{error, notification, request, result, single_line};
    use crate::{Frame, Id, Kind, Limits};
    use bytes::Bytes;

    fn frame(bytes: Bytes) -> Frame {
        Frame::parse(bytes, &Limits::default()).expect("what we write we also read")
    }

    #[test]
    fn frm_21_an_error_without_id_has_no_id_member() {
        let text = error(None, -32600, "bad \"thing\"\n\u{1}", Some(b"{\"a\":[1]}"));
        let expected = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"bad \"thing\"\n\u0001","data":{"a":[1]}}}"#;
        assert_eq!(text, expected);
        let read = frame(text);
        assert_eq!(read.id(), None);
        let parts = read.error_parts().expect("an error");
        assert_eq!(
            (parts.code, &*parts.message),
            (Some(-32600), "bad \"thing\"\n\u{1}")
        );
        assert_eq!(read.text(parts.data.expect("data")), b"{\"a\":[1]}");
    }

    #[test]
    fn frm_04_builders_echo_the_id_token() {
        let id = Id::from_token(Bytes::from_static(br#""\u0061-1""#)).expect("an id");
        assert_eq!(
            result(&id, b"{}"),
            r#"{"jsonrpc":"2.0","id":"\u0061-1","result":{}}"#
        );
        let call = frame(request(&id, "tools/list", Some(b"{}")));
        assert_eq!((call.kind(), call.id()), (Kind::Request, Some(id)));
        let note = frame(notification("notifications/x", None));
        assert_eq!(
            (note.kind(), note.method().as_deref()),
            (Kind::Notification, Some("notifications/x"))
        );
    }

    #[test]
    fn a_single_line_keeps_the_tokens_and_shares_bytes_without_breaks() {
        let pretty = [
            Bytes::from_static(b"{\r\n \"a\":"),
            Bytes::from_static(b"\n1\r}"),
        ];
        assert_eq!(single_line(&pretty), "{ \"a\":1}");
        let plain = Bytes::from_static(b"{}");
        assert_eq!(
            single_line(std::slice::from_ref(&plain)).as_ptr(),
            plain.as_ptr()
        );
    }
}
