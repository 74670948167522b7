"""A broker's word on how far back its topics go."""

from __future__ import annotations

from headwater.kafka.clients import SILENT

PATIENCE_SECONDS = 3.0


def earliest_offsets(servers: str, topics: list[str]) -> dict[str, dict[int, int]] | None:
    """By topic and partition; None when no broker answers. A topic that is not there is left out."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition  # noqa: PLC0415  only Kafka streams pay for it

    settings = {"bootstrap.servers": servers, "group.id": "headwater", "enable.auto.commit": False}
    consumer = Consumer(settings, logger=SILENT)
    try:
        known = consumer.list_topics(timeout=PATIENCE_SECONDS).topics
        return {
            topic: {
                partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_SECONDS)[0]
                for partition in known[topic].partitions
            }
            for topic in topics
            if topic in known and known[topic].error is None
        }
    except KafkaException:
        return None
    finally:
        consumer.close()
