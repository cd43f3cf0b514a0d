//! A row: fields checked, names resolved, keys and values in their stored form.

use std::borrow::Cow;

use tallyring_records::{KEY_BYTES_MAX, LongKeys, MISSING, Namespace, Schema, TimeCode, is_hash};

use super::field;
use super::field::shown;

/// The fields of a row as they stand in a file; empty where there is none.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'f> {
    /// Namespace.
    pub namespace: &'f [u8],
    /// Key.
    pub key: &'f [u8],
    /// RFC 3339 or Unix seconds.
    pub hour: &'f [u8],
    /// Whole number.
    pub count: &'f [u8],
    /// The breakdown that this row is part of; empty for a total.
    pub subtotal: &'f [u8],
    /// Its value.
    pub value: &'f [u8],
}

/// A row that can be counted. Texts stand in the [`Texts`] it was read with.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Namespace and key: `l|abc`.
    pub key: Span,
    /// The breakdown by number in [`Names`] and its value; none for a total.
    pub part: Option<(u16, Span)>,
    /// Base bucket.
    pub code: TimeCode,
    /// At least 1.
    pub count: u64,
    /// Its hashes, among [`Texts::lookups`].
    lookups: (u32, u32),
}

/// A piece of [`Texts`].
#[derive(Debug, Clone, Copy)]
pub struct Span {
    start: u32,
    end: u32,
}

/// Stored texts of some rows, and what stands behind the hashes among them.
#[derive(Default)]
pub struct Texts {
    arena: Vec<u8>,
    /// Hash and raw text, as often as they came.
    lookups: Vec<(String, String)>,
}

impl Texts {
    /// The text at `span`.
    pub fn get(&self, span: Span) -> &[u8] {
        &self.arena[span.start as usize..span.end as usize]
    }

    /// Hash and raw text of what the row has as a hash.
    pub fn lookups(&self, row: &Row) -> &[(String, String)] {
        &self.lookups[row.lookups.0 as usize..row.lookups.1 as usize]
    }

    /// Forgets all texts and keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.lookups.clear();
    }

    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let offset = |arena: &Vec<u8>| u32::try_from(arena.len()).expect("BUG: one chunk of texts");
        let start = offset(&self.arena);
        write(&mut self.arena);
        Span {
            start,
            end: offset(&self.arena),
        }
    }
}

/// Names of all subtotals of a schema, in the order of their bytes.
pub struct Names(Vec<String>);

impl Names {
    /// Of all namespaces.
    pub fn new(schema: &Schema) -> Self {
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
    pub fn get(&self, number: u16) -> &str {
        &self.0[usize::from(number)]
    }

    /// The number of a name.
    pub fn find(&self, name: &str) -> Option<u16> {
        let at = self.0.binary_search_by(|known| known.as_str().cmp(name));
        at.ok().and_then(|at| u16::try_from(at).ok())
    }
}

/// Checks rows against a schema.
pub struct Reader<'s> {
    schema: &'s Schema,
    keys: &'s LongKeys,
    names: &'s Names,
    /// The namespace of the row before, which the next one mostly has too.
    last: usize,
}

impl<'s> Reader<'s> {
    /// A reader of rows.
    pub fn new(schema: &'s Schema, keys: &'s LongKeys, names: &'s Names) -> Self {
        Self {
            schema,
            keys,
            names,
            last: 0,
        }
    }

    /// Reads a row; none when it counts nothing.
    ///
    /// # Errors
    /// What is wrong with which field, for the user.
    pub fn row(&mut self, fields: &Fields<'_>, texts: &mut Texts) -> Result<Option<Row>, String> {
        let namespace = self.namespace(fields.namespace)?;
        let seconds = field::hour(fields.hour)?;
        let count = field::count(fields.count)?;
        let first_lookup = texts.lookups.len() as u32;
        let key = text("key", fields.key)?;
        if key.is_empty() {
            return Err("`key` is empty".into());
        }
        let part = match fields.subtotal {
            [] if fields.value.is_empty() => None,
            [] => {
                return Err(format!(
                    "`value` is {}, but `subtotal` is empty; a total has neither",
                    shown(fields.value)
                ));
            }
            name => {
                let name = subtotal(namespace, name)?;
                Some((name, self.value(name, fields.value, texts)?))
            }
        };
        if count == 0 {
            return Ok(None);
        }
        let stored = self.stored(key, texts);
        let key = texts.add(|arena| {
            arena.extend_from_slice(namespace.name.as_bytes());
            arena.push(b'|');
            arena.extend_from_slice(stored.as_bytes());
        });
        let number = |name| self.names.find(name).expect("BUG: declared");
        Ok(Some(Row {
            key,
            part: part.map(|(name, value)| (number(name), value)),
            code: TimeCode::containing(seconds, namespace.grain),
            count,
            lookups: (first_lookup, texts.lookups.len() as u32),
        }))
    }

    fn namespace(&mut self, name: &[u8]) -> Result<&'s Namespace, String> {
        let namespaces = &self.schema.namespaces;
        if namespaces[self.last].name.as_bytes() == name {
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
                "`namespace` is {}; declared are {}",
                shown(name),
                declared()
            )
        })?;
        Ok(&namespaces[self.last])
    }

    /// A value in its stored form; each part of a crossed one by itself.
    fn value(&self, subtotal: &str, value: &[u8], texts: &mut Texts) -> Result<Span, String> {
        let value = text("value", value)?;
        let dimensions = subtotal.split('*').count();
        if dimensions == 1 {
            let stored = self.stored(value, texts);
            return Ok(texts.add(|arena| arena.extend_from_slice(stored.as_bytes())));
        }
        let parts: Vec<Cow<'_, str>> = value
            .split('*')
            .map(|part| self.stored(part, texts))
            .collect();
        if parts.len() != dimensions {
            return Err(format!(
                "`value` is {}; `{subtotal}` takes {dimensions} values with a * between",
                shown(value.as_bytes())
            ));
        }
        Ok(texts.add(|arena| arena.extend_from_slice(parts.join("*").as_bytes())))
    }

    fn stored<'t>(&self, raw: &'t str, texts: &mut Texts) -> Cow<'t, str> {
        if raw.is_empty() {
            return Cow::Borrowed(MISSING);
        }
        let stored = self.keys.stored(raw);
        if is_hash(&stored) {
            texts
                .lookups
                .push((stored.clone().into_owned(), raw.to_owned()));
        }
        stored
    }
}

fn subtotal<'n>(namespace: &'n Namespace, name: &[u8]) -> Result<&'n str, String> {
    let declared = &namespace.subtotals;
    let found = declared.iter().find(|known| known.as_bytes() == name);
    found.map(String::as_str).ok_or_else(|| {
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
            "`{field}` is {} bytes long; at most {KEY_BYTES_MAX} are kept",
            bytes.len()
        ));
    }
    std::str::from_utf8(bytes).map_err(|_| format!("`{field}` is {}, no UTF-8", shown(bytes)))
}
