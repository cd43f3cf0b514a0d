//! The node that writes has another one rebuild, where one is there for that.

use std::thread;
use std::time::Duration;

use tallyring_archive::{Build, Manifest, RunEntry};
use tallyring_realtime::NodeStatus;
use tallyring_rebuild::orders::{Order, Placed, Standing, is_of_content, prove, unproven};

use super::Rebuilds;
use crate::error::{CommandError, Result};

/// How often an order is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often a file is read that cannot be, before the build is given up.
const PROOF_TRIES: usize = 6;
/// Pause between two such reads.
const PROVE_AGAIN: Duration = Duration::from_secs(10);

/// The nodes that an order is for, and the one that places it.
pub(super) struct Asked {
    /// Version of their build.
    build: [u32; 3],
    /// The epoch in which this node writes.
    epoch: u32,
}

/// The build of another node, of which every byte was read.
pub(super) struct Proven {
    /// None where there was nothing to do.
    pub build: Option<Build>,
    /// Names of its files.
    pub files: Vec<String>,
}

impl Rebuilds {
    /// The nodes that a rebuild can be ordered from; none where there is none.
    pub(super) fn asked(&self) -> Option<Asked> {
        let intake = self.store.intake();
        let nodes = intake.nodes();
        let (build, epoch) = (
            nodes.iter().find(|node| node.is_own)?.build,
            intake.epoch()?,
        );
        let helps = |node: &NodeStatus| !node.is_own && node.rebuilds && node.build == build;
        (nodes.iter().any(helps)).then_some(Asked { build, epoch })
    }

    /// Has another node do the rebuild of the job `number`. Returns none where this node is to do it itself. Fails when
    /// this node writes no more.
    pub(super) fn order(
        &self,
        number: u64,
        manifest: &Manifest,
        asked: Asked,
    ) -> Result<Option<Proven>> {
        let world = self.store.world();
        let order = Order {
            build: asked.build,
            epoch: asked.epoch,
            manifest: manifest.number,
            options: self.config.build_options(self.store.options()),
        };
        let proven = match Placed::place(
            &world.blobs(),
            &order,
            world.random,
            world.clock.elapsed_ms(),
        ) {
            Ok(placed) => {
                let intake = self.store.intake();
                intake.note_order(true);
                let waited = self.wait_for(number, placed, manifest, asked.epoch);
                intake.note_order(false);
                waited?
            }
            Err(error) => {
                tracing::warn!(%error, "no other node can be asked for a rebuild; this node rebuilds");
                None
            }
        };
        if proven.is_none() {
            self.note_node(number, None);
        }
        Ok(proven)
    }

    fn wait_for(
        &self,
        number: u64,
        mut placed: Placed,
        manifest: &Manifest,
        epoch: u32,
    ) -> Result<Option<Proven>> {
        loop {
            thread::sleep(LOOK);
            self.check_epoch(epoch)?;
            let standing = placed.look(self.store.world().clock.elapsed_ms());
            self.note_node(number, placed.node());
            self.store.intake().note_order(placed.node().is_none());
            if let Some(progress) = placed.progress() {
                self.advance(number, progress);
            }
            match standing {
                Standing::Waits => {}
                Standing::Done(build) => {
                    drop(placed);
                    return self.proven(manifest, build.map(|build| *build), epoch);
                }
                Standing::Failed(why) => {
                    // A part of it is the text of another node.
                    tracing::warn!(?why, "no other node did the rebuild; this node rebuilds");
                    return Ok(None);
                }
            }
        }
    }

    /// Proves what another node says that it built; none where it is not that, or cannot be read.
    fn proven(
        &self,
        manifest: &Manifest,
        build: Option<Build>,
        epoch: u32,
    ) -> Result<Option<Proven>> {
        let files = build.iter().flat_map(Build::files);
        let files: Vec<String> = files.map(|file| file.name.clone()).collect();
        for file in build.iter().flat_map(|build| unproven(manifest, build)) {
            if !self.is_proven(file, epoch)? {
                self.remove_unpublished(&files);
                return Ok(None);
            }
        }
        Ok(Some(Proven { build, files }))
    }

    fn is_proven(&self, file: &RunEntry, epoch: u32) -> Result<bool> {
        let mut tries = 0;
        loop {
            self.check_epoch(epoch)?;
            tries += 1;
            match prove(&self.store.world().blobs(), file) {
                Ok(()) => return Ok(true),
                Err(error) if is_of_content(&error) => {
                    tracing::error!(%error, "what another node built is not what it says; this node rebuilds");
                    return Ok(false);
                }
                Err(error) if tries >= PROOF_TRIES => {
                    tracing::error!(%error, tries, "what another node built cannot be read; this node rebuilds");
                    return Ok(false);
                }
                Err(error) => {
                    tracing::warn!(%error, "what another node built cannot be read; this node tries again");
                    thread::sleep(PROVE_AGAIN);
                }
            }
        }
    }

