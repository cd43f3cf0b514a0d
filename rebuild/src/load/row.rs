//! Rows: fields are checked, names are resolved, keys and values get their stored form.

use std::ops::Range;

use tallyring_records::{
    KEY_BYTES_MAX, LongKeys, MISSING, Namespace, Schema, ShardPrefix, ShortText, TimeCode,
    dimensions, is_hash, is_plain_ascii,
};

use super::bucket::Bucket;
use super::field;
use super::field::{parts_of, shown};
use super::known::{Known, Numbers};

/// The fields of a row as they are in a file; a missing field is empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'f> {
    /// Namespace.
    pub namespace: &'f [u8],
    /// Key.
    pub key: &'f [u8],
    /// RFC 3339 or Unix seconds; of a day also its date.
    pub hour: &'f [u8],
    /// Whole number.
    pub count: &'f [u8],
    /// The breakdown that this row is part of; empty for a total.
    pub subtotal: &'f [u8],
    /// Value of the subtotal.
    pub value: &'f [u8],
    /// Width of the bucket; empty for the namespace's base bucket.
    pub unit: &'f [u8],
}

/// Rows that can be counted, stored in the order in which they are read later.
#[derive(Default)]
pub(super) struct StagedRows {
    rows: Vec<Row>,
    /// Fields that few rows have.
    extra: Vec<Extra>,
    /// Long keys, and values, in their stored form.
    texts: Vec<u8>,
    /// Hash and raw text; a known text has one.
    lookups: Vec<(String, String)>,
    /// Bytes of these texts.
    lookup_bytes: usize,
    /// Known texts whose lookups were among these or earlier rows.
    looked_up: Numbers,
}

/// A row that can be counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Namespace and key in their stored form, `l|abc`, if they are short; otherwise empty.
    key: ShortText,
    /// At least 1.
    pub count: u64,
    /// Base bucket.
    pub bucket: Bucket,
    /// Index of the extra fields, counted from 1; 0 for a total whose key is short and not a hash.
    extra: u32,
}

/// Namespace and key of a row in their stored form, `l|abc`.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowKey<'r> {
    /// A short key, as most are.
    Short(ShortText),
    /// A long key.
    Long(&'r [u8]),
}

struct Extra {
    /// Namespace and key, if they are long.
    key: Option<Range<u32>>,
    /// The breakdown by number in [`Names`] and its value.
    part: Option<(u16, Range<u32>)>,
    lookups: Range<u32>,
}

impl StagedRows {
    /// True when there are no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Memory of all rows, bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.rows.as_slice())
            + self.texts.len()
            + size_of_val(self.extra.as_slice())
            + size_of_val(self.lookups.as_slice())
            + self.lookup_bytes
    }

    /// All rows, in the order in which they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// Namespace and key of a row.
    pub(super) fn key(&self, row: &Row) -> RowKey<'_> {
        match self.extra(row).and_then(|extra| extra.key.as_ref()) {
            Some(long) => RowKey::Long(self.text(long)),
            None => RowKey::Short(row.key),
        }
    }

    /// The breakdown that the row is part of, by number in [`Names`], and its value; none for a total.
    pub(super) fn part(&self, row: &Row) -> Option<(u16, &[u8])> {
        let (subtotal, value) = self.extra(row)?.part.as_ref()?;
        Some((*subtotal, self.text(value)))
    }

    /// Hashes in the row, each with its raw text.
    pub(super) fn lookups(&self, row: &Row) -> &[(String, String)] {
        self.extra(row)
            .map_or(&[], |extra| &self.lookups[usize_range(&extra.lookups)])
    }

    /// Removes all rows. Memory for about `usual` bytes is kept; more is freed. A file that is sorted by key fills one
    /// lane after the other, and not every lane may keep the memory of a whole chunk.
    pub(super) fn clear(&mut self, usual: usize) {
        let held = size_of::<Row>() * self.rows.capacity()
            + self.texts.capacity()
            + size_of::<Extra>() * self.extra.capacity()
            + size_of::<(String, String)>() * self.lookups.capacity();
        // Vectors that grow by doubling hold up to twice their size.
        if held > 3 * usual {
            *self = Self::default();
            return;
        }
        self.rows.clear();
        self.texts.clear();
        self.extra.clear();
        self.lookups.clear();
        self.lookup_bytes = 0;
    }

    fn look_up(&mut self, stored: &str, raw: &str) {
        if is_hash(stored) {
            self.lookup_bytes += stored.len() + raw.len();
            self.lookups.push((stored.to_owned(), raw.to_owned()));
        }
    }

    fn extra(&self, row: &Row) -> Option<&Extra> {
        let index = row.extra.checked_sub(1)?;
        Some(&self.extra[index as usize])
    }

    fn text(&self, range: &Range<u32>) -> &[u8] {
        &self.texts[usize_range(range)]
    }

    fn add_text(&mut self, parts: &[&[u8]]) -> Range<u32> {
        let start = self.texts.len();
        for part in parts {
            self.texts.extend_from_slice(part);
        }
        u32_range(start..self.texts.len())
    }
}

