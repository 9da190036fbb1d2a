//! Numbers as people read them: the same in findings, in reports and in what the command line says.

/// `12345678` as `12,345,678`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 event`, `2,000 events`. For nouns whose plural only adds an "s".
pub fn counted(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", grouped(number)),
    }
}

/// The word that agrees with the number: `either(1, "is", "are")`.
pub fn either<'a>(number: u64, one: &'a str, many: &'a str) -> &'a str {
    match number {
        1 => one,
        _ => many,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_threes() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(100_000), "100,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn only_one_is_singular() {
        assert_eq!(counted(0, "finding"), "0 findings");
        assert_eq!(counted(1, "finding"), "1 finding");
        assert_eq!(counted(2, "finding"), "2 findings");
        assert_eq!(counted(2000, "event"), "2,000 events");
    }
}
