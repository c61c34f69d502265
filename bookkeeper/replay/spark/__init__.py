"""The modules that use Spark.

``spark_session`` starts the warm session (with the class archive of ``class_archive``), ``daemon`` is the parent
of Python workers, ``spark_job`` makes one job of many ranges and ``tasks`` divides ranges among tasks. ``wal_source``
offers logs to any Spark program as a data source; ``wal_scan`` plans and reads its partitions. ``signs_of_life``
notices a JVM that hangs, and ends a Python process that does.
"""
