//! From lines to columns.

use std::ops::Range;

use hashbrown::HashMap;
use tallyring_records::{Action, Grain, TimeCode, line};

use super::{BY_HOUR, Form, GRAINS, HEAD, NO_TAG, ValueList, minutes_of, push_number};

/// The columns of a block.
#[derive(Default)]
pub(in crate::run) struct Columns {
    /// The text.
    pub text: Vec<u8>,
    /// Where each column ends in it.
    pub ends: Vec<usize>,
}

/// Makes columns. Keeps its memory from block to block.
#[derive(Default)]
pub(in crate::run) struct Encoder {
    keys: Vec<Key>,
    codes: Vec<TimeCode>,
    /// How many values each line has.
    sizes: Vec<u32>,
    counts: Vec<u64>,
    /// The value of each count, by its place in `values`.
    places: Vec<u32>,
    values: Vec<Value>,
    line: Vec<(u32, u64)>,
    /// The rest of each action, whose value is what was done.
    actions: Vec<ActionText>,
    text: Vec<u8>,
}

/// An action of the block.
struct ActionText {
    /// Its text, as a range of the lines.
    text: Range<usize>,
    second: u32,
    by_hour: bool,
    /// Its tag, as a range of the lines.
    tag: Option<Range<usize>>,
}

/// A key, as a range of the lines.
struct Key {
    stored: Range<usize>,
    buckets: u64,
}

/// A value of the block.
struct Value {
    /// Its text, as a range of the lines.
    text: Range<usize>,
    /// How many lines have it; of what users did, how many actions.
    lines: u32,
    /// Its number in the list of the section.
    listed: Option<u32>,
    /// Its number in the block.
    number: u32,
}

impl Encoder {
    /// The columns of lines of one section; none for lines that columns cannot say.
    pub(in crate::run) fn encode(
        &mut self,
        section: &[u8],
        lines: &[u8],
        list: &mut ValueList,
    ) -> Option<Columns> {
        self.keys.clear();
        self.codes.clear();
        self.sizes.clear();
        self.counts.clear();
        self.places.clear();
        self.values.clear();
        self.actions.clear();
        let form = Form::of(section)?;
        match form {
            Form::Totals => self.read_totals(section, lines)?,
            Form::Values | Form::Actions => self.read_values(form, section, lines)?,
        }
        let finest = self.codes.iter().map(|code| code.grain()).max()?;
        let width = minutes_of(finest);
        let first = self.codes.iter().map(|code| code.minutes()).min()? / width;
        let steps = GRAINS.iter().find(|(grain, ..)| *grain == finest)?.1;
        let mut text = Vec::with_capacity(lines.len() / 2);
        text.extend_from_slice(HEAD.as_bytes());
        text.extend_from_slice(section);
        text.extend_from_slice(format!(" {steps} {first}\n").as_bytes());
        let mut out = Out {
            columns: Columns {
                text,
                ends: Vec::with_capacity(form.names().len()),
            },
            names: form.names().iter(),
        };
        self.write_keys(&mut out, lines);
        self.write_gaps(&mut out, (finest, first))?;
        match form {
            Form::Totals => {}
            Form::Values => {
                self.write_values(&mut out, lines, list);
                self.write_numbers(&mut out);
            }
            Form::Actions => {
                self.write_values(&mut out, lines, list);
                self.write_actions(&mut out, lines);
            }
        }
        let counts = out.column();
        for &count in &self.counts {
            push_number(counts, count);
        }
        out.end();
        Some(out.columns)
    }

    fn read_totals(&mut self, section: &[u8], lines: &[u8]) -> Option<()> {
        for (at, text) in each_line(lines) {
            let (key, payload) = line::split(text)?;
            let before = self.codes.len();
            for entry in line::hours(payload) {
                let (code, count) = entry?;
                self.codes.push(code);
                self.counts.push(count);
            }
            let stored = at + section.len()..at + key.len();
            is_word(&lines[stored.clone()]).then_some(())?;
            let buckets = (self.codes.len() - before) as u64;
            self.keys.push(Key { stored, buckets });
        }
        Some(())
    }

