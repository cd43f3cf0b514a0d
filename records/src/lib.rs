//! The vocabulary that all crates share: increments, their keys and times, and how each is written down.
//!
//! This crate does no I/O, reads no clock and knows nothing of files, stores or HTTP. It holds values and
//! their text forms, so that a word means one thing in every crate.

mod accepted;
mod actions;
mod api_key;
mod as_text;
mod counts;
mod day;
mod details;
pub mod digits;
mod error;
mod events;
mod evidence;
mod filter;
mod filtered;
mod final_sums;
mod hours;
mod identity;
mod increment;
pub mod input;
mod interner;
pub mod line;
mod log;
mod long_key;
mod minutes;
mod names;
mod point;
mod position;
mod pseudonym;
mod rules;
mod schema;
mod shard;
mod short_text;
mod time_code;
mod users;
pub mod varint;
mod words;

pub use accepted::{Accepted, Skipped};
pub use actions::{
    ACTIONS, ACTIONS_SECTION, Action, ActionSums, UserKey, UserText, What, action_seconds,
    insertion_tag, is_actions, is_actions_before, is_actions_section, tag_text,
};
pub use api_key::{KeyEntry, Scope, Shared};
pub use counts::{Counts, add_capped, capped, sum_capped};
pub use day::Day;
pub use details::{Details, Evidence};
pub use error::{Fault, FieldError, short_detail, short_error, short_field};
pub use events::{EventType, LATENESS_SECONDS_DEFAULT, Ratio};
pub use evidence::address;
pub use filter::{Class, FILTERS_MAX, Filter, FilterFields, Form};
pub use filtered::{FILTERED_MARK, RULE, filtered_namespace, filtered_of};
pub use final_sums::{FinalSums, ShownSums};
pub use identity::{INSTALLATION, LOCAL, check_identity, is_identity};
pub use increment::{
    COUNT_MAX, Event, ID_BYTES_MAX, Increment, KEY_BYTES_MAX, KEYS_MAX, Origin, SKEW_SECONDS_MAX,
    Text, check_time,
};
pub use interner::Interner;
pub use log::{
    Consumed, DatasetGone, Delete, LoggedDataset, LoggedFinal, LoggedHold, ORDER_DAYS_MAX,
    RULES_CHARS_MAX, Record, RecordError, ShownHold, TopicPartition, VOID_REASON_BYTES_MAX, Void,
    decode_all, is_hash_of_rules, is_void_reason, noted_manifest,
};
pub use long_key::{
    HASH_CHARS, LongKeys, MISSING, StoredTexts, is_hash, is_plain_ascii, missing_value,
};
pub use minutes::{
    MINUTES, breakdowns_from, by_minute, is_breakdown_before, is_breakdown_section,
    is_minutes_before, is_minutes_section, minute_digits, minute_of, minute_of_hour, minute_value,
    of_by_minute,
};
pub use names::{NAME_CHARS_MAX, cross, dimensions, is_name};
pub use point::{Point, PointError};
pub use position::{Offset, Position, StoreId};
pub use pseudonym::{is_pseudonym, pseudonym};
pub use rules::{
    Judged, LIST_BYTES_MAX, List, ListError, ListKind, Memory, MemoryRule, NameUser, Role, RuleSet,
    Rules, RulesError, check_list, check_new_list, content_hash,
};
pub use schema::{Namespace, RESERVED_NAMES, Schema, SchemaError, is_false};
pub use shard::{KeyCrc, ShardPrefix, shard_of};
pub use short_text::ShortText;
pub use time_code::{Grain, TIME_MAX, TIME_MIN, TimeCode, TimeCodeError};
pub use users::{USERS, USERS_RELATIVE_ERROR, User, Users};
pub use words::{grouped, how_many, how_many_were, length_seconds};
