use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use vestibule_frame::Limits;
use vestibule_terms::reject::code;

use super::*;
use crate::testing::{between, initialize, modern_body, plan};

const ALL: Revision = Revision::R2024_11_05;

/// One request to classify.
struct Case {
    verb: Verb,
    headers: Vec<(&'static str, &'static str)>,
    body: Option<String>,
    sse: bool,
    accepts_sse: bool,
    names_sse: bool,
    plan: ServerPlan,
}

fn post(body: &str) -> Case {
    Case {
        body: Some(body.to_owned()),
        ..bare(Verb::POST)
    }
}

fn bare(verb: Verb) -> Case {
    Case {
        verb,
        headers: Vec::new(),
        body: None,
        sse: false,
        accepts_sse: true,
        names_sse: true,
        plan: plan(),
    }
}

impl Case {
    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn version(self, value: &'static str) -> Self {
        self.header("mcp-protocol-version", value)
    }

    fn serving(mut self, first: Revision, last: Revision) -> Self {
        self.plan.revisions = between(first, last);
        self
    }

    fn decide(&self) -> Decision {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        let payload = self.body.as_deref().map(|body| {
            Payload::parse(Bytes::copy_from_slice(body.as_bytes()), &Limits::default()).unwrap()
        });
        classify(&Inquiry {
            verb: &self.verb,
            head: &Head::read(&headers),
            payload: payload.as_ref(),
            sse: self.sse,
            accepts_sse: self.accepts_sse,
            names_sse: self.names_sse,
            plan: &self.plan,
        })
    }

    /// Status and code of the refusal.
    fn refused(&self) -> (u16, i64) {
        let decision = self.decide();
        let Decision::Refused(reject) = &decision else {
            panic!("not refused: {decision:?}")
        };
        (reject.status().as_u16(), reject.code())
    }
}

fn discover() -> Case {
    post(&modern_body("server/discover", "", "")).header("mcp-method", "server/discover")
}

fn list() -> &'static str {
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#
}

const RESPONSE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
const NOTE: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
const MODERN: Decision = Decision::Modern(Revision::R2026_07_28);

/// XT-001, case 146: the header is not judged on initialize.
#[test]
fn xt_001_initialize_opens_a_session_whatever_the_version_header_says() {
    for version in ["2026-07-28", "2025-03-26", "2099-01-01", "x"] {
        let case = post(&initialize("2025-06-18", "{}")).version(version);
        assert_eq!(case.decide(), Decision::Open, "{version}");
    }
}

/// XT-002: a stateless body without the version header.
#[test]
fn xt_002_a_stateless_body_needs_the_version_header() {
    assert_eq!(discover().refused(), (400, code::HEADER_MISMATCH));
    assert_eq!(discover().version("2026-07-28").decide(), MODERN);
}

/// XT-003, AMB-28: the order of the ladder.
#[test]
fn xt_003_the_ladder_is_judged_in_order() {
    let case = post(list()).version("2026-07-28");
    assert_eq!(case.refused(), (400, code::INVALID_PARAMS), "no _meta");
    let other = modern_body("tools/list", "", "").replace("2026-07-28", "2025-11-25");
    let case = post(&other)
        .version("2026-07-28")
        .header("mcp-method", "tools/call");
    assert_eq!(
        case.refused(),
        (400, code::HEADER_MISMATCH),
        "different versions"
    );
    let unknown = modern_body("tools/list", "", "").replace("2026-07-28", "1900-01-01");
    let case = post(&unknown)
        .version("1900-01-01")
        .header("mcp-method", "tools/call");
    assert_eq!(
        case.refused(),
        (400, code::UNSUPPORTED_VERSION),
        "before the other headers"
    );
    let Decision::Refused(reject) = case.decide() else {
        panic!()
    };
    let data = String::from_utf8(reject.data().unwrap().to_vec()).unwrap();
    assert!(
        data.contains("2026-07-28") && data.contains("1900-01-01"),
        "{data}"
    );
    let number = modern_body("tools/list", "", "").replace("\"2026-07-28\"", "7");
    let case = post(&number).version("2026-07-28");
    assert_eq!(
        case.refused(),
        (400, code::INVALID_PARAMS),
        "MET-01: the wrong type"
    );
    let legacy = modern_body("tools/list", "", "").replace("2026-07-28", "2025-11-25");
    let case = post(&legacy).version("2025-11-25");
    assert_eq!(
        case.refused(),
        (400, code::UNSUPPORTED_VERSION),
        "a legacy version per request"
    );
    let case = post(&modern_body("tools/list", "", "")).version("2026-07-28");
    assert_eq!(
        case.refused(),
        (400, code::HEADER_MISMATCH),
        "no Mcp-Method"
    );
}

