//! Access and limits: which key may do what, and how much at once. The tests use the real router and server with small
//! limits, the real binary, and raw sockets.

mod binary;
mod cors;
mod hosts;
mod http;
mod identities;
mod limits;
mod live;
mod routes;
mod shares;
mod sign_in;
mod slow;
mod stand;
mod tls;
