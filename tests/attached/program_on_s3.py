"""A query whose checkpoint is on S3, attached; run twice by its test."""

import sys
import time

from pyspark.sql import SparkSession

import headwater

endpoint, jars, folder, rows = sys.argv[1:]
settings = {
    "spark.jars": jars,
    "spark.hadoop.fs.s3a.endpoint": endpoint,
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
headwater.attach(spark)
writer = spark.readStream.schema("id INT").option("maxFilesPerTrigger", 1).json(rows).writeStream
query = writer.format("noop").queryName("copies").option("checkpointLocation", f"{folder}/checkpoint").start()
query.processAllAvailable()
print("processed", flush=True)
sys.stdin.readline()
query.stop()
time.sleep(2)
spark.stop()
