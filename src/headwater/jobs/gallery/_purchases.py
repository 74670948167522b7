"""What the two shopping jobs share: the purchases."""

from __future__ import annotations

from headwater import Kafka

PURCHASES = Kafka("purchases", schema="user STRING, shopping INT, date DATE", decode={"dateFormat": "dd-MM-yyyy"})
