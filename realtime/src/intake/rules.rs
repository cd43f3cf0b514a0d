//! The rules in force: compiled with the contents of their lists, and replaced when a list changes.

use std::collections::BTreeMap;

use tallyring_archive::{Blobs, SchemaEntry, names};
use tallyring_records::{
    Evidence, Increment, Offset, Record, Rules, RulesError, Schema, content_hash, decode_all,
};

use super::{Intake, RulesStatus, Writer};
use crate::error::{Error, Result};
use crate::oplog::read_each;

impl Intake {
    /// Checks that all rules of a schema can be used. Fails when the content of a list is missing.
    pub(crate) fn check_rules(&self, schema: &Schema) -> Result<()> {
        Rules::compile(schema, &content(&self.world.blobs())).map(drop)?;
        Ok(())
    }

    /// Puts the rules of the schema in force. A list whose content is missing is told by the status, and its rules
    /// decide nothing.
    pub(crate) fn begin_rules(&self) {
        let schema = self.live.schema();
        let before = self.writer().judge.rules();
        let (rules, wrong) = Rules::compile_usable(&schema, &content(&self.world.blobs()), &before);
        let failures: BTreeMap<String, String> = wrong
            .into_iter()
            .map(|(list, error)| (list, error.to_string()))
            .collect();
        for failure in failures.values() {
            tracing::error!(
                failure,
                "a list cannot be used, and its rules decide nothing"
            );
        }
        let now = self.world.clock.now_ms().div_euclid(1_000);
        self.writer().judge.begin(rules, failures, now);
    }

    /// Puts a schema in force, from a record of the log on: every increment is judged and counted by the schema at its
    /// place. Returns false, and appends nothing, where it is in force already. Fails when the schema is invalid or has
    /// a new namespace with a word of the API as its name, when the content of a list was not stored ([`store_list`])
    /// or cannot be used, or the log takes no more writes; then nothing changes.
    pub fn declare(&self, schema: Schema) -> Result<bool> {
        let _declaring = self.declaring();
        schema.validate()?;
        let before = self.live.schema();
        schema.check_words(Some(&before))?;
        if *before == schema {
            return Ok(false);
        }
        // Contents are read and compiled without the lock under which increments are accepted.
        let known = self.writer().judge.rules();
        let blobs = self.world.blobs();
        let (rules, wrong) = Rules::compile_usable(&schema, &content(&blobs), &known);
        if let Some((_, error)) = wrong.into_iter().next() {
            return Err(error.into());
        }
        warn_of_coarser_grains(&before, &schema);
        let now = self.world.clock.now_ms().div_euclid(1_000);
        let mut writer = self.writer();
        let after = self.append_declaration(&mut writer, &schema)?;
        writer.judge.declare(rules, (&before, &schema), now);
        self.live.declare(schema, after);
        Ok(true)
    }

    /// Puts another content of a list in force, from a record of the log on. The content is durable first. A content
    /// that is in force already changes nothing. Fails when the list is not declared, its content cannot be used or has
    /// less than half of the lines in force, or the disk or the log takes no more writes; then nothing changes.
    pub fn put_list(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let _declaring = self.declaring();
        let mut schema = Schema::clone(&self.live.schema());
        let wrong = |what: String| Error::List {
            list: name.to_owned(),
            what,
        };
        let mut lists = schema.lists.iter_mut();
        let list = lists.find(|list| list.name == name);
        let list = list.ok_or_else(|| wrong("it is not declared; restart the server".into()))?;
        let before = self.writer().judge.rules();
        let sha256 = content_hash(bytes);
        if list.sha256 == sha256 && before.entries(name).is_some() {
            self.writer().judge.keep(name);
            self.part.intend_list(name, &sha256);
            return Ok(());
        }
        list.sha256.clone_from(&sha256);
        let blobs = self.world.blobs();
        let others = content(&blobs);
        let new = |of: &str| match of == sha256 {
            true => Some(bytes.to_vec()),
            false => others(of),
        };
        let (rules, failed) = Rules::compile_usable(&schema, &new, &before);
        if let Some((_, error)) = failed.into_iter().find(|(list, _)| list == name) {
            return Err(match error {
                RulesError::Wrong { list, error } => Error::List {
                    list,
                    what: error.to_string(),
                },
                missing @ RulesError::Missing { .. } => missing.into(),
            });
        }
        let (was, is) = (before.entries(name), rules.entries(name).unwrap_or(0));
        if let Some(was) = was.filter(|was| is < was.div_ceil(2)) {
            return Err(wrong(format!(
                "it shrank from {was} lines to {is}, by more than half; restart the server to take it all the same"
            )));
        }
        store_list(&blobs, bytes)?;
        let mut writer = self.writer();
        let after = self.append_declaration(&mut writer, &schema)?;
        self.live.declare(schema, after);
        let now = self.world.clock.now_ms().div_euclid(1_000);
        writer.judge.renew(rules, name, now);
        self.part.intend_list(name, &sha256);
        Ok(())
    }

