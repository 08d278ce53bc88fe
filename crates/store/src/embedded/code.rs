//! How records are written down: fields in order, lengths before what varies.
//!
//! Reading is total: whatever bytes come, the answer is a value or `None`, and no length is
//! believed before that many bytes are there.

use bytes::Bytes;

/// Writes the fields of one record.
#[derive(Debug, Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// A record of this format; another version of the program may know others.
    pub fn new(format: u8) -> Self {
        Self(vec![format])
    }

    /// One byte.
    #[must_use]
    pub fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    /// A number.
    #[must_use]
    pub fn number(self, value: u64) -> Self {
        self.fixed(&value.to_be_bytes())
    }

    /// Bytes whose number is known to the reader.
    #[must_use]
    pub fn fixed(mut self, value: &[u8]) -> Self {
        self.0.extend_from_slice(value);
        self
    }

    /// Bytes with their number before them.
    #[must_use]
    pub fn bytes(self, value: &[u8]) -> Self {
        let length = value.len() as u64;
        self.number(length).fixed(value)
    }

    /// Several texts or messages.
    #[must_use]
    pub fn list<'a>(self, values: impl ExactSizeIterator<Item = &'a [u8]>) -> Self {
        let whole = self.number(values.len() as u64);
        values.fold(whole, Encoder::bytes)
    }

    /// A text or message, or none: a list of it.
    #[must_use]
    pub fn optional(self, value: Option<&[u8]>) -> Self {
        self.list(value.as_slice().iter().copied())
    }

    /// The record.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads the fields of one record.
#[derive(Debug)]
pub struct Decoder(Bytes);

impl Decoder {
    /// A record of that format; `None` for another.
    pub fn new(format: u8, record: Bytes) -> Option<Self> {
        let mut whole = Self(record);
        (whole.byte()? == format).then_some(whole)
    }

    /// Fields without a format before them, as in names.
    pub fn bare(record: Bytes) -> Self {
        Self(record)
    }

    /// One byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    /// A number.
    pub fn number(&mut self) -> Option<u64> {
        self.fixed().map(u64::from_be_bytes)
    }

    /// So many bytes.
    pub fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.as_ref().try_into().ok()
    }

    /// Bytes with their number before them.
    pub fn bytes(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    /// Text with its length before it.
    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// What [`Encoder::list`] wrote.
    pub fn list(&mut self) -> Option<Vec<Bytes>> {
        let mut values = Vec::new();
        for _ in 0..self.number()? {
            values.push(self.bytes()?);
        }
        Some(values)
    }

    /// What [`Encoder::optional`] wrote.
    pub fn optional(&mut self) -> Option<Option<Bytes>> {
        let mut values = self.list()?;
        (values.len() <= 1).then(|| values.pop())
    }

    /// Everything that is left.
    pub fn rest(self) -> Bytes {
        self.0
    }

    /// The end of the record: `None` when something follows.
    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    fn take(&mut self, length: usize) -> Option<Bytes> {
        (length <= self.0.len()).then(|| self.0.split_to(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let record = Encoder::new(1)
            .byte(7)
            .number(u64::MAX)
            .bytes(b"payload")
            .list([&b"a"[..], b""].into_iter())
            .fixed(&[1, 2])
            .finish();
        let mut fields = Decoder::new(1, Bytes::from(record.clone())).unwrap();
        assert_eq!(fields.byte(), Some(7));
        assert_eq!(fields.number(), Some(u64::MAX));
        assert_eq!(fields.bytes().unwrap(), "payload");
        assert_eq!(fields.list().unwrap(), ["a", ""]);
        assert_eq!(fields.fixed(), Some([1, 2]));
        assert_eq!(fields.end(), Some(()));
        assert!(Decoder::new(2, Bytes::from(record)).is_none());
    }

    /// A length is believed only when so many bytes are there.
    #[test]
    fn records_cut_anywhere_are_refused() {
        let record = Bytes::from(Encoder::new(1).bytes(b"payload").finish());
        for cut in 0..record.len() {
            let read = Decoder::new(1, record.slice(..cut)).and_then(|mut fields| fields.bytes());
            assert_eq!(read, None, "{cut}");
        }
        let huge = Encoder::new(1).number(u64::MAX).finish();
        let mut fields = Decoder::new(1, Bytes::from(huge.clone())).unwrap();
        assert_eq!(fields.bytes(), None);
        let mut fields = Decoder::new(1, Bytes::from(huge)).unwrap();
        assert_eq!(fields.list(), None);
    }
}
