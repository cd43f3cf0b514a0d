//! What expires by age: finer forms, of which the coarser ones hold the sums.

mod hours;
mod minutes;
mod months;
