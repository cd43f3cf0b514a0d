//! Distinct users of a base bucket: a HyperLogLog sketch, in a line of its own kind.
//!
//! `_u.ad_click|42.c41l,AgEHDAMIBAgR…` holds the sketch of the users of ad 42's clicks in the hour
//! `c41l`: Apache DataSketches' compact form of an HLL_8 sketch with 2^12 registers, in unpadded
//! base64. Up to 384 users the sketch is a list of 4 bytes for each user; above that it is 4 KiB of
//! registers. Sketches merge by union, which counts nobody twice, and no sum includes them. `_m*_u.ad_click|42.c41l1q`
//! is the sketch of one minute, kept for as long as breakdowns by minute (`records/src/minutes.rs`).
//!
//! Invariant: the bytes are a function of the set of users, for any order of users and any division into
//! runs, so that merges of equal runs give equal bytes. Therefore coupons are written in ascending order, and
//! the estimator that depends on the order of arrival is not kept.

use std::borrow::Cow;

use data_encoding::BASE64_NOPAD;
use datasketches::hash::value::raw_bytes;
use datasketches::hll::{Coupon, HllSketch, HllType, HllUnion};

use crate::pseudonym;

/// The name in a line's key, where other lines have the name of a subtotal.
pub const USERS: &str = "_u";

/// Beginnings of the key of a line of users: those of base buckets, and those of minutes.
pub(crate) const USERS_PREFIXES: [&[u8]; 2] = [b"_u.", b"_m*_u."];

/// Standard error of an estimate: 1.04 / √4096. It is nearly exact up to 384 users.
pub const USERS_RELATIVE_ERROR: f64 = 0.01625;

const LG_REGISTERS: u8 = 12;

/// Offsets in the library's compact form of the fields that are changed here: mode, flags, accumulator.
const MODE: usize = 7;
const MODE_MASK: u8 = 3;
const MODE_LIST: u8 = 0;
const MODE_SET: u8 = 1;
const LIST_HEADER_BYTES: usize = 8;
const SET_HEADER_BYTES: usize = 12;
const FLAGS: usize = 5;
const FLAG_OUT_OF_ORDER: u8 = 16;
const ACCUMULATOR: std::ops::Range<usize> = 8..16;
pub(crate) const COUPON_BYTES: usize = 4;

/// Users that are kept as a list at most. Most sets that are united hold the users of one request.
const LISTED_MAX: usize = 128;

/// The hash of a user: made once, added to many sketches.
#[derive(Debug, Clone, Copy)]
pub struct User(Hashed);

#[derive(Debug, Clone, Copy)]
enum Hashed {
    Now(Coupon),
    /// When the user got a pseudonym: as a sketch of few users holds it.
    Before([u8; COUPON_BYTES]),
}

impl User {
    /// Hashes the UTF-8 of a user as other systems do. A pseudonym has the hash of the name.
    pub fn new(user: &str) -> Self {
        Self(match pseudonym::parts(user) {
            None => Hashed::Now(Coupon::from_value(raw_bytes::from_str(user))),
            Some((_, coupon)) => Hashed::Before(coupon),
        })
    }

    /// The bytes that a sketch of few users holds of the user.
    pub(crate) fn coupon(self) -> [u8; COUPON_BYTES] {
        match self.0 {
            Hashed::Before(coupon) => coupon,
            Hashed::Now(_) => {
                let mut one = Users::default();
                one.add(self);
                let bytes = one.sketch().serialize();
                let coupon = bytes[LIST_HEADER_BYTES..].first_chunk();
                *coupon.expect("BUG: a list holds its user")
            }
        }
    }
}

/// A set of users, estimated.
///
/// ```
/// use tallyring_records::{User, Users};
///
/// let mut users = Users::default();
/// for user in ["ann", "bob", "ann"] {
///     users.add(User::new(user));
/// }
/// assert_eq!(users.estimate(), 2);
/// let read = Users::from_payload(users.to_payload().as_bytes()).unwrap();
/// assert_eq!(read.estimate(), 2);
/// ```
#[derive(Clone)]
pub struct Users(Set);

