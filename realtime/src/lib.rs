//! The live half of Tallyring: the log, the delta stores that the log feeds, the ring of days, and the consistent view.
//!
//! This crate knows nothing of HTTP and does not merge generations. It accepts increments, makes them durable, counts
//! them, and answers reads from the archive and from every delta store together.

mod beats;
mod budget;
pub mod catalog;
mod clock;
mod delta;
mod error;
mod follower;
mod heavy;
mod holds;
mod identity;
mod intake;
mod ledger;
mod lock;
mod membership;
pub mod memory;
mod node;
pub mod oplog;
mod options;
pub mod priority;
mod reconcile;
mod ring;
mod role;
mod seldom;
mod service;
mod source;
mod store;
mod strands;
mod sync;
mod view;

pub use beats::addresses;
pub use budget::{Charge, ReadBudget, Reading, reserve};
pub use clock::{Clock, SystemClock, VirtualClock};
pub use error::{Beside, Error, ItemFault, OutOfOrder, Refusal, Result, WrongItem};
pub use follower::{Follower, NotTakenOver};
pub use holds::{Held, Holds, Made, NotHeld, ReservationId, ShownAction, Stale, Terms, Until};
pub use identity::{Identity, is_same_store, long_keys_of};
pub use intake::{
    Advance, Batch, BatchKey, Counted, ID_COUNTS_MAX, IdCount, IdHistory, Intake, ListStatus,
    Logged, Part, RefusedItem, RulesStatus, SchemaHashes, VoidOrder, Voided, decode_outcome,
    encode_outcome, store_list,
};
pub use ledger::{
    Final, Fix, Ledger, ObjectsStay, Waiting, broken_final, check_dataset_name, check_final_load,
};
pub use lock::{Holder, Lock};
pub use membership::{Membership, StrandPlace};
pub use options::{Durability, Options, World};
pub use reconcile::{
    CausesByKey, KeySums, Reconcile, Reconciled, Unexplained, check_again, closed_without_final,
    first_not_final, is_much_repeated, no_reconcile, not_final, out_of_reach, told_from,
    too_much_filtered, waiting_deletes,
};
pub use role::NodeStatus;
pub use seldom::Seldom;
pub use service::Service;
pub use source::{Source, SourceError, SourceMessage};
pub use store::{
    ClosedBucket, ClosedCursor, ClosedPage, ClosedReader, Leftovers, Recount, Recovery, RingLabel,
    Shown, Status, SteppedBack, Store, StoreStatus,
};
pub use strands::{Stores, Strands, Submission};
pub use tallyring_records::Accepted;
pub use view::found_keys::{Effort, FoundKey, KeyPlace, KeySearch, KeyText, Searched};
pub use view::{
    BooksView, CountedSpan, Did, Live, RECENT_SECONDS_MAX, Ranking, Read, Seconds, Series, State,
    States, TopKey, UserActions, UsersView, ValuePoint, View, VisitAction,
};
