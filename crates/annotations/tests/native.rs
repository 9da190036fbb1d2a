//! The Rust functions natively: default answers, no effect.

use brownout_annotations as brownout;

#[test]
fn requests_answer_their_defaults() {
    assert!(!brownout::running());
    assert_eq!(brownout::checkpoint(), 0);
    let named = 7u64;
    brownout::register_variable(c"named", &named);
    assert_eq!(brownout::find_variable(c"named"), None);
}

#[test]
fn requests_leave_memory_and_registers_alone() {
    // Enough live values to fill the registers across the requests.
    let mut values: [u64; 14] = std::array::from_fn(|index| std::hint::black_box(index as u64 * 3));
    let before = values;
    for round in 0..1000u64 {
        let section = brownout::Section::begin();
        for value in &mut values {
            *value = value.rotate_left(7) ^ round;
            brownout::is_persisted(value);
        }
        for value in &mut values {
            brownout::marker(c"back");
            *value = (*value ^ round).rotate_right(7);
        }
        drop(section);
    }
    assert_eq!(values, before);
}
