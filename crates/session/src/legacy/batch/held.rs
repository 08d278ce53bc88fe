//! What an element of a batch holds until it is over: a record of its own, and its place in the
//! budgets.

use vestibule_frame::Frame;
use vestibule_metrics::MessageRecord;
use vestibule_terms::{InFlight, Record, Reject};

use crate::facts::Facts;
use crate::room::Shared;
use crate::toll::Permit;

/// See the [module](self).
pub(in crate::legacy) struct Held {
    record: MessageRecord,
    admitted: Result<Option<Permit>, Reject>,
    _in_flight: Option<InFlight>,
}

impl Held {
    /// The request was charged once when it came; each `further` element is charged here.
    pub(super) async fn new(shared: &Shared, facts: &Facts, frame: &Frame, further: bool) -> Self {
        let rooms = &shared.rooms;
        let record = MessageRecord::open(&rooms.metrics, &facts.record, frame.bytes().len());
        let admitted = if further {
            (rooms.toll)(&facts.principal, &facts.plan).await.map(Some)
        } else {
            Ok(None)
        };
        Self {
            record,
            admitted,
            _in_flight: None,
        }
    }

    /// The same, with the place of the POST it came in.
    pub(super) fn keeping(self, in_flight: Option<InFlight>) -> Self {
        Self {
            _in_flight: in_flight,
            ..self
        }
    }

    /// The element's record.
    pub(super) fn record(&self) -> &Record {
        self.record.record()
    }

    /// Whether the budgets let it in.
    pub(super) fn admitted(&self) -> Result<(), &Reject> {
        self.admitted.as_ref().map(|_permit| ())
    }

    /// Notes why an element that gets no response was not taken.
    pub(super) fn refused(&self, reject: &Reject) {
        let record = self.record();
        record.set_outcome(reject.outcome());
        record.set_code(reject.code());
        record.set_reason(reject.reason());
    }
}
