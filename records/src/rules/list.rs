//! Lists of user agents and networks, by which rules judge. A list is named by the SHA-256 of its content.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::RulesError;
use crate::names::is_name;
use crate::schema::{Schema, SchemaError};
use crate::words::grouped;

/// A declared list, by what it holds and not by its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// 1–24 of `[a-z][a-z0-9_]*`.
    pub name: String,
    /// The thing that a line holds.
    #[serde(rename = "match")]
    pub kind: ListKind,
    /// SHA-256 of the content, 64 hexadecimal digits in lower case.
    pub sha256: String,
}

/// The thing that a line of a list holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListKind {
    /// A regular expression, which may match anywhere in the user agent.
    UserAgent,
    /// An address, or a network such as `192.0.2.0/24`.
    Ip,
}

/// A fault of a list, with its line where one line has it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{what}", line.map_or_else(String::new, |line| format!("line {line}: ")))]
pub struct ListError {
    /// From 1.
    pub line: Option<usize>,
    /// The fault, and what to write instead.
    pub what: String,
}

/// Largest content, bytes.
pub const LIST_BYTES_MAX: u64 = 256 << 20;
const LISTS_MAX: usize = 64;
const LINES_MAX: usize = 2_000_000;
const LINE_BYTES_MAX: usize = 4 << 10;
const PATTERNS_MAX: usize = 20_000;
/// Memory of all compiled patterns of a list.
const PATTERN_BYTES_MAX: usize = 64 << 20;
/// Memory in which each thread keeps what a search has worked out. With less of it, lists of some hundred patterns are
/// worked out again and again.
const SEARCH_BYTES_MAX: usize = 32 << 20;

/// A list that events can be looked up in.
#[derive(Debug)]
pub(super) struct Content {
    pub kind: ListKind,
    pub sha256: String,
    /// Patterns or networks that it holds.
    pub entries: usize,
    pub search: Search,
}

#[derive(Debug)]
pub(super) enum Search {
    Networks(Networks),
    /// All at once.
    Patterns(RegexSet),
}

/// Networks as ranges that ascend and never touch.
#[derive(Debug)]
pub(super) struct Networks {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

/// SHA-256 of a list's content, hexadecimal.
pub fn content_hash(content: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(digest(&SHA256, content).as_ref())
}

/// Checks the content of a list; returns how many patterns or networks it holds. The error names the first line that
/// cannot be used.
pub fn check_list(kind: ListKind, content: &[u8]) -> Result<usize, ListError> {
    Content::parse(kind, content, String::new()).map(|content| content.entries)
}

/// As [`check_list`], for a content by which no store judges yet: networks that together hold every address of IPv4, or
/// of IPv6, are wrong. A store that took such a content once has to read it for as long as it judges by it.
pub fn check_new_list(kind: ListKind, content: &[u8]) -> Result<usize, ListError> {
    let content = Content::parse(kind, content, String::new())?;
    let all = match &content.search {
        Search::Networks(networks) => networks.held_as_a_whole(),
        Search::Patterns(_) => None,
    };
    match all {
        None => Ok(content.entries),
        Some(family) => Err(all_wrong(format!(
            "the networks together hold every address of {family}; leave out those that are not meant"
        ))),
    }
}

impl ListKind {
    /// The word of the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::UserAgent => "user_agent",
            Self::Ip => "ip",
        }
    }
}

impl List {
    /// Reads the content that belongs to the list.
    pub(super) fn read(
        &self,
        content: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<Content, RulesError> {
        let bytes = content(&self.sha256).filter(|bytes| content_hash(bytes) == self.sha256);
        let missing = || RulesError::Missing {
            list: self.name.clone(),
            sha256: self.sha256.clone(),
        };
        let parsed = Content::parse(self.kind, &bytes.ok_or_else(missing)?, self.sha256.clone());
        parsed.map_err(|error| RulesError::Wrong {
            list: self.name.clone(),
            error,
        })
    }
}

impl Schema {
    /// This schema with other lists.
    pub fn with_lists(&self, lists: &[List]) -> Self {
        Self {
            lists: lists.to_vec(),
            ..self.clone()
        }
    }