fn u32_range(range: Range<usize>) -> Range<u32> {
    let narrow = |index| u32::try_from(index).expect("BUG: a few chunks of rows");
    narrow(range.start)..narrow(range.end)
}

fn usize_range(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Names of all subtotals of a schema, in the order of their bytes.
pub(super) struct Names(Vec<String>);

impl Names {
    /// Collects the names of all namespaces.
    pub(super) fn new(schema: &Schema) -> Self {
        let mut names: Vec<String> = schema
            .namespaces
            .iter()
            .flat_map(|namespace| namespace.subtotals.iter().cloned())
            .collect();
        names.sort_unstable();
        names.dedup();
        Self(names)
    }

    /// The name with this number.
    pub(super) fn get(&self, number: u16) -> &str {
        &self.0[usize::from(number)]
    }

    /// The number of a name.
    pub(super) fn find(&self, name: &str) -> Option<u16> {
        let found = self.0.binary_search_by(|known| known.as_str().cmp(name));
        found.ok().and_then(|index| u16::try_from(index).ok())
    }
}

/// Checks rows against a schema.
pub(super) struct Reader<'s> {
    schema: &'s Schema,
    keys: &'s LongKeys,
    known: &'s mut Known,
    /// The latest hour that is taken, Unix seconds.
    latest: i64,
    /// Index of the previous row's namespace, which is mostly that of the next row, too.
    last: usize,
    /// By index of the namespace.
    prefixes: Vec<Prefix>,
}

/// A namespace, and the beginning of its keys, `l|`.
struct Prefix {
    /// Name of the namespace, if it is short.
    name: Option<ShortText>,
    shard: ShardPrefix,
    /// Beginning of its keys, if it is short.
    text: Option<ShortText>,
    /// Numbers of its subtotals in [`Names`].
    subtotals: Vec<u16>,
}

/// The key of a row.
struct Key<'k> {
    /// Stored form without the namespace.
    stored: &'k [u8],
    /// Stored form and raw text, unless the key is plain ASCII.
    not_plain: Option<(&'k str, &'k str)>,
    /// Stored form with the namespace, if it is short.
    short: Option<ShortText>,
}

impl<'s> Reader<'s> {
    /// Creates a reader of rows whose hours are `latest` (Unix seconds) at most.
    pub(super) fn new(
        schema: &'s Schema,
        (keys, known): (&'s LongKeys, &'s mut Known),
        names: &Names,
        latest: i64,
    ) -> Self {
        Self {
            schema,
            keys,
            known,
            latest,
            last: 0,
            prefixes: schema
                .namespaces
                .iter()
                .map(|namespace| {
                    let name = ShortText::of(namespace.name.as_bytes());
                    let subtotals = namespace.subtotals.iter();
                    let number = |name: &String| names.find(name).expect("BUG: all are collected");
                    Prefix {
                        subtotals: subtotals.map(number).collect(),
                        name,
                        shard: ShardPrefix::of(&namespace.name),
                        text: name.and_then(|name| name.followed_by(b"|")),
                    }
                })
                .collect(),
        }
    }

