//! The bounds of FRM-23 and MET-08 that the scanner enforces. The size of a whole body is not among
//! them: it is capped while it is read, see [`crate::body`].

/// The deepest nesting that any configuration can allow; the scanner's stack has this many bits.
pub const DEPTH_CEILING: u16 = 1024;

/// What one message may hold. The defaults are those of the documented configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Nesting of objects and arrays, the envelope counted; never more than [`DEPTH_CEILING`].
    pub depth: u16,
    /// Members of one envelope object (top level, `params`, `_meta`).
    pub members: u16,
    /// Bytes of one number token, anywhere.
    pub number: u32,
    /// Bytes of the method name, decoded.
    pub method: u32,
    /// Bytes of the id token, quotes included.
    pub id: u32,
    /// Bytes of one key of an envelope object, decoded.
    pub key: u32,
    /// Bytes of one `_meta` object.
    pub meta: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            depth: 128,
            members: 256,
            number: 1024,
            method: 256,
            id: 256,
            key: 1024,
            meta: 256 * 1024,
        }
    }
}