    pub(crate) fn validate_lists(&self) -> Result<(), SchemaError> {
        if self.lists.len() > LISTS_MAX {
            let lists = self.lists.len();
            let text = format!("{lists} lists are declared; declare at most {LISTS_MAX}");
            return Err(SchemaError(text));
        }
        for (index, list) in self.lists.iter().enumerate() {
            let named = list.name.escape_debug();
            if !is_name(&list.name) {
                return Err(SchemaError(format!(
                    "list `{named}`: its name must be 1 to 24 of a-z, 0-9 and _, starting with a letter"
                )));
            }
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            if list.sha256.len() != 64 || !list.sha256.bytes().all(is_digit) {
                return Err(SchemaError(format!(
                    "list `{named}`: sha256 must be 64 hexadecimal digits in lower case"
                )));
            }
            if self.lists[..index].iter().any(|of| of.name == list.name) {
                return Err(SchemaError(format!(
                    "list `{named}` is declared twice; keep one"
                )));
            }
        }
        Ok(())
    }
}

impl Content {
    fn parse(kind: ListKind, content: &[u8], sha256: String) -> Result<Self, ListError> {
        let lines = lines(kind, content)?;
        let search = match kind {
            ListKind::Ip => Search::Networks(Networks::parse(&lines)?),
            ListKind::UserAgent => Search::Patterns(patterns(&lines)?),
        };
        Ok(Self {
            kind,
            sha256,
            entries: lines.len(),
            search,
        })
    }
}

fn wrong(line: usize, what: impl Into<String>) -> ListError {
    ListError {
        line: Some(line),
        what: what.into(),
    }
}

fn all_wrong(what: String) -> ListError {
    ListError { line: None, what }
}

/// The lines with something on them, each with its number from 1. Comments begin with `#`.
fn lines(kind: ListKind, content: &[u8]) -> Result<Vec<(usize, &str)>, ListError> {
    if content.len() as u64 > LIST_BYTES_MAX {
        return Err(all_wrong(format!(
            "the list has more than {} MiB; shorten it",
            LIST_BYTES_MAX >> 20
        )));
    }
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let mut found = Vec::new();
    for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
        let number = index + 1;
        if number > LINES_MAX && !line.is_empty() {
            return Err(wrong(
                number,
                format!(
                    "the list has more than {} lines; shorten it",
                    grouped(LINES_MAX as u64)
                ),
            ));
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(wrong(
                number,
                format!(
                    "it has {} bytes; write at most {LINE_BYTES_MAX}",
                    line.len()
                ),
            ));
        }
        let text = std::str::from_utf8(line);
        let text = text.map_err(|_| wrong(number, "it is no UTF-8; save the list as UTF-8"))?;
        let mut text = text.trim();
        if text.starts_with('#') {
            continue;
        }
        if kind == ListKind::Ip {
            // No address has a `#`; a pattern may have one.
            text = text.split('#').next().unwrap_or_default().trim_end();
        }
        if !text.is_empty() {
            found.push((number, text));
        }
    }
    match found.is_empty() {
        true => Err(all_wrong(
            "the list is empty; write a line, or leave the list and its rules out".into(),
        )),
        false => Ok(found),
    }
}

impl Networks {
    fn parse(lines: &[(usize, &str)]) -> Result<Self, ListError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for &(line, text) in lines {
            match range(text).map_err(|what| wrong(line, what))? {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    v4.push((u32::from(first), u32::from(last)));
                }
                (first, last) => v6.push((bits(first), bits(last))),
            }
        }
        Ok(Self {
            v4: joined(v4, |last| last.checked_add(1)),
            v6: joined(v6, |last| last.checked_add(1)),
        })
    }

    /// The family of which the networks hold every address.
    fn held_as_a_whole(&self) -> Option<&'static str> {
        match self {
            Self { v4, .. } if v4 == &[(0, u32::MAX)] => Some("IPv4"),
            Self { v6, .. } if v6 == &[(0, u128::MAX)] => Some("IPv6"),
            _ => None,
        }
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => is_in(&self.v4, u32::from(address)),
            IpAddr::V6(address) => is_in(&self.v6, u128::from(address)),
        }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// First and last address of a network. Networks of IPv4 in IPv6 are networks of IPv4.
