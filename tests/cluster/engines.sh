#!/usr/bin/env bash
# Real brokers of Kafka and a real S3 server, on the loopback address, for tests.
#
#   eval "$(tests/cluster/engines.sh start [BROKERS])"   starts 1 or 3 brokers and an S3 server with an empty bucket, and
#                                                        prints what the environment needs to find them
#   tests/cluster/engines.sh again NAME                  starts one that was killed, such as kafka-2 or s3
#   tests/cluster/engines.sh stop                        stops them and removes what they kept
#
# Brokers speak TLS, too, with a certificate of their own for 127.0.0.1: at TALLYRING_KAFKA_SASL_SSL to the user `try`
# with the password `trysecret`, at TALLYRING_KAFKA_SSL to clients with a certificate. TALLYRING_KAFKA_TLS has files.
#
# A node that is told of the brokers at TALLYRING_KAFKA_CUT finds them at these addresses alone, where a test may listen
# and pass on what comes to the addresses of TALLYRING_KAFKA_BEHIND, or not.
#
# Needs openssl, java 17, mvn and go 1.25 or newer. The first start brings Kafka by Maven and builds the S3 server by
# Go, some minutes in all, into `target/engines`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
home=$PWD/target/engines
run=$home/run
s3_server=github.com/versity/versitygw/cmd/versitygw@v1.8.0
pom=tests/cluster/pom.xml
jaas=org.apache.kafka.common.security

fail() {
    printf 'engines.sh: %s\n' "$*" >&2
    exit 1
}

need() {
    command -v "$1" >/dev/null || fail "there is no \`$1\`: install $2"
}

install() {
    need openssl 'openssl'
    need java 'a Java of version 17 (Debian: default-jre-headless)'
    if ! cmp -s "$pom" "$home/pom.xml"; then
        need mvn 'Maven (Debian: maven)'
        rm -rf "$home/kafka" "$home/pom.xml"
        mkdir -p "$home"
        mvn --quiet --batch-mode --file "$pom" dependency:copy-dependencies -DoutputDirectory="$home/kafka" >&2 ||
            fail 'Maven could not bring Kafka: look at the message above, and whether Maven finds its repository'
        cp "$pom" "$home/pom.xml"
    fi
    if [ "$(cat "$home/s3_server" 2>/dev/null)" != "$s3_server" ]; then
        need go 'Go of version 1.25 or newer; that of Debian 12 is older'
        GOBIN=$home go install "$s3_server" >&2 ||
            fail 'Go could not build the S3 server: look at the message above. It needs Go 1.25 or newer, and its proxy'
        printf '%s' "$s3_server" >"$home/s3_server"
    fi
}

# Ports below 32768: higher ones are taken by connections at any time.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        case " ${ports[*]:-} " in *" $port "*) continue ;; esac
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    ports+=("$port")
}

# Starts a program in a session of its own, so that a key that is pressed here does not end it.
start_as() {
    local name=$1
    shift
    printf '%q ' "$@" >"$run/$name.command"
    setsid nohup "$@" </dev/null >>"$run/$name.log" 2>&1 &
    printf '%s' $! >"$run/$name.pid"
}

wait_for() {
    local name=$1 port=$2 tries=600
    until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        kill -0 "$(cat "$run/$name.pid")" 2>/dev/null || fail "$name ended: $(tail -n 3 "$run/$name.log")"
        ((tries -= 1)) || fail "$name does not listen after a minute: $(tail -n 3 "$run/$name.log")"
        sleep 0.1
    done
}

kafka() {
    java -Xms128m -Xmx192m -XX:+UseSerialGC -cp "$home/kafka/*" "$@"
}

# An authority, and a certificate of it for the brokers and one for a client, each with its key.
certificates() {
    local tls=$run/tls name
    mkdir "$tls"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=engines \
        -keyout "$tls/ca.key" -out "$tls/ca.pem" 2>"$run/tls.log" || fail "openssl failed: $(tail -n 3 "$run/tls.log")"
    printf 'subjectAltName=IP:127.0.0.1\n' >"$tls/names"
    for name in broker client; do
        {
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" \
                -keyout "$tls/$name.key" -out "$tls/$name.csr" &&
                openssl x509 -req -in "$tls/$name.csr" -CA "$tls/ca.pem" -CAkey "$tls/ca.key" -CAcreateserial -days 2 \
                    -extfile "$tls/names" -out "$tls/$name.pem"
        } 2>"$run/tls.log" || fail "openssl failed: $(tail -n 3 "$run/tls.log")"
    done
    # As Kafka reads a pair.
    cat "$tls/broker.key" "$tls/broker.pem" >"$tls/broker.pair"
}

