//! Files of countries: whole, damaged, and of another kind.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

#[test]
fn a_file_says_its_type_and_age() {
    let geo = Geo::open(mmdb::small("GeoLite2-City"), true).expect("usable");
    assert_eq!(
        (geo.kind().as_str(), geo.built_at()),
        ("GeoLite2-City", 1_700_000_000)
    );
    for kind in ["GeoIP2-Country", "DBIP-Country-Lite"] {
        assert!(Geo::open(mmdb::small(kind), false).is_ok());
    }
    assert!(Geo::open(mmdb::small("GeoIP2-Enterprise"), true).is_ok());
}

/// `tests/` serves this file with the real program.
#[test]
fn the_file_of_other_tests_is_of_this_writer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/enrich/tests/small.mmdb");
    assert!(fs::read(path).expect("the file") == mmdb::small("GeoLite2-City"));
}

#[test]
fn a_file_that_cannot_be_used_says_why() {
    let whole = mmdb::small("GeoLite2-City");
    let cut = whole[..whole.len() / 2].to_vec();
    let noise = (0..4_096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8);
    let damaged = "is no whole file of the MaxMind DB format";
    for (bytes, needs_regions, says) in [
        (Vec::new(), false, damaged),
        (cut, false, damaged),
        (noise.collect(), false, damaged),
        (b"ip,country\n".to_vec(), false, damaged),
        (
            mmdb::small("GeoLite2-ASN"),
            false,
            "which tells no countries",
        ),
        (
            mmdb::small("GeoLite2-Country"),
            true,
            "which tells no regions",
        ),
        (mmdb::small("a\nb"), false, "is of the type `a\\nb`"),
    ] {
        let error = Geo::open(bytes, needs_regions).err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_tree_with_far_too_many_paths_is_refused() {
    let error = Geo::open(mmdb::labyrinth("GeoLite2-City"), false).err();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("far too many paths"), "{error}");
}

#[test]
fn aliases_of_the_addresses_of_ipv4_are_no_fault() {
    let geo = Geo::open(mmdb::with_aliases("GeoLite2-Country"), false).expect("usable");
    for address in ["203.0.113.9", "2002:cb00:7109::1"] {
        let place = geo.place(address.parse().expect("an address"));
        assert_eq!(place.country.as_deref(), Some("US"), "{address}");
    }
}

#[test]
fn a_file_that_was_cut_anywhere_is_refused() {
    let whole = mmdb::small("GeoLite2-City");
    for length in 0..whole.len() {
        assert!(
            Geo::open(whole[..length].to_vec(), true).is_err(),
            "{length}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn prop_no_damage_ends_the_process(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = mmdb::small("GeoLite2-City");
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // Some damage leaves a file that can be read; it tells some place then.
        if let Ok(geo) = Geo::open(bytes, false) {
            for address in mmdb::addresses() {
                let place = geo.place(address);
                prop_assert!(place.country.is_none_or(|country| country.len() == 2));
            }
        }
    }
}
