//! Which edits there are.
//!
//! A harmless edit says why it is harmless; most are saved by the layout, because what is persisted
//! for another reason lies in the same cache line.

use super::Expectation::{self, Found, Harmless};
use super::Mutant;
use super::Scenario::{self, Map, Steps};

const BTREE: &str = "tree_map/btree_map.c";
const CTREE: &str = "tree_map/ctree_map.c";
const RBTREE: &str = "tree_map/rbtree_map.c";
const RTREE: &str = "tree_map/rtree_map.c";
const SKIPLIST: &str = "list_map/skiplist_map.c";
const HASHMAP_TX: &str = "hashmap/hashmap_tx.c";
const HASHMAP_ATOMIC: &str = "hashmap/hashmap_atomic.c";
const HASHMAP_RP: &str = "hashmap/hashmap_rp.c";
const QUEUE: &str = "queue/queue.c";

/// A btree with one key more.
const BTREE_SECOND: Scenario = Map {
    map: "btree",
    before: Some("i 1"),
    commands: "i 2",
    after: "c 1,c 2",
};

/// A full node is split, and the root replaced.
const BTREE_SPLIT: Scenario = Map {
    map: "btree",
    before: Some("i 1,i 2,i 3,i 4,i 5,i 6,i 7"),
    commands: "i 8",
    after: "c 6",
};

/// Three nodes; the left one becomes too small and takes a key from the right one.
const BTREE_ROTATE_RIGHT: Scenario = Map {
    map: "btree",
    before: Some("i 1,i 2,i 3,i 4,i 5,i 6,i 7,i 8"),
    commands: "r 1",
    after: "c 1,c 5,c 8",
};

/// The right one becomes too small and takes a key from the left one.
const BTREE_ROTATE_LEFT: Scenario = Map {
    map: "btree",
    before: Some("i 10,i 20,i 30,i 40,i 50,i 60,i 70,i 80,i 5,r 80"),
    commands: "r 70",
    after: "c 30,c 40,c 70",
};

/// The third key makes the tree rotate.
const RBTREE_ROTATION: Scenario = Map {
    map: "rbtree",
    before: Some("i 10,i 20"),
    commands: "i 30",
    after: "c 10,c 15,c 20,c 30",
};

/// The fourth key makes the tree change colours up to the root.
const RBTREE_RECOLOUR: Scenario = Map {
    map: "rbtree",
    before: Some("i 10,i 20,i 30"),
    commands: "i 40",
    after: "c 10,c 40,r 20,c 20,c 30",
};

/// The removed key has two children, so its successor takes its place.
const RBTREE_SUCCESSOR: Scenario = Map {
    map: "rbtree",
    before: Some("i 20,i 10,i 40,i 30,i 50"),
    commands: "r 20",
    after: "c 10,c 20,c 30,c 50",
};

const SKIPLIST_INSERT: Scenario = Map {
    map: "skiplist",
    before: Some("i 1,i 3"),
    commands: "i 2",
    after: "c 1,c 2,c 3,p",
};

const SKIPLIST_REMOVE: Scenario = Map {
    map: "skiplist",
    before: Some("i 1,i 2,i 3"),
    commands: "r 2",
    after: "c 1,c 2,c 3",
};

const HASHMAP_TX_INSERT: Scenario = Map {
    map: "hashmap_tx",
    before: Some("i 1"),
    commands: "i 2",
    after: "c 1,c 2,p",
};

/// The table shrinks. Key 1 was alone in its bucket, and is followed by key 6 in the new one.
const HASHMAP_TX_REBUILD: Scenario = Map {
    map: "hashmap_tx",
    before: Some("i 1,i 6,i 7"),
    commands: "r 7",
    after: "c 1,c 6",
};

const HASHMAP_ATOMIC_INSERT: Scenario = Map {
    map: "hashmap_atomic",
    before: Some("i 1"),
    commands: "i 2",
    after: "p,c 1,c 2",
};

/// The map itself is made, too.
const HASHMAP_ATOMIC_CREATION: Scenario = Map {
    map: "hashmap_atomic",
    before: None,
    commands: "i 1",
    after: "c 1,i 2,c 1,c 2",
};

/// Enough keys that the table does not shrink.
const HASHMAP_ATOMIC_REMOVE: Scenario = Map {
    map: "hashmap_atomic",
    before: Some("i 1,i 2,i 3,i 4,i 5,i 6,i 7,i 8,i 9,i 10,i 11"),
    commands: "r 5",
    after: "p,c 4,c 5,c 6",
};

