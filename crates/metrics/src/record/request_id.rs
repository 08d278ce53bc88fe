//! Request ids: 32 hex digits, the first half random for this process, the second half a counter
//! scrambled by a bijection. Unique without a random number a request, and not guessable from one
//! another by eye.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderName, HeaderValue};

/// The header of every answer.
pub(crate) static HEADER: HeaderName = HeaderName::from_static("x-request-id");

const DIGITS: &[u8; 16] = b"0123456789abcdef";

struct Process {
    half: u64,
    seed: u64,
    next: AtomicU64,
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        // without randomness ids are still unique within the process, which is all they promise
        Err(_) => u64::from(std::process::id()),
    }
}

fn process() -> &'static Process {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    PROCESS.get_or_init(|| Process {
        half: random(),
        seed: random(),
        next: AtomicU64::new(0),
    })
}

/// Every step is invertible, so different inputs give different outputs.
const fn scramble(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A new id, as the record and as the header hold it.
pub(crate) fn mint() -> (Box<str>, HeaderValue) {
    let process = process();
    let number = process.next.fetch_add(1, Ordering::Relaxed);
    let own = scramble(number.wrapping_add(process.seed));
    let bits = (u128::from(process.half) << 64) | u128::from(own);
    let mut text = [0_u8; 32];
    for (byte, pair) in bits.to_be_bytes().into_iter().zip(text.chunks_exact_mut(2)) {
        let digits = [byte >> 4, byte & 0xf].map(|digit| DIGITS[usize::from(digit)]);
        pair.copy_from_slice(&digits);
    }
    let text = str::from_utf8(&text).expect("hex digits are text");
    let value = HeaderValue::from_str(text).expect("hex digits are a header value");
    (Box::from(text), value)
}
