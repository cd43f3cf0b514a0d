#!/usr/bin/env bash
# Measures `tallyring-bench cluster` over three brokers and an S3 server of this machine, and a producer of Kafka that
# sends to a topic of the same brokers what the node that writes sends: messages of 64 increments, and of a batch of
# 1,000; one in flight, acknowledged by all replicas in sync. Further arguments go to the benchmark. Needs what
# tests/cluster/engines.sh needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --release --locked -p tallyring -p tallyring-bench --features tallyring/cluster
trap 'tests/cluster/engines.sh stop' EXIT
environment=$(tests/cluster/engines.sh start "${BROKERS:-3}")
eval "$environment"
target/release/tallyring-bench cluster "$@"

kafka() {
    java -Xms128m -Xmx192m -XX:+UseSerialGC -cp "$PWD/target/engines/kafka/*" "$@" 2>/dev/null
}
kafka org.apache.kafka.tools.TopicCommand --bootstrap-server "$TALLYRING_KAFKA" --create --topic bare --partitions 1 \
    --replication-factor "${BROKERS:-3}"
# The frames of 64 and of 1,000 increments of a key, a country and a referrer are of about these sizes.
for frame_bytes in 6000 92000; do
    echo "a producer of Kafka, messages of $frame_bytes bytes:"
    kafka org.apache.kafka.tools.ProducerPerformance --topic bare --num-records 5000 --record-size "$frame_bytes" \
        --throughput -1 --producer-props "bootstrap.servers=$TALLYRING_KAFKA" acks=all linger.ms=0 batch.size=0 \
        compression.type=zstd max.in.flight.requests.per.connection=1 | tail -1
done