const HASHMAP_RP_INSERT: Scenario = Map {
    map: "hashmap_rp",
    before: Some("i 1"),
    commands: "i 2",
    after: "c 1,c 2,p",
};

/// The map itself is made, too.
const HASHMAP_RP_CREATION: Scenario = Map {
    map: "hashmap_rp",
    before: None,
    commands: "i 1",
    after: "c 1,i 2,c 1,c 2",
};

const HASHMAP_RP_REMOVE: Scenario = Map {
    map: "hashmap_rp",
    before: Some("i 1,i 2"),
    commands: "r 2",
    after: "c 1,c 2,p",
};

/// The table becomes half full, and grows.
const HASHMAP_RP_GROW: Scenario = Map {
    map: "hashmap_rp",
    before: Some("i 1,i 2,i 3,i 4,i 5,i 6,i 7"),
    commands: "i 8",
    after: "c 6",
};

/// Keys are strings of eight bytes, the lowest first. These two share one byte.
const RTREE_SPLIT: Scenario = Map {
    map: "rtree",
    before: Some("i 578437695752307201"),
    commands: "i 65281",
    after: "c 578437695752307201,c 65281",
};

const RTREE_CHILD: Scenario = Map {
    map: "rtree",
    before: Some("i 257,i 513"),
    commands: "i 769",
    after: "c 257,c 513,c 769",
};

const CTREE_FIRST: Scenario = Map {
    map: "ctree",
    before: Some(""),
    commands: "i 1",
    after: "c 1",
};

const CTREE_LAST: Scenario = Map {
    map: "ctree",
    before: Some("i 1"),
    commands: "r 1",
    after: "c 1",
};

/// The first entry's handle lies in the line of the queue's ends.
const QUEUE_FIRST: Scenario = Steps {
    before: &["@mkpool P queue", "queue P new 20"],
    command: "queue P enqueue one",
    after: "queue P show",
};

/// The third entry's handle does not.
const QUEUE_THIRD: Scenario = Steps {
    before: &[
        "@mkpool P queue",
        "queue P new 20",
        "queue P enqueue one",
        "queue P enqueue two",
    ],
    command: "queue P enqueue three",
    after: "queue P show",
};

const fn mutant(
    name: &'static str,
    file: &'static str,
    function: &'static str,
    edits: &'static [(&'static str, &'static str)],
    scenario: Scenario,
    expectation: Expectation,
) -> Mutant {
    Mutant {
        name,
        file,
        function,
        edits,
        scenario,
        expectation,
    }
}

