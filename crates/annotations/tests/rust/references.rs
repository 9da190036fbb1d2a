//! A request with a reference is the same as the one before it, with an address and a length.

use brownout_annotations as brownout;

fn main() {
    let number = 7u16;
    let start = (&raw const number).cast();
    let len = size_of::<u16>();
    let words = [1u64, 2, 3];
    let slice = &words[1..];
    let slice_start = slice.as_ptr().cast();
    let slice_len = size_of_val(slice);

    brownout::exclude_range(start, len);
    brownout::exclude(&number);
    brownout::include_range(slice_start, slice_len);
    brownout::include(slice);
    brownout::is_persisted_range(slice_start, slice_len);
    brownout::is_persisted(slice);
    brownout::is_ordered_before_range((start, len), (slice_start, slice_len));
    brownout::is_ordered_before(&number, slice);
    brownout::tx_add_range(start, len);
    brownout::tx_add(&number);
    let tx = brownout::Transaction::begin();
    let nested = brownout::Transaction::begin();
    nested.add_range(slice_start, slice_len);
    nested.add(slice);
    drop(nested);
    drop(tx);
    brownout::tx_only_range(start, len);
    brownout::tx_only(&number);
    brownout::set_clean_range(start, len);
    brownout::set_clean(&number);
    brownout::sync_var_range(start, len, 3);
    brownout::sync_var(&number, 3);
    brownout::register_variable_range(c"slice", slice_start, slice_len);
    brownout::register_variable(c"slice", slice);
}