/// Users in the form that the last change needed. A union of registers with few users costs as much as one of two sets
/// of registers in the library, so few users stay a list, which is added one by one.
#[derive(Clone)]
enum Set {
    /// Each user once.
    List(Vec<Coupon>),
    /// Takes single users.
    Sketch(HllSketch),
    /// Takes sketches.
    Union(HllUnion),
}

impl Default for Users {
    fn default() -> Self {
        Self(Set::List(Vec::new()))
    }
}

impl Users {
    /// Adds a user.
    pub fn add(&mut self, user: User) {
        match user.0 {
            Hashed::Now(coupon) => self.add_coupon(coupon),
            Hashed::Before(coupon) => {
                if let Some(one) = Self::of_coupon(coupon) {
                    self.union(&one);
                }
            }
        }
    }

    fn add_coupon(&mut self, coupon: Coupon) {
        match &mut self.0 {
            Set::List(list) if list.contains(&coupon) => {}
            Set::List(list) if list.len() < LISTED_MAX => list.push(coupon),
            Set::Sketch(sketch) => sketch.update_with_coupon(coupon),
            _ => {
                let mut sketch = self.sketch().into_owned();
                sketch.update_with_coupon(coupon);
                self.0 = Set::Sketch(sketch);
            }
        }
    }

    /// The set of one user; none where no hash has such bytes.
    fn of_coupon(coupon: [u8; COUPON_BYTES]) -> Option<Self> {
        let mut one = Self::default();
        one.add(User::new(""));
        let mut bytes = one.sketch().serialize();
        bytes
            .get_mut(LIST_HEADER_BYTES..LIST_HEADER_BYTES + COUPON_BYTES)?
            .copy_from_slice(&coupon);
        let sketch = HllSketch::deserialize(&bytes).ok()?;
        Some(Self(Set::Sketch(sketch)))
    }

    /// True when nobody was added.
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Set::List(list) => list.is_empty(),
            Set::Sketch(sketch) => sketch.is_empty(),
            Set::Union(union) => union.is_empty(),
        }
    }

    /// Adds all users of another set.
    pub fn union(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (_, Set::List(list)) => list.iter().for_each(|coupon| self.add_coupon(*coupon)),
            (Set::Union(union), _) => union.update(&other.sketch()),
            _ => {
                let union = HllUnion::new(LG_REGISTERS);
                let mut union = union.expect("BUG: 2^12 registers are allowed");
                union.update(&self.sketch());
                union.update(&other.sketch());
                self.0 = Set::Union(union);
            }
        }
    }

    /// The estimated number of users.
    pub fn estimate(&self) -> u64 {
        self.sketch().composite_estimate().round() as u64
    }

    /// Bytes of memory that the users hold, about.
    pub fn bytes(&self) -> usize {
        let held = match &self.0 {
            Set::List(list) => size_of::<Coupon>() * list.capacity(),
            Set::Sketch(sketch) => sketch.estimated_size(),
            Set::Union(union) => union.estimated_size(),
        };
        size_of::<Self>() + held
    }

    fn sketch(&self) -> Cow<'_, HllSketch> {
        match &self.0 {
            Set::Sketch(sketch) => Cow::Borrowed(sketch),
            Set::Union(union) => Cow::Owned(union.to_sketch(HllType::Hll8)),
            Set::List(list) => {
                let sketch = HllSketch::new(LG_REGISTERS, HllType::Hll8);
                let mut sketch = sketch.expect("BUG: 2^12 registers are allowed");
                list.iter()
                    .for_each(|coupon| sketch.update_with_coupon(*coupon));
                Cow::Owned(sketch)
            }
        }
    }

    /// The payload of a line.
    pub fn to_payload(&self) -> String {
        let mut bytes = self.sketch().serialize();
        match bytes[MODE] & MODE_MASK {
            MODE_LIST => sort_coupons(&mut bytes[LIST_HEADER_BYTES..]),
            MODE_SET => sort_coupons(&mut bytes[SET_HEADER_BYTES..]),
            _ => {
                bytes[FLAGS] |= FLAG_OUT_OF_ORDER;
                bytes[ACCUMULATOR].fill(0);
            }
        }
        BASE64_NOPAD.encode(&bytes)
    }

    /// Reads the payload of a line; `None` when it is no sketch of this size.
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        let bytes = BASE64_NOPAD.decode(payload).ok()?;
        let sketch = HllSketch::deserialize(&bytes).ok()?;
        let fits = sketch.lg_config_k() == LG_REGISTERS && sketch.target_type() == HllType::Hll8;
        fits.then_some(Self(Set::Sketch(sketch)))
    }
}