/// All of them.
pub const ALL: &[Mutant] = &[
    mutant(
        "btree_item_not_logged",
        BTREE,
        "btree_map_insert_item",
        &[("TX_ADD(node);", "")],
        BTREE_SECOND,
        Found {
            blamed: "btree_map_insert_item",
        },
    ),
    mutant(
        "btree_first_root_not_logged",
        BTREE,
        "btree_map_insert_empty",
        &[("TX_ADD_FIELD(map, root);", "")],
        Map {
            map: "btree",
            before: Some(""),
            commands: "i 1",
            after: "c 1",
        },
        Found {
            blamed: "btree_map_insert_empty",
        },
    ),
    mutant(
        "btree_split_logged_too_late",
        BTREE,
        "btree_map_create_split_node",
        &[
            ("TX_ADD(node);", ""),
            (
                "D_RW(node)->n = c - 1;",
                "D_RW(node)->n = c - 1;\n\tTX_ADD(node);",
            ),
        ],
        BTREE_SPLIT,
        Found {
            blamed: "btree_map_create_split_node",
        },
    ),
    mutant(
        "btree_new_root_not_logged",
        BTREE,
        "btree_map_find_dest_node",
        &[("TX_ADD_FIELD(map, root);", "")],
        BTREE_SPLIT,
        Found {
            blamed: "btree_map_find_dest_node",
        },
    ),
    mutant(
        "btree_slot_not_logged_again",
        BTREE,
        "btree_map_rotate_right",
        &[("TX_ADD_FIELD(node, slots[D_RO(node)->n]);", "")],
        BTREE_ROTATE_RIGHT,
        Harmless {
            why: "the whole node is in the log already, by btree_map_insert_item",
        },
    ),
    mutant(
        "btree_sibling_not_logged",
        BTREE,
        "btree_map_rotate_right",
        &[("TX_ADD(rsb);", "")],
        BTREE_ROTATE_RIGHT,
        Found {
            blamed: "btree_map_rotate_right",
        },
    ),
    mutant(
        "btree_sibling_count_not_logged",
        BTREE,
        "btree_map_rotate_left",
        &[("TX_ADD_FIELD(lsb, n);", "")],
        BTREE_ROTATE_LEFT,
        Found {
            blamed: "btree_map_remove",
        },
    ),
    mutant(
        "rbtree_child_not_logged",
        RBTREE,
        "rbtree_map_rotate",
        &[("TX_ADD(child);", "")],
        RBTREE_ROTATION,
        Found {
            blamed: "rbtree_map_insert",
        },
    ),
    mutant(
        "rbtree_link_not_logged",
        RBTREE,
        "rbtree_map_insert_bst",
        &[("pmemobj_tx_add_range_direct(dst, sizeof(*dst));", "")],
        RBTREE_ROTATION,
        Found {
            blamed: "rbtree_map_insert_bst",
        },
    ),
    mutant(
        "rbtree_new_parent_not_logged",
        RBTREE,
        "rbtree_map_insert_bst",
        &[("TX_SET(n, parent, parent);", "D_RW(n)->parent = parent;")],
        RBTREE_ROTATION,
        Harmless {
            why: "the node is new in this transaction, which writes it back",
        },
    ),
    mutant(
        "rbtree_root_colour_not_logged",
        RBTREE,
        "rbtree_map_insert",
        &[(
            "TX_SET(RB_FIRST(map), color, COLOR_BLACK);",
            "D_RW(RB_FIRST(map))->color = COLOR_BLACK;",
        )],
        RBTREE_RECOLOUR,
        Harmless {
            why: "the root is red only if it is new, or if its colour was logged on the way up",
        },
    ),
    mutant(
        "rbtree_successor_not_logged",
        RBTREE,
        "rbtree_map_remove",
        &[("TX_ADD(y);", "")],
        RBTREE_SUCCESSOR,
        Found {
            blamed: "rbtree_map_remove",
        },
    ),
    mutant(
        "rbtree_freed_at_once",
        RBTREE,
        "rbtree_map_remove",
        &[
            (
                "TX_BEGIN(pop) {",
                "PMEMoid early = n.oid; pmemobj_free(&early);\n\tTX_BEGIN(pop) {",
            ),
            ("TX_FREE(n);", ""),
        ],
        Map {
            map: "rbtree",
            before: Some("i 10,i 20"),
            commands: "r 20",
            after: "i 30,c 10,c 20,c 30",
        },
        Found {
            blamed: "rbtree_map_remove",
        },
    ),
    mutant(
        "skiplist_link_not_logged",
        SKIPLIST,
        "skiplist_map_insert_node",
        &[(
            "TX_ADD_FIELD(path[current_level], next[current_level]);",
            "",
        )],
        SKIPLIST_INSERT,
        Found {
            blamed: "skiplist_map_insert_node",
        },
    ),
    mutant(
        "skiplist_unlink_not_logged",
        SKIPLIST,
        "skiplist_map_remove_node",
        &[("TX_ADD_FIELD(path[i], next[i]);", "")],
        SKIPLIST_REMOVE,
        Found {
            blamed: "skiplist_map_remove_node",
        },
    ),
    mutant(
        "skiplist_key_after_link",
        SKIPLIST,
        "skiplist_map_insert",
        &[
            ("D_RW(new_node)->entry.key = key;", ""),
            (
                "skiplist_map_insert_node(new_node, path);",
                "skiplist_map_insert_node(new_node, path);\n\t\tD_RW(new_node)->entry.key = key;",
            ),
        ],
        SKIPLIST_INSERT,
        Harmless {
            why: "both are in one transaction, which takes the link back if it does not end",
        },
    ),
    mutant(
        "skiplist_key_after_transaction",
        SKIPLIST,
        "skiplist_map_insert",
        &[
            ("D_RW(new_node)->entry.key = key;", ""),
            (
                "return ret;",
                "D_RW(new_node)->entry.key = key;\n\tpmemobj_persist(pop, &D_RW(new_node)->entry.key, sizeof(key));\n\treturn ret;",
            ),
        ],
        SKIPLIST_INSERT,
        Found {
            blamed: "skiplist_map_insert",
        },
    ),
    mutant(
        "hashmap_tx_bucket_not_logged",
        HASHMAP_TX,
        "hm_tx_insert",
        &[("TX_ADD_FIELD(D_RO(hashmap)->buckets, bucket[h]);", "")],
        HASHMAP_TX_INSERT,
        Found {
            blamed: "hm_tx_insert",
        },
    ),
    mutant(
        "hashmap_tx_count_not_logged",
        HASHMAP_TX,
        "hm_tx_insert",
        &[("TX_ADD_FIELD(hashmap, count);", "")],
        HASHMAP_TX_INSERT,
        Found {
            blamed: "hm_tx_insert",
        },
    ),
    mutant(
        "hashmap_tx_count_after_transaction",
        HASHMAP_TX,
        "hm_tx_insert",
        &[
            ("D_RW(hashmap)->count++;", ""),
            (
                "if (ret)\n\t\treturn ret;",
                "if (ret)\n\t\treturn ret;\n\tD_RW(hashmap)->count++;\n\tpmemobj_persist(pop, &D_RW(hashmap)->count, 8);",
            ),
        ],
        HASHMAP_TX_INSERT,
        Found {
            blamed: "hm_tx_insert",
        },
    ),
    mutant(
        "hashmap_tx_moved_entry_not_logged",
        HASHMAP_TX,
        "hm_tx_rebuild",
        &[("TX_ADD_FIELD(en, next);", "")],
        HASHMAP_TX_REBUILD,
        Found {
            blamed: "hm_tx_rebuild",
        },
    ),
    mutant(
        "hashmap_tx_old_buckets_not_logged",
        HASHMAP_TX,
        "hm_tx_rebuild",
        &[("pmemobj_tx_add_range(buckets_old.oid, 0, sz_old);", "")],
        HASHMAP_TX_REBUILD,
        Found {
            blamed: "hm_tx_rebuild",
        },
    ),
    mutant(
        "hashmap_tx_published_before_filled",
        HASHMAP_TX,
        "hm_tx_rebuild",
        &[
            ("D_RW(hashmap)->buckets = buckets_new;", ""),
            (
                "D_RW(buckets_new)->nbuckets = new_len;",
                "D_RW(hashmap)->buckets = buckets_new;\n\t\tD_RW(buckets_new)->nbuckets = new_len;",
            ),
        ],
        HASHMAP_TX_REBUILD,
        Harmless {
            why: "the order inside a transaction does not matter",
        },
    ),
    mutant(
        "hashmap_atomic_dirty_not_persisted",
        HASHMAP_ATOMIC,
        "hm_atomic_insert",
        &[(
            "count_dirty = 1;\n\tpmemobj_persist(pop, &D_RW(hashmap)->count_dirty,\n\t\t\tsizeof(D_RW(hashmap)->count_dirty));",
            "count_dirty = 1;",
        )],
        HASHMAP_ATOMIC_INSERT,
        Found {
            blamed: "hm_atomic_insert",
        },
    ),
    mutant(
        "hashmap_atomic_dirty_not_fenced",
        HASHMAP_ATOMIC,
        "hm_atomic_insert",
        &[(
            "count_dirty = 1;\n\tpmemobj_persist(",
            "count_dirty = 1;\n\tpmemobj_flush(",
        )],
        HASHMAP_ATOMIC_INSERT,
        Harmless {
            why: "libpmemobj fences before it publishes the new entry",
        },
    ),
    mutant(
        "hashmap_atomic_count_not_persisted",
        HASHMAP_ATOMIC,
        "hm_atomic_insert",
        &[(
            "pmemobj_persist(pop, &D_RW(hashmap)->count,\n\t\t\tsizeof(D_RW(hashmap)->count));",
            "",
        )],
        HASHMAP_ATOMIC_INSERT,
        Harmless {
            why: "the flag lies in the same line, and is stored and persisted after it",
        },
    ),
    mutant(
        "hashmap_atomic_clean_before_count",
        HASHMAP_ATOMIC,
        "hm_atomic_insert",
        &[
            ("D_RW(hashmap)->count++;", "D_RW(hashmap)->count_dirty = 0;"),
            (
                "D_RW(hashmap)->count_dirty = 0;\n\tpmemobj_persist(pop, &D_RW(hashmap)->count_dirty",
                "D_RW(hashmap)->count++;\n\tpmemobj_persist(pop, &D_RW(hashmap)->count_dirty",
            ),
        ],
        HASHMAP_ATOMIC_INSERT,
        Found {
            blamed: "hm_atomic_insert",
        },
    ),
    mutant(
        "hashmap_atomic_dirty_after_removal",
        HASHMAP_ATOMIC,
        "hm_atomic_remove",
        &[(
            "count_dirty = 1;\n\tpmemobj_persist(pop, &D_RW(hashmap)->count_dirty,\n\t\t\tsizeof(D_RW(hashmap)->count_dirty));",
            "count_dirty = 1;",
        )],
        HASHMAP_ATOMIC_REMOVE,
        Found {
            blamed: "hm_atomic_remove",
        },
    ),
    mutant(
        "hashmap_atomic_count_before_removal",
        HASHMAP_ATOMIC,
        "hm_atomic_remove",
        &[
            ("D_RW(hashmap)->count--;", ""),
            (
                "if (POBJ_LIST_REMOVE_FREE(",
                "D_RW(hashmap)->count--;\n\tif (POBJ_LIST_REMOVE_FREE(",
            ),
        ],
        HASHMAP_ATOMIC_REMOVE,
        Harmless {
            why: "the flag says that the count is not to be relied on",
        },
    ),
    mutant(
        "hashmap_atomic_entry_not_persisted",
        HASHMAP_ATOMIC,
        "create_entry",
        &[("pmemobj_persist(pop, e, sizeof(*e));", "")],
        HASHMAP_ATOMIC_INSERT,
        Harmless {
            why: "the key lies in the line of the links, which libpmemobj persists before it publishes the entry",
        },
    ),
    mutant(
        "hashmap_atomic_entry_persisted_too_short",
        HASHMAP_ATOMIC,
        "create_entry",
        &[("sizeof(*e));\n\n\treturn", "sizeof(e));\n\n\treturn")],
        HASHMAP_ATOMIC_INSERT,
        Harmless {
            why: "the value is null as the memory was, and the list's links come by libpmemobj's log",
        },
    ),
    mutant(
        "hashmap_atomic_bucket_count_stored_last",
        HASHMAP_ATOMIC,
        "create_buckets",
        &[
            (
                "b->nbuckets = *((size_t *)arg);",
                "size_t n = *((size_t *)arg);",
            ),
            ("b->nbuckets * sizeof", "n * sizeof"),
            (
                "pmemobj_persist(pop, &b->nbuckets, sizeof(b->nbuckets));",
                "b->nbuckets = n;",
            ),
        ],
        HASHMAP_ATOMIC_CREATION,
        Found {
            blamed: "create_buckets",
        },
    ),
    mutant(
        "hashmap_atomic_bucket_count_not_persisted",
        HASHMAP_ATOMIC,
        "create_buckets",
        &[(
            "pmemobj_persist(pop, &b->nbuckets, sizeof(b->nbuckets));",
            "",
        )],
        HASHMAP_ATOMIC_CREATION,
        Harmless {
            why: "the first bucket lies in its line, and is persisted after it is stored",
        },
    ),
    mutant(
        "hashmap_atomic_coefficients_not_persisted",
        HASHMAP_ATOMIC,
        "create_hashmap",
        &[(
            "pmemobj_persist(pop, D_RW(hashmap), sizeof(*D_RW(hashmap)));",
            "",
        )],
        HASHMAP_ATOMIC_CREATION,
        Found {
            blamed: "create_hashmap",
        },
    ),
    mutant(
        "hashmap_rp_header_not_persisted",
        HASHMAP_RP,
        "hashmap_create",
        &[(
            "pmemobj_persist(pop, D_RW(hashmap), sizeof(struct hashmap_rp));",
            "",
        )],
        HASHMAP_RP_CREATION,
        Found {
            blamed: "hashmap_create",
        },
    ),
    mutant(
        "hashmap_rp_count_not_published",
        HASHMAP_RP,
        "entry_add",
        &[(
            "pmemobj_set_value(pop, args->actv + args->actv_cnt++,\n\t\t\t&hashmap->count, hashmap->count + 1);",
            "hashmap->count++;",
        )],
        HASHMAP_RP_INSERT,
        Found {
            blamed: "entry_add",
        },
    ),
    mutant(
        "hashmap_rp_tombstone_not_published",
        HASHMAP_RP,
        "hm_rp_remove",
        &[(
            "pmemobj_set_value(pop, &actv[actvcnt++], &entry_p->hash,\n\t\tentry_p->hash | TOMBSTONE_MASK);",
            "entry_p->hash |= TOMBSTONE_MASK;",
        )],
        HASHMAP_RP_REMOVE,
        Found {
            blamed: "hm_rp_remove",
        },
    ),
    mutant(
        "hashmap_rp_entries_not_persisted",
        HASHMAP_RP,
        "hm_rp_rebuild",
        &[(
            "pmemobj_persist(pop, D_RW(hashmap_rebuild.entries), sz_alloc);",
            "",
        )],
        HASHMAP_RP_GROW,
        Found {
            blamed: "hm_rp_rebuild",
        },
    ),
    mutant(
        "hashmap_rp_entries_persisted_too_short",
        HASHMAP_RP,
        "hm_rp_rebuild",
        &[(
            "D_RW(hashmap_rebuild.entries), sz_alloc);",
            "D_RW(hashmap_rebuild.entries), sz_alloc / 2);",
        )],
        HASHMAP_RP_GROW,
        Found {
            blamed: "hm_rp_rebuild",
        },
    ),
    mutant(
        "hashmap_rp_entries_not_fenced",
        HASHMAP_RP,
        "hm_rp_rebuild",
        &[(
            "pmemobj_persist(pop, D_RW(hashmap_rebuild.entries), sz_alloc);",
            "pmemobj_flush(pop, D_RW(hashmap_rebuild.entries), sz_alloc);",
        )],
        HASHMAP_RP_GROW,
        Harmless {
            why: "pmemobj_publish fences before it commits",
        },
    ),
    mutant(
        "hashmap_rp_entries_persisted_after_publish",
        HASHMAP_RP,
        "hm_rp_rebuild",
        &[
            (
                "pmemobj_persist(pop, D_RW(hashmap_rebuild.entries), sz_alloc);",
                "",
            ),
            (
                "pmemobj_publish(pop, actv, actv_cnt);",
                "pmemobj_publish(pop, actv, actv_cnt);\n\tpmemobj_persist(pop, D_RW(hashmap_rebuild.entries), sz_alloc);",
            ),
        ],
        HASHMAP_RP_GROW,
        Found {
            blamed: "hm_rp_rebuild",
        },
    ),
    mutant(
        "rtree_key_size_not_logged",
        RTREE,
        "rtree_map_insert_value",
        &[("TX_ADD_FIELD(orig_node, key_size);", "")],
        RTREE_SPLIT,
        Found {
            blamed: "rtree_map_insert_value",
        },
    ),
    mutant(
        "rtree_key_half_logged",
        RTREE,
        "rtree_map_insert_value",
        &[(
            "pmemobj_tx_add_range_direct(D_RW(orig_node)->key,\n\t\t\t\tD_RO(orig_node)->key_size);",
            "pmemobj_tx_add_range_direct(D_RW(orig_node)->key,\n\t\t\t\tD_RO(orig_node)->key_size / 2);",
        )],
        RTREE_SPLIT,
        Found {
            blamed: "rtree_map_insert_value",
        },
    ),
    mutant(
        "rtree_child_not_logged",
        RTREE,
        "rtree_map_insert_value",
        &[(
            "TX_ADD_DIRECT(node);\n\t\t*node = rtree_new_node(key, key_size, value, 1);",
            "*node = rtree_new_node(key, key_size, value, 1);",
        )],
        RTREE_CHILD,
        Found {
            blamed: "rtree_map_insert_value",
        },
    ),
    mutant(
        "ctree_entry_not_logged",
        CTREE,
        "ctree_map_insert",
        &[("pmemobj_tx_add_range_direct(p, sizeof(*p));", "")],
        CTREE_FIRST,
        Found {
            blamed: "ctree_map_insert",
        },
    ),
    mutant(
        "ctree_root_not_logged",
        CTREE,
        "ctree_map_remove",
        &[("pmemobj_tx_add_range_direct(leaf, sizeof(*leaf));", "")],
        CTREE_LAST,
        Found {
            blamed: "ctree_map_remove",
        },
    ),
    mutant(
        "queue_back_not_logged",
        QUEUE,
        "queue_enqueue",
        &[("TX_ADD_DIRECT(&queue->back);", "")],
        QUEUE_THIRD,
        Found {
            blamed: "queue_enqueue",
        },
    ),
    mutant(
        "queue_third_handle_not_logged",
        QUEUE,
        "queue_enqueue",
        &[("TX_ADD_DIRECT(&queue->entries[pos]);", "")],
        QUEUE_THIRD,
        Found {
            blamed: "queue_enqueue",
        },
    ),
    mutant(
        "queue_first_handle_not_logged",
        QUEUE,
        "queue_enqueue",
        &[("TX_ADD_DIRECT(&queue->entries[pos]);", "")],
        QUEUE_FIRST,
        Harmless {
            why: "the handle lies in the line of `back`, which is written back and says whether it counts",
        },
    ),
];
