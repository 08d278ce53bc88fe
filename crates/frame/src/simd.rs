//! The one loop that is worth vector loads: finding where a run of plain string bytes ends. This is
//! the only file of the workspace with `unsafe`. The safe twin takes eight bytes at a time; it runs
//! where SSE2 is not part of the target, and a property test compares the two.
#![allow(
    unsafe_code,
    reason = "unaligned vector loads from a slice, with the bound checked"
)]

/// Index of the first `"`, `\` or control character at or after `from`; the length if there is none.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn string_stop(bytes: &[u8], from: usize) -> usize {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8};
    use std::arch::x86_64::{_mm_or_si128, _mm_set1_epi8};
    let mut at = from;
    while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<16>) {
        // SAFETY: `block` is 16 readable bytes, the load asks for no alignment, and SSE2 is part of
        // every x86-64 target.
        let stops = unsafe {
            let loaded = _mm_loadu_si128(block.as_ptr().cast());
            let quote = _mm_cmpeq_epi8(loaded, _mm_set1_epi8(0x22));
            let escape = _mm_cmpeq_epi8(loaded, _mm_set1_epi8(0x5c));
            let control = _mm_cmpeq_epi8(_mm_min_epu8(loaded, _mm_set1_epi8(0x1f)), loaded);
            _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, escape), control))
        };
        if stops != 0 {
            return at + stops.trailing_zeros() as usize;
        }
        at += 16;
    }
    string_stop_safe(bytes, at)
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use string_stop_safe as string_stop;

/// The same without `unsafe`: a block of eight without a stop is passed over, else byte by byte.
#[inline]
pub(crate) fn string_stop_safe(bytes: &[u8], from: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let mut at = from;
    while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*block);
        let zero = |lanes: u64| lanes.wrapping_sub(ONES) & !lanes & HIGHS;
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        if zero(word ^ (ONES * 0x22)) | zero(word ^ (ONES * 0x5c)) | control != 0 {
            break;
        }
        at += 8;
    }
    let plain = |byte: &&u8| **byte >= 0x20 && **byte != b'"' && **byte != b'\\';
    let tail = bytes.get(at..).unwrap_or_default();
    at + tail.iter().take_while(plain).count()
}

#[cfg(test)]
mod tests;
