#!/usr/bin/env bash
# Measures `tallyring-bench cluster` over three brokers and an S3 server of this machine, and a producer of Kafka that
# sends messages of 64 increments to a topic of the same brokers: one in flight, acknowledged by all replicas in sync, as
# the node that writes does. Further arguments go to the benchmark. Needs what tests/cluster/engines.sh needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --release --locked -p tallyring -p tallyring-bench --features tallyring/cluster
trap 'tests/cluster/engines.sh stop' EXIT
environment=$(tests/cluster/engines.sh start "${BROKERS:-3}")
eval "$environment"
target/release/tallyring-bench cluster "$@"

# 64 increments of a key, a country and a referrer are a frame of about this size.
frame_bytes=6000
kafka() {
    java -Xms128m -Xmx192m -XX:+UseSerialGC -cp "$PWD/target/engines/kafka/*" "$@" 2>/dev/null
}
kafka org.apache.kafka.tools.TopicCommand --bootstrap-server "$TALLYRING_KAFKA" --create --topic bare --partitions 1 \
    --replication-factor "${BROKERS:-3}"
kafka org.apache.kafka.tools.ProducerPerformance --topic bare --num-records 20000 --record-size "$frame_bytes" \
    --throughput -1 --producer-props "bootstrap.servers=$TALLYRING_KAFKA" acks=all linger.ms=0 batch.size=0 \
    max.in.flight.requests.per.connection=1 | tail -1
