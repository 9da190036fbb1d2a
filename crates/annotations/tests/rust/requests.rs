//! Every request once, with arguments that differ: the same as `tests/c/requests.c`.

use brownout_annotations as brownout;

fn main() {
    let first = std::ptr::without_provenance(0x1000);
    let second = std::ptr::without_provenance(0x2000);

    assert!(brownout::running());
    brownout::start();
    brownout::stop();
    brownout::exclude_range(first, 0x11);
    brownout::include_range(first, 0x12);
    brownout::is_persisted_range(first, 0x13);
    brownout::is_ordered_before_range((first, 0x14), (second, 0x15));
    let tx = brownout::Transaction::begin();
    tx.add_range(first, 0x16);
    tx.alloc_range(first, 0x17);
    brownout::tx_only_range(first, 0x18);
    drop(tx);
    drop(brownout::Section::begin());
    assert_eq!(brownout::checkpoint(), 5);
    brownout::ofence();
    brownout::dfence();
    brownout::store_range(first, 0x19);
    brownout::flush_range(first, 0x1a);
    brownout::fence();
    brownout::set_clean_range(first, 0x1b);
    brownout::sync_var_range(first, 8, 0xffff_ffff_ffff_fffe);
    brownout::register_variable_range(c"a name", first, 0x1c);
    let (addr, len) = brownout::find_variable(c"a name").expect("the tool knows it");
    assert_eq!((addr.addr(), len), (0x7000, 0x70));
    brownout::unregister_variable(c"a name");
    brownout::marker(c"a marker");
    brownout::must_hold(c"a condition", true);
    brownout::must_hold(c"another", false);
}