    /// Appends a declaration, and returns the offset behind it. Before the first one of a log stands the one with which
    /// the store began, in the same frame: without manifests, the log alone has it.
    fn append_declaration(&self, writer: &mut Writer, schema: &Schema) -> Result<Offset> {
        let mut records = vec![Record::Schema(schema.clone())];
        let view = self.live.snapshot();
        if let [first] = view.schemas.as_slice()
            && first.since.sequence == 0
        {
            records.insert(0, Record::Schema(first.schema.clone()));
        }
        self.append_all(writer, &records)
    }

    /// Tells the log with which declaration the store began, where an older build declared more and did not tell it. A
    /// log whose beginning is gone needs no such record: nothing counts all of it again. Fails where the log cannot be
    /// read; one that has no room is told at the next start.
    pub(crate) fn tell_beginning(&self) -> Result<()> {
        let view = self.live.snapshot();
        let [first, second, ..] = view.schemas.as_slice() else {
            return Ok(());
        };
        let is_known = first.since.sequence == 0 && self.log_begins() == 0;
        if !is_known || first.is_logged || self.stands_before(second, &first.schema)? {
            return Ok(());
        }
        let record = Record::BeganWith(first.schema.clone());
        match self.append_all(&mut self.writer(), &[record]) {
            Ok(after) => self.live.beginning_is_logged(after),
            Err(Error::Oplog(no_room)) if no_room.is_no_room() => {
                tracing::warn!(%no_room, "the log is not told yet with which declaration the store began");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// True where a declaration stands before the record of the second one, in its frame.
    fn stands_before(&self, second: &SchemaEntry, first: &Schema) -> Result<bool> {
        let Some(number) = second.since.sequence.checked_sub(1) else {
            return Ok(false);
        };
        let mut found = false;
        read_each(&*self.world.disk, &[number], &mut |frame| {
            let records = decode_all(frame.payload, frame.count)?;
            let mut pairs = records.windows(2);
            found = pairs.any(|pair| {
                matches!(pair, [Record::Schema(a), Record::Schema(b)] if a == first && *b == second.schema)
            });
            Ok(())
        })?;
        Ok(found)
    }

    /// Notes why the newer content of a list is not in force, for the status.
    pub fn note_list(&self, name: &str, why: String) {
        self.writer().judge.fail(name, why);
    }

    /// The state of the rules.
    pub(crate) fn rules_status(&self) -> RulesStatus {
        let writer = self.writer();
        writer.judge.status(&self.live.schema())
    }

    /// Takes the evidence out of an increment that was judged, where the log does not keep it.
    pub(super) fn drop_evidence(&self, increment: &mut Increment) {
        if self.options.drops_evidence
            && let Some(mut details) = increment.details.take()
        {
            details.evidence = Evidence::default();
            increment.details = details.boxed();
        }
    }
}

/// Writes the content of a list durably under its hash, which is returned. Fails when the disk refuses.
pub fn store_list(blobs: &Blobs, bytes: &[u8]) -> Result<String> {
    let sha256 = content_hash(bytes);
    let name = names::list_content(&sha256);
    let stored = match blobs.read_if_there(&name) {
        // A process that died may have left the name in memory only.
        Ok(Some(known)) if known == bytes => blobs.sync(names::RULES),
        Ok(None) => blobs.put(&name, bytes).map(drop),
        Ok(Some(_)) | Err(_) => blobs.put_over(&name, bytes),
    };
    if stored.is_err() {
        // A later sync does not make up for one that failed, so the next attempt must write anew.
        let _ = blobs.remove(&name);
    }
    stored?;
    Ok(sha256)
}

/// Reads contents of lists. One that cannot be read is as good as missing.
pub(crate) fn content(blobs: &Blobs) -> impl Fn(&str) -> Option<Vec<u8>> {
    |sha256| {
        let read = blobs.read_if_there(&names::list_content(sha256));
        read.unwrap_or_else(|error| {
            tracing::warn!(%error, "a list cannot be read");
            None
        })
    }
}

/// Warns of namespaces that count more coarsely from here on. Existing counts keep their grain, later ones have less,
/// and an operator may only have left a line out of the configuration.
fn warn_of_coarser_grains(before: &Schema, after: &Schema) {
    for namespace in &after.namespaces {
        let known = before.namespace(&namespace.name);
        let grain = namespace.grain.seconds();
        if let Some(finer) = known
            .map(|known| known.grain.seconds())
            .filter(|&known| known < grain)
        {
            tracing::warn!(
                namespace = namespace.name,
                seconds_before = finer,
                seconds = grain,
                "this namespace counts by a coarser grain than before: days of zones off the hour are no longer exact; \
                 declare the former grain again if this is not intended"
            );
        }
    }
}
