//! Tests over the real router, without a socket.

mod malformed;
pub mod site;