    fn read_values(&mut self, form: Form, section: &[u8], lines: &[u8]) -> Option<()> {
        let mut known: HashMap<&[u8], u32> = HashMap::new();
        for (at, text) in each_line(lines) {
            let (key, payload) = line::split(text)?;
            let dot = memchr::memrchr(b'.', key).filter(|dot| section.len() <= *dot)?;
            self.codes.push(TimeCode::parse(&key[dot + 1..]).ok()?);
            let stored = at + section.len()..at + dot;
            match self.keys.last_mut() {
                Some(last) if lines[last.stored.clone()] == lines[stored.clone()] => {
                    last.buckets += 1;
                }
                _ => {
                    is_word(&lines[stored.clone()]).then_some(())?;
                    self.keys.push(Key { stored, buckets: 1 });
                }
            }
            let before = self.counts.len();
            let mut last: Option<(&[u8], u64)> = None;
            for entry in line::entries(payload) {
                let (value, count) = entry?;
                // Largest count first, ties by value: the columns do not say another order.
                let follows =
                    last.is_none_or(|(text, most)| count < most || count == most && text < value);
                follows.then_some(())?;
                last = Some((value, count));
                let value = match form {
                    Form::Actions => self.read_action(value, lines)?,
                    Form::Totals | Form::Values => value,
                };
                let next = self.values.len() as u32;
                let place = *known.entry(value).or_insert(next);
                if place == next {
                    self.values.push(Value {
                        text: range_of(value, lines),
                        lines: 0,
                        listed: None,
                        number: 0,
                    });
                }
                self.values[place as usize].lines += 1;
                self.places.push(place);
                self.counts.push(count);
            }
            self.sizes.push((self.counts.len() - before) as u32);
        }
        Some(())
    }