/// XT-004, case 159: sessions and event ids mean nothing to a stateless request.
#[test]
fn xt_004_a_stale_session_id_does_not_change_the_era() {
    let case = discover()
        .version("2026-07-28")
        .header("mcp-session-id", "stale")
        .header("last-event-id", "1k.x");
    assert_eq!(case.decide(), MODERN);
}

/// XT-005, STA-18, STA-19: GET and DELETE.
#[test]
fn xt_005_get_and_delete_follow_session_then_version() {
    let get = || bare(Verb::GET);
    assert_eq!(
        get().header("mcp-session-id", "s").decide(),
        Decision::Stream
    );
    let stateless = get().version("2026-07-28");
    assert_eq!(
        stateless.decide(),
        Decision::Refused(Reject::MethodNotAllowed { allow: "POST" })
    );
    for version in ["2025-11-25", "2099-01-01"] {
        assert_eq!(
            get().version(version).refused(),
            (400, code::INVALID_REQUEST),
            "{version}"
        );
    }
    let resumed = get().header("last-event-id", "1k1.abc");
    assert_eq!(resumed.refused(), (400, code::INVALID_REQUEST));
    let closed = Decision::Refused(Reject::MethodNotAllowed {
        allow: "POST, GET, DELETE",
    });
    assert_eq!(get().decide(), Decision::SseOpen, "HSE-01");
    assert_eq!(
        get().header("last-event-id", "42").decide(),
        Decision::SseOpen,
        "not an id of ours"
    );
    let curious = Case {
        names_sse: false,
        ..get()
    };
    assert_eq!(curious.decide(), closed, "whoever only looks opens nothing");
    let mut off = get();
    off.plan.http_sse = false;
    assert_eq!(off.decide(), closed, "STA-19");
    let modern_only = get().serving(Revision::R2026_07_28, Revision::R2026_07_28);
    assert_eq!(modern_only.decide(), closed, "nothing to speak on it");
    let blind = Case {
        accepts_sse: false,
        ..get()
    };
    assert_eq!(blind.refused().0, 406);
    let delete = || bare(Verb::DELETE);
    assert_eq!(
        delete().header("mcp-session-id", "s").decide(),
        Decision::End
    );
    assert_eq!(delete().version("2026-07-28").refused().0, 405);
    assert_eq!(delete().refused(), (400, code::INVALID_REQUEST));
}

/// XT-006, XT-513: bodies that stateless clients never send.
#[test]
fn xt_006_arrays_and_responses_are_refused_under_a_modern_header() {
    for body in [format!("[{}]", list()), RESPONSE.to_owned()] {
        let case = post(&body).version("2026-07-28");
        assert_eq!(case.refused(), (400, code::INVALID_REQUEST), "{body}");
    }
    assert_eq!(post(&format!("[{}]", list())).decide(), Decision::Batch);
    assert_eq!(post(RESPONSE).decide(), Decision::Session);
}

/// XT-007: initialize with stateless `_meta` is a stateless request.
#[test]
fn xt_007_initialize_with_stateless_meta_is_a_stateless_request() {
    let case = post(&modern_body("initialize", "", ""))
        .version("2026-07-28")
        .header("mcp-method", "initialize");
    assert_eq!(case.decide(), MODERN);
}