start() {
    local brokers=$1 id secured=() cut behind listeners advertised voters= addresses= replicas=$(($1 / 2 + 1))
    [ ! -d "$run" ] || fail 'engines run already: `tests/cluster/engines.sh stop` stops them'
    install
    mkdir -p "$run/s3/metrics"
    certificates
    ports=()
    for ((id = 1; id <= 6 * brokers + 1; id++)); do free_port; done
    for ((id = 1; id <= brokers; id++)); do
        voters+=,$id@127.0.0.1:${ports[brokers + id - 1]}
        addresses+=,127.0.0.1:${ports[id - 1]}
        secured[0]+=,127.0.0.1:${ports[2 * brokers + id]}
        secured[1]+=,127.0.0.1:${ports[3 * brokers + id]}
        cut+=,127.0.0.1:${ports[4 * brokers + id]}
        behind+=,127.0.0.1:${ports[5 * brokers + id]}
    done
    local cluster
    cluster=$(kafka kafka.tools.StorageTool random-uuid 2>/dev/null)
    for ((id = 1; id <= brokers; id++)); do
        listeners=PLAINTEXT://127.0.0.1:${ports[id - 1]}
        listeners+=,SASL_SSL://127.0.0.1:${ports[2 * brokers + id]},SSL://127.0.0.1:${ports[3 * brokers + id]}
        advertised=$listeners,CUT://127.0.0.1:${ports[4 * brokers + id]}
        listeners+=,CUT://127.0.0.1:${ports[5 * brokers + id]}
        # The cleaner of compacted topics would take 128 MiB of the heap at the start.
        cat >"$run/kafka-$id.properties" <<PROPERTIES
process.roles=broker,controller
node.id=$id
controller.quorum.voters=${voters#,}
listeners=$listeners,CONTROLLER://127.0.0.1:${ports[brokers + id - 1]}
advertised.listeners=$advertised
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,CUT:PLAINTEXT,CONTROLLER:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location=$run/tls/broker.pair
ssl.truststore.type=PEM
ssl.truststore.location=$run/tls/ca.pem
listener.name.ssl.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=$jaas.plain.PlainLoginModule required user_try="trysecret";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=$jaas.scram.ScramLoginModule required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=$jaas.scram.ScramLoginModule required;
log.dirs=$run/kafka-$id
log.cleaner.dedupe.buffer.size=4194304
offsets.topic.replication.factor=$brokers
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=$brokers
transaction.state.log.min.isr=$replicas
transaction.state.log.num.partitions=1
min.insync.replicas=$replicas
auto.create.topics.enable=false
unclean.leader.election.enable=false
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=6000
PROPERTIES
        kafka kafka.tools.StorageTool format -t "$cluster" -c "$run/kafka-$id.properties" \
            -S 'SCRAM-SHA-256=[name=try,password=trysecret]' -S 'SCRAM-SHA-512=[name=try,password=trysecret]' \
            >"$run/kafka-$id.log" 2>&1 ||
            fail "Kafka could not format its directory: $(tail -n 3 "$run/kafka-$id.log")"
    done
    for ((id = 1; id <= brokers; id++)); do
        start_as "kafka-$id" java -Xms128m -Xmx192m -XX:+UseSerialGC -cp "$home/kafka/*" kafka.Kafka \
            "$run/kafka-$id.properties"
    done
    start_as s3 env ROOT_ACCESS_KEY=try ROOT_SECRET_KEY=trysecret "$home/versitygw" \
        -p "127.0.0.1:${ports[2 * brokers]}" posix "$run/s3"
    wait_for s3 "${ports[2 * brokers]}"
    for ((id = 1; id <= brokers; id++)); do wait_for "kafka-$id" "${ports[id - 1]}"; done
    printf 'export TALLYRING_KAFKA=%s TALLYRING_S3=s3://metrics/t' "${addresses#,}"
    printf ' TALLYRING_KAFKA_SASL_SSL=%s TALLYRING_KAFKA_SSL=%s TALLYRING_KAFKA_TLS=%s' \
        "${secured[0]#,}" "${secured[1]#,}" "$run/tls"
    printf ' TALLYRING_KAFKA_CUT=%s TALLYRING_KAFKA_BEHIND=%s' "${cut#,}" "${behind#,}"
    printf ' AWS_ENDPOINT_URL=http://127.0.0.1:%s AWS_REGION=us-east-1' "${ports[2 * brokers]}"
    printf ' AWS_ACCESS_KEY_ID=try AWS_SECRET_ACCESS_KEY=trysecret\n'
}

stop() {
    local file pid tries
    for file in "$run"/*.pid; do
        [ -f "$file" ] || continue
        pid=$(cat "$file")
        # One that a test stopped goes on first, to take the signal.
        kill -CONT "$pid" 2>/dev/null || continue
        kill "$pid" 2>/dev/null || true
        for ((tries = 100; tries > 0; tries--)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
    done
    rm -rf "$run"
}

case ${1:-} in
start)
    case ${2:-1} in
    1 | 3) start "${2:-1}" ;;
    *) fail "\`$2\` brokers: there can be 1 or 3" ;;
    esac
    ;;
again)
    [ -f "$run/${2:-}.command" ] || fail "no engine has the name \`${2:-}\`"
    eval "start_as $2 $(cat "$run/$2.command")"
    ;;
stop) stop ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
    exit 2
    ;;
esac