    /// Remembers when an action was, and its tag. Returns what was done.
    fn read_action<'t>(&mut self, value: &'t [u8], lines: &[u8]) -> Option<&'t [u8]> {
        let action = Action::parse(value)?;
        self.text.clear();
        action.write_value(&mut self.text);
        (self.text == value).then_some(())?;
        let text = range_of(value, lines);
        let end = text.end;
        self.actions.push(ActionText {
            text,
            second: action.second,
            by_hour: action.by_hour,
            tag: action.tag.map(|_| end - Action::TAG_CHARS..end),
        });
        Some(action.what)
    }

    fn write_keys(&self, out: &mut Out, lines: &[u8]) {
        let mut rests = Vec::with_capacity(lines.len() / 8);
        let shared = out.column();
        let mut before: &[u8] = b"";
        for key in &self.keys {
            let stored = &lines[key.stored.clone()];
            let alike = before.iter().zip(stored).take_while(|(a, b)| a == b);
            let alike = alike.count();
            push_number(shared, alike as u64);
            rests.extend_from_slice(&stored[alike..]);
            rests.push(b' ');
            before = stored;
        }
        out.end();
        out.column().extend_from_slice(&rests);
        out.end();
        let buckets = out.column();
        for key in &self.keys {
            push_number(buckets, key.buckets);
        }
        out.end();
    }

    fn write_gaps(&self, out: &mut Out, (finest, first): (Grain, u32)) -> Option<()> {
        let width = minutes_of(finest);
        let gaps = out.column();
        let mut codes = self.codes.iter();
        for key in &self.keys {
            let mut before = first;
            for code in codes.by_ref().take(key.buckets as usize) {
                let step = code.minutes() / width;
                if code.grain() != finest {
                    let mark = GRAINS.iter().find(|(grain, ..)| *grain == code.grain())?.2;
                    gaps.push(mark);
                }
                push_number(gaps, step.checked_sub(before)?.into());
                before = step;
            }
        }
        out.end();
        Some(())
    }

    /// Numbers the values of the block.
    fn write_values(&mut self, out: &mut Out, lines: &[u8], list: &mut ValueList) {
        let sizes = out.column();
        for &size in &self.sizes {
            push_number(sizes, u64::from(size) - 1);
        }
        out.end();
        for value in &mut self.values {
            value.listed = list.number(&lines[value.text.clone()]);
        }
        let mut order: Vec<u32> = (0..self.values.len() as u32).collect();
        order.sort_unstable_by_key(|&place| {
            let value = &self.values[place as usize];
            match value.listed {
                Some(number) => (false, number, &lines[..0]),
                None => (true, u32::MAX - value.lines, &lines[value.text.clone()]),
            }
        });
        let known = out.column();
        let mut next = 0;
        for &place in &order {
            if let Some(number) = self.values[place as usize].listed {
                push_number(known, (number - next).into());
                next = number + 1;
            }
        }
        out.end();
        let spelled = out.column();
        for (number, &place) in (0..).zip(&order) {
            let value = &mut self.values[place as usize];
            value.number = number;
            if value.listed.is_none() {
                spelled.extend_from_slice(&lines[value.text.clone()]);
                spelled.push(b' ');
            }
        }
        out.end();
    }

    /// Replaces `counts` by those in the order of the numbers.
    fn write_numbers(&mut self, out: &mut Out) {
        let numbers = out.column();
        let mut at = 0;
        for &size in &self.sizes {
            let range = at..at + size as usize;
            at = range.end;
            let number = |&place: &u32| self.values[place as usize].number;
            let entries = self.places[range.clone()].iter().map(number);
            self.line.clear();
            let counts = self.counts[range.clone()].iter().copied();
            self.line.extend(entries.zip(counts));
            self.line.sort_unstable();
            let mut next = 0;
            for (&(number, count), place) in self.line.iter().zip(range) {
                push_number(numbers, number.wrapping_sub(next).into());
                next = number + 1;
                self.counts[place] = count;
            }
        }
        out.end();
    }

    /// Writes the actions of each line in the order of their texts, which is that of time, and replaces `counts` by
    /// those in this order.
    fn write_actions(&mut self, out: &mut Out, lines: &[u8]) {
        let mut order: Vec<u32> = (0..self.actions.len() as u32).collect();
        let mut at = 0;
        for &size in &self.sizes {
            let text = |&place: &u32| &lines[self.actions[place as usize].text.clone()];
            order[at..at + size as usize].sort_unstable_by(|a, b| text(a).cmp(text(b)));
            at += size as usize;
        }
        let numbers = out.column();
        for &place in &order {
            let value = self.places[place as usize] as usize;
            push_number(numbers, self.values[value].number.into());
        }
        out.end();
        let seconds = out.column();
        let mut ordered = order.iter().map(|&place| &self.actions[place as usize]);
        for &size in &self.sizes {
            let mut before = 0;
            for action in ordered.by_ref().take(size as usize) {
                if action.by_hour {
                    seconds.push(BY_HOUR);
                }
                push_number(seconds, (action.second - before).into());
                before = action.second;
            }
        }
        out.end();
        let tags = out.column();
        for &place in &order {
            match &self.actions[place as usize].tag {
                Some(tag) => tags.extend_from_slice(&lines[tag.clone()]),
                None => tags.push(NO_TAG),
            }
        }
        out.end();
        self.counts = order
            .iter()
            .map(|&place| self.counts[place as usize])
            .collect();
    }
}

/// Columns being written.
struct Out {
    columns: Columns,
    names: std::slice::Iter<'static, &'static str>,
}

impl Out {
    /// Begins the next column.
    fn column(&mut self) -> &mut Vec<u8> {
        let name = self.names.next().expect("BUG: one more than are named");
        let text = &mut self.columns.text;
        text.extend_from_slice(name.as_bytes());
        text.push(b' ');
        text
    }

    fn end(&mut self) {
        self.columns.text.push(b'\n');
        self.columns.ends.push(self.columns.text.len());
    }
}

/// Where a part of the lines stands in them.
fn range_of(part: &[u8], lines: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - lines.as_ptr().addr();
    start..start + part.len()
}

/// True for a text that a space can end.
fn is_word(text: &[u8]) -> bool {
    !text.contains(&b' ')
}

/// Lines without their ends, and where each begins.
fn each_line(lines: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    memchr::memchr_iter(b'\n', lines).map(move |end| {
        let start = std::mem::replace(&mut at, end + 1);
        (start, &lines[start..end])
    })
}
