//! Finer forms expire by age; the coarser ones hold the sums.

mod hours;
mod minutes;
mod months;