fn sort_coupons(bytes: &mut [u8]) {
    let mut coupons: Vec<u32> = bytes
        .chunks_exact(COUPON_BYTES)
        .map(|coupon| u32::from_le_bytes(coupon.try_into().expect("BUG: four bytes")))
        .collect();
    coupons.sort_unstable();
    for (place, coupon) in bytes.chunks_exact_mut(COUPON_BYTES).zip(coupons) {
        place.copy_from_slice(&coupon.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn users(numbers: impl IntoIterator<Item = u32>) -> Users {
        let mut users = Users::default();
        numbers
            .into_iter()
            .for_each(|number| users.add(User::new(&format!("user-{number}"))));
        users
    }

    #[test]
    fn the_measured_error_is_within_the_bound() {
        // A hundred sets of each size; one sketch may be off by three times the standard error.
        for (size, sets) in [(100, 100), (10_000, 100), (1_000_000, 4)] {
            let mut squares = 0.0;
            for set in 0..sets {
                let first = set * size;
                let estimate = users(first..first + size).estimate() as f64;
                let error = estimate / f64::from(size) - 1.0;
                assert!(error.abs() < 3.5 * USERS_RELATIVE_ERROR, "{size}: {error}");
                squares += error * error;
            }
            let measured = (squares / f64::from(sets)).sqrt();
            // Four sets say little of a deviation.
            let bound = if sets < 10 { 2.0 } else { 1.2 } * USERS_RELATIVE_ERROR;
            assert!(measured < bound, "{size}: {measured}");
            assert!(size > 100 || measured < 0.001, "{size}: {measured}");
        }
    }

    #[test]
    fn text_that_is_no_sketch_is_refused() {
        let good = users(0..5).to_payload();
        assert_eq!(Users::from_payload(good.as_bytes()).unwrap().estimate(), 5);
        let small = BASE64_NOPAD.encode(&HllSketch::new(10, HllType::Hll8).unwrap().serialize());
        for wrong in ["", "US:4", "AgEHDAMI=", &good[..good.len() - 4], &small] {
            assert!(Users::from_payload(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_small_set_is_small() {
        assert_eq!(users(0..5).to_payload().len(), 38);
        assert!(users(0..384).to_payload().len() < 2_100);
        assert!(users(0..100_000).to_payload().len() < 5_600);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn prop_bytes_depend_on_the_users_alone(
            cuts in proptest::collection::vec(0..2_000_u32, 0..6),
            size in 0..2_000_u32,
        ) {
            let whole = users(0..size);
            let mut edges = cuts;
            edges.extend([0, size]);
            edges.sort_unstable();
            let mut merged = Users::default();
            // The last part first, the users of each backwards, all through their bytes.
            for pair in edges.windows(2).rev() {
                let part = users((pair[0].min(size)..pair[1].min(size)).rev());
                merged.union(&Users::from_payload(part.to_payload().as_bytes()).unwrap());
                merged.union(&part);
            }
            prop_assert_eq!(merged.to_payload(), whole.to_payload());
            prop_assert_eq!(merged.estimate(), whole.estimate());
        }
    }
}