    /// Reads a row and adds it to the rows that `rows_of` chooses by the stored key. A row with count 0 is checked and
    /// not added.
    ///
    /// Nearly all rows are totals of plain keys. For these, no value is copied that another place has, and nothing is
    /// read as a whole just after it was written in parts: a processor waits for that longer than a field takes to
    /// check. The error is a sentence for the user that names the wrong field.
    pub(super) fn row<'r>(
        &mut self,
        fields: &Fields<'_>,
        rows_of: impl FnOnce(&ShardPrefix, &[u8]) -> &'r mut StagedRows,
    ) -> Result<(), String> {
        let namespace = self.namespace(fields.namespace)?;
        let grain = field::unit(fields.unit, namespace.grain)?;
        let seconds = field::hour(fields.hour, grain, self.latest)?;
        let count = field::count(fields.count)?;
        if fields.key.is_empty() {
            return Err("`key` is empty".into());
        }
        let long;
        let (stored, not_plain) = if is_plain_ascii(fields.key) {
            (fields.key, None)
        } else {
            let raw = text("key", fields.key)?;
            long = self.keys.stored(raw);
            (long.as_bytes(), Some((&*long, raw)))
        };
        let prefix = &self.prefixes[self.last];
        let rows = rows_of(&prefix.shard, stored);
        let short = prefix.text.and_then(|text| text.followed_by(stored));
        let is_total = fields.subtotal.is_empty() && fields.value.is_empty();
        let extra = if is_total && not_plain.is_none() && short.is_some() {
            0
        } else {
            let key = Key {
                stored,
                not_plain,
                short,
            };
            match count {
                0 => self.extra(namespace, fields, &key, &mut StagedRows::default())?,
                _ => self.extra(namespace, fields, &key, rows)?,
            }
        };
        if count == 0 {
            return Ok(());
        }
        rows.rows.push(Row {
            key: short.unwrap_or_default(),
            count,
            bucket: Bucket::of(TimeCode::containing(seconds, grain)),
            extra,
        });
        Ok(())
    }

    /// Adds the extra fields of a row: a breakdown, or a key that is long or not plain ASCII. Returns their index,
    /// counted from 1, or 0 for none. Nothing stays of a row that is wrong.
    fn extra(
        &mut self,
        namespace: &Namespace,
        fields: &Fields<'_>,
        key: &Key<'_>,
        rows: &mut StagedRows,
    ) -> Result<u32, String> {
        let first_lookup = rows.lookups.len();
        let part = self.part(namespace, fields, rows)?;
        if let Some((stored, raw)) = key.not_plain {
            rows.look_up(stored, raw);
        }
        let is_long = key.short.is_none();
        let long = is_long.then(|| rows.add_text(&[namespace.name.as_bytes(), b"|", key.stored]));
        let lookups = u32_range(first_lookup..rows.lookups.len());
        if long.is_none() && part.is_none() && lookups.is_empty() {
            return Ok(0);
        }
        let key = long;
        rows.extra.push(Extra { key, part, lookups });
        Ok(u32::try_from(rows.extra.len()).expect("BUG: a few chunks of rows"))
    }

    /// The breakdown that a row is part of.
    fn part(
        &mut self,
        namespace: &Namespace,
        fields: &Fields<'_>,
        rows: &mut StagedRows,
    ) -> Result<Option<(u16, Range<u32>)>, String> {
        match fields.subtotal {
            [] if fields.value.is_empty() => Ok(None),
            [] => Err(format!(
                "`value` is {}, but `subtotal` is empty; a total has neither",
                shown(fields.value)
            )),
            name => {
                let index = subtotal(namespace, name)?;
                let number = self.prefixes[self.last].subtotals[index];
                let value = self.value(&namespace.subtotals[index], fields.value, rows)?;
                Ok(Some((number, value)))
            }
        }
    }

    fn namespace(&mut self, name: &[u8]) -> Result<&'s Namespace, String> {
        let namespaces = &self.schema.namespaces;
        let short = ShortText::of(name);
        if short.is_some() && short == self.prefixes[self.last].name {
            return Ok(&namespaces[self.last]);
        }
        let found = namespaces
            .iter()
            .position(|namespace| namespace.name.as_bytes() == name);
        let declared = || {
            let names: Vec<&str> = namespaces.iter().map(|n| n.name.as_str()).collect();
            names.join(", ")
        };
        self.last = found.ok_or_else(|| {
            format!(
                "`namespace` must be one of {1}; got {0}",
                shown(name),
                declared()
            )
        })?;
        Ok(&namespaces[self.last])
    }

    /// Adds a value in its stored form. Each part of a crossed value has its own stored form.
    fn value(
        &mut self,
        subtotal: &str,
        value: &[u8],
        rows: &mut StagedRows,
    ) -> Result<Range<u32>, String> {
        let value = text("value", value)?;
        let dimensions = dimensions(subtotal).count();
        let start = rows.texts.len();
        if dimensions == 1 {
            self.add_stored(value, rows);
            return Ok(u32_range(start..rows.texts.len()));
        }
        let parts = parts_of(value);
        if parts.len() != dimensions {
            return Err(format!(
                "`value` is {}; `{subtotal}` takes {dimensions} values separated by *, with \\* for a * in a value",
                shown(value.as_bytes())
            ));
        }
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                rows.texts.push(b'*');
            }
            self.add_stored(part, rows);
        }
        Ok(u32_range(start..rows.texts.len()))
    }

    fn add_stored(&mut self, raw: &str, rows: &mut StagedRows) {
        if raw.is_empty() {
            rows.texts.extend_from_slice(MISSING.as_bytes());
        } else if let Some((number, hash)) = self.known.hash(self.keys, raw) {
            rows.texts.extend_from_slice(&hash);
            if rows.looked_up.add(number) {
                let hash = std::str::from_utf8(&hash).expect("BUG: a hash is ASCII");
                rows.look_up(hash, raw);
            }
        } else {
            let stored = self.keys.stored(raw);
            rows.texts.extend_from_slice(stored.as_bytes());
            rows.look_up(&stored, raw);
        }
    }
}

