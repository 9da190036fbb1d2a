//! Numbers as they are written in inputs, and which of them are worth a try.

/// A number that was read, and how it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    pub value: i128,
    pub hexadecimal: bool,
}

/// The number that these bytes are: decimal or `0x…`, with a sign or without.
pub(crate) fn read(bytes: &[u8]) -> Option<Number> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let prefixed = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match prefixed {
        Some(digits) => (digits, 16),
        None => (digits, 10),
    };
    // Anything longer is no number that a program keeps in a register.
    if digits.len() > 24 || !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    // Nearly all are short, and the wide type is slow to read.
    let magnitude = match digits.len() {
        0..=15 => i128::from(u64::from_str_radix(digits, radix).ok()?),
        _ => i128::from_str_radix(digits, radix).ok()?,
    };
    let value = if negative { -magnitude } else { magnitude };
    Some(Number {
        value,
        hexadecimal: radix == 16,
    })
}

/// A number as it is written.
pub(crate) fn write(value: i128, hexadecimal: bool) -> Vec<u8> {
    match (hexadecimal, value < 0) {
        (false, _) => value.to_string(),
        (true, false) => format!("{value:#x}"),
        (true, true) => format!("-{:#x}", -value),
    }
    .into_bytes()
}

/// Where programs change their mind: limits of types, and sizes that nodes, buckets and lines
/// usually have.
pub(crate) const BOUNDARIES: &[i128] = &[
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    511,
    512,
    1023,
    1024,
    4095,
    4096,
    32767,
    32768,
    65535,
    65536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
    -1,
    -2,
    -128,
    -32768,
    -0x8000_0000,
    -0x8000_0000_0000_0000,
];

#[cfg(test)]
mod tests {
    use super::{Number, read, write};

    #[test]
    fn numbers_are_read_as_programs_read_them() {
        let value = |text: &str| read(text.as_bytes()).map(|number| number.value);
        assert_eq!(value("0"), Some(0));
        assert_eq!(value("-17"), Some(-17));
        assert_eq!(value("+5"), Some(5));
        assert_eq!(value("0xC0FFEE"), Some(0xc0ffee));
        assert_eq!(value("18446744073709551615"), Some(u64::MAX.into()));
        for none in [
            "",
            "-",
            "0x",
            "x",
            "1e5",
            "--1",
            "-+1",
            "1 ",
            "99999999999999999999999999",
        ] {
            assert_eq!(value(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_number_keeps_its_base() {
        for text in ["12", "-12", "0xff", "-0xff"] {
            let Number { value, hexadecimal } = read(text.as_bytes()).expect("a number");
            assert_eq!(write(value, hexadecimal), text.as_bytes());
        }
    }
}
