//! How a refusal becomes an answer: the one place of this room where a [`Reject`] meets the record
//! and the body type.

use axum::body::Body;
use http::Response;
use vestibule_terms::{Record, Reject};

/// The answer for `refusal`, its outcome, code and reason noted in the record. `id` is the raw token
/// of the request's id where it is known.
pub fn answer(record: &Record, refusal: Reject, id: Option<&[u8]>) -> Response<Body> {
    note(record, &refusal);
    refusal.into_response(id).map(Body::from)
}

/// Notes a refusal in the record.
pub(crate) fn note(record: &Record, refusal: &Reject) {
    record.set_outcome(refusal.outcome());
    record.set_code(refusal.code());
    record.set_reason(refusal.reason());
}

#[cfg(test)]
mod tests {
    use vestibule_terms::Outcome;

    use super::*;

    #[test]
    fn a_refusal_is_noted_once_and_answered() {
        let record = Record::default();
        let response = answer(&record, Reject::OriginRefused, Some(b"7"));
        assert_eq!(response.status(), 403);
        assert_eq!(record.outcome(), Some(&Outcome::Denied));
        assert_eq!(record.code(), Some(&-31006));
        assert_eq!(record.reason(), Some(&"origin"));
    }
}
