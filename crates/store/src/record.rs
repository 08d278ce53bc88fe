//! The parts of a session, written down: by the embedded form and by the one over Redis.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use vestibule_terms::{Revision, ServerId};

use crate::{Decoder, Encoder, Opening, State};

impl Opening {
    pub(crate) fn encode(&self, record: Encoder) -> Encoder {
        record
            .bytes(self.server.as_str().as_bytes())
            .bytes(self.revision.as_str().as_bytes())
            .bytes(&self.capabilities)
            .bytes(&self.client_info)
            .number(self.created)
    }

    /// Reads what [`Opening::encode`] wrote.
    pub(crate) fn decode(record: &mut Decoder) -> Option<Self> {
        Some(Self {
            server: ServerId::new(&record.text()?).ok()?,
            revision: Revision::parse(&record.text()?)?,
            capabilities: record.bytes()?,
            client_info: record.bytes()?,
            created: record.number()?,
        })
    }
}

impl State {
    pub(crate) fn encode(&self, record: Encoder) -> Encoder {
        let level: Vec<_> = self
            .log_level
            .iter()
            .map(|level| level.as_bytes())
            .collect();
        let subscriptions = self.subscriptions.iter().map(|uri| uri.as_bytes());
        record
            .byte(u8::from(self.initialized))
            .list(level.into_iter())
            .list(subscriptions)
            .number(self.next_question)
    }

    /// Reads what [`State::encode`] wrote.
    pub(crate) fn decode(record: &mut Decoder) -> Option<Self> {
        Some(Self {
            initialized: record.byte()? != 0,
            log_level: texts(record.list()?)?.pop_first(),
            subscriptions: texts(record.list()?)?,
            next_question: record.number()?,
        })
    }
}

fn texts(values: Vec<Bytes>) -> Option<BTreeSet<Arc<str>>> {
    let text = |value: Bytes| std::str::from_utf8(&value).ok().map(Arc::from);
    values.into_iter().map(text).collect()
}
