//! Several nodes with one log in a topic: a node that follows answers every question as the writer does at the same
//! position, whatever crashed before, and whichever node takes the log over.

mod deletes;
mod follow;
mod forward;
mod handed;
mod kafka_in;
mod keys;
mod model;
mod moved;
mod orders;
mod parts;
mod play;
mod proofs;
mod read_only;
mod service;
mod stand;
mod strands;
mod sweep;
mod tls;
