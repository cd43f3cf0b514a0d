//! The part of a store in its log. The lock of the intake is held while brokers are waited for, so a caller that only
//! wants to know the part does not take it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tallyring_records::Schema;

use crate::role::NodeStatus;
use crate::sync::RwLock;

/// The part of a store in its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// It writes the log. No other node does, as far as it knows.
    Writes,
    /// It follows the log of another node.
    Follows {
        /// Address of the node that writes, such as `http://10.0.0.11:7117`; none where no node is known to.
        writer: Option<Arc<str>>,
    },
    /// It was opened for reading only.
    Reads,
}

/// The part, as threads see it that do not change it.
pub(super) struct PartCell {
    /// One more than the epoch in which the log is written; 0 where it is not.
    writes: AtomicU64,
    /// True for a store that other nodes may write.
    is_node: AtomicBool,
    writer: RwLock<Option<Arc<str>>>,
    nodes: RwLock<Arc<[NodeStatus]>>,
    /// True while a rebuild that this node ordered waits for a node that claims it.
    has_order: AtomicBool,
    /// Messages of the topic that were void; none for a store of one server.
    voids: OnceLock<Arc<AtomicU64>>,
    /// The declaration that this node makes when it begins to write; none leaves the one in force.
    intended: RwLock<Option<Schema>>,
}

impl PartCell {
    /// Begins with a store that is open for reading only.
    pub(super) fn new() -> Self {
        Self {
            writes: AtomicU64::new(0),
            is_node: AtomicBool::new(false),
            writer: RwLock::new(None),
            nodes: RwLock::new(Arc::new([])),
            has_order: AtomicBool::new(false),
            voids: OnceLock::new(),
            intended: RwLock::new(None),
        }
    }

    pub(super) fn part(&self) -> Part {
        if self.epoch().is_some() {
            return Part::Writes;
        }
        match self.is_node.load(Ordering::Relaxed) {
            true => Part::Follows {
                writer: self.writer(),
            },
            false => Part::Reads,
        }
    }

    /// Address of the node that writes, where that is known.
    pub(super) fn writer(&self) -> Option<Arc<str>> {
        self.writer.read().clone()
    }

    /// The epoch in which the log is written; none where it is not.
    pub(super) fn epoch(&self) -> Option<u32> {
        let next = self.writes.load(Ordering::Relaxed).checked_sub(1)?;
        u32::try_from(next).ok()
    }

    /// Notes the epoch in which the log is written from here on.
    pub(super) fn write(&self, epoch: u32) {
        self.writes.store(u64::from(epoch) + 1, Ordering::Relaxed);
    }

    /// Notes that the log is another node's.
    pub(super) fn follow(&self) {
        self.is_node.store(true, Ordering::Relaxed);
        self.writes.store(0, Ordering::Relaxed);
    }

    /// The live nodes, as far as this one heard.
    pub(super) fn nodes(&self) -> Arc<[NodeStatus]> {
        Arc::clone(&self.nodes.read())
    }

    /// Notes the live nodes.
    pub(super) fn note_nodes(&self, nodes: Vec<NodeStatus>) {
        *self.nodes.write() = nodes.into();
    }

    /// True while an order of this node waits to be claimed.
    pub(super) fn has_order(&self) -> bool {
        self.has_order.load(Ordering::Relaxed)
    }

    /// Notes whether an order of this node waits to be claimed.
    pub(super) fn note_order(&self, waits: bool) {
        self.has_order.store(waits, Ordering::Relaxed);
    }

    /// Messages of the topic that were void.
    pub(super) fn voids(&self) -> u64 {
        let voids = self.voids.get();
        voids.map_or(0, |voids| voids.load(Ordering::Relaxed))
    }

    /// Notes where void messages are counted, once.
    pub(super) fn note_voids(&self, voids: Arc<AtomicU64>) {
        let _ = self.voids.set(voids);
    }

    /// Notes the address of the node that writes.
    pub(super) fn note_writer(&self, address: Option<&str>) {
        if self.writer.read().as_deref() != address {
            *self.writer.write() = address.map(Arc::from);
        }
    }

    /// The declaration that the node makes when it begins to write.
    pub(super) fn intended(&self) -> Option<Schema> {
        self.intended.read().clone()
    }

    /// Notes the declaration that the node makes when it begins to write.
    pub(super) fn intend(&self, schema: Option<Schema>) {
        *self.intended.write() = schema;
    }

    /// Notes the content of a list that the node declares when it begins to write.
    pub(super) fn intend_list(&self, name: &str, sha256: &str) {
        let mut intended = self.intended.write();
        let lists = intended.iter_mut().flat_map(|schema| &mut schema.lists);
        for list in lists.filter(|list| list.name == name) {
            sha256.clone_into(&mut list.sha256);
        }
    }
}

#[cfg(test)]
mod tests {
    use tallyring_records::{List, ListKind};

    use super::*;

    #[test]
    fn a_node_follows_writes_and_follows_again() {
        let cell = PartCell::new();
        assert_eq!((cell.part(), cell.epoch()), (Part::Reads, None));
        cell.follow();
        cell.note_writer(Some("http://a:1"));
        let writer = Some("http://a:1".into());
        assert_eq!(cell.part(), Part::Follows { writer });
        cell.write(0);
        assert_eq!((cell.part(), cell.epoch()), (Part::Writes, Some(0)));
        cell.write(u32::MAX);
        assert_eq!(cell.epoch(), Some(u32::MAX));
        cell.follow();
        cell.note_writer(None);
        assert_eq!(cell.part(), Part::Follows { writer: None });
    }

    #[test]
    fn a_list_that_is_put_in_force_is_declared_with_its_new_content() {
        let list = |name: &str| List {
            name: name.into(),
            kind: ListKind::Ip,
            sha256: "old".into(),
        };
        let schema = Schema {
            lists: vec![list("bots"), list("networks")],
            ..Schema::default()
        };
        let cell = PartCell::new();
        cell.intend_list("bots", "new");
        assert_eq!(cell.intended(), None);
        cell.intend(Some(schema));
        cell.intend_list("networks", "new");
        let lists = cell.intended().unwrap().lists;
        let contents: Vec<&str> = lists.iter().map(|list| &*list.sha256).collect();
        assert_eq!(contents, ["old", "new"]);
    }
}
