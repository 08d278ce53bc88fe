//! A body whose declared size is over the limit is 413 before a byte of it is read. Bodies that
//! declare nothing are capped while they are read (`FrameBody`).

use http::Request;
use http::header::CONTENT_LENGTH;
use vestibule_frame::body::FrameBody;
use vestibule_terms::Reject;

use crate::gate::{Gate, GateLayer};

/// The limit.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    max_body: usize,
}

/// Refuses bodies that declare more than the limit.
pub type SizeLayer = GateLayer<Size>;

impl SizeLayer {
    /// At most `max_body` bytes.
    pub fn new(max_body: usize) -> Self {
        GateLayer(Size { max_body })
    }
}

impl Gate for Size {
    const STAGE: &'static str = "size";

    fn admit(&self, request: &mut Request<FrameBody>) -> Result<(), Reject> {
        let declared = request.headers().get(CONTENT_LENGTH);
        let declared = declared.and_then(|value| value.to_str().ok());
        // The server's parser has already refused lengths that are not numbers; one that does not
        // fit is larger than any limit.
        let length = declared.map(|text| text.trim().parse::<usize>().unwrap_or(usize::MAX));
        let limit = self.max_body;
        match length {
            Some(length) if length > limit => Err(Reject::BodyTooLarge { limit }),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{request, through};

    /// Case 74: a declared size over the limit is 413, before the body, and names the limit.
    #[tokio::test]
    async fn case_74_a_declared_size_over_the_limit_is_413() {
        let layer = SizeLayer::new(1000);
        for (length, status) in [
            ("1000", 200),
            ("1001", 413),
            ("99999999999999999999999999", 413),
        ] {
            let request = request("POST", "/mcp", &[("content-length", length)]);
            let outcome = through(&layer, request).await;
            assert_eq!(outcome.status(), status, "{length}");
            let reason = (status == 413).then_some("body_too_large");
            assert_eq!(outcome.reason(), reason);
        }
        assert_eq!(
            through(&layer, request("POST", "/mcp", &[])).await.status(),
            200
        );
    }
}
