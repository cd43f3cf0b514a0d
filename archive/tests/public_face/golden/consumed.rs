//! A manifest of a store that consumed topics of Kafka.

use tallyring_records::{Consumed, TopicPartition};

use super::{MANIFEST, check_written, manifest, read};
use crate::MemoryDisk;

#[test]
fn a_manifest_with_consumed_topics_is_read_and_written_as_it_was() {
    let mut manifest = manifest();
    let consumed = |partition, next| Consumed {
        of: TopicPartition {
            topic: "clicks".into(),
            topic_id: "kGdLlXrKQdGWZlqyhPEwNw".into(),
            cluster: "5L6g3nShT-eMCtK--X86sw".into(),
            partition,
        },
        next,
    };
    manifest.intake.consumed = vec![consumed(0, 4_711), consumed(1, u64::MAX)];
    let disk = MemoryDisk::default();
    manifest.commit(&disk).unwrap();
    check_written("manifest-33", &disk.read(MANIFEST).unwrap());
    assert_eq!(read("manifest-33"), manifest);
}
