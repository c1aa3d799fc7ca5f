import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Programs with Apache Kafka's own client: java -cp JARS Client.java PROGRAM TOPIC KEY=VALUE... Prints KEY=VALUE. */
public class Client {
    static final int MESSAGES = 60;
    static final int PARTITIONS = 3;
    static final Properties COMMON = new Properties();
    static final Map<String, Object> TOLD = new TreeMap<>();

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        for (int i = 2; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            COMMON.setProperty(pair[0], pair[1]);
        }
        try (Admin admin = Admin.create(COMMON)) {
            done(admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) -1))).all());
            switch (args[0]) {
                case "roundtrip" -> roundtrip(topic);
                case "group" -> group(topic);
                case "transactions" -> transactions(topic, admin);
                case "admin" -> admin(topic, admin);
                case "share" -> share(topic, admin);
                default -> throw new IllegalArgumentException(args[0]);
            }
        }
        TOLD.forEach((key, value) -> System.out.println(key + "=" + value));
    }

    static void roundtrip(String topic) throws Exception {
        produce(topic, 0);
        Set<String> seen = new HashSet<>();
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("auto.offset.reset", "earliest"))) {
            consumer.assign(partitions(topic));
            until("all received", () -> { poll(consumer, seen); return seen.size() == MESSAGES; });
        }
        TOLD.put("received", seen.size());
    }

    /** The group protocol of KIP-848: one member, then two, then one again. */
    static void group(String topic) throws Exception {
        Map<String, String> settings =
            Map.of("group.id", topic, "group.protocol", "consumer", "auto.offset.reset", "earliest");
        Set<String> seen = new HashSet<>();
        try (KafkaConsumer<String, String> first = consumer(settings)) {
            first.subscribe(List.of(topic));
            produce(topic, 0);
            until("one", () -> { poll(first, seen); return seen.size() == MESSAGES; });
            try (KafkaConsumer<String, String> second = consumer(settings)) {
                second.subscribe(List.of(topic));
                until("two share", () -> {
                    poll(first, seen);
                    poll(second, seen);
                    int theirs = second.assignment().size();
                    return theirs > 0 && first.assignment().size() + theirs == PARTITIONS;
                });
                produce(topic, 1);
                until("two", () -> { poll(first, seen); poll(second, seen); return seen.size() == 2 * MESSAGES; });
            }
            until("one remains", () -> { poll(first, seen); return first.assignment().size() == PARTITIONS; });
        }
        TOLD.put("received", seen.size());
    }

    static void transactions(String topic, Admin admin) throws Exception {
        Properties settings = with(Map.of("transactional.id", topic));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int step = 0; step < 3; step++) {
                producer.beginTransaction();
                for (int i = 0; i < MESSAGES; i++) {
                    producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "k", step + "/" + i));
                }
                if (step == 1) {
                    producer.flush();
                    TOLD.put("open", done(admin.describeTransactions(List.of(topic)).all()).get(topic).state());
                    TOLD.put("producers", done(admin.describeProducers(partitions(topic)).all()).size());
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        for (String level : List.of("read_committed", "read_uncommitted")) {
            Set<String> seen = new HashSet<>();
            int wanted = level.equals("read_committed") ? 2 * MESSAGES : 3 * MESSAGES;
            try (KafkaConsumer<String, String> consumer =
                    consumer(Map.of("isolation.level", level, "auto.offset.reset", "earliest"))) {
                consumer.assign(partitions(topic));
                until(level, () -> { poll(consumer, seen); return seen.size() >= wanted; });
                poll(consumer, seen);
            }
            TOLD.put(level, seen.size());
        }
        boolean listed = done(admin.listTransactions().all()).stream().anyMatch(t -> t.transactionalId().equals(topic));
        TOLD.put("listed", listed);
    }

    static void admin(String topic, Admin admin) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        TOLD.put("nodes", done(cluster.nodes()).size());
        TOLD.put("controller", done(cluster.controller()).id() > 0);
        QuorumInfo quorum = done(admin.describeMetadataQuorum().quorumInfo());
        TOLD.put("voters", quorum.voters().size());
        TOLD.put("features", done(admin.describeFeatures().featureMetadata()).finalizedFeatures().size() > 0);
        until("topic known", () -> described(topic, admin));
        TOLD.put("log dirs", done(admin.describeLogDirs(List.of(1)).allDescriptions()).size());
        ClientQuotaEntity bob = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "bob-" + topic));
        ClientQuotaAlteration.Op op = new ClientQuotaAlteration.Op("producer_byte_rate", 1e6);
        done(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(bob, List.of(op)))).all());
        ClientQuotaFilter wanted =
            ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity("user", "bob-" + topic)));
        until("quota known", () -> done(admin.describeClientQuotas(wanted).entities()).size() == 1);
        TOLD.put("reassignments", done(admin.listPartitionReassignments().reassignments()).size());
        TopicPartition place = new TopicPartition(topic, 0);
        Map<TopicPartition, Optional<NewPartitionReassignment>> moved =
            Map.of(place, Optional.of(new NewPartitionReassignment(List.of(1))));
        done(admin.alterPartitionReassignments(moved).all());
        TOLD.put("config resources", done(admin.listConfigResources().all()).size() > 0);
        produce(topic, 0);
        Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
        partitions(topic).forEach(each -> latest.put(each, OffsetSpec.latest()));
        TOLD.put("offsets",
            done(admin.listOffsets(latest).all()).values().stream().mapToLong(end -> end.offset()).sum());
        done(admin.deleteTopics(List.of(topic)).all());
        TOLD.put("gone", !done(admin.listTopics().names()).contains(topic));
    }

    /** KIP-932: two members; every tenth message is released once, all are accepted in the end. */
    static void share(String topic, Admin admin) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, topic);
        AlterConfigOp earliest =
            new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        done(admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all());
        produce(topic, 0);
        Properties settings = with(Map.of("group.id", topic, "share.acknowledgement.mode", "explicit"));
        Set<String> accepted = new HashSet<>();
        int[] released = {0};
        List<KafkaShareConsumer<String, String>> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            members.add(new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer()));
            members.get(i).subscribe(List.of(topic));
        }
        until("all accepted", () -> {
            for (KafkaShareConsumer<String, String> member : members) {
                for (ConsumerRecord<String, String> record : member.poll(Duration.ofMillis(200))) {
                    boolean again = record.deliveryCount().orElse((short) 1) > 1;
                    boolean release = record.offset() % 10 == 0 && !again;
                    member.acknowledge(record, release ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    released[0] += release ? 1 : 0;
                    if (!release) accepted.add(record.value());
                }
                member.commitSync();
            }
            return accepted.size() == MESSAGES;
        });
        ShareGroupDescription told = done(admin.describeShareGroups(List.of(topic)).all()).get(topic);
        TOLD.put("members", told.members().size());
        members.forEach(KafkaShareConsumer::close);
        Map<String, ListShareGroupOffsetsSpec> all = Map.of(topic, new ListShareGroupOffsetsSpec());
        TOLD.put("offsets", done(admin.listShareGroupOffsets(all).all()).get(topic).size());
        TOLD.put("accepted", accepted.size());
        TOLD.put("released", released[0] > 0);
        until("group empty", () -> {
            try {
                done(admin.deleteShareGroups(List.of(topic)).all());
                return true;
            } catch (RuntimeException left) {
                return false;
            }
        });
    }

    static boolean described(String topic, Admin admin) {
        try {
            return done(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().size() == PARTITIONS;
        } catch (RuntimeException notYet) {
            return false;
        }
    }

    static void produce(String topic, int step) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                with(Map.of("compression.type", "lz4", "linger.ms", "5")),
                new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < MESSAGES; i++) {
                producer.send(new ProducerRecord<>(topic, i % PARTITIONS, "k" + i, step + "/" + i));
            }
        }
    }

    static KafkaConsumer<String, String> consumer(Map<String, String> more) {
        return new KafkaConsumer<>(with(more), new StringDeserializer(), new StringDeserializer());
    }

    static void poll(KafkaConsumer<String, String> consumer, Set<String> seen) {
        consumer.poll(Duration.ofMillis(100)).forEach(record -> seen.add(record.value()));
    }

    static List<TopicPartition> partitions(String topic) {
        List<TopicPartition> all = new ArrayList<>();
        for (int i = 0; i < PARTITIONS; i++) all.add(new TopicPartition(topic, i));
        return all;
    }

    static Properties with(Map<String, String> more) {
        Properties all = new Properties();
        all.putAll(COMMON);
        all.putAll(more);
        return all;
    }

    static void until(String what, BooleanSupplier done) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > end) throw new IllegalStateException("not in time: " + what);
            try {
                Thread.sleep(10);
            } catch (InterruptedException stopped) {
                throw new IllegalStateException(stopped);
            }
        }
    }

    static <T> T done(KafkaFuture<T> future) {
        try {
            return future.get(30, TimeUnit.SECONDS);
        } catch (Exception failed) {
            throw new RuntimeException(failed);
        }
    }
}