fn range(text: &str) -> Result<(IpAddr, IpAddr), String> {
    let shown: String = text.chars().take(60).collect();
    let shown = shown.escape_debug();
    let network: IpNetwork = text.parse().map_err(|_| {
        format!(
            "`{shown}` is no network; write one such as 192.0.2.0/24, 2001:db8::/32 or 192.0.2.7"
        )
    })?;
    if network.ip() != network.network() {
        return Err(format!(
            "`{shown}` has bits behind its prefix; write {}/{} or {}",
            network.network(),
            network.prefix(),
            network.ip()
        ));
    }
    match network {
        IpNetwork::V4(v4) => Ok((v4.network().into(), v4.broadcast().into())),
        IpNetwork::V6(v6) => {
            let ends: (Ipv6Addr, Ipv6Addr) = (v6.network(), v6.broadcast());
            let mapped: (Option<Ipv4Addr>, Option<Ipv4Addr>) =
                (ends.0.to_ipv4_mapped(), ends.1.to_ipv4_mapped());
            Ok(match mapped {
                (Some(first), Some(last)) => (first.into(), last.into()),
                _ => (ends.0.into(), ends.1.into()),
            })
        }
    }
}

/// Sorts ranges and joins those that overlap or touch.
fn joined<T: Ord + Copy>(mut ranges: Vec<(T, T)>, next: impl Fn(T) -> Option<T>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    ranges.dedup_by(|later, kept| {
        let touches = next(kept.1).is_none_or(|next| later.0 <= next);
        if touches {
            kept.1 = kept.1.max(later.1);
        }
        touches
    });
    ranges.shrink_to_fit();
    ranges
}

fn is_in<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> bool {
    let behind = ranges.partition_point(|(first, _)| *first <= address);
    let found = behind.checked_sub(1).map(|index| ranges[index]);
    found.is_some_and(|(_, last)| address <= last)
}

fn patterns(lines: &[(usize, &str)]) -> Result<RegexSet, ListError> {
    if lines.len() > PATTERNS_MAX {
        return Err(all_wrong(format!(
            "the list has {} patterns; a list of user agents has at most {}",
            grouped(lines.len() as u64),
            grouped(PATTERNS_MAX as u64)
        )));
    }
    let set = RegexSetBuilder::new(lines.iter().map(|(_, text)| text))
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(SEARCH_BYTES_MAX)
        .build();
    let set = set.map_err(|_| find_wrong(lines))?;
    if let Some(index) = set.matches("").iter().next() {
        let (line, _) = lines[index];
        return Err(wrong(
            line,
            "the pattern matches every user agent; write one that matches something",
        ));
    }
    Ok(set)
}

/// The first pattern that cannot be compiled alone, or that all together are too large.
fn find_wrong(lines: &[(usize, &str)]) -> ListError {
    let compiled = |text: &str| -> Result<Regex, regex::Error> {
        RegexBuilder::new(text)
            .size_limit(PATTERN_BYTES_MAX)
            .build()
    };
    for &(line, text) in lines {
        if let Err(error) = compiled(text) {
            let error = error.to_string();
            // The last line of the message says what is wrong, those before show the pattern.
            let why = error.lines().last().unwrap_or_default();
            let why = why.trim_start_matches("error: ");
            return wrong(
                line,
                format!(
                    "the regular expression cannot be used: {why}; a literal `{}` is written with a \\ before it",
                    "( ) [ ] { } . * + ? | ^ $ \\"
                ),
            );
        }
    }
    all_wrong(format!(
        "the patterns together take more than {} MiB when they are compiled; shorten the list, or split it into two lists",
        PATTERN_BYTES_MAX >> 20
    ))
}