/// XT-008, T21: repeated and listed control headers.
#[test]
fn xt_008_control_headers_occur_once_and_match_exactly() {
    let twice = discover().version("2026-07-28").version("2026-07-28");
    assert_eq!(twice.refused(), (400, code::HEADER_MISMATCH));
    let listed = post(list()).version("2025-11-25, 2026-07-28");
    assert_eq!(
        listed.refused(),
        (400, code::HEADER_MISMATCH),
        "one of them is modern"
    );
    let legacy = post(list()).version("2025-11-25, 2025-06-18");
    assert_eq!(legacy.refused(), (400, code::INVALID_REQUEST));
    let case = post(&modern_body("tools/call", "\"name\":\"t\"", ""))
        .version("2026-07-28")
        .header("mcp-method", "TOOLS/CALL")
        .header("mcp-name", "t");
    assert_eq!(case.refused(), (400, code::HEADER_MISMATCH));
    let names = post(&modern_body("tools/call", "\"name\":\"t\"", ""))
        .version("2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "t")
        .header("mcp-name", "t");
    assert_eq!(names.refused(), (400, code::HEADER_MISMATCH));
}

/// Case 101: headers that a legacy client volunteers are compared too.
#[test]
fn case_101_volunteered_headers_are_compared_in_every_era() {
    let case = post(list()).header("mcp-session-id", "s");
    assert_eq!(case.decide(), Decision::Session);
    assert_eq!(
        case.header("mcp-method", "tools/list").decide(),
        Decision::Session
    );
    let other = post(list())
        .header("mcp-session-id", "s")
        .header("mcp-method", "tools/call");
    assert_eq!(other.refused(), (400, code::HEADER_MISMATCH));
}

/// XT-512, LIF-15: a server of stateless revisions only names its versions.
#[test]
fn xt_512_a_modern_only_server_names_its_versions_to_initialize() {
    let case =
        post(&initialize("2025-06-18", "{}")).serving(Revision::R2026_07_28, Revision::R2026_07_28);
    let expected = Reject::UnsupportedVersion {
        supported: vec!["2026-07-28"],
        requested: "2025-06-18".to_owned(),
    };
    assert_eq!(case.decide(), Decision::Refused(expected));
}

/// XT-512, LIF-16: to a stateless probe a legacy-only server looks as if it had never heard of it.
#[test]
fn xt_512_a_legacy_only_server_answers_probes_plainly() {
    let legacy = |case: Case| case.serving(ALL, Revision::R2025_11_25);
    let plain = (400, code::INVALID_REQUEST);
    assert_eq!(legacy(discover().version("2026-07-28")).refused(), plain);
    assert_eq!(legacy(discover()).refused(), plain);
    assert_eq!(legacy(post(list()).version("2099-01-01")).refused(), plain);
    assert_eq!(
        legacy(post(list()).version("2026-07-28, 2025-11-25")).refused(),
        plain
    );
    let open = legacy(post(&initialize("2026-07-28", "{}")).version("2026-07-28"));
    assert_eq!(open.decide(), Decision::Open);
    let modern_shaped = legacy(post(&modern_body("initialize", "", "")).version("2026-07-28"));
    assert_eq!(
        modern_shaped.decide(),
        Decision::Open,
        "its _meta counts as absent"
    );
    let session = || legacy(post(list()).header("mcp-session-id", "s"));
    assert_eq!(session().version("2026-07-28").decide(), Decision::Session);
    assert_eq!(
        session().version("2099-01-01").refused(),
        plain,
        "step 4 is plain too"
    );
    let mut optional = legacy(post(list()));
    optional.plan.sessions_optional = true;
    assert_eq!(optional.decide(), Decision::Session, "case 116");
    let mut probe = legacy(discover().version("2026-07-28"));
    probe.plan.sessions_optional = true;
    assert_eq!(probe.refused(), plain);
}

/// XT-513, FRM-12, HDR-13: notifications under a modern header.
#[test]
fn xt_513_stateless_notifications_are_accepted_and_ignored() {
    let note = || post(NOTE).version("2026-07-28");
    assert_eq!(note().decide(), Decision::ModernNotification);
    let matching = note().header("mcp-method", "notifications/cancelled");
    assert_eq!(matching.decide(), Decision::ModernNotification);
    let other = note().header("mcp-method", "tools/list");
    assert_eq!(other.refused(), (400, code::HEADER_MISMATCH));
    let unknown = post(r#"{"jsonrpc":"2.0","method":"notifications/foo"}"#).version("2026-07-28");
    assert_eq!(unknown.decide(), Decision::ModernNotification);
    let request = post(r#"{"jsonrpc":"2.0","method":"tools/call"}"#).version("2026-07-28");
    assert_eq!(request.refused(), (400, code::INVALID_REQUEST), "FRM-12");
    assert_eq!(post(NOTE).version("2025-11-25").decide(), Decision::Session);
}

/// XT-543, STA-24: a POST to an address of HTTP+SSE is of that session, whatever its headers and its
/// body say of a version; where the transport is not offered the address leads nowhere.
#[test]
fn xt_543_the_address_says_whose_message_it_is() {
    let addressed = |body: &str| Case {
        sse: true,
        ..post(body)
    };
    let modern = modern_body("tools/list", "", "");
    let batch = format!("[{NOTE}]");
    for body in [
        list(),
        &initialize("2024-11-05", "{}"),
        NOTE,
        &batch,
        &modern,
    ] {
        for version in ["2025-11-25", "2026-07-28", "2099-01-01"] {
            let mut case = addressed(body).version(version);
            assert_eq!(case.decide(), Decision::SsePost, "{version} {body}");
            case.plan.http_sse = false;
            assert_eq!(case.refused(), (404, code::INVALID_REQUEST), "{body}");
        }
    }
    let legacy_only = addressed(list()).serving(Revision::R2024_11_05, Revision::R2025_11_25);
    assert_eq!(legacy_only.decide(), Decision::SsePost);
    let other = addressed(list()).header("mcp-method", "tools/call");
    assert_eq!(other.refused(), (400, code::HEADER_MISMATCH), "case 101");
    let two = addressed(list()).version("2025-11-25, 2025-06-18");
    assert_eq!(two.refused().0, 400, "T21 comes first");
    for verb in [Verb::GET, Verb::DELETE] {
        let case = Case {
            sse: true,
            ..bare(verb)
        };
        assert_eq!(case.refused().0, 405);
    }
}

/// XT-544: a version error lists every served version, newest first.
#[test]
fn xt_544_version_errors_list_all_served_versions() {
    let case = post(list())
        .header("mcp-session-id", "s")
        .version("2099-01-01")
        .serving(Revision::R2025_06_18, Revision::R2026_07_28);
    let expected = Reject::UnsupportedVersion {
        supported: vec!["2026-07-28", "2025-11-25", "2025-06-18"],
        requested: "2099-01-01".to_owned(),
    };
    assert_eq!(case.decide(), Decision::Refused(expected));
}

/// VER-06, VER-07: a known legacy version passes whichever it is, an unknown one does not.
#[test]
fn ver_06_unknown_versions_are_refused_and_known_ones_are_the_sessions_business() {
    for revision in Revision::ALL
        .into_iter()
        .filter(|revision| !revision.is_modern())
    {
        let case = post(list())
            .header("mcp-session-id", "s")
            .version(revision.as_str());
        assert_eq!(case.decide(), Decision::Session);
    }
    let case = post(list())
        .header("mcp-session-id", "s")
        .version("2025-11-26");
    assert_eq!(case.refused(), (400, code::UNSUPPORTED_VERSION));
}

/// Whether a decision is one of those that the verb can lead to.
fn fits(verb: &Verb, decision: &Decision) -> bool {
    match decision {
        Decision::Refused(_) => true,
        Decision::Stream | Decision::SseOpen => verb == Verb::GET,
        Decision::End => verb == Verb::DELETE,
        Decision::Modern(_)
        | Decision::ModernNotification
        | Decision::Open
        | Decision::Session
        | Decision::Batch
        | Decision::SsePost => verb == Verb::POST,
    }
}

proptest::proptest! {
    /// Every combination of what is looked at gets a decision, and one that fits its verb. A server
    /// without stateless revisions never answers with a stateless code (LIF-16).
    #[test]
    fn every_combination_is_decided(
        verb in 0..4usize,
        body in 0..6usize,
        version in 0..6usize,
        served in 0..3usize,
        (sse, session, optional) in proptest::prelude::any::<(bool, bool, bool)>(),
    ) {
        let bodies = [
            list().to_owned(),
            NOTE.to_owned(),
            RESPONSE.to_owned(),
            format!("[{}]", list()),
            initialize("2025-06-18", "{}"),
            modern_body("tools/list", "", ""),
        ];
        let versions =
            ["", "2026-07-28", "2025-11-25", "2099-01-01", "2025-11-25,2026-07-28", "a,b"];
        let served = [
            (ALL, Revision::R2026_07_28),
            (ALL, Revision::R2025_11_25),
            (Revision::R2026_07_28, Revision::R2026_07_28),
        ][served];
        let verb = [Verb::POST, Verb::GET, Verb::DELETE, Verb::PUT][verb].clone();
        let posted = (verb == Verb::POST).then(|| bodies[body].clone());
        let mut case = Case { body: posted, sse, ..bare(verb) }.serving(served.0, served.1);
        case.plan.sessions_optional = optional;
        if version > 0 {
            case = case.version(versions[version]);
        }
        if session {
            case = case.header("mcp-session-id", "s");
        }
        let decision = case.decide();
        proptest::prop_assert!(fits(&case.verb, &decision), "{:?}", decision);
        if let (Decision::Refused(reject), false) = (&decision, case.plan.serves_modern()) {
            proptest::prop_assert!(!(-32022..=-32020).contains(&reject.code()), "{:?}", decision);
        }
    }
}
