# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Spark on this machine alone. Its workers are forked by a Python daemon, which the JVM starts.
export SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_HOSTNAME=localhost
cat >pyspark_job.py <<'EOF'
from pyspark.sql import SparkSession


def ask(_):
    import ctypes
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.sparkContext.parallelize(range(4), 2).map(ask).collect()[0])
spark.stop()
EOF
