//! Writes small files in the format of MaxMind, with records of 24 bits and addresses of IPv6.

use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::IpNetwork;

/// The networks of tests: two of the United States with a region, one of Germany without, and private ones.
const NETWORKS: [(&str, &str, Option<&str>); 6] = [
    ("203.0.113.0/24", "US", Some("CA")),
    ("198.51.100.0/25", "DE", None),
    ("2001:db8:1::/48", "US", Some("CA")),
    ("10.0.0.0/8", "FR", None),
    ("192.168.0.0/16", "FR", None),
    ("127.0.0.0/8", "FR", None),
];

/// Stands for an alias until its node is known.
const ALIAS: usize = usize::MAX;
const SEPARATOR: [u8; 16] = [0; 16];
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// A file of this type with the networks of tests.
pub(crate) fn small(kind: &str) -> Vec<u8> {
    let mut tree = Tree::default();
    let mut data = Vec::new();
    for (network, country, region) in NETWORKS {
        let network: IpNetwork = network.parse().expect("a network");
        tree.insert(network, data.len());
        data.extend(record(country, region));
    }
    let mut file = tree.bytes();
    file.extend(SEPARATOR);
    file.extend(data);
    file.extend(MARKER);
    file.extend(metadata(kind, tree.nodes.len()));
    file
}

/// A file of IPv6 whose first 96 nodes have both children at the next one: 2^96 paths lead to the tree of IPv4.
pub(super) fn labyrinth(kind: &str) -> Vec<u8> {
    let next = |node: usize| [Some(Child::Node(node + 1)); 2];
    let mut nodes: Vec<_> = (0..96).map(next).collect();
    nodes.push([None; 2]);
    let tree = Tree { nodes };
    let data = record("US", None);
    let metadata = metadata(kind, tree.nodes.len());
    [&tree.bytes(), &SEPARATOR[..], &data, MARKER, &metadata].concat()
}

/// A file of this type in which all addresses of IPv4 are of the United States, with the aliases that files of the
/// world have.
pub(super) fn with_aliases(kind: &str) -> Vec<u8> {
    let mut tree = Tree::default();
    tree.insert("0.0.0.0/1".parse().expect("a network"), 0);
    tree.insert("128.0.0.0/1".parse().expect("a network"), 0);
    for alias in ["::ffff:0:0/96", "2001::/32", "2002::/16", "64:ff9b::/96"] {
        let alias: IpNetwork = alias.parse().expect("a network");
        tree.insert(alias, ALIAS);
    }
    let of_ipv4 = tree.nodes.iter().position(|node| {
        let is_data = |child: &Option<Child>| matches!(child, Some(Child::Data(0)));
        node.iter().all(is_data)
    });
    let of_ipv4 = of_ipv4.expect("the tree of IPv4");
    for child in tree.nodes.iter_mut().flatten() {
        if matches!(child, Some(Child::Data(ALIAS))) {
            *child = Some(Child::Node(of_ipv4));
        }
    }
    let data = record("US", None);
    let metadata = metadata(kind, tree.nodes.len());
    [&tree.bytes(), &SEPARATOR[..], &data, MARKER, &metadata].concat()
}

/// Nodes with two children each: a node, or the offset of a record in the data.
#[derive(Default)]
struct Tree {
    nodes: Vec<[Option<Child>; 2]>,
}

#[derive(Clone, Copy)]
enum Child {
    Node(usize),
    Data(usize),
}

impl Tree {
    fn insert(&mut self, network: IpNetwork, offset: usize) {
        let (bits, length) = match network.network() {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 96 + network.prefix()),
            IpAddr::V6(v6) => (u128::from(v6), network.prefix()),
        };
        if self.nodes.is_empty() {
            self.nodes.push([None; 2]);
        }
        let mut node = 0;
        for depth in 0..length {
            let bit = usize::from(bits >> (127 - depth) & 1 == 1);
            if depth + 1 == length {
                self.nodes[node][bit] = Some(Child::Data(offset));
            } else if let Some(Child::Node(next)) = self.nodes[node][bit] {
                node = next;
            } else {
                let next = self.nodes.len();
                self.nodes[node][bit] = Some(Child::Node(next));
                self.nodes.push([None; 2]);
                node = next;
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let count = self.nodes.len();
        let children = self.nodes.iter().flatten();
        let numbers = children.map(|child| match *child {
            None => count,
            Some(Child::Node(number)) => number,
            Some(Child::Data(offset)) => count + SEPARATOR.len() + offset,
        });
        let numbers = numbers.map(|number| u32::try_from(number).expect("a small file"));
        numbers
            .flat_map(|number| number.to_be_bytes().into_iter().skip(1))
            .collect()
    }
}

fn record(country: &str, region: Option<&str>) -> Vec<u8> {
    let coded = |code: &str| map(&[("iso_code", text(code))]);
    let country = ("country", coded(country));
    match region {
        Some(region) => map(&[country, ("subdivisions", list(&[coded(region)]))]),
        None => map(&[country]),
    }
}

fn metadata(kind: &str, nodes: usize) -> Vec<u8> {
    map(&[
        ("binary_format_major_version", number(5, 2)),
        ("binary_format_minor_version", number(5, 0)),
        ("build_epoch", number(9, 1_700_000_000)),
        ("database_type", text(kind)),
        ("description", map(&[("en", text("of tests"))])),
        ("ip_version", number(5, 6)),
        ("languages", list(&[text("en")])),
        ("node_count", number(6, nodes)),
        ("record_size", number(5, 24)),
    ])
}

/// The control byte of a type (below 8), or two of another one.
fn control(kind: u8, size: usize) -> Vec<u8> {
    let size = u8::try_from(size).expect("a small value");
    assert!(size < 29, "BUG: longer sizes are not written");
    match kind {
        1..=7 => vec![kind << 5 | size],
        _ => vec![size, kind - 7],
    }
}

fn text(text: &str) -> Vec<u8> {
    [control(2, text.len()), text.as_bytes().to_vec()].concat()
}

fn number(kind: u8, number: usize) -> Vec<u8> {
    let bytes = u64::try_from(number).expect("a small number").to_be_bytes();
    let from = bytes.iter().position(|&byte| byte != 0);
    let bytes = &bytes[from.unwrap_or(bytes.len())..];
    [control(kind, bytes.len()), bytes.to_vec()].concat()
}

fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let pairs = entries.iter();
    let pairs = pairs.flat_map(|(name, value)| [text(name), value.clone()].concat());
    control(7, entries.len()).into_iter().chain(pairs).collect()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [control(11, items.len()), items.concat()].concat()
}

/// Addresses of each network, and one of none.
pub(super) fn addresses() -> Vec<IpAddr> {
    let networks = NETWORKS.iter();
    let networks = networks.map(|(network, ..)| network.parse::<IpNetwork>().expect("a network"));
    networks
        .map(|network| network.network())
        .chain([Ipv6Addr::from(u128::MAX).into()])
        .collect()
}