/// The index of a subtotal.
fn subtotal(namespace: &Namespace, name: &[u8]) -> Result<usize, String> {
    let declared = &namespace.subtotals;
    let found = declared.iter().position(|known| known.as_bytes() == name);
    found.ok_or_else(|| {
        let which = if declared.is_empty() {
            "none".into()
        } else {
            declared.join(", ")
        };
        format!(
            "`subtotal` is {}; `{}` declares {which}",
            shown(name),
            namespace.name
        )
    })
}

fn text<'t>(field: &str, bytes: &'t [u8]) -> Result<&'t str, String> {
    if bytes.len() > KEY_BYTES_MAX {
        return Err(format!(
            "`{field}` is {} bytes long; at most {KEY_BYTES_MAX} are allowed",
            bytes.len()
        ));
    }
    std::str::from_utf8(bytes)
        .map_err(|_| format!("`{field}` is {}, which is not UTF-8", shown(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays_of_rows_that_do_not_count() {
        let schema = Schema::default_clicks();
        let (keys, names) = (LongKeys::new([5; 32]), Names::new(&schema));
        let mut known = Known::default();
        let mut reader = Reader::new(&schema, (&keys, &mut known), &names, i64::MAX);
        let mut rows = StagedRows::default();
        let long: &[u8] = b"http://a.example/";
        let mut row = |count, value| {
            let fields = Fields {
                namespace: b"l",
                key: long,
                hour: b"1331920800",
                count,
                subtotal: b"r",
                value,
                unit: b"",
            };
            let read = reader.row(&fields, |_, _| &mut rows);
            let held = (rows.rows.len(), rows.extra.len(), rows.lookups.len());
            (read.is_ok(), held, rows.bytes())
        };
        assert_eq!(row(b"0", long), (true, (0, 0, 0), 0));
        assert_eq!(row(b"1", b"\xff"), (false, (0, 0, 0), 0));
        // The text of the key, and the text of the value.
        let (is_good, held, bytes) = row(b"1", long);
        assert_eq!((is_good, held), (true, (1, 1, 2)));
        assert!(bytes > 2 * long.len() + size_of::<Row>() + size_of::<Extra>());
    }
}