    fn check_epoch(&self, epoch: u32) -> Result<()> {
        if self.store.intake().epoch() == Some(epoch) {
            return Ok(());
        }
        let why = "this node writes no more; the one that does rebuilds";
        Err(CommandError::Failed(why.into()))
    }
}

#[cfg(test)]
mod tests {
    use tallyring_archive::{Blobs, names};
    use tallyring_realtime::Follower;
    use tallyring_realtime::oplog::Owner;
    use tallyring_rebuild::build;
    use tallyring_rebuild::orders::Claimed;

    use super::*;
    use crate::rebuilds::stand::{BUILD, Stand, claim_while, work};

    /// Has another node do the rebuild as `help` does.
    fn ordered(
        stand: &Stand,
        manifest: &Manifest,
        help: impl FnOnce(&Blobs, &Claimed),
    ) -> Result<Option<Proven>> {
        let (epoch, other) = (stand.epoch(), stand.other());
        let asked = Asked {
            build: BUILD,
            epoch,
        };
        let proven = thread::scope(|scope| {
            let ordering = scope.spawn(|| stand.rebuilds.order(7, manifest, asked));
            if let Some(claimed) = claim_while(&other, epoch, || !ordering.is_finished()) {
                help(&other, &claimed);
            }
            ordering.join().unwrap()
        });
        assert_eq!(stand.orders(), [""; 0]);
        proven
    }

    /// The build of this node.
    fn own(stand: &Stand, manifest: &Manifest) -> Option<Build> {
        let (rebuilds, store) = (&stand.rebuilds, &stand.rebuilds.store);
        let options = rebuilds.config.build_options(store.options());
        build(&store.world().blobs(), manifest, options, &|_, _| {}).unwrap()
    }

    fn publish(stand: &Stand, built: Option<Build>) {
        stand.rebuilds.publish(Ok(built), &[]).unwrap();
        assert_eq!(stand.rebuilds.store.manifest().archive.active, 1);
    }

    #[test]
    fn the_build_of_another_node_is_published_as_that_of_this_one_is() {
        let stand = Stand::new();
        let manifest = stand.rebuilds.store.ledger().cut().unwrap();
        let proven = ordered(&stand, &manifest, |blobs, claimed| {
            claimed.end(&Ok(work(blobs, claimed))).unwrap();
        });
        let proven = proven.unwrap().expect("a build");
        assert!(!proven.files.is_empty());
        assert_eq!(proven.build, own(&stand, &manifest));
        publish(&stand, proven.build);
    }

    #[test]
    fn this_node_rebuilds_where_another_one_failed_or_did_not_build_what_it_says() {
        for fails in [true, false] {
            let stand = Stand::new();
            let manifest = stand.rebuilds.store.ledger().cut().unwrap();
            let objects = stand.objects.clone();
            let none = ordered(&stand, &manifest, |blobs, claimed| {
                if fails {
                    return claimed.end(&Err("the disk is full".into())).unwrap();
                }
                let built = work(blobs, claimed);
                let new = built.iter().flat_map(|build| unproven(&manifest, build));
                let new = new.last().expect("a new file").clone();
                let key = names::object_key(&new.name).unwrap();
                objects.flip_bit(&key, usize::try_from(new.bytes * 4).unwrap());
                claimed.end(&Ok(built)).unwrap();
            });
            assert!(none.unwrap().is_none());
            publish(&stand, own(&stand, &manifest));
        }
    }

    #[test]
    fn a_node_that_is_deposed_takes_its_order_back_and_does_not_rebuild() {
        let stand = Stand::new();
        let store = &stand.rebuilds.store;
        let manifest = store.ledger().cut().unwrap();
        for ends in [false, true] {
            let writer = stand.epoch();
            let mut follower = None;
            let ended = ordered(&stand, &manifest, |blobs, claimed| {
                follower = Follower::step_down(store.clone());
                if ends {
                    claimed.end(&Ok(work(blobs, claimed))).unwrap();
                }
            });
            let Err(error) = ended else {
                panic!("it is done");
            };
            assert!(error.to_string().contains("writes no more"), "{error}");
            assert_eq!(store.manifest().archive.active, 0);
            let again = follower.expect("it wrote").take_over(Owner(9));
            assert!(again.is_ok() && stand.epoch() > writer);
        }
    }
}
