//! The payload decoder over arbitrary bytes, past the checksums that protect it in a file.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some((count, payload)) = input.split_first_chunk::<2>() {
        let count = u32::from(u16::from_le_bytes(*count));
        let decoded = brownout_trace::decode_payload_for_fuzzing(payload, count);
        assert!(decoded <= count);
    }
});
