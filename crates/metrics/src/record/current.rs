//! Which request this thread works for right now, so that every log line can name it.
//!
//! A span would say the same and is opened, entered at every poll and formatted for every request,
//! whether or not a line is written; here two pointers change places.

use std::cell::RefCell;

use vestibule_terms::Record;

thread_local! {
    static CURRENT: RefCell<Option<Record>> = const { RefCell::new(None) };
}

/// Gives the id of the request that this thread works for to `read`, if there is one.
pub fn with_current_request_id(read: impl FnOnce(&str)) {
    CURRENT.with_borrow(|current| {
        if let Some(id) = current.as_ref().and_then(Record::request_id) {
            read(id);
        }
    });
}

/// The request of `record` is worked for until the value is dropped, which puts the record back.
pub(crate) struct Working<'a>(&'a mut Option<Record>);

impl<'a> Working<'a> {
    pub(crate) fn on(record: &'a mut Option<Record>) -> Self {
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, record));
        Self(record)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> Option<String> {
        let mut found = None;
        with_current_request_id(|id| found = Some(id.to_owned()));
        found
    }

    fn record(id: &str) -> Option<Record> {
        let record = Record::default();
        record.set_request_id(Box::from(id));
        Some(record)
    }

    #[test]
    fn the_outer_request_is_current_again_after_the_inner_one() {
        let (mut outer, mut inner) = (record("outer"), record("inner"));
        {
            let _outer = Working::on(&mut outer);
            {
                let _inner = Working::on(&mut inner);
                assert_eq!(current().as_deref(), Some("inner"));
            }
            assert_eq!(current().as_deref(), Some("outer"));
        }
        assert_eq!(current(), None);
        assert!(outer.is_some() && inner.is_some());
    }
}
