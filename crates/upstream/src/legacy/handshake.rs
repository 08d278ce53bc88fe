//! `initialize`: what is offered, and what the answer means (VER-02, VER-03). Pure.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use vestibule_exchange::Profile;
use vestibule_frame::{Frame, json};
use vestibule_terms::Revision;

use crate::ear;
use crate::fault::Fault;

/// Longest session id that is accepted.
const SESSION_ID_MAX: usize = 1024;

/// What an answer to `initialize` means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// The session is open.
    Opened(Arc<Profile>),
    /// Another version has to be offered.
    Offer(Revision),
    /// It cannot be opened.
    Failed(Fault),
}

/// Reads the response to `initialize` that offered `offered`.
pub(crate) fn read(frame: &Frame, offered: Revision, over_http: bool) -> Answered {
    if frame.result().is_none() {
        return refused(frame, offered);
    }
    let version = ear::result_member(frame, "protocolVersion");
    let version = version.as_deref().and_then(json::string);
    let Some(version) = version else {
        return Answered::Failed(Fault::Protocol("initialize_result"));
    };
    let revision = Revision::parse(&version).filter(|revision| !revision.is_modern());
    let Some(revision) = revision else {
        return Answered::Failed(Fault::Incompatible);
    };
    Answered::Opened(Arc::new(profile(frame, revision, over_http)))
}

/// The newest revision with a handshake among `supported`.
pub(crate) fn newest_legacy(supported: &[String]) -> Option<Revision> {
    let known = supported
        .iter()
        .filter_map(|version| Revision::parse(version));
    known.filter(|revision| !revision.is_modern()).max()
}

/// What a result says of its server: of `initialize` and of `server/discover` alike.
pub(crate) fn profile(frame: &Frame, revision: Revision, over_http: bool) -> Profile {
    let capabilities = ear::result_member(frame, "capabilities");
    let capabilities = capabilities.filter(|value| value.first() == Some(&b'{'));
    let instructions = ear::result_member(frame, "instructions");
    let instructions = instructions.as_deref().and_then(json::string);
    Profile {
        revision,
        over_http,
        // copied: a slice would keep the whole answer in memory
        capabilities: capabilities.map_or_else(
            || Bytes::from_static(b"{}"),
            |value| Bytes::copy_from_slice(&value),
        ),
        instructions: instructions.map(std::borrow::Cow::into_owned),
    }
}

fn refused(frame: &Frame, offered: Revision) -> Answered {
    let supported = ear::supported(frame);
    if supported.is_empty() {
        return Answered::Failed(Fault::Protocol("initialize_refused"));
    }
    match newest_legacy(&supported) {
        Some(revision) if revision != offered => Answered::Offer(revision),
        Some(_) | None => Answered::Failed(Fault::Incompatible),
    }
}

/// The session id of a successful answer, if there is one and it can be one (HDR-07, case 114).
pub(crate) fn session_id(value: Option<&HeaderValue>) -> Result<Option<HeaderValue>, Fault> {
    let Some(value) = value else { return Ok(None) };
    let bytes = value.as_bytes();
    let fits = (1..=SESSION_ID_MAX).contains(&bytes.len());
    if !fits || !bytes.iter().all(|byte| (0x21..=0x7e).contains(byte)) {
        return Err(Fault::Protocol("session_id"));
    }
    let mut id = value.clone();
    id.set_sensitive(true);
    Ok(Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::frame;

    fn answer(text: &str) -> Answered {
        read(&frame(text), Revision::NEWEST_LEGACY, true)
    }

    fn version(version: &str) -> Answered {
        answer(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"serverInfo":{{}},"instructions":"a\nb"}}}}"#
        ))
    }

    /// VER-02: every revision with a handshake is accepted, and nothing else.
    #[test]
    fn ver_02_any_known_handshake_revision_is_accepted() {
        for text in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            let Answered::Opened(profile) = version(text) else {
                panic!("{text}")
            };
            assert_eq!(profile.revision.as_str(), text);
            assert_eq!(profile.instructions.as_deref(), Some("a\nb"));
            assert!(profile.offers("tools") && !profile.offers("prompts"));
        }
        for text in ["2026-07-28", "2025-11-26", ""] {
            assert_eq!(
                version(text),
                Answered::Failed(Fault::Incompatible),
                "{text}"
            );
        }
        let none = answer(r#"{"jsonrpc":"2.0","id":1,"result":{"capabilities":{}}}"#);
        assert_eq!(none, Answered::Failed(Fault::Protocol("initialize_result")));
    }

    /// VER-03: an error that names versions leads to one more offer.
    #[test]
    fn ver_03_an_error_that_lists_versions_leads_to_another_offer() {
        let error = |list: &str| {
            answer(&format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32602,"message":"x","data":{{"supported":{list}}}}}}}"#
            ))
        };
        assert_eq!(
            error(r#"["2024-11-05","2025-03-26"]"#),
            Answered::Offer(Revision::R2025_03_26)
        );
        assert_eq!(
            error(r#"["2025-11-25"]"#),
            Answered::Failed(Fault::Incompatible)
        );
        assert_eq!(error(r#"["1.0"]"#), Answered::Failed(Fault::Incompatible));
        assert_eq!(
            error("[]"),
            Answered::Failed(Fault::Protocol("initialize_refused"))
        );
    }

    /// HDR-07, case 114: ids with spaces, of no length or of any length are refused.
    #[test]
    fn case_114_session_ids_are_checked() {
        let id = |text: &str| session_id(Some(&HeaderValue::from_str(text).unwrap()));
        assert_eq!(session_id(None), Ok(None));
        assert_eq!(id("a-~!").unwrap().unwrap(), "a-~!");
        for bad in ["a b", "", "a\tb", &"x".repeat(1025)] {
            assert_eq!(id(bad), Err(Fault::Protocol("session_id")), "{bad:?}");
        }
        let latin = HeaderValue::from_bytes(b"\xe4").unwrap();
        assert!(session_id(Some(&latin)).is_err());
    }
}
