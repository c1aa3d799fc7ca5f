"""kafka-python's record classes, the independent oracle. Importing the package warns of itself."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder
    from kafka.record.util import calc_crc32c

__all__ = ["DefaultRecordBatchBuilder", "LegacyRecordBatchBuilder", "MemoryRecords", "calc_crc32c"]
