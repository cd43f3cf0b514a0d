//! Tests over the real router, without a socket.

mod actions;
mod actions_csv;
mod after;
mod breakdowns;
mod closed;
mod compared;
mod dashboard;
mod divided;
mod enrich;
mod erase;
mod final_days;
mod finals;
mod forms;
mod frequency;
mod grains;
mod keys;
mod lookup;
mod malformed;
mod openapi;
mod reads;
mod reconcile;
mod reserve;
mod retried;
mod set_aside;
pub(crate) mod site;
mod verdicts;
mod void;
