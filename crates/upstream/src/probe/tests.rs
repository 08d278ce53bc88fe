//! The decision, row by row.

use super::{Body, Verdict, judge};
use crate::fault::Fault;
use crate::testing::frame;
use vestibule_terms::Revision;

const MODERN: Verdict = Verdict::Modern {
    revision: Revision::R2026_07_28,
};
const LEGACY: Verdict = Verdict::Legacy {
    offer: None,
    weak: false,
};
const WEAK: Verdict = Verdict::Legacy {
    offer: None,
    weak: true,
};

fn offers(revision: Revision) -> Verdict {
    Verdict::Legacy {
        offer: Some(revision),
        weak: false,
    }
}

fn verdict(status: u16, message: &str) -> Verdict {
    let frame = frame(&format!(r#"{{"jsonrpc":"2.0","id":"a",{message}}}"#));
    judge(status, &Body::Response(&frame), None)
}

fn error(status: u16, code: i64, data: &str) -> Verdict {
    verdict(
        status,
        &format!(r#""error":{{"code":{code},"message":"x","data":{data}}}"#),
    )
}

/// XT-020 … XT-026, VER-13, case 151: only what a stateless server alone says makes one.
#[test]
fn xt_020_responses_are_judged_by_what_they_say() {
    let result = r#""result":{"supportedVersions":["2025-11-25","2026-07-28","2031-01-01"]}"#;
    assert_eq!(verdict(200, result), MODERN);
    assert_eq!(verdict(200, r#""result":{}"#), LEGACY);
    assert_eq!(
        verdict(
            200,
            r#""result":{"supportedVersions":["2025-03-26","2024-11-05"]}"#
        ),
        offers(Revision::R2025_03_26)
    );
    assert_eq!(
        verdict(200, r#""result":{"supportedVersions":["2031-01-01"]}"#),
        Verdict::Fault(Fault::Incompatible)
    );
    for status in [200, 400, 404, 500, 503, 401] {
        for code in [-32020, -32021] {
            assert_eq!(error(status, code, "null"), MODERN, "{status} {code}");
        }
        assert_eq!(
            error(status, -32022, r#"{"supported":["2026-07-28"]}"#),
            MODERN
        );
    }
    assert_eq!(
        error(400, -32022, r#"{"supported":["2025-06-18"]}"#),
        offers(Revision::R2025_06_18)
    );
    // AMB-31: codes of pre-releases are not trusted by number, versions that they list are
    for code in [-32001, -32003, -32004] {
        assert_eq!(error(400, code, "null"), LEGACY, "{code}");
        assert_eq!(
            error(400, code, r#"{"supported":["2026-07-28"]}"#),
            MODERN,
            "{code}"
        );
    }
}

/// AMB-15, XT-027: -32601 is what servers with a handshake answer, at any status below 500.
#[test]
fn xt_027_method_not_found_is_no_sign_of_a_stateless_server() {
    for status in [200, 400, 404, 405] {
        for code in [-32601, -32600, -32000, -32602] {
            assert_eq!(error(status, code, "null"), LEGACY, "{status} {code}");
        }
    }
}

/// Case 151: authorization, overload and failure say nothing about the era.
#[test]
fn case_151_trouble_says_nothing_about_the_era() {
    for body in [Body::NotJson, Body::OtherJson] {
        assert_eq!(judge(401, &body, None), Verdict::Fault(Fault::Unauthorized));
        assert_eq!(judge(403, &body, None), Verdict::Fault(Fault::Unauthorized));
        assert_eq!(judge(429, &body, None), Verdict::Fault(Fault::Busy(None)));
        assert_eq!(judge(503, &body, None), Verdict::Fault(Fault::Busy(None)));
        assert_eq!(judge(500, &body, None), Verdict::Fault(Fault::Status(500)));
        assert_eq!(judge(502, &body, None), Verdict::Fault(Fault::Status(502)));
    }
    assert_eq!(
        error(500, -32603, "null"),
        Verdict::Fault(Fault::Status(500))
    );
}

/// XT-028: a page of a proxy speaks for legacy only weakly.
#[test]
fn xt_028_an_answer_that_is_no_json_is_weak_evidence() {
    for status in [200, 400, 404, 405, 415] {
        assert_eq!(judge(status, &Body::NotJson, None), WEAK, "{status}");
        assert_eq!(judge(status, &Body::OtherJson, None), LEGACY, "{status}");
    }
}
