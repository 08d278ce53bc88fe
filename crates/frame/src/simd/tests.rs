//! The vector loop, its safe twin and a plain loop agree.

use super::{string_stop, string_stop_safe};
use proptest::prelude::{any, prop_assert_eq, proptest};

fn byte_by_byte(bytes: &[u8], from: usize) -> usize {
    let stop = |b: &u8| *b < 0x20 || *b == b'"' || *b == b'\\';
    bytes[from..]
        .iter()
        .position(stop)
        .map_or(bytes.len(), |n| from + n)
}

proptest! {
    #[test]
    fn the_vector_loop_and_its_safe_twin_find_the_same_stop(
        noise in proptest::collection::vec(any::<u8>(), 0..80),
        plain in 0usize..80,
        from in 0usize..60,
    ) {
        let mut bytes = vec![b'a'; plain];
        bytes.extend_from_slice(&noise);
        let from = from.min(bytes.len());
        let expected = byte_by_byte(&bytes, from);
        prop_assert_eq!(string_stop(&bytes, from), expected);
        prop_assert_eq!(string_stop_safe(&bytes, from), expected);
    }

    #[test]
    fn every_single_byte_stops_or_passes_alike_at_every_lane(byte in any::<u8>(), lane in 0usize..40) {
        let mut bytes = vec![0xc3; 40];
        bytes[lane] = byte;
        let expected = byte_by_byte(&bytes, 0);
        prop_assert_eq!(string_stop(&bytes, 0), expected);
        prop_assert_eq!(string_stop_safe(&bytes, 0), expected);
    }
}
