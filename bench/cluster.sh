#!/usr/bin/env bash
# Measures `tallyring-bench cluster` over three brokers and an S3 server of this machine, with one strand and with
# three, and a producer of Kafka that sends to a topic of the same brokers what the node that writes sends: messages of
# 64 increments, and of a batch of 1,000; one in flight, acknowledged by all replicas in sync. Three producers at once,
# each with a topic of its own, are beside three strands. Further arguments go to the benchmark. Needs what
# tests/cluster/engines.sh needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --release --locked -p tallyring -p tallyring-bench --features tallyring/cluster
trap 'tests/cluster/engines.sh stop' EXIT
environment=$(tests/cluster/engines.sh start "${BROKERS:-3}")
eval "$environment"
for strands in 1 3; do
    target/release/tallyring-bench cluster --strands "$strands" "$@"
done

kafka() {
    java -Xms128m -Xmx192m -XX:+UseSerialGC -cp "$PWD/target/engines/kafka/*" "$@" 2>/dev/null
}
producer() {
    kafka org.apache.kafka.tools.ProducerPerformance --topic "bare-$1" --num-records 5000 --record-size "$2" \
        --throughput -1 --producer-props "bootstrap.servers=$TALLYRING_KAFKA" acks=all linger.ms=0 batch.size=0 \
        compression.type=zstd max.in.flight.requests.per.connection=1 | tail -1
}
for number in 1 2 3; do
    kafka org.apache.kafka.tools.TopicCommand --bootstrap-server "$TALLYRING_KAFKA" --create --topic "bare-$number" \
        --partitions 1 --replication-factor "${BROKERS:-3}"
done
# The frames of 64 and of 1,000 increments of a key, a country and a referrer are of about these sizes.
for frame_bytes in 6000 92000; do
    echo "a producer of Kafka, messages of $frame_bytes bytes:"
    producer 1 "$frame_bytes"
    echo "three at once:"
    for number in 1 2 3; do producer "$number" "$frame_bytes" & done
    wait $(jobs -p)
done
