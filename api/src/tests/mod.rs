//! Tests over the real router, without a socket.

mod malformed;
mod reads;
pub mod site;
